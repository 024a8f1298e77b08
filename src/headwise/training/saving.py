"""A trained classifier on disk: an ordinary folder of transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from headwise.errors import InputError
from headwise.ssa import supervision_of
from headwise.ssa.attach import NAME as TOKEN_HEAD
from headwise.ssa.attach import reattach, settings_in
from headwise.training.heads import change_head

HEAD_FILE = "headwise_head.safetensors"


# Of sentence-transformers: what its CrossEncoder does with the one logit of a re-ranker. Raw logits order candidates
# without the ties that a sigmoid rounded to 1 would make.
CROSS_ENCODER = {"activation_fn": "torch.nn.modules.linear.Identity"}


def prepare_reranker(model: Any, tokenizer: Any, max_length: int) -> None:
    """Let the CrossEncoder of sentence-transformers cut texts as we do, and give the scores that we give."""
    model.config.sentence_transformers = dict(CROSS_ENCODER)
    tokenizer.model_max_length = max_length


def save_classifier(model: Any, tokenizer: Any, folder: Path, head: str) -> None:
    """Write model and tokenizer so that plain transformers loads them.

    What plain transformers has no place for lies in a file beside the model, where `load_classifier_folder` finds it.
    With SSA as co-training that is the token head alone. No BERT of transformers has the ReLU head (Eq. 7) or pools as
    the hybrid model of SSA does: then it is the whole head, so that plain transformers loads the encoder, and nobody
    takes the rest for a classifier that works.
    """
    supervision = supervision_of(model)
    if head == "pooler" and supervision is None:
        model.save_pretrained(folder)
    elif head == "pooler" and supervision is not None and not supervision.pools:
        own, rest = _parted(model, lambda name: name.startswith(f"{TOKEN_HEAD}."))
        model.save_pretrained(folder, state_dict=own)
        save_file(rest, str(folder / HEAD_FILE))
    else:
        base = model.base_model
        config = model.config.to_dict()
        base.save_pretrained(folder)
        AutoConfig.for_model(**(config | {"architectures": [type(base).__name__]})).save_pretrained(folder)
        _, rest = _parted(model, lambda name: not name.startswith(f"{model.base_model_prefix}."))
        save_file(rest, str(folder / HEAD_FILE))
    save_tokenizer(tokenizer, folder)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write the tokenizer as it came."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # left behind by the last call, and nothing that the next user asked for
    backend.no_padding()
    tokenizer.save_pretrained(folder)


def _parted(model: nn.Module, apart: Callable[[str], bool]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of a model in two parts, by name."""
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    rest = {name: tensor for name, tensor in weights.items() if apart(name)}
    return {name: tensor for name, tensor in weights.items() if name not in rest}, rest


def load_classifier_folder(folder: Path, head: str) -> tuple[nn.Module, Any]:
    """The classifier of a run, ready to predict, and its tokenizer."""
    with in_one_sentence(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return load_model_folder(folder, head), tokenizer


def load_model_folder(folder: Path, head: str) -> nn.Module:
    """The classifier of a run alone, ready to predict."""
    with in_one_sentence(folder):
        return _load(folder, head).eval()


@contextmanager
def in_one_sentence(folder: Path) -> Iterator[None]:
    """What is wrong with the files of a model, told by its folder."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"the model in {folder} cannot be loaded: {reason}") from error


def _load(folder: Path, head: str) -> nn.Module:
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    token_head = settings_in(config)
    if head == "pooler" and token_head is None:
        loaded: nn.Module = AutoModelForSequenceClassification.from_pretrained(
            folder, local_files_only=True, use_safetensors=True
        )
        return loaded
    if head == "pooler" and token_head is not None and holds_classifier(config):
        return _with_token_head(config, token_head, folder)
    model: Any = change_head(AutoModelForSequenceClassification.from_config(config), head)
    if token_head is not None:
        reattach(model, token_head)
    encoder = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    model.to(encoder.dtype)
    wanted = set(model.base_model.state_dict())
    model.base_model.load_state_dict({name: value for name, value in encoder.state_dict().items() if name in wanted})
    fill(model, load_file(str(folder / HEAD_FILE)), lambda name: not name.startswith(f"{model.base_model_prefix}."))
    return model  # type: ignore[no-any-return]


def fill(model: nn.Module, weights: dict[str, Tensor], wanted: Callable[[str], bool]) -> None:
    """Load weights of which none that is wanted may be missing: it would stay a matter of chance."""
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    odd = [name for name, own in model.state_dict().items() if wanted(name) and shapes.get(name) != own.shape]
    if odd:
        raise InputError(f"{len(odd)} of its weights are missing or of another size, {odd[0]} first; save it again.")
    model.load_state_dict(weights, strict=False)


def holds_classifier(config: Any) -> bool:
    """Whether plain transformers finds a trained classifier beside this config."""
    return any(name.endswith("ForSequenceClassification") for name in config.architectures or ())


def _with_token_head(config: Any, token_head: dict[str, Any], folder: Path) -> nn.Module:
    """The classifier that plain transformers loads, and the token head that it has no place for, without its report."""
    kind: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    known = [*(kind._keys_to_ignore_on_load_unexpected or ()), rf"^{TOKEN_HEAD}\."]
    quiet: Any = type(kind.__name__, (kind,), {"_keys_to_ignore_on_load_unexpected": known})
    model = quiet.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    model.__class__ = kind
    reattach(model, token_head)
    fill(model, _token_head_weights(folder), lambda name: name.startswith(f"{TOKEN_HEAD}."))
    return model  # type: ignore[no-any-return]


def _token_head_weights(folder: Path) -> dict[str, Tensor]:
    """From the model's own files, where `model.save_pretrained` puts them, or from the one beside them."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        found |= _named(file, f"{TOKEN_HEAD}.")
    beside = folder / HEAD_FILE
    return found or (_named(beside, f"{TOKEN_HEAD}.") if beside.is_file() else {})


def _named(file: Path, prefix: str) -> dict[str, Tensor]:
    """The tensors of a file whose names begin so."""
    with safe_open(str(file), framework="pt") as weights:
        return {name: weights.get_tensor(name) for name in weights.keys() if name.startswith(prefix)}

"""A trained classifier on disk: an ordinary folder of transformers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModelForSequenceClassification

from headwise.attention import prune_structure, pruned_in
from headwise.attention.pretrained import (
    build_model,
    class_in,
    class_named_in,
    read_config,
    read_model,
    read_tensors,
    read_tokenizer,
    reason_of,
)
from headwise.attention.pruned_class import pruned_class
from headwise.errors import DiskError, HeadwiseError, InputError, is_panic
from headwise.ssa import supervision_of
from headwise.ssa.supervise import TOKEN_HEAD, reattach, settings_in
from headwise.training.alignment import align
from headwise.training.heads import change_head

HEAD_FILE = "headwise_head.safetensors"
# What encoders call their option for a pooler.
_POOLS = "add_pooling_layer"


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
    tokenizer = load_tokenizer(folder)
    return load_model_folder(folder, head), tokenizer


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a run."""
    with in_one_sentence(folder):
        return read_tokenizer(folder)


def load_model_folder(folder: Path, head: str) -> nn.Module:
    """The model of a run or of any folder, of the class that its config names, ready to predict."""
    with in_one_sentence(folder):
        return align(_load(folder, head)).eval()


@contextmanager
def in_one_sentence(folder: Path) -> Iterator[None]:
    """What is wrong with the files of a model, by its folder.

    Libraries raise all kinds of errors for damaged files, tokenizers a bare Exception.
    """
    try:
        yield
    except (InputError, DiskError) as error:
        raise InputError(f"the model in {folder} cannot be loaded: {error}") from error
    except (HeadwiseError, MemoryError):
        raise
    except BaseException as error:  # other people's files, in which anything may be wrong
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise InputError(
            f"the model in {folder} cannot be loaded: {reason_of(error).rstrip('.')}; restore its files, or save the "
            "model again."
        ) from error


def _load(folder: Path, head: str) -> nn.Module:
    config = read_config(folder)
    token_head, pruned = settings_in(config), pruned_in(config)
    if head == "pooler" and token_head is None:
        return _loaded(class_named_in(config), pruned, folder)
    if head == "pooler" and token_head is not None and holds_classifier(config):
        model: Any = _loaded(class_named_in(config), pruned, folder)
        reattach(model, token_head)
        fill(model, _token_head_weights(folder), lambda name: name.startswith(f"{TOKEN_HEAD}."))
        return model  # type: ignore[no-any-return]
    model = prune_structure(build_model(AutoModelForSequenceClassification, config), pruned)
    change_head(model, head)
    if token_head is not None:
        reattach(model, token_head)
    kind = class_in(MODEL_MAPPING, config, "text")
    encoder: Any = _loaded(kind, pruned, folder, {*model.base_model.state_dict()})
    model.to(encoder.dtype)
    wanted = set(model.base_model.state_dict())
    model.base_model.load_state_dict({name: value for name, value in encoder.state_dict().items() if name in wanted})
    fill(model, read_tensors(folder / HEAD_FILE), lambda name: not name.startswith(f"{model.base_model_prefix}."))
    return model  # type: ignore[no-any-return]


def _loaded(kind: Any, pruned: Mapping[str, Any], folder: Path, wanted: set[str] | None = None) -> nn.Module:
    """Loaded by transformers into a model that loses its heads as soon as it is built.

    Of a token head, for which it has no place, transformers says nothing. No weight that is wanted may be missing.
    """
    options: dict[str, Any] = {"ignore_mismatched_sizes": True, "output_loading_info": True}
    source = pruned_class(kind, pruned, rf"^{TOKEN_HEAD}\.")
    model, found = read_model(source, folder, **options)
    missing = _missing(found, wanted)
    if missing and all(name.startswith("pooler.") for name in missing) and _POOLS in _parameters(kind):
        model, found = read_model(source, folder, **options, **{_POOLS: False})  # as it was built before it was saved
        missing = _missing(found, wanted)
    model.__class__ = kind
    _refuse(missing)
    return model  # type: ignore[no-any-return]


def _missing(found: Mapping[str, Any], wanted: set[str] | None) -> list[str]:
    """The weights, of those that are wanted, that the file has not or has in another size."""
    odd = {*found["missing_keys"], *(key[0] for key in found["mismatched_keys"])}
    return sorted(odd if wanted is None else odd & wanted)


def _parameters(kind: Any) -> Mapping[str, Any]:
    return inspect.signature(kind.__init__).parameters


def _refuse(odd: list[str]) -> None:
    """No weight may be missing: it would stay a matter of chance."""
    if odd:
        raise InputError(f"{len(odd)} of its weights are missing or of another size, {odd[0]} first; save it again.")


def fill(model: nn.Module, weights: dict[str, Tensor], wanted: Callable[[str], bool]) -> None:
    """Load weights of which none that is wanted may be missing: it would stay a matter of chance."""
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    odd = [name for name, own in model.state_dict().items() if wanted(name) and shapes.get(name) != own.shape]
    _refuse(odd)
    model.load_state_dict(weights, strict=False)


def holds_classifier(config: Any) -> bool:
    """Whether plain transformers finds a trained classifier beside this config."""
    return any(name.endswith("ForSequenceClassification") for name in architectures_in(config))


def architectures_in(config: Any) -> list[str]:
    """The classes of transformers that a config names."""
    return [str(name) for name in config.architectures] if isinstance(config.architectures, list) else []


def _token_head_weights(folder: Path) -> dict[str, Tensor]:
    """From the model's own files, where `model.save_pretrained` puts them, or from the one beside them."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        found |= read_tensors(file, f"{TOKEN_HEAD}.")
    beside = folder / HEAD_FILE
    return found or (read_tensors(beside, f"{TOKEN_HEAD}.") if beside.is_file() else {})

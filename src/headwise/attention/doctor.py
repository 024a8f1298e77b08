"""Examine a model: can headwise see its attention, by which route, and what would it cost?"""

from __future__ import annotations

import platform
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoModel, PreTrainedConfig, PreTrainedModel

from headwise.attention.capture import capture
from headwise.attention.families import encoder_of, family_of
from headwise.attention.pretrained import build_model, class_in, holds_weights, read_config, read_model, reason_of
from headwise.attention.surgery import prune_structure, pruned_class, pruned_in
from headwise.errors import HeadwiseError, HeadwiseWarning, InputError, UnsupportedModelError

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
    """Of a layer that has them all."""
    pruned: dict[int, list[int]]
    """By layer, the heads that were pruned; empty if all are there."""
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
        except HeadwiseError:
            raise
        except (AssertionError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"{name}: its config.json gives no model ({_reason(error)}); restore the file, or save it again."
            ) from error
        encoder = encoder_of(model)
        family = family_of(encoder)
        if family.longest is not None and length > family.longest:
            raise InputError(f"--length {length}: {family.name} here takes at most {family.longest} tokens.")
        _verify(encoder)
    except InputError:
        raise
    except HeadwiseError as error:
        return Diagnosis(
            name,
            config.model_type,
            "unsupported",
            str(error),
            None,
            None,
            {},
            False,
            offline,
            batch,
            length,
            None,
            None,
            _versions(),
        )
    maps = batch * sum(len(heads) for heads in family.left)
    route = "fused" if family.route == "fused" else "eager fallback"
    reason = "" if route == "fused" else "its attention ignores custom functions; its own maps are used, after dropout"
    return Diagnosis(
        name,
        family.name,
        route,
        reason,
        family.layers,
        family.heads,
        {layer: list(heads) for layer, heads in family.pruned.items()},
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
        return read_config(name), True
    except Exception as error:  # other people's files, in which anything may be wrong
        if Path(name).exists():
            raise InputError(f"{name}: no model that transformers can read ({_reason(error)}).") from None
        if not network:
            raise InputError(
                f"{name}: no such folder, and no such model in the local cache; give a path, or add --download to ask "
                "the Hub."
            ) from None
    try:
        return read_config(name, local_only=False), False
    except Exception as error:
        raise InputError(f"{name}: the Hub gave no model ({_reason(error)}).") from None


def _model(name: str, config: PreTrainedConfig, network: bool) -> tuple[nn.Module, bool]:
    """The model with its weights, or with random ones if there are none: routes do not depend on weights."""
    verbosity, bars = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    pruned = pruned_in(config)
    try:
        kind = class_in(MODEL_MAPPING, config, "encoding")
        return read_model(pruned_class(kind, pruned), name, local_only=not network), True
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except HeadwiseError:
        raise
    except Exception as error:  # other people's files, in which anything may be wrong
        if Path(name).is_dir() and holds_weights(Path(name)):
            raise InputError(f"{name}: its weights do not fit its config.json ({_reason(error)}).") from None
        return prune_structure(build_model(AutoModel, config), pruned), False
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.logging.enable_progress_bar()


def _verify(encoder: PreTrainedModel) -> None:
    """Run two short examples, one padded if it is text, and see whether attention arrives."""
    inputs = _inputs(encoder)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", HeadwiseWarning)
        with capture(encoder.eval(), **_chosen(encoder)) as record:
            encoder(**inputs)
    total = record.stacked().sum(-1)  # [B,M]: every token gives one unit of attention
    mask = inputs.get("attention_mask", record.valid)
    if not torch.allclose(total, mask.sum(1, keepdim=True).to(total.dtype), atol=1e-3):
        raise HeadwiseError("the attention that was seen does not sum to one per token: this model is not supported.")


def _inputs(encoder: PreTrainedModel) -> dict[str, Tensor]:
    """Two short examples."""
    config: Any = encoder.config
    if encoder.main_input_name == "pixel_values":
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        return {"pixel_values": torch.zeros(2, config.num_channels, height, width)}
    if encoder.main_input_name != "input_ids":
        raise UnsupportedModelError(
            f"{config.model_type} takes {encoder.main_input_name}, and headwise examines encoders of text and images."
        )
    ids = torch.full((2, 6), min(5, config.vocab_size - 1))
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _chosen(encoder: PreTrainedModel) -> dict[str, Any]:
    """The heads that are there, if some were pruned."""
    family = family_of(encoder)
    if not family.pruned:
        return {}
    left = {layer: heads for layer, heads in enumerate(family.left) if heads}
    return {"layers": list(left), "heads": left}


def _reason(error: Exception) -> str:
    return reason_of(error).rstrip(".")


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__}

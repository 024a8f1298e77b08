"""Examine a model: can headwise see its attention, by which route, and what would it cost?"""

from __future__ import annotations

import platform
import warnings
from dataclasses import asdict, dataclass, field
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

LENGTH = 256
BYTES_PER_NUMBER = 4


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What `headwise doctor` reports."""

    model: str
    family: str
    route: str
    """fused, eager fallback or unsupported."""
    reason: str
    """Why it is not fused; empty if it is."""
    layers: int | None = None
    heads: int | None = None
    """Of a layer that has them all."""
    pruned: dict[int, list[int]] = field(default_factory=dict)
    """By layer, the heads that were pruned."""
    kernel: str = ""
    """What attn_implementation="headwise" computes attention with, and where; empty if the model is not fused."""
    verified: bool = False
    """A forward pass gave attention of every layer and head."""
    loads_offline: bool
    """Config and weights were loaded without the network."""
    batch: int
    length: int
    map_bytes: int | None = None
    """Attention maps of one batch, as stored by eager attention for the backward pass."""
    received_bytes: int | None = None
    """Received attention of the same batch."""
    versions: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def diagnose(name: str, *, batch: int = 16, length: int | None = None, download: bool = False) -> Diagnosis:
    """Examine a model by path or Hub name; the network is used only if allowed.

    `length` is for the estimate of memory: 256 tokens, or what the model takes at most, if not given.
    """
    for option, value in (("batch", batch), ("length", length)):
        if value is not None and value < 1:
            raise InputError(f"{option}={value}: expected a number of 1 or more.")
    config, offline = _config(name, download)
    about: dict[str, Any] = {"model": name, "loads_offline": offline, "batch": batch, "length": length or LENGTH}
    about["versions"] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    try:
        try:
            model, loaded = _model(name, config, download)
        except HeadwiseError:
            raise
        except (AssertionError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"{name}: its config.json gives no model ({_reason(error)}); restore the file, or save it again."
            ) from error
        encoder = encoder_of(model)
        family = family_of(encoder)
        longest = family.longest or LENGTH
        if length is not None and family.longest is not None and length > longest:
            raise InputError(f"length={length}: {family.name} here takes at most {longest} tokens.")
        length = about["length"] = length or min(LENGTH, longest)
        _verify(encoder)
    except InputError:
        raise
    except HeadwiseError as error:
        return Diagnosis(family=config.model_type, route="unsupported", reason=str(error), **about)
    maps = batch * sum(len(heads) for heads in family.left)
    fused = family.route == "fused"
    return Diagnosis(
        family=family.name,
        route="fused" if fused else "eager fallback",
        reason="" if fused else "its attention ignores custom functions; its own maps are used, after dropout",
        layers=family.layers,
        heads=family.heads,
        pruned={layer: list(heads) for layer, heads in family.pruned.items()},
        kernel=_kernel(encoder) if fused else "",
        verified=True,
        map_bytes=maps * length * length * BYTES_PER_NUMBER,
        received_bytes=maps * length * BYTES_PER_NUMBER,
        **{**about, "loads_offline": offline and loaded},
    )


def _config(name: str, network: bool) -> tuple[PreTrainedConfig, bool]:
    """The config, and whether it was loaded without the network."""
    try:
        return read_config(name), True
    except Exception as error:  # other people's files, in which anything may be wrong
        if Path(name).exists():
            raise InputError(f"{name}: no model that transformers can read ({_reason(error)}).") from None
        if not network:
            raise InputError(
                f"{name}: no such folder, and no such model in the local cache; give a path, or pass download=True to "
                "ask the Hub."
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
    """Run two short examples, one padded if it is text, and check the attention that is recorded."""
    config: Any = encoder.config
    inputs: dict[str, Tensor]
    if encoder.main_input_name == "pixel_values":
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        inputs = {"pixel_values": torch.zeros(2, config.num_channels, height, width)}
    elif encoder.main_input_name == "input_ids":
        ids = torch.full((2, 6), min(5, config.vocab_size - 1))
        mask = torch.ones_like(ids)
        mask[1, 4:] = 0
        inputs = {"input_ids": ids, "attention_mask": mask}
    else:
        raise UnsupportedModelError(
            f"{config.model_type} takes {encoder.main_input_name}, and headwise examines encoders of text and images."
        )
    left = {layer: heads for layer, heads in enumerate(family_of(encoder).left) if heads}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", HeadwiseWarning)
        with capture(encoder.eval(), layers=list(left), heads=left) as record:
            encoder(**inputs)
    total = record.stacked().sum(-1)  # [B,M]: every token gives one unit of attention
    tokens = inputs.get("attention_mask", record.valid).sum(1, keepdim=True)
    if not torch.allclose(total, tokens.to(total.dtype), atol=1e-3):
        raise HeadwiseError("the attention that was seen does not sum to one per token: this model is not supported.")


def _kernel(encoder: PreTrainedModel) -> str:
    """Ours is faster and smaller than SDPA where attention weights are dropped on a CPU, and not used elsewhere."""
    rates = [getattr(encoder.config, name, None) for name in ("attention_probs_dropout_prob", "attention_dropout")]
    rate = next((rate for rate in rates if rate is not None), 0.0)
    if not rate:
        return "SDPA: its config has no attention dropout"
    return f"ours in training on a CPU (attention dropout {rate:g}), SDPA in evaluation and on other devices"


def _reason(error: Exception) -> str:
    return reason_of(error).rstrip(".")

"""Our attention function and mask function, as registered with transformers.

They hold no state: everything they need hangs on the module that calls them. Layers that nobody watches run
transformers' own SDPA function, untouched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import create_position_bias_mask, repeat_kv, sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from headwise.attention.maps import attention_with_maps
from headwise.attention.received import attention_with_received
from headwise.attention.visibility import narrow, valid_positions
from headwise.errors import UnsupportedModelError

if TYPE_CHECKING:
    from headwise.attention.passes import Pass

NAME = "headwise"
SITE = "_headwise_site"


def register() -> None:
    """Make the functions known to transformers; calling it again does no harm."""
    AttentionInterface.register(NAME, attend)
    # Without a mask function of the same name transformers would silently pass no mask at all.
    AttentionMaskInterface.register(NAME, mask_of)


def mask_of(batch_size: int, q_length: int, kv_length: int, **options: Any) -> Tensor | None:
    """SDPA's mask [B,1,Q,K]; if it is padding alone, one row expanded over the queries, which the kernel can tell."""
    if options.get("mask_function") is not bidirectional_mask_function:
        mask: Tensor | None = sdpa_mask(batch_size, q_length, kv_length, **options)
        return mask
    row = sdpa_mask(batch_size, 1, kv_length, **options)
    return None if row is None else row.expand(-1, -1, q_length, -1)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer: query [B,H,Q,D], key and value [B,H,K,D] -> out [B,Q,H,D].

    No weights are returned, as with SDPA: what was seen goes to those who asked for it.
    """
    site = getattr(module, SITE, None)
    step = None if site is None else site.begin()
    if step is None:
        return _plain(module, query, key, value, attention_mask, dropout, scaling, kwargs)
    current, layer = step
    if current.plans[layer].watched:
        out = _watched(module, (query, key, value), attention_mask, (dropout, scaling), step, kwargs)
    else:
        out, _ = _plain(module, query, key, value, attention_mask, dropout, scaling, kwargs)
    return current.apply_gates(layer, out), None


def _plain(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scaling: float | None,
    kwargs: dict[str, Any],
) -> tuple[Tensor, None]:
    result: tuple[Tensor, None] = sdpa_attention_forward(
        module, query, key, value, mask, dropout=dropout, scaling=scaling, **kwargs
    )
    return result


def _watched(
    module: nn.Module,
    inputs: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    options: tuple[float, float | None],
    step: tuple[Pass, int],
    kwargs: dict[str, Any],
) -> Tensor:
    query, key, value = inputs
    dropout, scaling = options
    current, layer = step
    plan = current.plans[layer]
    if kwargs.get("is_causal") or getattr(module, "is_causal", False):
        raise UnsupportedModelError(
            f"{type(module).__name__} is causal; headwise watches encoders, whose tokens see each other both ways."
        )
    current.check_heads(layer, query.shape[1])
    groups = getattr(module, "num_key_value_groups", 1)
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    mask = narrow(mask)
    valid = valid_positions(mask, query.shape[0])
    if current.valid is None and valid is not None:
        current.valid = valid
    bias = kwargs.get("position_bias")
    if plan.fused and bias is None:
        out, received = attention_with_received(
            query,
            key,
            value,
            mask=mask,
            valid=valid,
            scale=scale,
            dropout=dropout,
            after_dropout=plan.after_dropout,
        )
        current.take_received(layer, received)
        return out
    if bias is not None:  # learned, so it needs a gradient, which the explicit way gives
        mask = create_position_bias_mask(bias, mask, False, query, key)
    heads = tuple(range(query.shape[1])) if bias is not None else plan.heads
    out, before, after = attention_with_maps(query, key, value, heads, mask=mask, scale=scale, dropout=dropout)
    current.take_maps(layer, before, after, heads, valid)
    return out

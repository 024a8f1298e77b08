"""Our attention function and mask function, as registered with transformers.

They hold no state: everything they need hangs on the module that calls them. Layers that nobody watches run
transformers' own SDPA function, untouched.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import create_position_bias_mask, repeat_kv, sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from headwise.attention.watch import Call, digest_in_parts, watch
from headwise.errors import UnsupportedModelError

NAME = "headwise"
WITHOUT_HEADS = "headwise_without_heads"
"""The attention of layers that lost all their heads: no kernel need know what to do with none."""
SITE = "_headwise_site"


def register() -> None:
    """Make the functions known to transformers; calling it again does no harm."""
    AttentionInterface.register(NAME, attend)
    # Without a mask function of the same name transformers would silently pass no mask at all.
    AttentionMaskInterface.register(NAME, mask_of)
    AttentionInterface.register(WITHOUT_HEADS, attend_without_heads)


def mask_of(batch_size: int, q_length: int, kv_length: int, **options: Any) -> Tensor | None:
    """SDPA's mask [B,1,Q,K]; if it is padding alone, one row expanded over the queries, which the kernel can tell."""
    if options.get("mask_function") is not bidirectional_mask_function:
        mask: Tensor | None = sdpa_mask(batch_size, q_length, kv_length, **options)
        return mask
    row = sdpa_mask(batch_size, 1, kv_length, **options)
    return None if row is None else row.expand(-1, -1, q_length, -1)


def attend_without_heads(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor]:
    """Outputs [B,Q,0,D] and maps [B,0,Q,K] of a layer without heads; it counts as a layer all the same."""
    site = getattr(module, SITE, None)
    if site is not None:
        site.begin()
    return query.transpose(1, 2), query.new_zeros(*query.shape[:3], key.shape[2])


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention of one layer: query [B,H,Q,D], key and value [B,H,K,D] -> out [B,Q,H,D].

    No weights are returned, as with SDPA: what was seen goes to those who asked for it.
    """
    if query.shape[1] == 0:
        return attend_without_heads(module, query, key, value)
    site = getattr(module, SITE, None)
    step = None if site is None else site.begin()
    if step is None:
        return _plain(module, query, key, value, attention_mask, dropout, scaling, kwargs)
    current, layer = step
    plan = current.plans[layer]
    if not plan.watched:
        out, _ = _plain(module, query, key, value, attention_mask, dropout, scaling, kwargs)
        return current.apply_gates(layer, out), None
    _check(module, kwargs)
    current.check_heads(layer, query.shape[1])
    groups = getattr(module, "num_key_value_groups", 1)
    call = Call.of(query, repeat_kv(key, groups), repeat_kv(value, groups), attention_mask, scaling, dropout)
    if current.valid is None and call.valid is not None:
        current.valid = call.valid
    if plan.seen:
        bias = kwargs.get("position_bias")
        if bias is not None:  # learned: it needs a gradient, which only the explicit way gives
            call = call.with_bias(create_position_bias_mask(bias, call.mask, False, query, key))
        if plan.digested:
            out = digest_in_parts(call, plan, layer, current)
        else:
            out, seen = watch(call, plan)
            current.take(layer, seen)
    else:
        out, _ = _plain(module, query, key, value, attention_mask, dropout, scaling, kwargs)
    current.take_parts(layer, "value", call.value)
    current.take_parts(layer, "output", out.transpose(1, 2))
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
    # Without a mask transformers takes a module that does not say (Splinter's) for causal, and encoders are not.
    kwargs = {"is_causal": getattr(module, "is_causal", False), **kwargs}
    result: tuple[Tensor, None] = sdpa_attention_forward(
        module, query, key, value, mask, dropout=dropout, scaling=scaling, **kwargs
    )
    return result


def _check(module: nn.Module, kwargs: dict[str, Any]) -> None:
    if kwargs.get("is_causal") or getattr(module, "is_causal", False):
        raise UnsupportedModelError(
            f"{type(module).__name__} is causal; headwise watches encoders, whose tokens see each other both ways."
        )

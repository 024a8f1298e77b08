"""The eager route: models that never call a custom attention function, watched through the maps they compute.

A hook asks the attention module for its map, reduces it at once, and returns to the caller what it expects. These maps
are after dropout: these models show no others.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from headwise.attention.passes import Pass, Seen
from headwise.errors import HeadwiseWarning

if TYPE_CHECKING:
    from headwise.attention.seam import Site


@dataclass(frozen=True)
class EagerModule:
    """How one kind of attention module is watched."""

    unasked: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    """From the output with maps to the output of the module when no maps are asked for."""
    values: tuple[str, ...]
    """Names that the value projection may have; none if there are no heads."""
    projection: str | None = None
    """The output projection, if it is inside the module: gates go before it."""


# DeBERTa's projection of all three at once.
JOINT = "in_proj"


class HeadlessSelfAttention(nn.Module):
    """Replaces a DeBERTa's self-attention without heads, whose code cannot reshape empty tensors."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, output_attentions: bool = False, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Outputs [B,Q,0], which the projection turns into its bias, and no maps [B,0,Q,Q]."""
        batch, queries, _width = hidden_states.shape
        maps = hidden_states.new_zeros(batch, 0, queries, queries) if output_attentions else None
        return hidden_states.new_zeros(batch, queries, 0), maps


EAGER_MODULES: dict[str, EagerModule] = {
    "DisentangledSelfAttention": EagerModule(lambda output: (output[0], None), ("value_proj", JOINT)),  # both DeBERTas
    HeadlessSelfAttention.__name__: EagerModule(lambda output: (output[0], None), ()),
    "MPNetSelfAttention": EagerModule(lambda output: output[:1], ("v",), projection="o"),
    "RoFormerSelfAttention": EagerModule(tuple, ("value",)),  # with rotary_value: its values before the rotation
    "RemBertSelfAttention": EagerModule(tuple, ("value",)),
    "MegatronBertSelfAttention": EagerModule(tuple, ("value",)),
}


def warn_user(message: str) -> None:
    """Warn at the first line of the stack that is outside headwise and the libraries that call it."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals["__name__"].partition(".")[0] in ("headwise", "contextlib", "torch"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, HeadwiseWarning, stacklevel=level + 1)


class EagerHooks:
    """The hooks of one module."""

    def __init__(self, module: nn.Module, site: Site) -> None:
        """Install them on a module named in EAGER_MODULES."""
        self._site = site
        self._kind = EAGER_MODULES[type(module).__name__]
        self._signature = inspect.signature(module.forward)
        self._current: Pass | None = None
        self._layer, self._asked, self._wanted = 0, False, False
        self._mask: Tensor | None = None
        self._handles = [
            module.register_forward_pre_hook(self._before, with_kwargs=True),
            module.register_forward_hook(self._after),
        ]
        value_name = next((name for name in self._kind.values if hasattr(module, name)), None)
        self._joint: Any = module if value_name == JOINT else None
        if value_name is not None:
            self._handles.append(module.get_submodule(value_name).register_forward_hook(self._after_values))
        if self._kind.projection is not None:
            projection = module.get_submodule(self._kind.projection)
            self._handles.append(projection.register_forward_pre_hook(self._before_projection))

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        step = self._site.begin()
        self._current, self._layer = (None, 0) if step is None else step
        plan = None if self._current is None else self._current.plans[self._layer]
        self._wanted = plan is not None and (plan.seen or plan.cls)
        bound = self._signature.bind(*args, **kwargs)
        self._mask = bound.arguments.get("attention_mask")
        self._asked = bool(bound.arguments.get("output_attentions"))
        if self._wanted:
            bound.arguments["output_attentions"] = True
        return bound.args, bound.kwargs

    def _by_head(self, tensor: Tensor) -> Tensor | None:
        """[B,S,H*D] -> [B,S,H,D]; None if nothing is watched, or nothing is left to be."""
        heads = len(self._site.seam.family.left[self._layer])
        return None if self._current is None or heads == 0 else tensor.unflatten(-1, (heads, -1))

    def _after_values(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if self._joint is not None:  # [B,K,H*3*D], to which the attention module adds a bias later
            split = output.unflatten(-1, (self._joint.num_attention_heads, 3, -1))  # [B,K,H,3,D]
            output = split[..., 2, :].flatten(-2) + self._joint.v_bias
        values = self._by_head(output)
        if values is not None and self._current is not None:
            self._current.take(self._layer, None, value=values.transpose(1, 2))

    def _before_projection(self, module: nn.Module, args: tuple[Any, ...]) -> Any:
        return (self._gated(args[0]), *args[1:])

    def _gated(self, out: Tensor) -> Tensor:
        """The heads' outputs [B,Q,H*D] after their gates, if there are any."""
        split, current, layer = self._by_head(out), self._current, self._layer
        if split is None or current is None:
            return out
        current.take(layer, None, output=split.transpose(1, 2))
        return current.apply_gates(layer, split).flatten(-2) if current.plans[layer].gates else out

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if self._wanted and self._current is not None:
            current, maps, mask, known = self._current, output[1], self._mask, self._site.seam.valid_by_mask
            current.check_heads(self._layer, maps.shape[1])
            # A layer that is computed once more may belong to an earlier pass; its mask is the same object as then.
            if current.open and mask is not None and current.valid is not None:
                known[mask] = current.valid
            valid = None if mask is None else known.get(mask)
            current.take(self._layer, Seen(valid, tuple(range(maps.shape[1])), maps, maps))
            if not self._asked:
                output = self._kind.unasked(output)
        self._mask = None
        if self._kind.projection is None:
            output = (self._gated(output[0]), *output[1:])
        self._current = None  # nothing may keep the graph of a pass alive
        return output

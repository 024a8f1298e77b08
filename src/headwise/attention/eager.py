"""The second route: models that never call a custom attention function, watched through the maps they make themselves.

A hook asks the attention module for its map, reduces it at once, and hands the caller what it would have got. These
maps are after dropout: that is all these models show.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headwise.errors import HeadwiseWarning


def _with_none(output: tuple[Any, ...]) -> tuple[Any, ...]:
    return (output[0], None)


def _alone(output: tuple[Any, ...]) -> tuple[Any, ...]:
    return output[:1]


def _as_is(output: tuple[Any, ...]) -> tuple[Any, ...]:
    return output


@dataclass(frozen=True)
class EagerModule:
    """How one kind of attention module is watched."""

    unasked: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    """What the module returns when nobody asks for maps, made from what it returns when somebody does."""
    values: tuple[str, ...]
    """Names that the value projection may have; none if there are no heads."""
    projection: str | None = None
    """The output projection, if it is inside the module: gates go before it."""


# DeBERTa's projection of all three at once.
JOINT = "in_proj"


class HeadlessSelfAttention(nn.Module):
    """In the place of a DeBERTa's self-attention without heads, whose own code cannot reshape what is empty."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor, output_attentions: bool = False, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Outputs [B,Q,0], from which the projection makes its bias, and no maps [B,0,Q,Q]."""
        batch, queries, _width = hidden_states.shape
        maps = hidden_states.new_zeros(batch, 0, queries, queries) if output_attentions else None
        return hidden_states.new_zeros(batch, queries, 0), maps


EAGER_MODULES: dict[str, EagerModule] = {
    "DisentangledSelfAttention": EagerModule(_with_none, ("value_proj", JOINT)),  # deberta-v2, deberta
    HeadlessSelfAttention.__name__: EagerModule(_with_none, ()),
    "MPNetSelfAttention": EagerModule(_alone, ("v",), projection="o"),
    "RoFormerSelfAttention": EagerModule(_as_is, ("value",)),  # with rotary_value: its values before they are turned
    "RemBertSelfAttention": EagerModule(_as_is, ("value",)),
    "MegatronBertSelfAttention": EagerModule(_as_is, ("value",)),
}


def warn(name: str) -> None:
    """Say that a model goes this way."""
    warnings.warn(
        f"{name} does not call custom attention: headwise watches the maps that the model makes itself (slower, more "
        "memory), and these are after dropout in training.",
        HeadwiseWarning,
        stacklevel=_level_of_caller(),
    )


def warn_of_no_maps(name: str) -> None:
    """Say that a model whose attention runs in our function returns no maps."""
    warnings.warn(
        f"output_attentions=True: the attention implementation of headwise returns no maps, so {name} gives none while "
        "headwise is attached: use `with hw.capture(model, what='map') as record:`, or call hw.unguide(model) first.",
        HeadwiseWarning,
        stacklevel=_level_of_caller(),
    )


def _level_of_caller() -> int:
    """How many frames up, for a warning, the first line lies that is not ours, nor of those who call us."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals["__name__"].partition(".")[0] in ("headwise", "contextlib", "torch"):
        frame, level = frame.f_back, level + 1
    return level


# (module) -> (layer number, whether its map is wanted)
Begin = Callable[[nn.Module], tuple[int, bool]]


class EagerHooks:
    """The hooks of one module."""

    def __init__(
        self,
        module: nn.Module,
        begin: Begin,
        see: Callable[[int, Tensor, Tensor | None], None],
        gate: Callable[[int, Tensor], Tensor],
        values: Callable[[int, Tensor], None],
    ) -> None:
        """Install.

        Args:
            module: a module named in EAGER_MODULES.
            begin: called before the module runs.
            see: called with the layer number, the map [B,H,Q,K] and the mask that the module was given.
            gate: called with the layer number and the heads' outputs [B,Q,H*D]; returns them gated.
            values: called with the layer number and the heads' values [B,K,H*D].
        """
        self._kind = EAGER_MODULES[type(module).__name__]
        self._signature = inspect.signature(module.forward)
        self._begin, self._see, self._gate, self._values = begin, see, gate, values
        self._layer, self._asked, self._wanted = 0, False, False
        self._mask: Tensor | None = None
        handles = [
            module.register_forward_pre_hook(self._before, with_kwargs=True),
            module.register_forward_hook(self._after),
        ]
        projected = next((name for name in self._kind.values if hasattr(module, name)), None)
        if projected is not None:
            read = functools.partial(_joint_values, module) if projected == JOINT else _as_they_are
            handles.append(module.get_submodule(projected).register_forward_hook(self._after_values(read)))
        if self._kind.projection is not None:
            projection = module.get_submodule(self._kind.projection)
            handles.append(projection.register_forward_pre_hook(self._before_projection))
        self._handles: list[RemovableHandle] = handles

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._layer, self._wanted = self._begin(module)
        bound = self._signature.bind(*args, **kwargs)
        self._mask = bound.arguments.get("attention_mask")
        self._asked = bool(bound.arguments.get("output_attentions"))
        if self._wanted:
            bound.arguments["output_attentions"] = True
        return bound.args, bound.kwargs

    def _after_values(self, read: Callable[[Tensor], Tensor]) -> Callable[..., None]:
        def after(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            self._values(self._layer, read(output))

        return after

    def _before_projection(self, module: nn.Module, args: tuple[Any, ...]) -> Any:
        return (self._gate(self._layer, args[0]), *args[1:])

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if self._wanted:
            self._see(self._layer, output[1], self._mask)
            if not self._asked:
                output = self._kind.unasked(output)
        self._mask = None
        if self._kind.projection is None:
            output = (self._gate(self._layer, output[0]), *output[1:])
        return output


def _as_they_are(output: Tensor) -> Tensor:
    return output


def _joint_values(module: Any, output: Tensor) -> Tensor:
    """[B,K,H*D] out of DeBERTa's joint projection [B,K,H*3*D], with the bias that it adds."""
    split = output.unflatten(-1, (module.num_attention_heads, 3, -1))  # [B,K,H,3,D]
    values: Tensor = split[..., 2, :].flatten(-2) + module.v_bias
    return values

"""Important attention-head training (IAT): its options, the heads of each task, and updates that change only those.

Shapes: N layers, H heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from headwise.attention import encoder_of, family_of
from headwise.attention.families import head_weights
from headwise.errors import InputError, StateError, choices
from headwise.heads.pruning import Mask, random_masks, top_heads
from headwise.registry import politely

# -- options ---------------------------------------------------------------------------------------------------------

_KINDS = {"qkv": ("query", "key", "value"), "qkvo": ("query", "key", "value", "output")}
_CHOICES: dict[str, tuple[str, ...]] = {
    "protect": tuple(_KINDS),
    "mode": ("skip", "grad_mask"),
    "order": ("descending", "ascending", "random"),
    "granularity": ("sample", "token", "batch"),
    "normalise": ("none", "layer"),
    "split": ("train", "validation"),
}


@dataclass(frozen=True, kw_only=True)
class IAT:
    """Important attention-head training (IAT), the last part of training several tasks together.

    After `start` of all steps the importance of every head is measured for every task, once. From then on an update of
    task t changes the heads of A_t only,

        A_t = the first floor(heads * N * H) heads in the order of their importance to t,

    less the heads that are in the A of all tasks if `shared` is false.

    Differences from the authors' code: the defaults are `sample` and `skip` (theirs: `token`, `grad_mask`); it starts
    after half of the steps and warms up again (theirs: after 0.9, where a linear schedule has 1 % of its learning rates
    left, so that nothing can change much); no gradient of the importance pass is left for the first step; dropout stays
    on; a control run belongs to it. The recipe heads/iat has their values.
    """

    start: float = 0.5
    """Part of all steps after which a task trains only its important heads."""
    rewarm: bool = True
    """Whether the schedule of the learning rate, with its warm-up, begins anew there, for the control, too."""
    heads: float = 0.3
    """Share of all heads that counts as important to a task."""
    shared: bool = True
    """Whether heads that are important to all tasks continue to learn."""
    others: bool = True
    """Whether everything that belongs to no head continues to learn; false: only what `protect` names, and the tasks'
    own layers."""
    protect: str = "qkv"
    """What of a head is kept from other tasks: its query, key and value (the authors'), or qkvo for its columns of the
    output projection too."""
    mode: str = "skip"
    """skip: what a task may not change stays as it is, the optimiser's moments too. grad_mask (the authors'): only its
    gradients are zero, so momentum and weight decay still move it."""
    order: str = "descending"
    """Which heads are important: descending, the most important ones; controls: ascending, the least, and random."""
    granularity: str = "sample"
    """What importance takes the absolute value of: sample, token (the authors') or batch."""
    normalise: str = "none"
    """layer: divide the importance of each layer's heads by their Euclidean norm."""
    examples: int = 10_000
    """At most so many examples of each task for its importance."""
    split: str = "train"
    """Where these examples come from: train or validation."""
    keep_per_layer: int = 0
    """So many heads of each layer, the last in the order, are never trained."""
    control: bool = True
    """Whether to train a second time from the same step, on the same data, with all heads learning."""

    def __post_init__(self) -> None:
        """Refuse wrong values."""
        for name, value in asdict(self).items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if name in ("start", "heads"):
                fits, expected = is_number and 0 < value < 1, "expected a number above 0 and below 1"
            elif name in ("rewarm", "shared", "others", "control"):
                fits, expected = isinstance(value, bool), "expected true or false"
            elif name in _CHOICES:
                fits, expected = value in _CHOICES[name], choices(str(value), _CHOICES[name])
            else:
                least = {"examples": 1, "keep_per_layer": 0}[name]
                fits = is_number and isinstance(value, int) and value >= least
                expected = f"expected a whole number of {least} or more"
            if not fits:
                raise InputError(f"iat.{name} is {value!r}: {expected}.")

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as a file would have it."""
        return asdict(self)


IAT.__init__ = politely(IAT, "iat")  # type: ignore[method-assign]


def build_iat(options: Any) -> IAT:
    """IAT from the options of a recipe."""
    if isinstance(options, IAT):
        return options
    if not isinstance(options, Mapping):
        raise InputError(f"iat is {options!r:.60}: expected options with values, such as heads: 0.3.")
    return IAT(**{str(name): value for name, value in options.items()})


# -- the heads of each task ------------------------------------------------------------------------------------------


def important_heads(scores: Mapping[str, Any], options: IAT, seed: int) -> dict[str, Mask]:
    """The heads that each task may update: [N,H], True = it may.

        A_t = the first floor(heads * N * H) heads in the order of their importance to t,
        and if `shared` is false, without the heads that are in the A of all tasks.

    Args:
        scores: [N,H] importance by the name of the task.
        options: of these `heads`, `order`, `keep_per_layer` and `shared` count.
        seed: for random sets; each task has a different set, as large as the ranked one.
    """
    if not scores:
        raise InputError("no tasks: give the importance of the heads to at least one.")
    ascending, kept = options.order == "ascending", options.keep_per_layer
    allowed = {
        task: top_heads(values, options.heads, ascending=ascending, keep_per_layer=kept)
        for task, values in scores.items()
    }
    first = next(iter(allowed.values()))
    for task, heads in allowed.items():
        if heads.shape != first.shape:
            raise InputError(f"the scores of {task!r} have shape {heads.shape}, others {first.shape}: one model only.")
    if options.order == "random":
        sets = random_masks(first.shape, [int(first.sum())], len(allowed), seed, keep_per_layer=kept)[0]
        allowed = dict(zip(allowed, sets, strict=True))
    if not options.shared:
        in_all = np.logical_and.reduce(list(allowed.values()))
        allowed = {task: heads & ~in_all for task, heads in allowed.items()}
    for task, heads in allowed.items():
        if not heads.any():
            raise InputError(
                f"iat.shared is false, and every head that is important to {task!r} is important to all tasks, so it "
                "would train none: set shared: true, or lower the share of heads."
            )
    return allowed


# -- updates ---------------------------------------------------------------------------------------------------------


class HeadUpdates:
    """Lets the updates of a task change only the heads that it may change.

        updates = HeadUpdates(model, allowed)
        updates.on("rte")                      # before each backward pass: the task of this batch
        model(task="rte", **batch).loss.backward()
        updates.before_step(optimizer); optimizer.step(); updates.after_step(optimizer)
        updates.remove()

    Gradients of the other heads are zeroed right after each backward pass, so that clipping sees what is used. That
    alone does not keep a head as it is: momentum and weight decay still move it, and its moments decay. So with `skip`
    the optimiser sees only those rows of each matrix that may change, as separate parameters, with the same rows of
    its state. What it does not see it cannot change, and nothing is copied (except columns, which fused optimisers
    need in one piece). The number of steps, which AdamW corrects its moments by, is that of the matrix, not of the
    row. State that a step begins is zero in the rows that it left out.

    An update may have several backward passes (accumulation), all of one task.

    Differences from the authors' code: theirs is `grad_mask` with masks that travel through the host; and the
    gradients that the measurement of importance left behind went into the first step.
    """

    def __init__(
        self,
        model: nn.Module,
        allowed: Mapping[str, Any],
        *,
        protect: str = "qkv",
        mode: str = "skip",
        others: bool = True,
        own: Iterable[nn.Parameter] = (),
    ) -> None:
        """Set all gradients to None and add hooks that mask the gradients to come.

        Args:
            model: any module with one encoder of transformers inside.
            allowed: [N,H] by the name of the task, True = its updates may change the head.
            protect: "qkv", or "qkvo" for the heads' columns of the output projection too.
            mode: "skip", or "grad_mask" (the authors'), which only zeroes gradients.
            others: whether parameters that belong to no head continue to learn.
            own: parameters that learn even so, such as those of the tasks' classifiers.
        """
        IAT(protect=protect, mode=mode)  # refuses unknown values
        self._shared = _shared_parameters(model, _KINDS[protect])
        shape = family_of(encoder_of(model)).shape
        self._allowed = {task: np.asarray(heads) for task, heads in allowed.items()}
        for task, heads in self._allowed.items():
            if heads.dtype != np.bool_ or heads.shape != shape:
                raise InputError(f"the heads of {task!r} are {heads.dtype} {heads.shape}: expected bool {shape}.")
        self._skips = mode == "skip"
        self._task: str | None = None
        self._slices: list[_Slice] = []
        self._whole: list[tuple[dict[str, Any], list[nn.Parameter]]] = []
        learning = {id(parameter) for parameter in own} | set(self._shared)
        frozen = () if others else model.parameters()
        self._frozen = [each for each in frozen if each.requires_grad and id(each) not in learning]
        for parameter in self._frozen:
            parameter.requires_grad_(False)
        for parameter in model.parameters():
            parameter.grad = None
        masked = [each.parameter for each in self._shared.values() if each.parameter.requires_grad]
        self._hooks = [each.register_post_accumulate_grad_hook(self._mask_gradient) for each in masked]

    def on(self, task: str) -> None:
        """Set the task that the next backward pass belongs to; all of one update belong to the same."""
        if task not in self._allowed:
            raise InputError(f"unknown task {task!r}: {choices(str(task), self._allowed)}.")
        if self._task not in (None, task):
            raise StateError(f"an update of task {self._task!r} has a batch of {task!r}: one update, one task.")
        self._task = task

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Replace the optimiser's parameters by the slices that this update may change."""
        allowed = self._current()
        self._restore()
        for group in optimizer.param_groups if self._skips else ():
            whole, visible = group["params"], []
            for parameter in whole:
                shared = self._shared.get(id(parameter))
                if shared is None or parameter.grad is None or not shared.runs(allowed, learning=False):
                    visible.append(parameter)
                    continue
                for run in shared.runs(allowed, learning=True):
                    self._slices.append(_Slice(parameter, (shared.dim, *run), optimizer.state))
                    visible.append(self._slices[-1].piece)
            self._whole.append((group, whole))
            group["params"] = visible

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Give the optimiser its whole parameters and state back."""
        for each in self._slices:
            each.write_back()
        self._restore()
        self._task = None

    def remove(self) -> None:
        """Remove the hooks, unfreeze, and make the optimiser's parameters whole."""
        self._restore()
        for hook in self._hooks:
            hook.remove()
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._hooks, self._frozen = [], []

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Call `remove`."""
        self.remove()

    def _current(self) -> Mask:
        if self._task is None:
            raise StateError("the task of this update is not known: call on(task) before each backward pass.")
        return self._allowed[self._task]

    def _mask_gradient(self, parameter: Tensor) -> None:
        """Zero what a backward pass left in the gradients of heads that its task may not change."""
        shared, gradient = self._shared[id(parameter)], parameter.grad
        if gradient is not None:
            for start, length in shared.runs(self._current(), learning=False):
                gradient.narrow(shared.dim, start, length).zero_()

    def _restore(self) -> None:
        for each in self._slices:
            each.state.pop(each.piece, None)
        for group, whole in self._whole:
            group["params"] = whole
        self._whole, self._slices = [], []


class _SharedParameter:
    """A parameter of which each head has a part."""

    def __init__(self, parameter: nn.Parameter, dim: int) -> None:
        self.parameter, self.dim = parameter, dim
        # Along `dim`: the layer and head of each entry; -1 for those of no head.
        self.layers = np.full(parameter.shape[dim], -1)
        self.heads = self.layers.copy()
        self._runs: dict[tuple[bytes, bool], list[tuple[int, int]]] = {}

    def runs(self, allowed: Mask, *, learning: bool) -> list[tuple[int, int]]:
        """Start and length of the neighbouring entries that an update may change (`learning`), or may not."""
        key = (allowed.tobytes(), learning)
        if key not in self._runs:
            may = (self.layers < 0) | allowed[self.layers, self.heads]
            edges = np.flatnonzero(np.diff(may == learning, prepend=False, append=False))
            starts, ends = edges[::2].tolist(), edges[1::2].tolist()
            self._runs[key] = [(start, end - start) for start, end in zip(starts, ends, strict=True)]
        return self._runs[key]


def _shared_parameters(model: nn.Module, kinds: tuple[str, ...]) -> dict[int, _SharedParameter]:
    """By the id of the parameter; one for each, also where it holds query, key and value together."""
    by_id: dict[int, _SharedParameter] = {}
    for layer in head_weights(model):
        for part in (each for each in layer.parts if each.kind in kinds):
            shared = by_id.setdefault(id(part.parameter), _SharedParameter(part.parameter, part.dim))
            for head, entries in zip(layer.heads, part.places.cpu().numpy(), strict=True):
                shared.layers[entries], shared.heads[entries] = layer.layer, head
    return by_id


class _Slice:
    """Neighbouring entries of a parameter that the optimiser sees as a separate parameter."""

    def __init__(self, parameter: nn.Parameter, where: tuple[int, int, int], state: Any) -> None:
        """Cut it out, with its gradient and the optimiser's state of it; `where` is dimension, start, length."""
        self.parameter, self.state = parameter, state
        self._where = where
        self.piece = self._cut(parameter.detach())
        self.piece.grad = None if parameter.grad is None else self._cut(parameter.grad)
        if parameter in state:
            state[self.piece] = {name: self._part(name, value) for name, value in state[parameter].items()}

    def write_back(self) -> None:
        """Write back what is not there already, and take the slice out of the optimiser's state."""
        self._write(self.parameter.detach(), self.piece)
        for name, value in self.state.pop(self.piece, {}).items():
            whole = self.state[self.parameter]
            if not _by_entry(name, value, self.piece):
                whole[name] = value
                continue
            if whole.get(name) is None:
                whole[name] = torch.zeros_like(self.parameter, dtype=value.dtype, requires_grad=False)
            self._write(whole[name], value)

    def _part(self, name: str, value: Any) -> Any:
        if _by_entry(name, value, self.parameter):
            return self._cut(value)
        # Counters: each slice counts its own steps.
        return value.clone() if isinstance(value, Tensor) else value

    def _cut(self, tensor: Tensor) -> Tensor:
        # Rows are a view of the whole. Columns are not in one piece, which fused optimisers take for granted.
        return tensor.narrow(*self._where).contiguous()

    def _write(self, whole: Tensor, piece: Tensor) -> None:
        target = whole.narrow(*self._where)
        if target.data_ptr() != piece.data_ptr():
            target.copy_(piece)


def _by_entry(name: str, value: Any, parameter: Tensor) -> bool:
    """Whether an optimiser's state has a number for each entry of a parameter, and not one for all."""
    if not isinstance(value, Tensor) or value.numel() == 1 and value.shape != parameter.shape:
        return False
    if value.shape != parameter.shape:
        raise InputError(
            f"iat.mode is 'skip', but the optimiser keeps {name} of shape {tuple(value.shape)} for a parameter of "
            f"shape {tuple(parameter.shape)}, so it is not clear what belongs to which head: train with AdamW or SGD, "
            "or set mode: grad_mask."
        )
    return True

"""What decides important attention-head training: every choice of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.attention import encoder_of, family_of
from headwise.attention.head_weights import head_weights
from headwise.errors import InputError, StateError, choices
from headwise.heads.pruning import random_masks, top_heads
from headwise.registry import politely

# Show an optimiser the rows of a parameter that may change, and nothing else of it.


Choice = NDArray[np.bool_]
Run = tuple[int, int]  # start and length of neighbours along a dimension


class SharedParameter:
    """A parameter of which each head has a part."""

    def __init__(self, parameter: nn.Parameter, dim: int) -> None:
        """Of no head yet."""
        self.parameter, self.dim = parameter, dim
        # Along `dim`: whose each entry is; those of no head keep -1.
        self.layers = np.full(parameter.shape[dim], -1)
        self.heads = self.layers.copy()
        self._runs: dict[tuple[str, bool], list[Run]] = {}

    def runs(self, allowed: Mapping[str, Choice], task: str, *, learning: bool) -> list[Run]:
        """The neighbours that an update of this task may change (`learning`), or may not."""
        if (task, learning) not in self._runs:
            may = (self.layers < 0) | allowed[task][self.layers, self.heads]
            edges = np.flatnonzero(np.diff(may == learning, prepend=False, append=False))
            starts, ends = edges[::2].tolist(), edges[1::2].tolist()
            self._runs[task, learning] = [(start, end - start) for start, end in zip(starts, ends, strict=True)]
        return self._runs[task, learning]


class Shown:
    """A run of a parameter's entries that the optimiser is shown as a parameter of its own."""

    def __init__(self, parameter: nn.Parameter, place: tuple[int, int, int], state: Any) -> None:
        """Cut it out, with its gradient and the optimiser's state of it; `place` is dimension, start, length."""
        self.parameter, self.state = parameter, state
        self._place = place
        self.piece = self._cut(parameter.detach())
        self.piece.grad = None if parameter.grad is None else self._cut(parameter.grad)
        if parameter in state:
            state[self.piece] = {name: self._part(name, value) for name, value in state[parameter].items()}

    def paste(self) -> None:
        """Write back what is not there already, and take the piece out of the optimiser's state."""
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
        # Counters: each piece counts its own step.
        return value.clone() if isinstance(value, Tensor) else value

    def _cut(self, tensor: Tensor) -> Tensor:
        # Rows are a view of the whole. Columns are not in one piece, which fused optimisers take for granted.
        return tensor.narrow(*self._place).contiguous()

    def _write(self, whole: Tensor, piece: Tensor) -> None:
        target = whole.narrow(*self._place)
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


PROTECTED = ("qkv", "qkvo")
MODES = ("skip", "grad_mask")
ORDERS = ("descending", "ascending", "random")
GRANULARITIES = ("sample", "token", "batch")
NORMALISATIONS = ("none", "layer")
SPLITS = ("train", "validation")


@dataclass(frozen=True, kw_only=True)
class IAT:
    """Important attention-head training (IAT), the last part of training several tasks together.

    After `start` of all steps the importance of every head is measured for every task, once. From then on an update of
    task t changes the heads of A_t only,

        A_t = the first floor(heads * N * H) heads in the order of their importance to t,

    less the heads that are in the A of all tasks if `shared` is false.

    Where we differ from the authors' code: the defaults are `sample` and `skip` (theirs: `token`, `grad_mask`); no
    gradient of the importance pass is left for the first step; dropout stays on; a control run belongs to it.
    """

    start: float = 0.9
    """Part of all steps after which a task trains only its important heads."""
    heads: float = 0.3
    """Share of all heads that counts as important to a task."""
    shared: bool = True
    """Whether heads that are important to all tasks go on learning."""
    others: bool = True
    """Whether everything that belongs to no head goes on learning; false: only what `protect` names, and the tasks'
    own layers."""
    protect: str = "qkv"
    """What of a head is kept from other tasks: its query, key and value (the authors'), or qkvo for its columns of the
    output projection too."""
    mode: str = "skip"
    """skip: what a task may not change stays as it is, the optimiser's moments too. grad_mask (the authors'): only its
    gradients are zero, so momentum and weight decay still move it."""
    order: str = "descending"
    """Which heads are chosen: descending, the most important ones; controls: ascending, the least, and random."""
    granularity: str = "sample"
    """What importance takes the absolute value of: sample, token (the authors') or batch."""
    normalise: str = "none"
    """layer: divide the importance of each layer's heads by their Euclidean norm."""
    examples: int = 10_000
    """At most so many examples of each task for its importance."""
    split: str = "train"
    """Where these examples come from: train or validation."""
    keep_per_layer: int = 0
    """So many heads of each layer, the last in the order, are never chosen."""
    control: bool = True
    """Whether the run goes on a second time from the same step, on the same data, with all heads learning."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in ("start", "heads"):
            _part(name, getattr(self, name))
        for name in ("shared", "others", "control"):
            _truth(name, getattr(self, name))
        _one_of("protect", self.protect, PROTECTED)
        _one_of("mode", self.mode, MODES)
        _one_of("order", self.order, ORDERS)
        _one_of("granularity", self.granularity, GRANULARITIES)
        _one_of("normalise", self.normalise, NORMALISATIONS)
        _one_of("split", self.split, SPLITS)
        _whole("examples", self.examples, 1)
        _whole("keep_per_layer", self.keep_per_layer, 0)

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


def _part(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
        raise InputError(f"iat.{name} is {value!r}: expected a number above 0 and below 1.")


def _truth(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InputError(f"iat.{name} is {value!r}: expected true or false.")


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"iat.{name} is {value!r}: {choices(str(value), known)}.")


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"iat.{name} is {value!r}: expected a whole number of {least} or more.")


# IAT: which heads are important to each task, and updates that leave all other heads as they are.


_KINDS = {"qkv": ("query", "key", "value"), "qkvo": ("query", "key", "value", "output")}


def important_heads(scores: Mapping[str, Any], options: IAT, seed: int) -> dict[str, Choice]:
    """The heads that each task may update: [N,H], True = it may.

        A_t = the first floor(heads * N * H) heads in the order of their importance to t,
        and if `shared` is false, without the heads that are in the A of all tasks.

    Args:
        scores: [N,H] importance by the name of the task.
        options: of these `heads`, `order`, `keep_per_layer` and `shared` count.
        seed: for random sets; each task has a set of its own, as large as the ranked one.
    """
    if not scores:
        raise InputError("no tasks: give the importance of the heads to at least one.")
    ascending, kept = options.order == "ascending", options.keep_per_layer
    chosen = {
        task: top_heads(values, options.heads, ascending=ascending, keep_per_layer=kept)
        for task, values in scores.items()
    }
    first = next(iter(chosen.values()))
    for task, heads in chosen.items():
        if heads.shape != first.shape:
            raise InputError(f"the scores of {task!r} have shape {heads.shape}, others {first.shape}: one model only.")
    if options.order == "random":
        sets = random_masks(first.shape, [int(first.sum())], len(chosen), seed, keep_per_layer=kept)[0]
        chosen = dict(zip(chosen, sets, strict=True))
    return chosen if options.shared else _without_shared(chosen)


def _without_shared(chosen: dict[str, Choice]) -> dict[str, Choice]:
    shared = np.logical_and.reduce(list(chosen.values()))
    left = {task: heads & ~shared for task, heads in chosen.items()}
    for task, heads in left.items():
        if not heads.any():
            raise InputError(
                f"iat.shared is false, and every head that is important to {task!r} is important to all tasks, so it "
                "would train none: set shared: true, or lower the share of heads."
            )
    return left


class HeadUpdates:
    """Lets the updates of a task change only the heads that it may change.

        updates = HeadUpdates(model, allowed)
        updates.on("rte")                      # before each backward pass: whose batch this is
        model(task="rte", **batch).loss.backward()
        updates.before_step(optimizer); optimizer.step(); updates.after_step(optimizer)
        updates.remove()

    Gradients of the other heads are zeroed as soon as a backward pass has made them, so that clipping sees what is
    used. That alone does not keep a head as it is: momentum and weight decay still move it, and its moments decay. So
    with `skip` the optimiser is shown only those rows of each matrix that may change, as parameters of their own, with
    the same rows of its state. What it does not see it cannot change, and nothing is copied (but for columns, which
    fused optimisers need in one piece). The number of steps, which AdamW corrects its moments by, is that of the
    matrix, not of the row. State that a step begins is zero in the rows that it left out.

    An update may have several backward passes (accumulation), all of one task.

    Where we differ from the authors' code: theirs is `grad_mask` with masks that travel through the host; and the
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
        """Set all gradients to None and take hold of the gradients to come.

        Args:
            model: anything with one encoder of transformers inside.
            allowed: [N,H] by the name of the task, True = its updates may change the head.
            protect: "qkv", or "qkvo" for the heads' columns of the output projection too.
            mode: "skip", or "grad_mask" (the authors'), which only zeroes gradients.
            others: whether parameters that belong to no head go on learning.
            own: parameters that learn even so, such as those of the tasks' classifiers.
        """
        IAT(protect=protect, mode=mode)  # refuses what it does not know
        self._shared = {id(each.parameter): each for each in _shared_parameters(model, _KINDS[protect])}
        shape = family_of(encoder_of(model)).shape
        self._allowed = {task: _checked(task, heads, shape) for task, heads in allowed.items()}
        self._skips = mode == "skip"
        self._task: str | None = None
        self._shown: list[Shown] = []
        self._whole: list[tuple[dict[str, Any], list[nn.Parameter]]] = []
        self._frozen = [] if others else self._all_but(model, own)
        for parameter in self._frozen:
            parameter.requires_grad_(False)
        for parameter in model.parameters():
            parameter.grad = None
        learning = [each for each in self._shared.values() if each.parameter.requires_grad]
        self._hooks = [each.parameter.register_post_accumulate_grad_hook(self._mask) for each in learning]

    def on(self, task: str) -> None:
        """Say which task the next backward pass belongs to; all of one update belong to the same."""
        if task not in self._allowed:
            raise InputError(f"unknown task {task!r}: {choices(str(task), self._allowed)}.")
        if self._task not in (None, task):
            raise StateError(f"an update of task {self._task!r} has a batch of {task!r}: one update, one task.")
        self._task = task

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Show the optimiser only what this update may change."""
        task = self._named()
        self._put_back()
        for group in optimizer.param_groups if self._skips else ():
            whole = group["params"]
            shown = [piece for parameter in whole for piece in self._show(parameter, task, optimizer.state)]
            self._whole.append((group, whole))
            group["params"] = shown

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Give the optimiser its whole parameters and state back."""
        for shown in self._shown:
            shown.paste()
        self._put_back()
        self._task = None

    def remove(self) -> None:
        """Leave nothing behind: no hooks, nothing frozen, and the optimiser's parameters whole."""
        self._put_back()
        for hook in self._hooks:
            hook.remove()
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._hooks, self._frozen = [], []

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""
        self.remove()

    def _all_but(self, model: nn.Module, own: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        """The parameters that learn now and shall not, as they belong to no head and no task."""
        stay = {id(parameter) for parameter in own} | set(self._shared)
        return [each for each in model.parameters() if each.requires_grad and id(each) not in stay]

    def _named(self) -> str:
        if self._task is None:
            raise StateError("nobody said whose update this is: call on(task) before each backward pass.")
        return self._task

    def _mask(self, parameter: Tensor) -> None:
        """Zero what a backward pass left in the gradients of heads that its task may not change."""
        shared, gradient = self._shared[id(parameter)], parameter.grad
        if gradient is not None:
            for start, length in shared.runs(self._allowed, self._named(), learning=False):
                gradient.narrow(shared.dim, start, length).zero_()

    def _show(self, parameter: nn.Parameter, task: str, state: Any) -> list[Tensor]:
        """The runs of a parameter that may change; the parameter itself if that is all of it."""
        shared = self._shared.get(id(parameter))
        if shared is None or parameter.grad is None or not shared.runs(self._allowed, task, learning=False):
            return [parameter]
        pieces = []
        for run in shared.runs(self._allowed, task, learning=True):
            self._shown.append(Shown(parameter, (shared.dim, *run), state))
            pieces.append(self._shown[-1].piece)
        return pieces

    def _put_back(self) -> None:
        for shown in self._shown:
            shown.state.pop(shown.piece, None)
        for group, whole in self._whole:
            group["params"] = whole
        self._whole, self._shown = [], []


def _shared_parameters(model: nn.Module, kinds: tuple[str, ...]) -> list[SharedParameter]:
    """One for each parameter, also where it holds query, key and value together."""
    found: dict[int, SharedParameter] = {}
    for layer in head_weights(model):
        for part in layer.parts:
            if part.kind in kinds:
                shared = found.setdefault(id(part.parameter), SharedParameter(part.parameter, part.dim))
                for head, places in zip(layer.heads, part.places.cpu().numpy(), strict=True):
                    shared.layers[places], shared.heads[places] = layer.layer, head
    return list(found.values())


def _checked(task: str, heads: Any, shape: tuple[int, int]) -> Choice:
    choice = np.asarray(heads)
    if choice.dtype != np.bool_ or choice.shape != shape:
        raise InputError(f"the heads of {task!r} are {choice.dtype} {choice.shape}: expected bool {shape}.")
    return choice

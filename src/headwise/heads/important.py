"""IAT: which heads are important to each task, and updates that leave all other heads as they are.

Shapes: N layers, H heads. A *choice* is a bool array [N,H]: True = updates of this task may change the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from headwise.attention import encoder_of, family_of
from headwise.attention.head_weights import head_weights
from headwise.errors import InputError, StateError, choices
from headwise.heads.iat import IAT
from headwise.heads.pruning import top_heads
from headwise.heads.random_masks import random_masks
from headwise.heads.shown_rows import Choice, SharedParameter, Shown

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

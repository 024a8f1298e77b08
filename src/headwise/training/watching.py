"""Tell a watcher how a run stands after each evaluation; the watcher may end it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from headwise.training.best import BestModel

# Called with the step, the steps of the whole run, and the best value of the main metric on validation so far.
Watch = Callable[[int, int, float], None]


class AbandonRun(Exception):
    """Raised by a watcher: the run is not worth going on with."""


class TellWatcher(TrainerCallback):
    """Calls a watcher after each evaluation, also after those of a run that was resumed."""

    def __init__(self, best: BestModel, watch: Watch) -> None:
        """`best` has looked at the evaluation before: it comes first among the callbacks."""
        self._best, self._watch = best, watch

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell the step and the best value."""
        if self._best.value is not None:
            self._watch(state.global_step, state.max_steps, self._best.value)

"""Tell a listener how far training is; what it shows, and where, is the listener's business."""

from __future__ import annotations

from typing import Any, Protocol

from transformers import TrainerCallback


class Listener(Protocol):
    """Something that shows progress."""

    def start(self, what: str, total: int, done: int = 0) -> None:
        """A stretch of work begins."""

    def advance(self, done: int, note: str = "") -> None:
        """So much of it is done."""

    def tell(self, message: str) -> None:
        """A line worth reading."""

    def end(self) -> None:
        """The stretch of work is over."""


class Silence:
    """A listener that shows nothing."""

    def start(self, what: str, total: int, done: int = 0) -> None:
        """Show nothing."""

    def advance(self, done: int, note: str = "") -> None:
        """Show nothing."""

    def tell(self, message: str) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Show nothing."""


class ReportProgress(TrainerCallback):
    """Reports a Trainer's steps, losses and evaluations to a listener."""

    def __init__(self, listener: Listener, what: str) -> None:
        """`what` names the work."""
        self._listener = listener
        self._what = what
        self._note = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin, maybe in the middle."""
        self._listener.start(self._what, state.max_steps, state.global_step)
        if state.global_step:
            self._listener.tell(f"going on from step {state.global_step} of {state.max_steps}")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """One step further."""
        self._listener.advance(state.global_step, self._note)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the loss from now on."""
        if logs and "loss" in logs:
            self._note = f"loss {logs['loss']:.4f}"
        if logs and "ssa/share" in logs:
            self._listener.tell(_labelling(logs))

    def probing(self, step: int, asked: int) -> None:
        """Training waits while the model is asked about hidden tokens."""
        self._listener.advance(step, f"labelling tokens: {asked} asked")

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Tell the scores."""
        scores = ", ".join(f"{name.removeprefix('eval_')} {value:.4f}" for name, value in (metrics or {}).items())
        self._listener.tell(f"step {state.global_step}: validation {scores}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Done."""
        self._listener.end()


def _labelling(logs: dict[str, Any]) -> str:
    """One line about an epoch of SSA."""
    kept = f", kept tokens {logs['ssa/kept']:.3f}" if "ssa/kept" in logs else ""
    if not logs["ssa/labelled_tokens"]:  # not the share: the reference rule labels examples without a probe, too
        return f"ssa epoch {logs['ssa/epoch']}: no labels{kept}"
    return (
        f"ssa epoch {logs['ssa/epoch']}: labelled {logs['ssa/share']:.3f} of the examples, acceptance "
        f"{logs['ssa/acceptance']:.3f}, base rate {logs['ssa/base_rate']:.3f}{kept}"
    )

"""Keep the model that did best on validation, and stop when it no longer gets better."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors.torch import save
from torch import Tensor, nn
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from headwise.attention import capture
from headwise.disk import save_content
from headwise.errors import InputError
from headwise.training.predict import evaluating

if TYPE_CHECKING:
    from headwise.heads.iat import IAT, HeadUpdates

# Ends the name of a folder that is about to take the place of the one without.
NEW = ".new"


class BestModel(TrainerCallback, ExportableState):
    """Saves the model after each evaluation that beats all before; its memory is part of the checkpoints."""

    def __init__(
        self,
        metric: str = "",
        folder: Path | None = None,
        save: Callable[[Path], None] | None = None,
        patience: int | None = None,
    ) -> None:
        """`save` writes the model to a folder; `patience` evaluations without a better one end the training."""
        self.value: float | None = None
        self.step = 0
        self.waited = 0
        self.history: list[dict[str, Any]] = []
        self._metric = metric
        self._folder = folder
        self._save = save
        self._patience = patience

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        return self._patience is not None and self.waited >= self._patience

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in trainer_state.json."""
        memory = {"value": self.value, "step": self.step, "waited": self.waited, "history": list(self.history)}
        return {"args": {}, "attributes": memory}

    def restore(self, callbacks: dict[str, Any]) -> None:
        """Go on from a checkpoint's callbacks."""
        for name, value in callbacks.get(type(self).__name__, {}).get("attributes", {}).items():
            setattr(self, name, value)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint that the Trainer resumed from, if any."""
        self.restore(state.stateful_callbacks)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Compare with the best so far."""
        value = float(metrics[f"eval_{self._metric}"])
        self.history.append({"step": state.global_step, **{name: value for name, value in metrics.items()}})
        if self.value is None or value > self.value:
            self.value, self.step, self.waited = value, state.global_step, 0
            if state.is_world_process_zero:
                self._keep()
            return
        self.waited += 1
        if self.exhausted:
            control.should_training_stop = True

    def _keep(self) -> None:
        """Write beside, then swap, so that a kill leaves the old or the new model but no half one."""
        if self._folder is None or self._save is None:
            return
        fresh = self._folder.with_name(self._folder.name + NEW)
        shutil.rmtree(fresh, ignore_errors=True)
        self._save(fresh)
        shutil.rmtree(self._folder, ignore_errors=True)
        fresh.rename(self._folder)


# Look at the heads while a model trains: how alike they are at each evaluation, and what each looks at.


BATCH = 16


class Snapshots(TrainerCallback):
    """Takes a snapshot before the first step, and at every evaluation."""

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        collate: Callable[[list[dict[str, Any]]], dict[str, Tensor]],
        count: int,
        folder: Path,
    ) -> None:
        """Look at the first `count` examples of `data`, and write into `folder`."""
        self._model, self._data, self._collate = model, data, collate
        self._count, self._folder = min(count, len(data)), folder

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """As the heads were before training."""
        if state.global_step == 0:
            self._take(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """As they are now."""
        self._take(state)

    def _take(self, state: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"step-{state.global_step:08d}.safetensors"
        if path.is_dir():  # in a folder of ours, so it is damage
            shutil.rmtree(path)
        save_content(path, save(self._look()))

    def _look(self) -> dict[str, Tensor]:
        from headwise.heads import HeadStatistics, head_vectors

        statistics, vectors = HeadStatistics(), None
        device = next(self._model.parameters()).device
        with evaluating(self._model), torch.inference_mode(), capture(self._model) as record:
            for start in range(0, self._count, BATCH):
                indices = range(start, min(start + BATCH, self._count))
                inputs = self._collate([self._data[index] for index in indices])
                inputs.pop("labels", None)
                self._model(**{name: tensor.to(device) for name, tensor in inputs.items()})
                statistics.add(record)
                vectors = head_vectors(record, 0) if vectors is None else vectors
        found = statistics.result()
        return {
            "similarity": torch.tensor([value for row in found.similarity_by_head for value in row]),
            "entropy": torch.tensor([value for row in found.entropy_by_head for value in row]),
            "vectors": (torch.zeros(0, 0) if vectors is None else vectors).float().contiguous(),
        }


# Tell a watcher how a run stands after each evaluation; the watcher may end it.


# Called with the step, the steps of the whole run, and the best value of the main metric on validation so far.
Watch = Callable[[int, int, float], None]


class AbandonRun(Exception):
    """Raised by a watcher: the run is not worth continuing."""


class TellWatcher(TrainerCallback):
    """Calls a watcher after each evaluation, also after those of a run that was resumed."""

    def __init__(self, best: BestModel, watch: Watch) -> None:
        """`best` has looked at the evaluation before: it comes first among the callbacks."""
        self._best, self._watch = best, watch

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell the step and the best value."""
        if self._best.value is not None:
            self._watch(state.global_step, state.max_steps, self._best.value)


# How long training takes: steps and epochs, evaluation and saving left out.


class Clock(TrainerCallback, ExportableState):
    """Seconds of every optimiser step, kept per epoch across interruptions."""

    def __init__(self) -> None:
        """Start at zero."""
        self.epochs: dict[str, float] = {}
        self._steps: list[float] = []
        self._began = 0.0
        self._epoch = "0"

    @property
    def seconds_per_step(self) -> float | None:
        """The median over the steps of this process, the first one (which warms up) left out."""
        return median(self._steps[1:]) if len(self._steps) > 1 else None

    def state(self) -> dict[str, Any]:
        """What the Trainer keeps in trainer_state.json."""
        return {"args": {}, "attributes": {"epochs": dict(self.epochs)}}

    def restore(self, callbacks: dict[str, Any]) -> None:
        """Go on from a checkpoint's callbacks."""
        self.epochs = dict(callbacks.get(type(self).__name__, {}).get("attributes", {}).get("epochs", {}))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint that the Trainer resumed from, if any."""
        self.restore(state.stateful_callbacks)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        # The Trainer rounds the last step of an epoch up, so the number is taken while the epoch still runs.
        self._epoch = str(int(state.epoch or 0))
        self._began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock."""
        taken = time.perf_counter() - self._began
        self._steps.append(taken)
        self.epochs[self._epoch] = self.epochs.get(self._epoch, 0.0) + taken


# Tell a listener how far training is; what it shows, and where, is the listener's business.


class Listener(Protocol):
    """Something that shows progress."""

    def start(self, what: str, total: int, done: int = 0) -> None:
        """A stretch of work begins."""

    def advance(self, done: int, note: str = "") -> None:
        """So much of it is done."""

    def log(self, message: str) -> None:
        """A line worth reading."""

    def end(self) -> None:
        """The stretch of work is over."""


class Silence:
    """A listener that shows nothing."""

    def start(self, what: str, total: int, done: int = 0) -> None:
        """Show nothing."""

    def advance(self, done: int, note: str = "") -> None:
        """Show nothing."""

    def log(self, message: str) -> None:
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
            self._listener.log(f"resuming from step {state.global_step} of {state.max_steps}")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """One step further."""
        self._listener.advance(state.global_step, self._note)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the loss from now on."""
        if logs and "loss" in logs:
            self._note = f"loss {logs['loss']:.4f}"
        if logs and "ssa/share" in logs:
            self._listener.log(_labelling(logs))

    def probing(self, step: int, asked: int) -> None:
        """Training waits while the model is asked about hidden tokens."""
        self._listener.advance(step, f"labelling tokens: {asked} asked")

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Tell the scores."""
        scores = ", ".join(f"{name.removeprefix('eval_')} {value:.4f}" for name, value in (metrics or {}).items())
        self._listener.log(f"step {state.global_step}: validation {scores}")

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


# -- important attention-head training ---------------------------------------------------------------------------------


class TrainImportantHeads(TrainerCallback):
    """From the beginning to the end of training, tasks update their own heads only.

    The model says whose batch it has seen (`last_task`). The Trainer clips before its `on_pre_optimizer_step`, when the
    gradients of other heads are zero already.
    """

    def __init__(self, model: nn.Module, allowed: Mapping[str, Any], options: IAT) -> None:
        """Nothing happens before training begins.

        Args:
            model: a `MultiTask`.
            allowed: [N,H] by the name of the task, True = its updates may change the head.
            options: of these `protect`, `mode` and `others` count.
        """
        self._model: Any = model
        self._allowed, self._options = allowed, options
        self._updates: HeadUpdates | None = None
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take hold of the gradients."""
        if args.world_size > 1:
            raise InputError(
                f"iat: {args.world_size} processes train together, and their batches belong to different tasks at a "
                "time: train in one process."
            )
        from headwise.heads.iat import HeadUpdates

        self.remove()
        options = self._options
        self._updates = HeadUpdates(
            self._model,
            self._allowed,
            protect=options.protect,
            mode=options.mode,
            others=options.others,
            own=self._model.own_parameters(),
        )
        self._hook = self._model.register_forward_hook(self._tell)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Show the optimiser what it may change."""
        if self._updates is not None:
            self._updates.before_step(_unwrapped(optimizer))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Give the optimiser the rest back."""
        if self._updates is not None:
            self._updates.after_step(_unwrapped(optimizer))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let go."""
        self.remove()

    def remove(self) -> None:
        """Let go, also where training ended with an error, of which the Trainer does not tell."""
        if self._updates is not None:
            self._updates.remove()
            self._hook.remove()
        self._updates = self._hook = None

    def _tell(self, model: Any, inputs: Any, outputs: Any) -> None:
        if self._updates is not None and model.training:
            self._updates.on(model.last_task)


def _unwrapped(optimizer: Any) -> Any:
    """The optimiser of torch inside accelerate's."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer

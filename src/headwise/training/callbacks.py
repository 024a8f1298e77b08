"""What happens during training beside the steps: keep the best model, measure time, show progress, look at heads."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors.torch import save
from torch import Tensor, nn
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from headwise.disk import save_content
from headwise.errors import InputError

if TYPE_CHECKING:
    from headwise.heads.iat import IAT, HeadUpdates

# Ends the name of a folder that is about to replace the one without.
NEW = ".new"
# Called with the step, the steps of the whole run, and the best value of the main metric on validation so far.
Watch = Callable[[int, int, float], None]


class AbandonRun(Exception):
    """Raised by a `Watch`: the run is not worth continuing."""


class _Stateful(TrainerCallback, ExportableState):
    """A callback some of whose attributes (`kept`) are part of the checkpoints, in trainer_state.json."""

    kept: tuple[str, ...]

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {name: copy(getattr(self, name)) for name in self.kept}}

    def restore(self, callbacks: dict[str, Any]) -> None:
        for name, value in callbacks.get(type(self).__name__, {}).get("attributes", {}).items():
            setattr(self, name, copy(value))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.restore(state.stateful_callbacks)


class BestModel(_Stateful):
    """Saves the model after each evaluation that beats all before."""

    kept = ("value", "step", "waited", "history")

    def __init__(
        self,
        metric: str = "",
        folder: Path | None = None,
        save: Callable[[Path], None] | None = None,
        patience: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        """`save` writes the model to a folder; `patience` evaluations without a better one end the training."""
        self.value: float | None = None
        self.step = self.waited = 0
        self.history: list[dict[str, Any]] = []
        self._metric, self._folder, self._save, self._patience, self._watch = metric, folder, save, patience, watch

    @property
    def exhausted(self) -> bool:
        """Whether patience has run out."""
        return self._patience is not None and self.waited >= self._patience

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Compare with the best so far; what is better is saved beside it and swapped, in case of a kill."""
        value = float(metrics[f"eval_{self._metric}"])
        self.history.append({"step": state.global_step, **metrics})
        if self.value is None or value > self.value:
            self.value, self.step, self.waited = value, state.global_step, 0
            if state.is_world_process_zero and self._folder is not None and self._save is not None:
                fresh = self._folder.with_name(self._folder.name + NEW)
                shutil.rmtree(fresh, ignore_errors=True)
                self._save(fresh)
                shutil.rmtree(self._folder, ignore_errors=True)
                fresh.rename(self._folder)
        else:
            self.waited += 1
            if self.exhausted:
                control.should_training_stop = True
        if self._watch is not None:
            self._watch(state.global_step, state.max_steps, self.value)


class Clock(_Stateful):
    """Seconds of every optimiser step, without evaluation and saving; kept per epoch across interruptions."""

    kept = ("epochs",)

    def __init__(self) -> None:
        """Start at zero."""
        self.epochs: dict[str, float] = {}
        self._steps: list[float] = []
        self._epoch, self._began = "0", 0.0

    @property
    def seconds_per_step(self) -> float | None:
        """The median over the steps of this process, the first one (which warms up) left out."""
        return median(self._steps[1:]) if len(self._steps) > 1 else None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        # The Trainer rounds the last step of an epoch up, so the number is taken while the epoch still runs.
        self._epoch, self._began = str(int(state.epoch or 0)), time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock."""
        self._steps.append(time.perf_counter() - self._began)
        self.epochs[self._epoch] = self.epochs.get(self._epoch, 0.0) + self._steps[-1]


# -- progress ----------------------------------------------------------------------------------------------------------


class Listener(Protocol):
    """Something that shows progress."""

    def start(self, what: str, total: int, done: int = 0) -> None:
        """A stretch of work begins."""
        return None

    def advance(self, done: int, note: str = "") -> None:
        """So much of it is done."""
        return None

    def log(self, message: str) -> None:
        """A line worth reading."""
        return None

    def end(self) -> None:
        """The stretch of work is over."""
        return None


class Silence(Listener):
    """Shows no progress."""


class ReportProgress(TrainerCallback):
    """Reports a Trainer's steps, losses and evaluations."""

    def __init__(self, progress: Listener, what: str) -> None:
        """`what` names the work."""
        self._progress, self._what, self._note = progress, what, ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin, maybe in the middle."""
        self._progress.start(self._what, state.max_steps, state.global_step)
        if state.global_step:
            self._progress.log(f"resuming from step {state.global_step} of {state.max_steps}")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """One step further."""
        self._progress.advance(state.global_step, self._note)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Show the loss from now on, and log one line about an epoch of SSA."""
        logs = logs or {}
        if "loss" in logs:
            self._note = f"loss {logs['loss']:.4f}"
        if "ssa/share" in logs:
            line = "no labels"
            if logs["ssa/labelled_tokens"]:  # not the share: the reference rule labels examples without a probe, too
                line = f"labelled {logs['ssa/share']:.3f} of the examples, acceptance {logs['ssa/acceptance']:.3f}"
                line += f", base rate {logs['ssa/base_rate']:.3f}"
            kept = f", kept tokens {logs['ssa/kept']:.3f}" if "ssa/kept" in logs else ""
            self._progress.log(f"ssa epoch {logs['ssa/epoch']}: {line}{kept}")

    def probing(self, step: int, predicted: int) -> None:
        """Training waits while the model predicts examples with hidden tokens."""
        self._progress.advance(step, f"labelling tokens: {predicted} examples predicted")

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Log the scores."""
        scores = ", ".join(f"{name.removeprefix('eval_')} {value:.4f}" for name, value in (metrics or {}).items())
        self._progress.log(f"step {state.global_step}: validation {scores}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Done."""
        self._progress.end()


# -- heads -------------------------------------------------------------------------------------------------------------


class Snapshots(TrainerCallback):
    """Writes how alike the heads are, and what each looks at, before the first step and at every evaluation."""

    batch = 16
    """Examples at a time."""

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
            self.on_evaluate(args, state, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """As they are now."""
        from headwise.attention import capture
        from headwise.heads import HeadStatistics, head_vectors
        from headwise.training.predict import evaluating

        if not state.is_world_process_zero:
            return
        statistics, vectors = HeadStatistics(), torch.zeros(0, 0)
        device = next(self._model.parameters()).device
        with evaluating(self._model), torch.inference_mode(), capture(self._model) as record:
            for start in range(0, self._count, self.batch):
                indices = range(start, min(start + self.batch, self._count))
                inputs = self._collate([self._data[index] for index in indices])
                inputs.pop("labels", None)
                self._model(**{name: tensor.to(device) for name, tensor in inputs.items()})
                statistics.add(record)
                vectors = vectors if start else head_vectors(record, 0)
        means = statistics.result()
        arrays = {
            "similarity": torch.tensor(sum(means.similarity_by_head, [])),
            "entropy": torch.tensor(sum(means.entropy_by_head, [])),
            "vectors": vectors.float().contiguous(),
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"step-{state.global_step:08d}.safetensors"
        if path.is_dir():  # in a folder of ours, so it is damage
            shutil.rmtree(path)
        save_content(path, save(arrays))


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
        """Change gradients from now on."""
        from headwise.heads.iat import HeadUpdates

        if args.world_size > 1:
            raise InputError(
                f"iat: {args.world_size} processes train together, and their batches belong to different tasks at a "
                "time: train in one process."
            )
        self.remove()
        options = self._options
        updates = self._updates = HeadUpdates(
            self._model,
            self._allowed,
            protect=options.protect,
            mode=options.mode,
            others=options.others,
            own=self._model.own_parameters(),
        )
        self._hook = self._model.register_forward_hook(
            lambda model, *_: updates.on(model.last_task) if model.training else None
        )

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Hide from the optimiser what it may not change."""
        if self._updates is not None:
            self._updates.before_step(getattr(optimizer, "optimizer", optimizer))  # torch's inside accelerate's

    def on_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """Give the optimiser the rest back."""
        if self._updates is not None:
            self._updates.after_step(getattr(optimizer, "optimizer", optimizer))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the model as it was."""
        self.remove()

    def remove(self) -> None:
        """Leave the model as it was; also for an error in training, after which the Trainer calls no callbacks."""
        if self._updates is not None:
            self._updates.remove()
            self._hook.remove()
        self._updates = self._hook = None

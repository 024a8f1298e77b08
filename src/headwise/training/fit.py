"""Train one model on one data set: transformers' Trainer, with exact resumption and the best model kept."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn
from transformers import PrinterCallback, TrainerCallback, TrainerState

from headwise.attention.pretrained import check_readable
from headwise.cache import file_digest
from headwise.disk import write_atomically
from headwise.errors import DiskError, InputError
from headwise.ssa import TOKEN_HEAD
from headwise.training import distributed
from headwise.training.arguments import Material, RunArguments
from headwise.training.callbacks import NEW, BestModel, Clock, TellWatcher, Watch
from headwise.training.checkpoints import (
    MarkCheckpoints,
    StopAt,
    StopOnRequest,
    newest,
    saved_callbacks,
    usable,
)
from headwise.training.classifier import MultiTask
from headwise.training.guide_callback import add_guide_callback
from headwise.training.saving import load_trained
from headwise.training.trainer import RunTrainer

# Under which conditions a run trains; all undone afterwards.


@contextmanager
def deterministic() -> Iterator[None]:
    """The same bits for the same work, whatever else the machine does; undone afterwards."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # costs time and changes no result of ours
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = fill


@contextmanager
def own_forward(model: nn.Module) -> Iterator[None]:
    """For bf16, accelerate replaces the model's forward; afterwards the model computes as it will once it is saved."""
    before = model.__dict__.get("forward")
    try:
        yield
    finally:
        # With this mark accelerate would leave the model alone the next time, and that training would be in fp32.
        for name in ("_original_forward", "forward", "_is_accelerate_prepared"):
            model.__dict__.pop(name, None)
        if before is not None:
            model.__dict__["forward"] = before


# Start from a classifier that was fine-tuned before.


def start_from(model: nn.Module, folder: str) -> list[str]:
    """Take every weight that fits from a saved classifier (the authors' use_saved); returns the names that did not.

    Encoder and classifier have to fit, and the labels have to be the same; a token head is taken where both have one.
    The authors take encoder and pooler alone, and let what is missing pass in silence: but a model that is to label its
    own tokens from the first epoch on has to know the task.
    """
    try:
        saved: Any = load_trained(Path(folder))
    except InputError as error:
        raise InputError(f"ssa.use_saved: {error}") from error
    _check_labels(folder, _labels(saved), _labels(model))
    theirs, mine = saved.state_dict(), model.state_dict()
    fits = {name: value for name, value in theirs.items() if name in mine and value.shape == mine[name].shape}
    lost = sorted(name for name in {*theirs, *mine} - set(fits) if not name.startswith(f"{TOKEN_HEAD}."))
    if lost:
        raise InputError(
            f"ssa.use_saved {folder}: {len(lost)} weights are missing there or here, or of another size, {lost[0]} "
            "first; name a classifier that was fine-tuned from the same model."
        )
    model.load_state_dict(fits, strict=False)
    return sorted(name for name in mine if name not in fits)


def _labels(model: Any) -> list[str]:
    return [str(label) for _, label in sorted(model.config.id2label.items())]


def _check_labels(folder: str, theirs: list[str], ours: list[str]) -> None:
    """Labels without names of their own (LABEL_0) may be any, as long as there are as many."""
    named = not any(label.startswith("LABEL_") for label in (*theirs, *ours))
    if len(theirs) != len(ours) or (named and theirs != ours):
        raise InputError(
            f"ssa.use_saved {folder}: its classifier has the labels {', '.join(theirs)}, and this task "
            f"{', '.join(ours)}; name one that was fine-tuned on the same labels."
        )


# Start several tasks from a run on several tasks.


def start_tasks_from(model: MultiTask, folder: Path) -> list[str]:
    """Take the encoder of a saved run, and the heads of tasks that it knows by the same name and labels.

    Returns the tasks whose heads were taken; the others start fresh (the authors' init_model, without its silence
    about what did not fit).
    """
    try:
        saved = load_trained(folder)
    except InputError as error:
        raise InputError(f"start_from: {error}") from error
    if not isinstance(saved, MultiTask):
        raise InputError(
            f"start_from {folder} holds one classifier: name a run on several tasks, or give it as `model` to start "
            "from its encoder."
        )
    mine, theirs = model.encoder.state_dict(), saved.encoder.state_dict()
    odd = sorted(name for name in {*mine, *theirs} if _shape(mine, name) != _shape(theirs, name))
    if odd:
        raise InputError(
            f"start_from {folder}: {len(odd)} weights of its encoder are of another size or missing, {odd[0]} first; "
            "name a run of the same model."
        )
    model.encoder.load_state_dict(theirs)
    taken = [task for task in model.tasks if task in saved.tasks and _same_labels(model, saved, task)]
    for task in taken:
        head, source = (each.heads[each.tasks.index(task)] for each in (model, saved))
        head.load_state_dict(source.state_dict())
    return taken


def _shape(weights: dict[str, Any], name: str) -> tuple[int, ...] | None:
    return tuple(weights[name].shape) if name in weights else None


def _same_labels(model: MultiTask, saved: MultiTask, task: str) -> bool:
    mine, theirs = model.classifier(task).config, saved.classifier(task).config
    return bool(mine.id2label == theirs.id2label and mine.problem_type == theirs.problem_type)


# No room, quota used up, file too large, read-only, no permission, broken device.
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)
BEST, LAST = "best", "last"
WEIGHTS, DIGEST = "weights.safetensors", "weights.sha256"


@dataclass
class Outcome:
    """What happened."""

    interrupted: bool
    steps: int
    total_steps: int
    best_step: int
    seconds_per_epoch: list[float]
    seconds_per_step: float | None
    evaluations: list[dict[str, Any]]
    log: list[dict[str, Any]] = field(default_factory=list)
    relabellings: list[dict[str, Any]] = field(default_factory=list)
    """Of SSA: what each epoch's labelling was like."""
    asked_to_stop: bool = False
    """Whether somebody asked to stop, be it too late for this part of a run."""


def fit(
    material: Material,
    arguments: RunArguments,
    callbacks: list[TrainerCallback],
    *,
    until: int | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Train, resuming from the newest whole checkpoint in the output folder if there is one.

    Afterwards the model has the weights that did best on validation. With the same inputs, versions and number of
    threads the result is the same bit for bit on a CPU, interrupted or not. Of several processes only the first writes,
    except the random state of each in the Trainer's checkpoints.

    Args:
        material: model (guided or not), data and metrics.
        arguments: how to train; checkpoints and the best model are in its output_dir until the run is finished.
        callbacks: more callbacks, such as a progress bar.
        until: stop after this step, evaluated and saved, so that others can start from there; the model then has the
            weights of that step.
        watch: is called after each evaluation, and may end the run with an AbandonRun.
    """
    folder = Path(str(arguments.output_dir))
    best = BestModel(
        material.primary,
        folder / BEST,
        lambda path: save_weights(material.model, path),
        patience=arguments.early_stopping_patience,
    )
    material, relabel = _labelled(material, arguments)
    clock, stop = Clock(), StopOnRequest()
    checkpoint = usable(folder)
    _check_checkpoint(checkpoint)
    with deterministic(), own_forward(material.model), stop.listening():
        # Our callbacks come after the Trainer's own, and the mark after them all: it says that everything is saved.
        halt = [] if until is None else [StopAt(until)]
        watching = [] if watch is None else [TellWatcher(best, watch)]
        more = [*relabel, *callbacks, *watching, *halt, MarkCheckpoints(folder)]
        trainer = _trainer(material, arguments, [clock, best, stop, *more])
        total = arguments.max_steps
        if checkpoint is not None:
            trainer.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
            best.restore(saved_callbacks(checkpoint))
            with distributed.all_or_none():
                if distributed.first() and best.value is not None:
                    _recover_best(folder / BEST)
            clock.restore(saved_callbacks(checkpoint))
            for each in relabel:
                each.restore(checkpoint)
        goal = total if until is None else min(until, total)
        # A run may be killed between its last step and its end: the Trainer would take one step too many then.
        if trainer.state.global_step < goal and not best.exhausted:
            _train(trainer, checkpoint)
        elif checkpoint is not None:
            load_model(material.model, str(checkpoint / "model.safetensors"))
    steps = trainer.state.global_step
    interrupted = stop.requested and steps < total and not best.exhausted
    if not interrupted and until is None:
        distributed.barrier()  # the first one has saved the best
        if material.several and distributed.first():
            save_weights(material.model, folder / LAST)
        load_weights(material.model, folder / BEST)
    seconds = [clock.epochs[name] for name in sorted(clock.epochs, key=int)]
    return Outcome(
        interrupted=interrupted,
        steps=steps,
        total_steps=total,
        best_step=best.step,
        seconds_per_epoch=seconds,
        seconds_per_step=clock.seconds_per_step,
        # A checkpoint sorts the names: resumed or not, the record has the same bytes.
        evaluations=[{"step": each["step"], **dict(sorted(each.items()))} for each in best.history],
        log=trainer.state.log_history,
        relabellings=[entry for each in relabel for entry in each.epochs],
        asked_to_stop=stop.requested,
    )


def _check_checkpoint(checkpoint: Path | None) -> None:
    """Refuse a checkpoint whose weights cannot be read, before anything is changed."""
    if checkpoint is None:
        return
    try:
        check_readable(checkpoint, "remove this folder, and train again")
    except InputError as error:
        raise InputError(f"the checkpoint {checkpoint} cannot be loaded: {error}") from error


def _labelled(material: Material, arguments: RunArguments) -> tuple[Material, list[Any]]:
    """Training examples with token labels, and the callback that renews these, if the model learns from labels."""
    if material.probing is None:
        return material, []
    from headwise.training.relabelling import SSACallback

    ((name, task),) = material.tasks.items()
    collate = task.collate_train or task.collate
    callback = SSACallback(
        material.model, task.train, collate, kind=material.probing.kind, probing=material.probing, seed=arguments.seed
    )
    labelled = replace(task, train=callback.dataset, collate_train=callback.collator)
    return replace(material, tasks={name: labelled}), [callback]


def _trainer(material: Material, arguments: RunArguments, callbacks: list[TrainerCallback]) -> RunTrainer:
    try:
        trainer = RunTrainer(
            model=material.model,
            args=arguments,
            train_dataset=material.train,
            eval_dataset=material.only.validation,
            data_collator=material.collate,
            callbacks=callbacks,
            compute_loss_func=material.loss,
        )
    except (ImportError, RuntimeError, ValueError) as error:
        if not arguments.report_to:
            raise
        # A reporter that transformers does not know, or that is not installed.
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"report_to is {', '.join(arguments.report_to)}: {reason}; change it or leave it out."
        ) from error
    trainer.material = material
    trainer.remove_callback(PrinterCallback)  # it would write to standard output, which is for results
    add_guide_callback(trainer)
    return trainer


def _train(trainer: RunTrainer, checkpoint: Path | None) -> None:
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except (OSError, SafetensorError) as error:
        if isinstance(error, OSError) and error.errno not in CANNOT_WRITE:
            raise  # of a reporter's connection, say
        raise DiskError(_not_saved(trainer, " ".join(str(error).split()))) from error
    except RuntimeError as error:
        # torch's own writer reports a full disk as a RuntimeError.
        if "PytorchStreamWriter" in str(error) or "inline_container" in str(error):
            raise DiskError(_not_saved(trainer, "is the disk full?")) from error
        raise


def _not_saved(trainer: RunTrainer, reason: str) -> str:
    folder = Path(str(trainer.args.output_dir))
    kept = newest(folder)
    before = "there is none before it" if kept is None else f"the one before it, {kept.name}, is whole"
    return f"a checkpoint could not be saved in {folder} ({reason}); {before}: make room, then pass resume=True."


def save_weights(model: nn.Module, folder: Path) -> None:
    """In the place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_model(model, str(folder / WEIGHTS))
    write_atomically(folder / DIGEST, file_digest(folder / WEIGHTS) + "\n")


def load_weights(model: nn.Module, folder: Path) -> None:
    """What `fit` kept in a folder."""
    check_weights(folder)
    load_model(model, str(folder / WEIGHTS))


def check_weights(folder: Path) -> None:
    """Refuse weights that are gone or not as they were written."""
    weights, digest = folder / WEIGHTS, folder / DIGEST
    fix = "delete the folder of the run and start it over."
    if not weights.is_file():
        raise InputError(f"{folder} has no {WEIGHTS}, the best model so far: {fix}")
    # Of an earlier version, there is no digest.
    if digest.exists() and (not digest.is_file() or digest.read_bytes().strip() != file_digest(weights).encode()):
        raise InputError(f"the content of {weights} has changed since it was written, or its {DIGEST}: {fix}")


def _recover_best(folder: Path) -> None:
    """Finish what a kill left undone when a better model was about to take the place of the best one; check it."""
    fresh = folder.with_name(folder.name + NEW)
    if (fresh / DIGEST).is_file():  # written last
        check_weights(fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    check_weights(folder)

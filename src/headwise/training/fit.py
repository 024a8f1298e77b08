"""Train a model: transformers' Trainer, with exact resumption and the best model kept."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn
from transformers import TrainerCallback, TrainerState

from headwise.attention.pretrained import check_readable
from headwise.cache import file_digest
from headwise.disk import write_atomically
from headwise.errors import DiskError, InputError
from headwise.ssa import TOKEN_HEAD
from headwise.training import distributed
from headwise.training.callbacks import NEW, BestModel, Clock, Watch
from headwise.training.checkpoints import MarkCheckpoints, StopOnRequest, newest, read_state, usable
from headwise.training.encoders import unlike_weights
from headwise.training.run_trainer import MEAN, Material, RunArguments, RunTrainer

if TYPE_CHECKING:
    from headwise.training.multitask import MultiTask

# No room, quota used up, file too large, read-only, no permission, broken device.
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)
BEST, LAST = "best", "last"
WEIGHTS, DIGEST = "weights.safetensors", "weights.sha256"


@dataclass
class Outcome:
    """How training went."""

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
    """Whether somebody asked to stop, even if too late for this part of a run."""
    end_reports: Callable[[Mapping[str, float]], None] = lambda metrics: None
    """Sends the scores of the finished model to the reporters of `report_to`, and closes them."""


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
    folder, model, total = Path(str(arguments.output_dir)), material.model, arguments.max_steps
    several = material.sampling is not None
    relabelling: list[Any] = []
    if material.probing is not None:
        from headwise.training.relabelling import SSACallback

        ((name, task),) = material.tasks.items()
        ssa = SSACallback(model, task.train, task.collate_train or task.collate, probing=material.probing)
        ssa.labeller(arguments)  # mistakes are found before training
        labelled = replace(task, train=ssa.dataset, collate_train=ssa.collator)
        material, relabelling = replace(material, tasks={name: labelled}), [ssa]
    kind = RunTrainer
    if several:
        from headwise.training.multitask import JointTrainer as kind
    clock, stop = Clock(), StopOnRequest(until)
    best = BestModel(
        MEAN if several else material.first.primary,
        folder / BEST,
        lambda path: save_weights(model, path),
        patience=arguments.early_stopping_patience,
        watch=watch,
    )
    checkpoint = usable(folder)
    if checkpoint is not None:
        try:  # before anything is changed
            check_readable(checkpoint, "remove this folder, and train again")
        except InputError as error:
            raise InputError(f"the checkpoint {checkpoint} cannot be loaded: {error}") from error
    with _reproducible(model), stop.handling_signals():
        # The mark comes last, since it says that everything is saved.
        trainer = kind(material, arguments, [clock, *relabelling, *callbacks, best, stop, MarkCheckpoints()])
        if checkpoint is not None:
            state = read_state(checkpoint)
            trainer.state = TrainerState(**state)
            for each in (clock, best):
                each.restore(state.get("stateful_callbacks", {}))
            with distributed.all_or_none():
                if distributed.first() and best.value is not None:
                    _recover_best(folder / BEST)
            for each in relabelling:
                each.restore(checkpoint)
        # A run may be killed between its last step and its end: the Trainer would take one step too many then.
        if trainer.state.global_step < min(until or total, total) and not best.exhausted:
            _train(trainer, checkpoint)
        elif checkpoint is not None:
            load_model(model, str(checkpoint / "model.safetensors"))
    steps = trainer.state.global_step
    interrupted = stop.requested and steps < total and not best.exhausted
    if not interrupted and until is None:
        distributed.barrier()  # the first one has saved the best
        if several and distributed.first():
            save_weights(model, folder / LAST)
        load_weights(model, folder / BEST)
    else:
        trainer.end_reports()
    return Outcome(
        interrupted=interrupted,
        steps=steps,
        total_steps=total,
        best_step=best.step,
        seconds_per_epoch=[clock.epochs[name] for name in sorted(clock.epochs, key=int)],
        seconds_per_step=clock.seconds_per_step,
        # A checkpoint sorts the names: resumed or not, the record has the same bytes.
        evaluations=[{"step": each["step"], **dict(sorted(each.items()))} for each in best.history],
        log=trainer.state.log_history,
        relabellings=[entry for each in relabelling for entry in each.epochs],
        asked_to_stop=stop.requested,
        end_reports=trainer.end_reports,
    )


@contextmanager
def _reproducible(model: nn.Module) -> Iterator[None]:
    """The same bits for the same work, whatever else the machine does; model and settings are restored afterwards."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fill, forward = memory.fill_uninitialized_memory, model.__dict__.get("forward")
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # costs time and changes no result of ours
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = fill
        # For bf16, accelerate replaces the model's forward, and with its mark it would leave the model alone the next
        # time, so that training would be in fp32.
        for name in ("_original_forward", "forward", "_is_accelerate_prepared"):
            model.__dict__.pop(name, None)
        if forward is not None:
            model.__dict__["forward"] = forward


def _train(trainer: RunTrainer, checkpoint: Path | None) -> None:
    """Train, and say in one sentence if a checkpoint could not be written."""
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno not in CANNOT_WRITE:
            raise  # of a reporter's connection, say
        reason = " ".join(str(error).split())
        if isinstance(error, RuntimeError):
            # torch's own writer reports a full disk as a RuntimeError.
            if "PytorchStreamWriter" not in reason and "inline_container" not in reason:
                raise
            reason = "is the disk full?"
        folder = Path(str(trainer.args.output_dir))
        kept = newest(folder)
        before = "there is none before it" if kept is None else f"the one before it, {kept.name}, is whole"
        raise DiskError(
            f"a checkpoint could not be saved in {folder} ({reason}); {before}: make room, then pass resume=True."
        ) from error


# -- the weights that a run keeps --------------------------------------------------------------------------------------


def save_weights(model: nn.Module, folder: Path) -> None:
    """Write the weights to a folder, in the place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_model(model, str(folder / WEIGHTS))
    write_atomically(folder / DIGEST, file_digest(folder / WEIGHTS) + "\n")


def load_weights(model: nn.Module, folder: Path) -> None:
    """Load what `fit` kept in a folder."""
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
    """Finish what a kill left undone when a better model was about to replace the best one; check it."""
    fresh = folder.with_name(folder.name + NEW)
    if (fresh / DIGEST).is_file():  # written last
        check_weights(fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    check_weights(folder)


# -- start from a model that was trained before ------------------------------------------------------------------------


def start_from(model: Any, folder: str) -> list[str]:
    """Take every weight that fits from a saved classifier (the authors' use_saved); returns the names that did not.

    Encoder and classifier have to fit, and the labels have to be the same; a token head is taken where both have one.
    The authors take encoder and pooler alone, and let what is missing pass in silence: but a model that is to label its
    own tokens from the first epoch on has to know the task.
    """
    saved = _load_saved("ssa.use_saved", folder)
    theirs, ours = ([str(label) for _, label in sorted(each.config.id2label.items())] for each in (saved, model))
    # Labels without names (LABEL_0) may be any, as long as there are as many.
    named = not any(label.startswith("LABEL_") for label in (*theirs, *ours))
    if len(theirs) != len(ours) or (named and theirs != ours):
        raise InputError(
            f"ssa.use_saved {folder}: its classifier has the labels {', '.join(theirs)}, and this task "
            f"{', '.join(ours)}; name one that was fine-tuned on the same labels."
        )
    weights, odd = saved.state_dict(), unlike_weights(saved, model)
    lost = [name for name in odd if not name.startswith(f"{TOKEN_HEAD}.")]
    if lost:
        raise InputError(
            f"ssa.use_saved {folder}: {len(lost)} weights are missing there or here, or of another size, {lost[0]} "
            "first; name a classifier that was fine-tuned from the same model."
        )
    model.load_state_dict({name: value for name, value in weights.items() if name not in odd}, strict=False)
    return sorted(set(odd) & set(model.state_dict()))


def start_tasks_from(model: MultiTask, folder: Path) -> list[str]:
    """Take the encoder of a saved run, and the heads of tasks that it knows by the same name and labels.

    Returns the tasks whose heads were taken; the others start fresh (the authors' init_model, without its silence
    about what did not fit).
    """
    saved = _load_saved("start_from", folder)
    if not isinstance(saved, type(model)):
        raise InputError(
            f"start_from {folder} holds one classifier: name a run on several tasks, or give it as `model` to start "
            "from its encoder."
        )
    odd = unlike_weights(saved.encoder, model.encoder)
    if odd:
        raise InputError(
            f"start_from {folder}: {len(odd)} weights of its encoder are of another size or missing, {odd[0]} first; "
            "name a run of the same model."
        )
    model.encoder.load_state_dict(saved.encoder.state_dict())
    taken = []
    for task in model.tasks:
        if task in saved.tasks:
            mine, theirs = model.classifier(task).config, saved.classifier(task).config
            if mine.id2label == theirs.id2label and mine.problem_type == theirs.problem_type:
                head, source = (each.heads[each.tasks.index(task)] for each in (model, saved))
                head.load_state_dict(source.state_dict())
                taken.append(task)
    return taken


def _load_saved(option: str, folder: str | Path) -> Any:
    from headwise.training.saving import load_trained

    try:
        return load_trained(Path(folder))
    except InputError as error:
        raise InputError(f"{option}: {error}") from error

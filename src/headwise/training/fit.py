"""Train one model on one data set: transformers' Trainer, with exact resumption and the best model kept."""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn
from transformers import PrinterCallback, TrainerCallback, TrainerState, TrainingArguments

from headwise.attention.pretrained import check_readable
from headwise.disk import write_atomically
from headwise.errors import DiskError, InputError, StateError
from headwise.guides import guidance_of
from headwise.training import processes
from headwise.training.best import BestModel
from headwise.training.checkpoints import (
    MarkCheckpoints,
    StopAt,
    StopOnRequest,
    file_sha256,
    newest,
    saved_callbacks,
    usable,
)
from headwise.training.clock import Clock
from headwise.training.conditions import deterministic, own_forward
from headwise.training.logs import log_losses
from headwise.training.material import Material
from headwise.training.relabelling import Relabel
from headwise.training.run_trainer import RunTrainer
from headwise.training.settings import Settings
from headwise.training.token_labels import TokenLabelCollator, WithTokenLabels
from headwise.training.token_log import log_token_losses
from headwise.training.watching import TellWatcher, Watch

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
    settings: Settings,
    folder: Path,
    callbacks: list[TrainerCallback],
    *,
    until: int | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Train, resuming from the newest whole checkpoint in `folder` if there is one.

    Afterwards the model has the weights that did best on validation. With the same inputs, versions and number of
    threads the result is the same bit for bit on a CPU, interrupted or not. Of several processes only the first writes,
    but for the random state of each in the Trainer's checkpoints.

    Args:
        material: model (guided or not), data and metrics.
        settings: how to train.
        folder: where checkpoints and the best model lie until the run is finished.
        callbacks: more callbacks, such as a progress bar.
        until: stop after this step, evaluated and saved, so that others go on from there; the model is then as it was
            left by that step.
        watch: is told how the run stands after each evaluation, and may end it by an AbandonRun.
    """
    best = BestModel(
        material.primary,
        folder / BEST,
        lambda path: save_weights(material.model, path),
        patience=settings.early_stopping,
    )
    material, relabel = _labelled(material, settings)
    clock, stop = Clock(), StopOnRequest()
    checkpoint = usable(folder)
    _check_checkpoint(checkpoint)
    with deterministic(), own_forward(material.model), stop.listening():
        # Our callbacks come after the Trainer's own, and the mark after them all: it says that everything is saved.
        halt = [] if until is None else [StopAt(until)]
        watching = [] if watch is None else [TellWatcher(best, watch)]
        more = [*relabel, *callbacks, *watching, *halt, MarkCheckpoints(folder)]
        trainer = _trainer(material, settings, folder, [clock, best, stop, *more])
        for each in relabel:
            each.log = trainer.log
        total = settings.total_steps(material.steps_per_epoch(settings, trainer.args.world_size))
        if checkpoint is not None:
            trainer.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
            best.restore(saved_callbacks(checkpoint))
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
        processes.wait()  # the first one has saved the best
        if material.keep_last and processes.first():
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


def _labelled(material: Material, settings: Settings) -> tuple[Material, list[Relabel]]:
    """Training examples with token labels, and what renews these; both as they were where nothing is to be labelled."""
    if material.probing is None:
        return material, []
    data = WithTokenLabels(material.train)
    collate = TokenLabelCollator(material.collate_train or material.collate)
    relabel = Relabel(material.model, data, material.probing, settings.seed)
    return replace(material, train=data, collate_train=collate), [relabel]


def _trainer(material: Material, settings: Settings, folder: Path, callbacks: list[TrainerCallback]) -> RunTrainer:
    try:
        trainer = RunTrainer(
            model=material.model,
            args=_arguments(settings, folder, material),
            train_dataset=material.train,
            eval_dataset=material.validation,
            data_collator=material.collate,
            callbacks=callbacks,
            compute_loss_func=material.loss,
        )
    except (ImportError, RuntimeError, ValueError) as error:
        if not settings.report_to:
            raise
        # A reporter that transformers does not know, or that is not installed.
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"report_to is {', '.join(settings.report_to)}: {reason}; change it or leave it out."
        ) from error
    trainer.material, trainer.settings = material, settings
    trainer.remove_callback(PrinterCallback)  # it would write to standard output, which is the result's
    if guidance_of(material.model) is not None:
        log_losses(trainer)
    log_token_losses(trainer)
    return trainer


def _arguments(settings: Settings, folder: Path, material: Material) -> TrainingArguments:
    per_epoch = material.steps_per_epoch(settings, processes.count())
    total = settings.total_steps(per_epoch)
    every = settings.evaluate_every or per_epoch
    return TrainingArguments(
        output_dir=str(folder),
        seed=settings.seed,
        data_seed=settings.seed,
        max_steps=total,
        per_device_train_batch_size=settings.batch,
        per_device_eval_batch_size=settings.evaluation_batch,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup_steps(total),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        use_cpu=not torch.accelerator.is_available(),  # without this word, bf16 is refused where there is no GPU
        bf16=settings.precision == "bf16",
        label_smoothing_factor=settings.label_smoothing,
        optim="adamw_torch_fused",
        eval_strategy="steps",
        # Evaluation counts steps, not epochs: so it always comes before the checkpoint of the same step, and a run that
        # is killed between the two repeats it.
        eval_steps=min(every, total),
        save_strategy="steps",
        save_steps=min(settings.checkpoint_every, total),
        logging_strategy="steps",
        logging_steps=settings.log_every,
        logging_first_step=True,
        report_to=list(settings.report_to) or "none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
    )


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
    return f"a checkpoint could not be saved in {folder} ({reason}); {before}: make room, then go on with --resume."


def save_weights(model: nn.Module, folder: Path) -> None:
    """In the place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_model(model, str(folder / WEIGHTS))
    write_atomically(folder / DIGEST, file_sha256(folder / WEIGHTS) + "\n")


def load_weights(model: nn.Module, folder: Path) -> None:
    """What `fit` kept in a folder."""
    if not (folder / WEIGHTS).is_file():
        raise StateError(f"{folder} has no weights: was something removed from the run's folder?")
    digest = folder / DIGEST  # of an earlier version, there is none
    if digest.is_file() and digest.read_text(encoding="utf-8").strip() != file_sha256(folder / WEIGHTS):
        raise InputError(
            f"the content of {folder / WEIGHTS} has changed since it was written: delete the folder of the run and "
            "start it over."
        )
    load_model(model, str(folder / WEIGHTS))

"""A recipe becomes a trained model and a record of the run."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from headwise.attention import pruned_heads
from headwise.cache import digest
from headwise.disk import (
    FOLDER_LOCK,
    check_folder,
    clear_drafts,
    disk_errors,
    folder_lock,
    holder,
    holds_nothing,
    ordinary_modes,
    write_atomically,
)
from headwise.errors import BusyError, DiskError, InputError
from headwise.experiments import record
from headwise.experiments.model_card import model_card
from headwise.experiments.outputs import (
    measure_baselines,
    score_baselines,
    score_splits,
    training_results,
    write_outputs,
)
from headwise.experiments.prepare import Prepared, RunPaths, prepare
from headwise.experiments.recipe import Recipe
from headwise.guides import guidance_of, guide, unguide
from headwise.limits import parse_json
from headwise.training import Listener, Outcome, ReportProgress, Silence, distributed, fit, save_classifier
from headwise.training.callbacks import Snapshots, Watch
from headwise.training.checkpoints import MARK, SNAPSHOTS
from headwise.training.classifier import fit_linear
from headwise.training.fit import BEST, LAST, load_weights, save_weights
from headwise.training.saving import prepare_reranker, save_multitask

if TYPE_CHECKING:
    from headwise.experiments.iat_arms import IATResult

# Inside the folder of a run, until it is finished.
WORK = "unfinished"
# Files of TensorBoard, and where they are when the run is finished.
EVENTS, EVENTS_FOLDER = "events.out.tfevents", "tensorboard"
# In the folder of unfinished work: what the baselines predict, so that a resumed run need not compute it again.
BASELINES = "baselines.json"
# And the checkpoints of what is trained on before the claims.
WARM_UP = "warm-up"


@dataclass(frozen=True)
class Result:
    """The record of a run, and whether it was interrupted before its end."""

    record: dict[str, Any]
    interrupted: bool
    steps: tuple[int, int]
    """Done, of how many."""


def train(
    recipe: Recipe,
    paths: RunPaths,
    *,
    resume: bool = False,
    command: tuple[str, ...] = (),
    progress: Listener | None = None,
    watch: Watch | None = None,
) -> Result:
    """Train as the recipe says and leave a model, a record and a model card in `paths.output`.

    Args:
        recipe: what to train, on one task or on several.
        paths: where to read and write.
        resume: resume an unfinished run in the output folder.
        command: the command line, for the record.
        progress: shows how far it is.
        watch: is called after each evaluation, and may end the run with an AbandonRun.
    """
    if distributed.launched() > 1 and distributed.count() == 1:
        raise InputError(
            f"a launcher has started {distributed.launched()} processes (WORLD_SIZE), and of the commands only "
            "`headwise train` runs in several: start this one without the launcher."
        )
    progress = (progress if distributed.first() else None) or Silence()
    with distributed.lost_process_errors(), ExitStack() as lock:
        with distributed.all_or_none():
            finished = check_output(recipe, paths, resume=resume)
        if finished is None:
            with distributed.all_or_none():  # the first process writes for all, so it alone takes the lock
                if distributed.first():
                    lock.enter_context(folder_lock(paths.output))
            with distributed.all_or_none():  # again, now that nobody else writes
                finished = check_output(recipe, paths, resume=resume)
        if finished is None:
            with distributed.all_or_none():
                run = _Run(prepare(recipe, paths, progress), paths, command, progress)
                if resume:
                    _check_same(record.read(paths.output), run.start, paths.output)
            return run.train(resume=resume, watch=watch)
    if distributed.first():
        shutil.rmtree(paths.output / WORK, ignore_errors=True)  # a kill may have left it
    steps = finished["results"]["steps"]
    return Result(finished, interrupted=False, steps=(steps, steps))


class _Run:
    """A run on its way, in a folder that is locked."""

    def __init__(self, prepared: Prepared, paths: RunPaths, command: tuple[str, ...], progress: Listener) -> None:
        """Refuse what would fail only in the middle of training; nothing is written yet."""
        recipe = prepared.recipe
        self.prepared, self.recipe, self.progress = prepared, recipe, progress
        self.output, self.work, self.cache = paths.output, paths.output / WORK, paths.cache
        self.baselines: dict[str, Any] = {}
        self.report = ReportProgress(progress, recipe.name)
        self.material = prepared.material(self.report)
        if recipe.iat is not None:
            from headwise.experiments.iat_arms import check_iat

            check_iat(prepared, prepared.arguments(self.material, self.work).max_steps)
        self.start: dict[str, Any] = {
            "format": record.FORMAT,
            "recipe": recipe.as_data(),
            "data": None if paths.data is None else str(paths.data.expanduser().resolve()),
            "examples": prepared.fingerprint,
            **({"marks": prepared.marks} if prepared.marks else {}),
            **({"knowledge": prepared.knowledge} if prepared.knowledge else {}),
            "command": list(command),
            "results": None,
            "environment": record.environment(),
        }

    def train(self, *, resume: bool, watch: Watch | None) -> Result:
        """Train, or resume; then write the model and the whole record."""
        output = self.output
        with distributed.all_or_none(), _disk_errors(output):
            if distributed.first():
                output.mkdir(parents=True, exist_ok=True)
                clear_drafts(output)
                record.write(output, self.start)
                self.work.mkdir(exist_ok=True)
        if self.prepared.fresh_pooler is not None and not resume:
            reason = self.prepared.fresh_pooler
            self.progress.log(
                f"the pooler of {self.recipe.model} is untrained ({reason}): it starts from fresh weights"
            )
        try:
            self.baselines = distributed.from_first(self._measure_baselines)
            outcome, arms = self._fit(watch)
        except DiskError:
            raise
        except Exception:
            # Nothing to resume, so nothing is left behind; the lock goes last, and the folder with it if it is new.
            if distributed.first() and not resume and not list(self.work.rglob(MARK)):
                for path in output.iterdir():
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path, ignore_errors=True)
                    elif path.name != FOLDER_LOCK:
                        path.unlink(missing_ok=True)
            raise
        if outcome.interrupted:
            content = record.read(output)
        else:
            content = distributed.from_first(lambda: self._finish(outcome, arms))
        return Result(content, interrupted=outcome.interrupted, steps=(outcome.steps, outcome.total_steps))

    def _measure_baselines(self) -> dict[str, Any]:
        """Before anything is trained, or as the process did that began this run."""
        path = self.work / BASELINES
        if not self.recipe.baseline:
            return {}
        with suppress(OSError, ValueError, KeyError, TypeError):  # absent or damaged: computed again
            content = parse_json(path.read_text(encoding="utf-8"))
            if content["sha256"] == digest(content["baselines"]):
                return dict(content["baselines"])
        arguments = self.prepared.arguments(self.material, self.work)
        measured = measure_baselines(self.prepared, arguments, self.cache, self.progress)
        with _disk_errors(self.output):
            write_atomically(path, json.dumps({"sha256": digest(measured), "baselines": measured}))
        return measured

    def _fit(self, watch: Watch | None) -> tuple[Outcome, IATResult | None]:
        prepared, recipe = self.prepared, self.recipe
        if recipe.linear:
            return _fit_linear(prepared, self.work, self.progress), None
        if recipe.iat is not None:
            from headwise.experiments.iat_arms import fit_arms

            arms = fit_arms(prepared, self.material, self.work, self.progress, watch)
            return arms.outcome, arms
        before = self._warm_up()
        if before is not None and before.interrupted:
            return before, None
        callbacks: list[Any] = [self.report]
        if recipe.training.snapshots:
            data, collate = prepared.only.encoded["validation"], prepared.only.collate
            snapshots = Snapshots(prepared.model, data, collate, recipe.training.snapshots, self.work / SNAPSHOTS)
            callbacks.insert(0, snapshots)
        return fit(self.material, prepared.arguments(self.material, self.work), callbacks, watch=watch), None

    def _warm_up(self) -> Outcome | None:
        """Of a re-ranker, train on titles and abstracts before the claims, without the guides; None without that."""
        prepared, model, material = self.prepared, self.prepared.model, self.prepared.warm_up()
        if material is None:
            return None
        if prepared.guides:
            unguide(model)
        arguments = prepared.arguments(material, self.work / WARM_UP, num_train_epochs=1.0, max_steps=None)
        outcome = fit(material, arguments, [ReportProgress(self.progress, f"{self.recipe.name}, warm-up")])
        if prepared.guides and not outcome.interrupted:
            guide(model, prepared.guides, tokenizer=prepared.encoder.tokenizer, share_every=self.recipe.share_every)
        return outcome

    def _finish(self, outcome: Outcome, arms: IATResult | None) -> dict[str, Any]:
        """Score and save the model, with IAT also the control; the record is last: it says that all is there."""
        best, more = self.work, dict[str, Any]()
        with _disk_errors(self.output):
            if arms is not None:
                from headwise.experiments.iat_arms import ARM, CONTROL

                best, more["iat"] = self.work / ARM, arms.heads
                if arms.control is not None:
                    folder = self.output / CONTROL
                    folder.mkdir(exist_ok=True)
                    plain = self.start | {"recipe": self.recipe.model_copy(update={"iat": None}).as_data()}
                    control = self._save(arms.control, self.work / CONTROL, plain, folder, {})
                    record.write(folder, control)
                    more["control"] = {name: control["results"][name] for name in ("metrics", "last", "best_step")}
            content = self._save(outcome, best, self.start, self.output, more)
            ordinary_modes(self.output)
            record.write(self.output, content)
            for events in sorted(self.work.rglob(f"{EVENTS}.*")):
                (self.output / EVENTS_FOLDER).mkdir(exist_ok=True)
                events.rename(self.output / EVENTS_FOLDER / events.name)
            shutil.rmtree(self.work, ignore_errors=True)
        for sentence in record.below_frozen(content):
            self.progress.log(f"warning: {sentence}.")
        return content

    def _save(
        self, outcome: Outcome, weights: Path, start: dict[str, Any], folder: Path, more: dict[str, Any]
    ) -> dict[str, Any]:
        """Write the best model to a folder, of several tasks also the last one; return the record."""
        prepared, recipe, several = self.prepared, self.recipe, self.recipe.several
        model, tokenizer = prepared.model, prepared.encoder.tokenizer
        extra: dict[str, Any]
        if several:
            load_weights(model, weights / LAST)
            extra = {"last": score_splits(prepared, self.progress)[0]["metrics"]}
            (folder / LAST).mkdir(exist_ok=True)
            save_multitask(model, tokenizer, folder / LAST)
            load_weights(model, weights / BEST)
            if recipe.start_from is not None:
                extra["heads_taken"] = list(prepared.heads_taken)
        else:
            extra = {"targets": prepared.targets}
            if guidance_of(model) is not None:
                unguide(model)
        if prepared.fresh_pooler is not None:
            extra["fresh_pooler"] = prepared.fresh_pooler
        if prepared.class_weights:
            extra["class_weights"] = prepared.class_weights
        scores, outputs = score_splits(prepared, self.progress)
        outcome.end_reports(
            {
                f"{split}_{name}": value
                for split, each in scores["metrics"].items()
                for name, value in (each or {}).items()
            }
        )
        results = scores | training_results(outcome, guides=not several) | extra | more
        if self.baselines:
            results["baselines"] = score_baselines(prepared, self.baselines, outputs)
        content = {**start, "results": results, "environment": record.environment()}
        if several:
            save_multitask(model, tokenizer, folder)
        else:
            if prepared.only.splits.task.kind == "ranking":
                prepare_reranker(model, tokenizer, recipe.data.max_length)
            save_classifier(model, tokenizer, folder, recipe.head)
            if recipe.training.snapshots:
                from headwise.experiments.snapshots import join_snapshots

                looked_at = min(recipe.training.snapshots, len(prepared.only.encoded["validation"]))
                join_snapshots(self.work, folder, looked_at)
        write_atomically(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in outcome.log))
        write_outputs(folder, outputs)
        pruned = bool(pruned_heads(prepared.model.encoder if several else prepared.model))
        write_atomically(folder / "README.md", model_card(content, outputs, pruned=pruned))
        return content


def check_output(recipe: Recipe, paths: RunPaths, *, resume: bool) -> dict[str, Any] | None:
    """Refuse a folder that holds something else; return the record of a run that is already finished."""
    output, another = paths.output, "choose another folder (output=...)."
    check_folder(output)
    if holds_nothing(output):
        if resume:
            raise InputError(
                f"{output} holds no run to resume: leave out resume=True, or name its folder (output=...)."
            )
        return None
    if not (output / record.NAME).is_file():
        raise InputError(f"{output} holds other files: {another}")
    content = record.read(output)
    if content["recipe"] != recipe.as_data():
        held = f"{content['recipe']['name']}, seed {content['recipe']['seed']}"
        raise InputError(f"{output} holds another run ({held}): {another}")
    if not resume:
        state = f"{'a finished' if record.finished(content) else 'an unfinished'} run of this recipe"
        if writer := holder(output / FOLDER_LOCK):
            raise BusyError(f"{output} holds {state} and is in use by {writer}: wait until it ends, or {another}")
        raise InputError(f"{output} holds {state}: pass resume=True to resume it, or {another}")
    return content if record.finished(content) else None


def _check_same(before: dict[str, Any], now: dict[str, Any], output: Path) -> None:
    """Refuse to resume with other examples, other knowledge about them, or another number of processes."""
    then, count = before["environment"].get("processes", 1), distributed.count()
    other = None
    if then != count:
        other = (
            f"of {then} {'process' if then == 1 else 'processes'}, and here {'is' if count == 1 else 'are'} {count}: "
            "resume with as many as it began with"
        )
    elif before.get("examples") != now["examples"]:
        other = "on other examples: give the data=... that it began with"
    elif before.get("marks") != now.get("marks"):
        other = "with other marked words: give the marks that it began with"
    elif before.get("knowledge") != now.get("knowledge"):
        other = "with other knowledge: a file, a model or a package that it comes from has changed; restore it"
    if other is not None:
        raise InputError(f"{output} holds a run {other}, or choose another folder (output=...).")


def _disk_errors(folder: Path) -> AbstractContextManager[None]:
    remedy = "make room or choose another folder, then pass resume=True."
    return disk_errors(f"{folder} could not be written", remedy, SafetensorError)


def _fit_linear(prepared: Prepared, work: Path, progress: Listener) -> Outcome:
    """Fit every classifier by least squares: no steps, and the best model is also the last."""
    for number, (task, each) in enumerate(prepared.tasks.items()):
        progress.start(f"least squares for {task}", len(prepared.tasks), number)
        fit_linear(prepared.model.classifier(task), each.encoded["train"], each.collate)
    progress.end()
    for name in (BEST, LAST) if distributed.first() else ():  # all processes have computed the same
        save_weights(prepared.model, work / name)
    return Outcome(
        interrupted=False,
        steps=0,
        total_steps=0,
        best_step=0,
        seconds_per_epoch=[],
        seconds_per_step=None,
        evaluations=[],
    )

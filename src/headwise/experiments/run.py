"""A recipe becomes a trained model and a record of the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from headwise.disk import (
    FOLDER_LOCK,
    check_folder,
    clear_drafts,
    folder_lock,
    holder,
    holds_nothing,
    ordinary_modes,
    write_atomically,
)
from headwise.errors import BusyError, DiskError, InputError
from headwise.experiments import record
from headwise.experiments.outputs import score_splits, training_results, write_outputs
from headwise.experiments.prepare import Place, Prepared, prepare
from headwise.experiments.recipe import Recipe
from headwise.experiments.text_formats import render_markdown
from headwise.guides import guidance_of, unguide
from headwise.training import Listener, Material, Outcome, ReportProgress, Silence, distributed, fit, save_classifier
from headwise.training.callbacks import Snapshots, Watch
from headwise.training.checkpoints import MARK, SNAPSHOTS
from headwise.training.classifier import fit_linear
from headwise.training.fit import BEST, LAST, load_weights, save_weights
from headwise.training.saving import prepare_reranker, save_multitask

if TYPE_CHECKING:
    from headwise.experiments.iat_arms import IATResult

# Inside the folder of a run, until it is finished.
WORK = "unfinished"


@dataclass(frozen=True)
class Result:
    """The record of a run, and whether it was interrupted before its end."""

    record: dict[str, Any]
    interrupted: bool
    steps: tuple[int, int]
    """Done, of how many."""


def train(
    recipe: Recipe,
    place: Place,
    *,
    resume: bool = False,
    command: tuple[str, ...] = (),
    listener: Listener | None = None,
    watch: Watch | None = None,
) -> Result:
    """Train as the recipe says and leave a model, a record and a model card in `place.output`.

    Args:
        recipe: what to train, on one task or on several.
        place: where to read and write.
        resume: resume an unfinished run in the output folder.
        command: the command line, for the record.
        listener: shows progress.
        watch: is called after each evaluation, and may end the run with an AbandonRun.
    """
    if distributed.launched() > 1 and distributed.count() == 1:
        raise InputError(
            f"a launcher has started {distributed.launched()} processes (WORLD_SIZE), and of the commands only "
            "`headwise train` runs in several: start this one without the launcher."
        )
    listener = (listener if distributed.first() else None) or Silence()
    with distributed.lost_process_errors(), ExitStack() as lock:
        with distributed.all_or_none():
            finished = check_output(recipe, place, resume=resume)
        if finished is None:
            with distributed.all_or_none():  # the first process writes for all, so it alone takes the lock
                if distributed.first():
                    lock.enter_context(folder_lock(place.output))
            with distributed.all_or_none():  # again, now that nobody else writes
                finished = check_output(recipe, place, resume=resume)
        if finished is None:
            return _train(recipe, place, resume=resume, command=command, listener=listener, watch=watch)
    if distributed.first():
        shutil.rmtree(place.output / WORK, ignore_errors=True)  # a kill may have left it
    steps = finished["results"]["steps"]
    return Result(finished, interrupted=False, steps=(steps, steps))


def _train(
    recipe: Recipe,
    place: Place,
    *,
    resume: bool,
    command: tuple[str, ...],
    listener: Listener,
    watch: Watch | None,
) -> Result:
    """Train, or resume; the folder is locked."""
    output = place.output
    with distributed.all_or_none():
        run = _Run(prepare(recipe, place, listener), output, listener)
        start = record.start(
            recipe,
            data=place.data,
            examples=run.prepared.fingerprint,
            knowledge=run.prepared.knowledge,
            command=list(command),
        )
        if resume:
            _check_same(record.read(output), start, output)
    with distributed.all_or_none(), _disk_errors(output):
        if distributed.first():
            output.mkdir(parents=True, exist_ok=True)
            clear_drafts(output)
            record.write(output, start)
            (output / WORK).mkdir(exist_ok=True)
    try:
        outcome = run.fit(watch)
    except DiskError:
        raise
    except Exception:
        # Nothing to resume, so nothing is left behind.
        if distributed.first() and not resume and not list((output / WORK).rglob(MARK)):
            _empty(output)
        raise
    if outcome.interrupted:
        content = record.read(output)
    else:
        content = distributed.from_first(lambda: _finish(run, start))
    return Result(content, interrupted=outcome.interrupted, steps=(outcome.steps, outcome.total_steps))


def _empty(folder: Path) -> None:
    """Remove all but the lock, which goes last, and the folder with it if it is new."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != FOLDER_LOCK:
            path.unlink(missing_ok=True)


def _finish(run: _Run, start: dict[str, Any]) -> dict[str, Any]:
    """Score and save the model, and write the record last, since it says that everything is there."""
    with _disk_errors(run.output):
        content = run.save(start)
        ordinary_modes(run.output)
        record.write(run.output, content)
        shutil.rmtree(run.output / WORK, ignore_errors=True)
    return content


def check_output(recipe: Recipe, place: Place, *, resume: bool) -> dict[str, Any] | None:
    """Refuse a folder that holds something else; return the record of a run that is already finished."""
    output = place.output
    check_folder(output)
    if holds_nothing(output):
        if resume:
            raise InputError(
                f"{output} holds no run to resume: leave out resume=True, or name its folder (output=...)."
            )
        return None
    if not (output / record.NAME).is_file():
        raise InputError(f"{output} holds other files: choose another folder (output=...).")
    content = record.read(output)
    if content["recipe"] != recipe.as_data():
        raise InputError(
            f"{output} holds another run ({content['recipe']['name']}, seed {content['recipe']['seed']}): choose "
            "another folder (output=...)."
        )
    if not resume:
        state = "a finished" if record.finished(content) else "an unfinished"
        if writer := holder(output / FOLDER_LOCK):
            raise BusyError(
                f"{output} holds {state} run of this recipe and is in use by {writer}: wait until it ends, or choose "
                "another folder (output=...)."
            )
        raise InputError(
            f"{output} holds {state} run of this recipe: pass resume=True to resume it, or choose another folder "
            "(output=...)."
        )
    return content if record.finished(content) else None


def _check_same(before: dict[str, Any], now: dict[str, Any], output: Path) -> None:
    """Refuse to resume with other examples, other knowledge about them, or another number of processes."""
    processes = before["environment"].get("processes", 1)
    if processes != distributed.count():
        raise InputError(
            f"{output} holds a run of {processes} {'process' if processes == 1 else 'processes'}, and here "
            f"{'is' if distributed.count() == 1 else 'are'} {distributed.count()}: resume with as many as it began "
            "with, or choose another folder (output=...)."
        )
    if before.get("examples") != now["examples"]:
        raise InputError(
            f"{output} holds a run on other examples: give the data=... that it began with, or choose another "
            "folder (output=...)."
        )
    if before.get("knowledge") != now.get("knowledge"):
        raise InputError(
            f"{output} holds a run with other knowledge: a file, a model or a package that it comes from has changed; "
            "restore it, or choose another folder (output=...)."
        )


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise DiskError(
            f"{folder} could not be written ({reason}): make room or choose another folder, then pass resume=True."
        ) from error


class _Run:
    """A prepared recipe: trains it, then scores and saves it."""

    def __init__(self, prepared: Prepared, output: Path, listener: Listener) -> None:
        self.prepared, self.output, self.listener = prepared, output, listener
        self.work = output / WORK
        self.report = ReportProgress(listener, prepared.recipe.name)
        self.material: Material = prepared.material(self.report)
        self.arms: IATResult | None = None
        if prepared.recipe.iat is not None:
            from headwise.experiments.iat_arms import check_iat

            check_iat(prepared, prepared.arguments(self.material, self.work).max_steps)

    def fit(self, watch: Watch | None) -> Outcome:
        """Train, resuming from what is in the work folder."""
        prepared, recipe = self.prepared, self.prepared.recipe
        options = recipe.important
        if recipe.linear:
            self.outcome = self._fit_linear()
        elif options is not None:
            from headwise.experiments.iat_arms import fit_arms

            self.arms = fit_arms(prepared, self.material, options, self.work, self.listener, watch)
            self.outcome = self.arms.outcome
        else:
            callbacks: list[Any] = [self.report]
            if recipe.training.snapshots:
                data, collate = prepared.only.encoded["validation"], prepared.only.collate
                folder = self.work / SNAPSHOTS
                callbacks.insert(0, Snapshots(prepared.model, data, collate, recipe.training.snapshots, folder))
            arguments = prepared.arguments(self.material, self.work)
            self.outcome = fit(self.material, arguments, callbacks, watch=watch)
        return self.outcome

    def _fit_linear(self) -> Outcome:
        """Fit every classifier by least squares: no steps, and the best model is also the last."""
        for number, (task, each) in enumerate(self.prepared.tasks.items()):
            self.listener.start(f"least squares for {task}", len(self.prepared.tasks), number)
            fit_linear(self.prepared.model.classifier(task), each.encoded["train"], each.collate)
        self.listener.end()
        for name in (BEST, LAST) if distributed.first() else ():  # all processes have computed the same
            save_weights(self.prepared.model, self.work / name)
        return Outcome(
            interrupted=False,
            steps=0,
            total_steps=0,
            best_step=0,
            seconds_per_epoch=[],
            seconds_per_step=None,
            evaluations=[],
        )

    def save(self, start: dict[str, Any]) -> dict[str, Any]:
        """Score and save the model; with IAT also that of the control. Returns the record."""
        recipe, more = self.prepared.recipe, {}
        if self.arms is None:
            return self._save(self.outcome, self.work, start, self.output, {})
        from headwise.experiments.iat_arms import ARM, CONTROL

        more["iat"] = self.arms.heads
        if self.arms.control is not None:
            folder = self.output / CONTROL
            folder.mkdir(exist_ok=True)
            plain = start | {"recipe": recipe.model_copy(update={"iat": None}).as_data()}
            control = self._save(self.arms.control, self.work / CONTROL, plain, folder, {})
            record.write(folder, control)
            more["control"] = {name: control["results"][name] for name in ("metrics", "last", "best_step")}
        return self._save(self.outcome, self.work / ARM, start, self.output, more)

    def _save(
        self, outcome: Outcome, work: Path, start: dict[str, Any], folder: Path, more: dict[str, Any]
    ) -> dict[str, Any]:
        """Write the best model to a folder, of several tasks also the last one; return the record."""
        prepared, recipe = self.prepared, self.prepared.recipe
        model, tokenizer = prepared.model, prepared.encoder.tokenizer
        extra: dict[str, Any] = {}
        if recipe.several:
            load_weights(model, work / LAST)
            last, _ = score_splits(prepared, self.listener)
            (folder / LAST).mkdir(exist_ok=True)
            save_multitask(model, tokenizer, folder / LAST)
            load_weights(model, work / BEST)
            extra = {"last": last["metrics"]}
            if recipe.start_from is not None:
                extra["heads_taken"] = list(prepared.heads_taken)
        else:
            extra = {"targets": prepared.targets}
            if guidance_of(model) is not None:
                unguide(model)
        scores, outputs = score_splits(prepared, self.listener)
        results = scores | training_results(outcome, guides=not recipe.several) | extra | more
        content = record.finish(start, results)
        if recipe.several:
            save_multitask(model, tokenizer, folder)
        else:
            if prepared.only.splits.task.kind == "ranking":
                prepare_reranker(model, tokenizer, recipe.data.max_length)
            save_classifier(model, tokenizer, folder, recipe.head)
            if recipe.training.snapshots:
                from headwise.experiments.snapshots import join_snapshots

                looked_at = min(recipe.training.snapshots, len(prepared.only.encoded["validation"]))
                join_snapshots(folder / WORK, folder, looked_at)
        write_atomically(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in outcome.log))
        write_outputs(folder, outputs)
        write_atomically(folder / "README.md", model_card(content))
        return content


def model_card(content: dict[str, Any]) -> str:
    """The model card of a finished run, from its record."""
    results, recipe = content["results"], content["recipe"]
    template = resources.files(__package__).joinpath("model_card.md.jinja").read_text(encoding="utf-8")
    options = None if recipe.get("ssa") is None else Recipe.model_validate(recipe).supervision
    return render_markdown(
        template,
        recipe=recipe,
        ssa=None if options is None else {"model": options.model, "pools": options.pools},
        knowledge=content.get("knowledge", {}),
        results=results,
        environment=content["environment"],
        names=list(next((scores for scores in results["metrics"].values() if scores), {})),
    )

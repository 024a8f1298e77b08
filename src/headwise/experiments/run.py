"""A recipe becomes a trained model and a record of how it came about."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from headwise.disk import (
    FOLDER_LOCK,
    check_folder,
    clear_drafts,
    folder_lock,
    holds_nothing,
    ordinary_modes,
    write_atomically,
)
from headwise.errors import DiskError, InputError
from headwise.experiments import record
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.joint_run import WORK, Job, JointJob, settings_of, write_log
from headwise.experiments.outputs import scorer, summarise, write_outputs
from headwise.experiments.prepare import Place, Prepared, fingerprint, prepare, prepare_joint
from headwise.experiments.recipe import Recipe
from headwise.experiments.text_formats import render_markdown
from headwise.experiments.token_scores import FOLDER as SNAPSHOTS
from headwise.experiments.token_scores import join_snapshots
from headwise.retrieval.reranker import by_claim
from headwise.retrieval.retrieval_task import RetrievalTask
from headwise.training import (
    KnowledgeCollator,
    Listener,
    Material,
    Outcome,
    ReportProgress,
    Silence,
    fit,
    save_classifier,
)
from headwise.training import distributed as processes
from headwise.training.callbacks import Snapshots, Watch
from headwise.training.checkpoints import MARK
from headwise.training.relabelling import Probing
from headwise.training.saving import prepare_reranker

# The model card that lies beside a trained model.


def model_card(content: dict[str, Any]) -> str:
    """The card of a finished run, from its record."""
    happened = content["happened"]
    scored: dict[str, float] = next((scores for scores in happened["metrics"].values() if scores), {})
    template = resources.files(__package__).joinpath("model_card.md.jinja").read_text(encoding="utf-8")
    return render_markdown(
        template,
        recipe=content["asked"]["recipe"],
        ssa=_supervision(content),
        knowledge=content["asked"].get("knowledge", {}),
        happened=happened,
        world=content["world"],
        names=list(scored),
    )


def _supervision(content: dict[str, Any]) -> dict[str, Any] | None:
    """Of SSA the model, and whether it pools; None without it."""
    options = Recipe.model_validate(content["asked"]["recipe"]).supervision
    return None if options is None else {"model": options.model, "pools": options.pools}


# A run on one task.


@dataclass(frozen=True)
class SingleJob:
    """One task, ready to be trained."""

    prepared: Prepared

    @property
    def fingerprint(self) -> str:
        """A short hash of all examples."""
        return fingerprint(self.prepared.encoded)

    @property
    def knowledge(self) -> dict[str, dict[str, Any]]:
        """For each guide that needs knowledge, what tells it from other knowledge."""
        return self.prepared.knowledge

    def fit(self, work: Path, listener: Listener, watch: Watch | None = None) -> Outcome:
        """Train."""
        prepared = self.prepared
        splits, task = prepared.splits, prepared.splits.task
        material = Material(
            model=prepared.model,
            train=prepared.train,
            validation=prepared.encoded["validation"],
            collate=prepared.collate,
            score=scorer(task, splits.validation, splits.gold.get("validation", {})),
            primary=task.primary,
        )
        if isinstance(task, RetrievalTask) and task.loss == "list":
            material = by_claim(material, splits.train.groups or ())
        report = ReportProgress(listener, prepared.recipe.name)
        supervision = prepared.recipe.supervision
        if supervision is not None and supervision.learns_labels:
            collate = prepared.collate.collate if isinstance(prepared.collate, KnowledgeCollator) else prepared.collate
            material = replace(material, probing=Probing(prepared.encoded["train"], collate, task.kind, report.probing))
        return fit(material, settings_of(prepared.recipe), work, [*self._snapshots(work), report], watch=watch)

    def _snapshots(self, work: Path) -> list[Snapshots]:
        """What looks at the heads from time to time, if the recipe asks for it."""
        prepared, count = self.prepared, self.prepared.recipe.training.snapshots
        if not count:
            return []
        collate = prepared.collate.collate if isinstance(prepared.collate, KnowledgeCollator) else prepared.collate
        return [Snapshots(prepared.model, prepared.encoded["validation"], collate, count, work / SNAPSHOTS)]

    def finish(self, outcome: Outcome, asked: dict[str, Any], folder: Path, listener: Listener) -> dict[str, Any]:
        """Score and save."""
        prepared = self.prepared
        happened, outputs = summarise(prepared, outcome, listener)
        content = record.compose(asked, happened)
        if prepared.splits.task.kind == "ranking":
            prepare_reranker(prepared.model, prepared.encoder.tokenizer, prepared.recipe.data.max_length)
        save_classifier(prepared.model, prepared.encoder.tokenizer, folder, prepared.recipe.head)
        write_log(folder, outcome)
        write_outputs(folder, outputs)
        looked_at = min(prepared.recipe.training.snapshots, len(prepared.encoded["validation"]))
        join_snapshots(folder / WORK, folder, looked_at)
        write_atomically(folder / "README.md", model_card(content))
        return content


@dataclass(frozen=True)
class Result:
    """The record of a run, and whether it was interrupted before its end."""

    record: dict[str, Any]
    interrupted: bool
    steps: tuple[int, int]
    """Done, of how many."""


def train(
    recipe: Recipe | JointRecipe,
    place: Place,
    *,
    resume: bool = False,
    command: tuple[str, ...] = (),
    listener: Listener | None = None,
    watch: Watch | None = None,
) -> Result:
    """Train as the recipe says and leave a model, a record and a model card in `place.output`.

    Args:
        recipe: what to do.
        place: where.
        resume: go on with an unfinished run in the output folder.
        command: the command line, for the record.
        listener: shows progress.
        watch: is told how the run stands after each evaluation, and may end it by an AbandonRun.
    """
    if processes.launched() > 1 and processes.count() == 1:
        raise InputError(
            f"a launcher has started {processes.launched()} processes (WORLD_SIZE), and of the commands only headwise "
            "train runs in several: start this one without the launcher."
        )
    listener = (listener if processes.first() else None) or Silence()
    with processes.in_company(), ExitStack() as alone:
        with processes.agreeing():
            done = check_output(recipe, place, resume=resume)
        if done is None:
            with processes.agreeing():  # the first process writes for all, so it alone takes the lock
                if processes.first():
                    alone.enter_context(folder_lock(place.output))
            with processes.agreeing():  # as it is now that nobody else writes
                done = check_output(recipe, place, resume=resume)
        if done is None:
            return _train(recipe, place, resume=resume, command=command, listener=listener, watch=watch)
    if processes.first():
        shutil.rmtree(place.output / WORK, ignore_errors=True)  # a kill may have left it
    steps = done["happened"]["steps"]
    return Result(done, interrupted=False, steps=(steps, steps))


def _train(
    recipe: Recipe | JointRecipe,
    place: Place,
    *,
    resume: bool,
    command: tuple[str, ...],
    listener: Listener,
    watch: Watch | None,
) -> Result:
    """Train, or resume; the folder is locked."""
    with processes.agreeing():
        job = _job(recipe, place, listener)
        asked = record.asked(recipe, place.data, job.fingerprint, list(command), knowledge=job.knowledge)
        if resume:
            _check_same(record.read(place.output), asked, place.output)
    with processes.agreeing(), _saving(place.output):
        if processes.first():
            _begin(place.output, asked)
    try:
        outcome = job.fit(place.output / WORK, listener, watch)
    except DiskError:
        raise
    except Exception:
        # Nothing to resume, so nothing is left behind.
        if processes.first() and not resume and not list((place.output / WORK).rglob(MARK)):
            _empty(place.output)
        raise
    if outcome.interrupted:
        content = record.read(place.output)
    else:
        content = processes.from_first(lambda: _finish(job, outcome, asked, place.output, listener))
    return Result(content, interrupted=outcome.interrupted, steps=(outcome.steps, outcome.total_steps))


def _begin(folder: Path, asked: dict[str, Any]) -> None:
    """Make the folder, with a record that says that the run is not finished."""
    folder.mkdir(parents=True, exist_ok=True)
    clear_drafts(folder)
    record.write(folder, record.compose(asked, None))
    (folder / WORK).mkdir(exist_ok=True)


def _empty(folder: Path) -> None:
    """Remove all but the lock, which goes last, and the folder with it if it is new."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != FOLDER_LOCK:
            path.unlink(missing_ok=True)


def _finish(job: Job, outcome: Outcome, asked: dict[str, Any], folder: Path, listener: Listener) -> dict[str, Any]:
    """Write the model and all that is told about it."""
    with _saving(folder):
        content = job.finish(outcome, asked, folder, listener)
        ordinary_modes(folder)
        record.write(folder, content)  # last, since it says that all is there
        shutil.rmtree(folder / WORK, ignore_errors=True)
    return content


def _job(recipe: Recipe | JointRecipe, place: Place, listener: Listener) -> Job:
    if isinstance(recipe, JointRecipe):
        return JointJob.of(prepare_joint(recipe, place, listener))
    return SingleJob(prepare(recipe, place, listener))


def check_output(recipe: Recipe | JointRecipe, place: Place, *, resume: bool) -> dict[str, Any] | None:
    """Refuse a folder that holds something else; return the record of a run that is already finished."""
    output = place.output
    check_folder(output)
    if holds_nothing(output):
        if resume:
            raise InputError(f"{output} holds no run to resume: leave --resume away, or name its folder with --output.")
        return None
    if not (output / record.NAME).is_file():
        raise InputError(f"{output} holds other files: choose another folder with --output.")
    content = record.read(output)
    if content["asked"]["recipe"] != recipe.as_data():
        raise InputError(
            f"{output} holds another run ({content['asked']['recipe']['name']}, seed {content['asked']['seed']}): "
            "choose another folder with --output."
        )
    if not resume:
        state = "a finished" if record.finished(content) else "an unfinished"
        raise InputError(
            f"{output} holds {state} run of this recipe: add --resume to go on with it, or choose another folder with "
            "--output."
        )
    return content if record.finished(content) else None


def _check_same(kept: dict[str, Any], now: dict[str, Any], output: Path) -> None:
    """Refuse to go on with other examples, with other knowledge about them, or in other company."""
    before, together = kept["asked"], kept["world"].get("processes", 1)
    if together != processes.count():
        raise InputError(
            f"{output} holds a run of {together} {'process' if together == 1 else 'processes'}, and here "
            f"{'is' if processes.count() == 1 else 'are'} {processes.count()}: go on with as many as it began with, or "
            "choose another folder with --output."
        )
    if before.get("examples") != now["examples"]:
        raise InputError(
            f"{output} holds a run on other examples: give the --data that it began with, or choose another folder "
            "with --output."
        )
    if before.get("knowledge") != now.get("knowledge"):
        raise InputError(
            f"{output} holds a run with other knowledge: a file, a model or a package that it comes from has changed; "
            "bring that back, or choose another folder with --output."
        )


@contextmanager
def _saving(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise DiskError(
            f"{folder} could not be written ({reason}): make room or choose another folder, then add --resume."
        ) from error

"""Tune a recipe: check everything, go on with the study, and keep what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from headwise.disk import clear_drafts_of, save_content
from headwise.errors import InputError, StateError
from headwise.experiments.comparison.grouping import MISSING, covered, flat, shown, value_name
from headwise.experiments.recipe_files import recipe_text
from headwise.experiments.sweeps.perform import tidy_finished
from headwise.experiments.sweeps.plan import WORDS
from headwise.experiments.sweeps.sweep import Shelf
from headwise.experiments.sweeps.sweep_file import label_of
from headwise.experiments.sweeps.sweep_folder import ResultFolder, writing
from headwise.experiments.text_formats import table_text
from headwise.experiments.tuning.search_space import Search, Space
from headwise.experiments.tuning.study import (
    ERROR,
    RETRIES,
    Storage,
    current,
    file_url,
    given_up,
    lost,
    optuna,
    storage_errors,
)
from headwise.experiments.tuning.tuner import TunePlace, Tuner
from headwise.training import Listener
from headwise.training import distributed as processes

# What came out of tuning: the trials, the best of them, and its recipe.


BEST, TRIALS = "best.yaml", "trials.csv"
FINISHED, PRUNED, FAILED = "finished", "pruned", "failed"
STATES = {"COMPLETE": FINISHED, "PRUNED": PRUNED, "FAIL": FAILED, "RUNNING": "running", "WAITING": "waiting"}


@dataclass(frozen=True)
class TrialRow:
    """One trial."""

    number: int
    state: str
    value: float | None
    """The mean over seeds of the main metric on validation; None unless it is finished."""
    parameters: dict[str, Any]
    steps: int | None
    """Of all its runs; of a pruned one up to where it was."""
    seconds: float | None
    runs: tuple[str, ...]
    """Keys of its runs, one for each seed."""
    evaluations: dict[int, float]
    """By step, what the value would have been if the trial had ended there."""
    error: str | None

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {**self.__dict__, "runs": list(self.runs)}


@dataclass(frozen=True)
class TuneOutcome:
    """A study, as it stands."""

    study: str
    storage: str
    output: Path
    wanted: int
    primary: str | None
    rows: tuple[TrialRow, ...]
    """The best first, then those without a value by number."""
    interrupted: bool

    @classmethod
    def of(cls, study: Any, space: Space, output: Path, storage: str, wanted: int, *, interrupted: bool) -> TuneOutcome:
        """Read a study."""
        trials = study.get_trials(deepcopy=False)
        lost = {trial.number for trial in given_up(trials)}
        rows = [_row(trial, space, dead=trial.number in lost) for trial in current(trials)]
        rows.sort(key=lambda row: (row.value is None, -(row.value or 0), row.number))
        primary = next((trial.user_attrs["primary"] for trial in trials if "primary" in trial.user_attrs), None)
        return cls(study.study_name, storage, output, wanted, primary, tuple(rows), interrupted)

    @property
    def best(self) -> TrialRow | None:
        """The trial with the largest value; of equal ones the first."""
        return self.rows[0] if self.rows and self.rows[0].value is not None else None

    @property
    def errors(self) -> dict[str, str]:
        """What went wrong, and with which parameters; none twice."""
        failed = {row.error: row for row in reversed(self.rows) if row.error is not None}
        return {f"trial {row.number}": error for error, row in reversed(failed.items())}

    def count(self, state: str) -> int:
        """How many trials are in a state."""
        return sum(row.state == state for row in self.rows)

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        best = None if self.best is None else self.best.as_data() | {"recipe": str(self.output / BEST)}
        return {
            "study": self.study,
            "storage": self.storage,
            "output": str(self.output),
            "metric": self.primary,
            "split": "validation",
            "wanted": self.wanted,
            **{state: self.count(state) for state in STATES.values()},
            "best": best,
            "trials": [row.as_data() for row in self.rows],
        }


def save_outcome(outcome: TuneOutcome, space: Space) -> None:
    """Write best.yaml, if there is a best, and trials.csv."""
    if outcome.best is not None:
        recipe = space.recipe_with(outcome.best.parameters | {"name": f"{space.recipe.name}-best"})
        best = recipe_text(recipe)
    # Processes that tune together come to the end at the same time.
    with writing(outcome.output), FileLock(outcome.output / "locks" / "folder.lock"):
        for name in (BEST, TRIALS):
            clear_drafts_of(outcome.output / name)
        if outcome.best is not None:
            save_content(outcome.output / BEST, best)
        save_content(outcome.output / TRIALS, _table(outcome, space))


def _row(trial: Any, space: Space, *, dead: bool) -> TrialRow:
    state = STATES[trial.state.name]
    error = trial.user_attrs.get(ERROR, f"whoever worked on it died {RETRIES + 1} times." if dead else "stopped.")
    steps = trial.user_attrs.get("steps", trial.last_step)
    return TrialRow(
        number=trial.number,
        state=state,
        value=trial.value if state == FINISHED else None,
        parameters=space.values(trial.params or trial.system_attrs.get("fixed_params", {})),
        steps=steps,
        seconds=None if trial.duration is None else round(trial.duration.total_seconds(), 3),
        runs=tuple(trial.user_attrs.get("runs", ())),
        evaluations=dict(sorted(trial.intermediate_values.items())),
        error=error if state == FAILED else None,
    )


def _table(outcome: TuneOutcome, space: Space) -> str:
    """The trials by number, as CSV."""
    keys = [axis.key for axis in space.axes]
    table: list[list[Any]] = [["number", "state", "value", *keys, "steps", "seconds"]]
    for row in sorted(outcome.rows, key=lambda each: each.number):
        values = [label_of(row.parameters[key]) if key in row.parameters else "" for key in keys]
        table.append([row.number, row.state, row.value, *values, row.steps, row.seconds])
    return table_text(table)


# What a study is about: another recipe, space or set of seeds under the same name is another study.


ABOUT = "headwise"
FORMAT = 1


def open_study(storage: Storage, name: str, space: Space, search: Search) -> Any:
    """The study of a name, made if it is not there; refuses one that is about something else."""
    library = optuna()
    with storage.turn:
        study = library.create_study(
            storage=storage.backend,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=search.pruner(),
        )
        ours = study.directions == [library.study.StudyDirection.MAXIMIZE]
        if ours and ABOUT not in study.user_attrs and not study.get_trials(deepcopy=False):
            study.set_user_attr(ABOUT, about(space, search.sampler))
        kept = study.user_attrs.get(ABOUT)
    place = f"study {name!r} of {storage.name}"
    if kept is None:
        raise InputError(f"{place} was not made by headwise: choose another name with --study.")
    _check_same(kept, about(space, search.sampler), place)
    return study


def about(space: Space, sampler: str) -> dict[str, Any]:
    """Plain data: all that decides the trials, whatever their number."""
    keys = [axis.key for axis in space.axes]
    recipe = {
        key: value for key, value in flat(space.recipe.as_data()).items() if not covered(key, ["seed", *WORDS, *keys])
    }
    return {
        "format": FORMAT,
        "recipe": recipe,
        "space": space.as_data(),
        "seeds": ",".join(map(str, space.seeds)),
        "sampler": sampler,
    }


def _check_same(kept: Mapping[str, Any], now: Mapping[str, Any], place: str) -> None:
    if kept["format"] != FORMAT:
        raise InputError(f"{place} has format {kept['format']}, and this headwise reads {FORMAT}: choose another name.")
    for part, what in (("recipe", "another recipe"), ("space", "another space")):
        if said := _difference(kept[part], now[part]):
            raise InputError(
                f"{place} is of {what}: {said}; choose another folder with --output, or another name with --study."
            )
    for part in ("seeds", "sampler"):
        if kept[part] != now[part]:
            raise InputError(
                f"{place} has --{part} {kept[part]}, and here it is {now[part]}: give that, or choose another name "
                "with --study."
            )


def _difference(kept: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first key that is not the same, and how many more there are."""
    keys = [
        key
        for key in dict.fromkeys([*kept, *now])
        if value_name(kept.get(key, MISSING)) != value_name(now.get(key, MISSING))
    ]
    if not keys:
        return ""
    key, more = keys[0], len(keys) - 1
    others = f", and in {more} other {'key' if more == 1 else 'keys'}" if more else ""
    return f"{key} is {shown(kept.get(key, MISSING))} there and {shown(now.get(key, MISSING))} here{others}"


DATABASE = "study.db"


def tune(
    space: Space, place: TunePlace, search: Search, listener: Listener, *, name: str, storage: str | None = None
) -> TuneOutcome:
    """Go on with a study until as many trials are finished or pruned as were asked for; leave best.yaml and trials.csv.

    Args:
        space: what to try.
        place: where.
        search: how.
        listener: shows progress.
        name: of the study.
        storage: URL of a database; default a file of SQLite in the output folder.
    """
    optuna()
    if processes.launched() > 1:
        raise InputError(
            f"headwise tune runs in one process, and a launcher has started {processes.launched()}: start the command "
            "by itself, and once more for each process that should help."
        )
    folder = ResultFolder(place.output)
    folder.check()
    _check_files(space, place)
    if storage is None:
        folder.open()
    opened = Storage(storage or file_url(place.output / DATABASE), place.output, lost)
    try:
        study = open_study(opened, name, space, search)
        folder.open()
        tidy_finished(folder)
        tuner = Tuner(study, opened, space, place, search, listener)
        interrupted = tuner.run()
        outcome = TuneOutcome.of(study, space, place.output, opened.name, search.trials, interrupted=interrupted)
    except storage_errors() as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200].rstrip(".")
        raise StateError(
            f"the study in {opened.name} cannot be reached any more ({reason}): finished runs are kept, and the same "
            "command goes on."
        ) from error
    finally:
        opened.close()
    save_outcome(outcome, space)
    return outcome


def _check_files(space: Space, place: TunePlace) -> None:
    """Refuse before the first trial what each of them would fail for."""
    shelf = Shelf(place.data, network=place.network)
    missing = dict.fromkeys(lack for recipe in space.corners() for lack in shelf.lacks(recipe))
    if missing:
        raise InputError(
            f"{space.recipe.name} lacks files: {'; '.join(missing)}. Give the folder of your files with --data, or "
            "allow the network with --download."
        )

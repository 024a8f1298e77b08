"""What came out of tuning: the trials, the best of them, and its recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from headwise.disk import save_content
from headwise.experiments.files import recipe_text
from headwise.experiments.spreadsheet import table_text
from headwise.experiments.sweeps.axes import label_of
from headwise.experiments.sweeps.folder import writing
from headwise.experiments.tuning.space import Space
from headwise.experiments.tuning.trials import ERROR, RETRIES, current, given_up

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

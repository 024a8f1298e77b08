"""What must be in the record of a run: in headwise.json of `headwise train`, and in runs/KEY.json of a sweep."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headwise.documents import Count, Document

# What must be in the files of a folder of results that say what it holds; of its runs, see record_schema.


class MarkFile(Document):
    """headwise-sweep.json."""

    format: int
    headwise: str


class AxisPart(Document):
    """What a sweep varies."""

    labels: list[str]
    keys: list[str]


class PointPart(Document):
    """A run, and its label on every axis."""

    key: str
    point: dict[str, str]


class ComparePart(Document):
    """What is compared with what."""

    by: str | list[str] | None = None
    baseline: str | None = None
    within: str | list[str] | None = None


class ManifestFile(Document):
    """sweeps/NAME.json."""

    name: str
    axes: dict[str, AxisPart]
    compare: ComparePart | None = None
    runs: list[PointPart]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for place, run in enumerate(self.runs):
            for name, axis in self.axes.items():
                if run.point.get(name) not in axis.labels:
                    raise ValueError(f"runs.{place} has no place on axis {name!r}")
        return self


Scores = dict[str, float]
Seed = Annotated[int, Field(ge=0)]


class RecipeInRecord(Document):
    """Of a recipe, what those rely on who do not read it as one: comparisons and reports."""

    name: str = ""
    task: dict[str, Any] = {}
    tasks: dict[str, dict[str, Any]] = {}
    model: str = ""
    guides: dict[str, Any] = {}
    ssa: dict[str, Any] | None = None
    data: dict[str, Any] = {}
    training: dict[str, Any] = {}
    seed: Seed


class Environment(Document):
    """Where a run happened."""

    headwise: str = ""
    threads: Count | None = None
    processes: Count = 1
    accelerator: str | None = None
    precision: str | None = None
    packages: dict[str, str] = {}


# -- answers to every example ------------------------------------------------------------------------------------------


class PlainAnswers(Document):
    """Predictions of a classifier or a regression beside what was right."""

    examples: str

    def _same_length(self, gold: int, predictions: int) -> None:
        if not gold == predictions > 0:
            raise ValueError(f"{predictions} predictions for {gold} examples")


class Classes(PlainAnswers):
    """Of a classifier."""

    kind: Literal["classification"]
    gold: list[Count]
    predictions: list[Count]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._same_length(len(self.gold), len(self.predictions))
        return self


class Numbers(PlainAnswers):
    """Of a regression."""

    kind: Literal["regression"]
    gold: list[float]
    predictions: list[float]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._same_length(len(self.gold), len(self.predictions))
        return self


class Rankings(Document):
    """The measures of every claim."""

    kind: Literal["ranking"]
    examples: str
    per_query: Annotated[dict[str, Scores], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        measures = {frozenset(each) for each in self.per_query.values()}
        if len(measures) > 1 or frozenset() in measures:
            raise ValueError("the claims do not have the same measures")
        return self


Outputs = dict[str, Annotated[Classes | Numbers | Rankings, Field(discriminator="kind")]]


class OutputsFile(Document):
    """outputs.json."""

    outputs: Outputs


# -- runs of a sweep ---------------------------------------------------------------------------------------------------


class TaskResults(Document):
    """One of several tasks."""

    primary: str


class StoredResults(Document):
    """The results of a run, as far as comparisons need them."""

    metrics: dict[str, Scores | None]
    primary: str
    tasks: dict[str, TaskResults] = {}
    outputs: Outputs | None = None
    seconds_per_epoch: list[float] | None = None


class Times(Document):
    """How long it took."""

    seconds_per_epoch: list[float] | None = None


class StoredEnvironment(Environment):
    """With the times, which depend on the machine."""

    times: Times | None = None


class StoredRecord(Document):
    """A finished run of a sweep."""

    recipe: RecipeInRecord
    examples: str | None = None
    results: StoredResults
    environment: StoredEnvironment


class TrialResults(StoredResults):
    """What tuning takes from a run that was made before."""

    steps: Count
    evaluations: list[dict[str, float]]

    @model_validator(mode="after")
    def _evaluated(self) -> Self:
        for number, each in enumerate(self.evaluations):
            for name in ("step", f"eval_{self.primary}"):
                if name not in each:
                    raise ValueError(f"evaluations.{number}.{name} is missing")
        return self


class TrialRecord(StoredRecord):
    """A finished run of a study."""

    results: TrialResults


class RunError(Document):
    """Why a run failed."""

    kind: str
    message: str


class FailedResults(Document):
    """The results of a run that failed."""

    error: RunError


class FailedRecord(Document):
    """A failed run of a sweep."""

    results: FailedResults


# -- folders of `headwise train` ---------------------------------------------------------------------------------------


class RunTaskResults(TaskResults):
    """One of several tasks."""

    labels: list[str]
    examples: dict[str, Count] = {}


class GuideResults(Document):
    """Weight and gradient share of a guide."""

    weight: float | None = None
    share: float | None = None


class ControlResults(Document):
    """The arm that important-heads training is compared with."""

    metrics: dict[str, Scores | None]
    last: dict[str, Scores | None]


class Results(Document):
    """The results of a run that came to its end."""

    metrics: dict[str, Scores | None]
    last: dict[str, Scores | None] | None = None
    control: ControlResults | None = None
    primary: str
    labels: list[str] | None = None
    tasks: Annotated[dict[str, RunTaskResults], Field(min_length=1)] | None = None
    steps: Count
    best_step: Count
    seconds_per_epoch: list[float] = []
    seconds_per_step: float | None = None
    examples: dict[str, Count] = {}
    guides: dict[str, GuideResults] = {}
    evaluations: list[dict[str, float | None]] = []

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name in ("tasks", "last", "control"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"{name} is null, expected keys with values")
        if any("step" not in each for each in self.evaluations):
            raise ValueError("an evaluation has no step")
        if self.tasks is None:
            if self.labels is None:
                raise ValueError("labels is missing")
            if len({frozenset(each) for each in self.metrics.values() if each}) > 1:
                raise ValueError("the splits do not have the same metrics")
            return self
        if self.last is None:
            raise ValueError("last is missing")
        others = [self.last, *([] if self.control is None else [self.control.metrics, self.control.last])]
        for other in others:
            if any(set(scores) - set(other.get(split) or {}) for split, scores in self.metrics.items() if scores):
                raise ValueError("the last model or the control lacks scores that the best one has")
        return self


class RunRecord(Document):
    """headwise.json."""

    recipe: RecipeInRecord
    data: str | None
    examples: str | None = None
    knowledge: dict[str, dict[str, Any]] = {}
    command: list[str] = []
    results: Results | None
    environment: Environment

    @model_validator(mode="after")
    def _same_tasks(self) -> Self:
        if self.results is not None and set(self.recipe.tasks) != set(self.results.tasks or {}):
            raise ValueError("recipe.tasks and results.tasks name different tasks")
        return self


# -- important heads, while a run with IAT is not finished -------------------------------------------------------------


class TaskHeads(Document):
    """Of one task: 1 where a head is important, by layers."""

    heads: Annotated[list[list[Annotated[int, Field(ge=0, le=1)]]], Field(min_length=1)]

    @model_validator(mode="after")
    def _even(self) -> Self:
        if len({len(row) for row in self.heads}) > 1:
            raise ValueError("the layers do not have the same number of heads")
        return self


class ImportanceFile(Document):
    """importance.json in the folder of an unfinished run."""

    step: Count
    tasks: dict[str, TaskHeads]

"""What must be in the record of a run: in headwise.json of `headwise train`, and in runs/KEY.json of a sweep."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headwise.documents import Count, Document

_Scores = dict[str, float]


# -- a folder of results -----------------------------------------------------------------------------------------------


class MarkFile(Document):
    """headwise-sweep.json."""

    format: int
    headwise: str


class _Axis(Document):
    labels: list[str]
    keys: list[str]


class _Point(Document):
    key: str
    point: dict[str, str]  # its label on every axis


class _Compare(Document):
    by: str | list[str] | None = None
    baseline: str | None = None
    within: str | list[str] | None = None


class ManifestFile(Document):
    """sweeps/NAME.json."""

    name: str
    axes: dict[str, _Axis]
    compare: _Compare | None = None
    runs: list[_Point]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for number, run in enumerate(self.runs):
            for name, axis in self.axes.items():
                if run.point.get(name) not in axis.labels:
                    raise ValueError(f"runs.{number} has no place on axis {name!r}")
        return self


# -- answers to every example ------------------------------------------------------------------------------------------


def _check_lengths(answers: Any) -> Any:
    if not len(answers.gold) == len(answers.predictions) > 0:
        raise ValueError(f"{len(answers.predictions)} predictions for {len(answers.gold)} examples")
    return answers


class _Classes(Document):
    kind: Literal["classification"]
    examples: str
    gold: list[Count]
    predictions: list[Count]

    _fits = model_validator(mode="after")(_check_lengths)


class _Numbers(Document):
    kind: Literal["regression"]
    examples: str
    gold: list[float]
    predictions: list[float]

    _fits = model_validator(mode="after")(_check_lengths)


class _Rankings(Document):
    kind: Literal["ranking"]
    examples: str
    per_query: Annotated[dict[str, _Scores], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        measures = {frozenset(each) for each in self.per_query.values()}
        if len(measures) > 1 or frozenset() in measures:
            raise ValueError("the claims do not have the same measures")
        return self


_Outputs = dict[str, Annotated[_Classes | _Numbers | _Rankings, Field(discriminator="kind")]]


class OutputsFile(Document):
    """outputs.json."""

    outputs: _Outputs


# -- runs of a sweep ---------------------------------------------------------------------------------------------------


class _Recipe(Document):
    # What those rely on who do not read it as a recipe: comparisons and reports.
    name: str = ""
    task: dict[str, Any] = {}
    tasks: dict[str, dict[str, Any]] = {}
    model: str = ""
    guides: dict[str, Any] = {}
    ssa: dict[str, Any] | None = None
    data: dict[str, Any] = {}
    training: dict[str, Any] = {}
    seed: Annotated[int, Field(ge=0)]


class _Times(Document):
    seconds_per_epoch: list[float] | None = None


class _Environment(Document):
    headwise: str = ""
    threads: Count | None = None
    processes: Count = 1
    accelerator: str | None = None
    precision: str | None = None
    packages: dict[str, str] = {}
    times: _Times | None = None  # of a sweep's runs


class _Baselines(Document):
    # Of one task, by split and system; the fine-tuned model is one of the systems.
    primary: str
    examples: dict[str, Count]
    of: dict[str, Count]
    metrics: dict[str, dict[Literal["majority", "mean", "frozen", "fine_tuned"], _Scores]]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if "validation" not in self.metrics:
            raise ValueError("metrics.validation is missing")
        for split, systems in self.metrics.items():
            for name in ("train", split):
                if name not in self.examples or name not in self.of:
                    raise ValueError(f"examples.{name} or of.{name} is missing")
            if "fine_tuned" not in systems:
                raise ValueError(f"metrics.{split}.fine_tuned is missing")
            for system, scores in systems.items():
                if self.primary not in scores or set(scores) != set(systems["fine_tuned"]):
                    raise ValueError(f"metrics.{split}.{system} does not have the metrics of the fine-tuned model")
        return self


class _TaskResults(Document):
    primary: str


class _StoredResults(_Times):
    metrics: dict[str, _Scores | None]
    primary: str
    tasks: dict[str, _TaskResults] = {}
    baselines: dict[str, _Baselines] = {}
    outputs: _Outputs | None = None


class StoredRecord(Document):
    """A finished run of a sweep, as far as comparisons need it."""

    recipe: _Recipe
    examples: str | None = None
    results: _StoredResults
    environment: _Environment


class _TrialResults(_StoredResults):
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
    """A finished run of a study: with what tuning takes from it."""

    results: _TrialResults


class _RunError(Document):
    kind: str
    message: str


class _FailedResults(Document):
    error: _RunError


class FailedRecord(Document):
    """A failed run of a sweep."""

    results: _FailedResults


# -- folders of `headwise train` ---------------------------------------------------------------------------------------


class _RunTaskResults(_TaskResults):
    labels: list[str]
    examples: dict[str, Count] = {}


class _GuideResults(Document):
    weight: float | None = None
    share: float | None = None


class _ControlResults(Document):
    metrics: dict[str, _Scores | None]
    last: dict[str, _Scores | None]


class _FinalScore(Document):
    # Of a re-ranker: how its first stage, its weights and its depth are used in a search.
    stage: Literal["bm25", "dense", "hybrid"]
    encoder: str | None
    depth: Annotated[int, Field(ge=1)]
    offset: Annotated[float, Field(ge=0)]
    fit: dict[str, Any]
    first_stage: dict[str, _Scores]


class _Results(Document):
    metrics: dict[str, _Scores | None]
    last: dict[str, _Scores | None] | None = None
    control: _ControlResults | None = None
    primary: str
    labels: list[str] | None = None
    tasks: Annotated[dict[str, _RunTaskResults], Field(min_length=1)] | None = None
    steps: Count
    best_step: Count
    seconds_per_epoch: list[float] = []
    seconds_per_step: float | None = None
    examples: dict[str, Count] = {}
    guides: dict[str, _GuideResults] = {}
    final: _FinalScore | None = None
    baselines: dict[str, _Baselines] = {}
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

    recipe: _Recipe
    data: str | None
    examples: str | None = None
    knowledge: dict[str, dict[str, Any]] = {}
    command: list[str] = []
    results: _Results | None
    environment: _Environment

    @model_validator(mode="after")
    def _same_tasks(self) -> Self:
        if self.results is not None and set(self.recipe.tasks) != set(self.results.tasks or {}):
            raise ValueError("recipe.tasks and results.tasks name different tasks")
        return self


# -- important heads, while a run with IAT is not finished -------------------------------------------------------------


class _TaskHeads(Document):
    heads: Annotated[list[list[Annotated[int, Field(ge=0, le=1)]]], Field(min_length=1)]  # 1 = important, by layers

    @model_validator(mode="after")
    def _even(self) -> Self:
        if len({len(row) for row in self.heads}) > 1:
            raise ValueError("the layers do not have the same number of heads")
        return self


class ImportanceFile(Document):
    """importance.json in the folder of an unfinished run."""

    step: Count
    tasks: dict[str, _TaskHeads]

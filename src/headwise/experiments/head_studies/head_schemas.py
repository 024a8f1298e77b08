"""What must be in the answers about heads, RUN/heads/NAME.json, for those who read them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headwise.documents import Count, Document
from headwise.experiments.head_studies.head_files import Answer

# What must be in analysis.json.


Size = Annotated[int, Field(ge=1, le=100_000)]


class StatisticPart(Document):
    """A statistic of every head, and its standard error."""

    mean: list[list[float]]
    error: list[list[float | None]] | None


class PatternPart(Document):
    """What heads were compared with."""

    name: str


class AnswersPart(Document):
    """What was answered to every example."""

    predictions: list[str | float]
    gold: list[str | None]
    texts: list[list[str]]


class PaperPart(Document):
    """A candidate of a claim."""

    id: str
    text: str
    relevant: bool
    rank: Count
    score: float


class ClaimPart(Document):
    """A claim and its candidates."""

    id: str
    text: str
    papers: list[PaperPart]


class KeptPart(Document):
    """An example whose maps were kept."""

    title: str
    place: Count | None
    texts: list[str]
    tokens: Annotated[list[str], Field(min_length=1)]
    sources: list[Annotated[int, Field(ge=-1, le=1)]]
    gold: str | None
    prediction: str
    probabilities: dict[str, float]
    token_scores: list[float | None] | None
    pooled: list[bool] | None
    threshold: float | None
    wanted: str | None

    @model_validator(mode="after")
    def _one_for_each_token(self) -> Self:
        for name in ("sources", "token_scores", "pooled"):
            values: Sequence[object] | None = getattr(self, name)
            if values is not None and len(values) != len(self.tokens):
                raise ValueError(f"{name} has {len(values)} values for {len(self.tokens)} tokens")
        return self


class AnalysisFile(Answer):
    """The whole file."""

    task: str
    name: str
    split: str
    examples: Size
    examples_key: str
    tokenizer: str
    max_length: Size
    labels: list[str]
    task_kind: Literal["classification", "regression", "ranking"]
    layers: Size
    heads: Size
    statistics: Annotated[dict[str, StatisticPart], Field(min_length=1)]
    pattern: PatternPart | None = None
    answers: AnswersPart | None
    claims: list[ClaimPart] | None
    kept: list[KeptPart]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, each in self.statistics.items():
            self._check_grid(f"statistics.{name}.mean", each.mean)
            if each.error is not None:
                self._check_grid(f"statistics.{name}.error", each.error)
        if self.answers is not None:
            for name in ("predictions", "gold", "texts"):
                if len(getattr(self.answers, name)) != self.examples:
                    raise ValueError(
                        f"answers.{name} has {len(getattr(self.answers, name))} values for {self.examples} examples"
                    )
        return self

    def _check_grid(self, where: str, grid: Sequence[Sequence[object]]) -> None:
        if len(grid) != self.layers or any(not 0 < len(row) <= self.heads for row in grid):
            raise ValueError(f"{where} does not have {self.layers} layers of {self.heads} heads")


Grid = Annotated[list[Annotated[list[float], Field(min_length=1)]], Field(min_length=1)]
Matrix = list[list[float | None]]


def _square(matrix: Matrix, size: int, what: str) -> None:
    if len(matrix) != size or any(len(row) != size for row in matrix):
        raise ValueError(f"{what} is not a matrix of {size} x {size}, one row and column for each task")


# -- importance --------------------------------------------------------------------------------------------------------


class TaskImportance(Document):
    """How much one task needs each head."""

    scores: Grid

    @model_validator(mode="after")
    def _even(self) -> Self:
        if len({len(row) for row in self.scores}) > 1:
            raise ValueError("the layers do not have the same number of heads")
        return self


class ImportanceFile(Answer):
    """importance.json."""

    tasks: dict[str, TaskImportance]


# -- pruning curves ----------------------------------------------------------------------------------------------------


class CurveSettingsPart(Document):
    """How a curve was made."""

    percent: list[float]
    number: list[Count]
    task: list[str]
    order: str
    controls: bool
    random: Count
    exact: bool
    keep_per_layer: Count
    granularity: str
    normalise: str
    examples: Count
    importance_split: str
    split: str
    limit: Count | None
    seed: Count


class MaskPart(Document):
    """One mask, and the metric of every task under it."""

    order: str
    step: Count | None
    pruned_for: str | None
    repeat: Count | None
    heads: list[Annotated[list[Count], Field(min_length=2, max_length=2)]]
    values: list[float]


class CurveFile(Answer):
    """prune-curve.json."""

    metrics: Annotated[dict[str, str], Field(min_length=1)]
    counts: list[Count]
    shape: Annotated[list[Annotated[int, Field(ge=1, le=10_000)]], Field(min_length=2, max_length=2)]
    settings: CurveSettingsPart
    masks: Annotated[list[MaskPart], Field(min_length=1)]
    importance: dict[str, dict[str, Any]]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        steps = len(self.settings.percent or self.settings.number)
        if len(self.counts) != steps:
            raise ValueError(f"counts has {len(self.counts)} steps, and the settings {steps}")
        for place, mask in enumerate(self.masks):
            if len(mask.values) != len(self.metrics):
                raise ValueError(f"masks.{place} has {len(mask.values)} values for {len(self.metrics)} tasks")
            if any(layer >= self.shape[0] or head >= self.shape[1] for layer, head in mask.heads):
                raise ValueError(f"masks.{place} silences a head that the model does not have")
            if mask.step is not None and mask.step >= steps:
                raise ValueError(f"masks.{place} belongs to step {mask.step}, and there are {steps}")
        return self


# -- D-scores ----------------------------------------------------------------------------------------------------------


class MeanScore(Document):
    """The mean over tasks of one variant of the score."""

    mean: float | None


class Scores(Document):
    """A score, as far as pages show it."""

    row: MeanScore


class Within(Document):
    """The interval of a score."""

    low: Scores
    high: Scores


class Null(Document):
    """What chance gives."""

    p: Scores | None


class Pair(Document):
    """Whether two tasks dissociate doubly."""

    tasks: list[str]
    holds: bool | None


class DissociationPart(Scores):
    """The D-scores of one step of a curve, or their mean."""

    retained: Matrix
    interval: Within
    null: dict[str, Null | None]
    double_dissociation: list[Pair]
    undefined: dict[str, str]


class DissociationStep(DissociationPart):
    """Those of one step."""

    percent: float | None
    heads: Count


class Draws(Document):
    """How many masks were drawn."""

    masks: Count


class DissociationFile(Answer):
    """dissociation.json."""

    tasks: list[str]
    pruned_for: list[str]
    null_draws: dict[str, Draws | None]
    steps: list[DissociationStep]
    mean: DissociationPart

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if strange := [task for task in self.pruned_for if task not in self.tasks]:
            raise ValueError(f"pruned_for names {strange[0]!r}, which is not one of the tasks")
        for part in (*self.steps, self.mean):
            _square(part.retained, len(self.tasks), "retained")
            for name, null in part.null.items():
                if null is not None and null.p is not None and self.null_draws.get(name) is None:
                    raise ValueError(f"null_draws.{name} is missing")
        return self


# -- similarity --------------------------------------------------------------------------------------------------------


class Overlaps(Document):
    """By the share of heads that counts as important."""

    overlap: dict[str, Matrix]
    chance: dict[str, float]


class Cosines(Document):
    """Of the gradients of the encoder."""

    total: Matrix


class SimilarityFile(Answer):
    """similarity.json."""

    tasks: list[str]
    importance: Overlaps
    gradients: Cosines

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _square(self.gradients.total, len(self.tasks), "gradients.total")
        for share, matrix in self.importance.overlap.items():
            _square(matrix, len(self.tasks), f"importance.overlap.{share}")
            try:
                float(share)
            except ValueError:
                raise ValueError(f"importance.overlap has the share {share!r}, expected a number") from None
            if share not in self.importance.chance:
                raise ValueError(f"importance.chance.{share} is missing")
        return self

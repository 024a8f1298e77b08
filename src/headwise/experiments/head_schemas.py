"""What must be in the answers about heads, RUN/heads/NAME.json, for those who read them again."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from headwise.experiments.documents import Count, Document
from headwise.experiments.head_files import Answer

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

"""What must be in analysis.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headwise.experiments.documents import Count, Document
from headwise.experiments.head_files import Answer

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

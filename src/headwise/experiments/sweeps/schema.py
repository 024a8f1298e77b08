"""What must be in the files of a folder of results that say what it holds; of its runs, see record_schema."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from headwise.experiments.documents import Document


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

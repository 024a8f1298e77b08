"""What a comparison comes to: tables of systems, each with its tests against the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwise.experiments.comparison.examples import ExampleTest
from headwise.experiments.comparison.times import Times
from headwise.metrics import SeedScores, SeedTest, holm

# Stars below these p-values, as in the tables of arXiv 2204.02922.
LEVELS = ((0.01, "**"), (0.05, "*"))


@dataclass(frozen=True)
class Row:
    """One system by one metric."""

    system: str
    seeds: tuple[int, ...]
    scores: SeedScores
    by_seed: SeedTest | None = None
    """Against the baseline; None for the baseline itself."""
    by_example: ExampleTest | None = None
    """The same; None also where runs do not keep their answers."""
    times: Times | None = None
    holm: Mapping[str, float] = field(default_factory=dict)
    """By kind of test, the p-value corrected for all tests of this kind that are shown together."""
    stars: str = ""

    @property
    def p(self) -> dict[str, float]:
        """By kind of test, the p-value, where there is one."""
        found = {kind: value(self) for kind, value in KINDS.items()}
        return {kind: p for kind, p in found.items() if p is not None}

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "system": self.system,
            "seeds": list(self.seeds),
            **self.scores.as_data(),
            "by_seed": None if self.by_seed is None else self.by_seed.as_data(),
            "by_example": None if self.by_example is None else self.by_example.as_data(),
            "p": self.p,
            "holm": dict(self.holm),
            "stars": self.stars,
            "times": None if self.times is None else self.times.as_data(),
        }


def _seed_test(name: str) -> Callable[[Row], float | None]:
    return lambda row: None if row.by_seed is None else getattr(row.by_seed, name)


def _example_test(name: str) -> Callable[[Row], float | None]:
    return lambda row: None if row.by_example is None else getattr(row.by_example, name)


KINDS: dict[str, Callable[[Row], float | None]] = {
    "t": _seed_test("t_test_p"),
    "permutation": _seed_test("permutation_p"),
    "mcnemar": _example_test("mcnemar_p"),
    "bootstrap": _example_test("bootstrap_p"),
    "randomisation": _example_test("randomisation_p"),
}


@dataclass(frozen=True)
class Table:
    """The systems of one block by one metric, the baseline first."""

    within: Mapping[str, str]
    """The labels that are the same for all of them."""
    metric: str
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """The block, for people."""
        return ", ".join(f"{name} {label}" for name, label in self.within.items())

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {"within": dict(self.within), "metric": self.metric, "rows": [row.as_data() for row in self.rows]}


def correct(tables: Sequence[Table], stars: str) -> tuple[Table, ...]:
    """With Holm's correction over all tests of one kind in all tables, and stars by the t-test."""
    corrected: dict[tuple[int, int], dict[str, float]] = {}
    for kind in KINDS:
        places = [
            (number, place)
            for number, table in enumerate(tables)
            for place, row in enumerate(table.rows)
            if kind in row.p
        ]
        values = holm([tables[number].rows[place].p[kind] for number, place in places])
        for each, value in zip(places, values, strict=True):
            corrected.setdefault(each, {})[kind] = value
    return tuple(
        replace(
            table,
            rows=tuple(
                _starred(replace(row, holm=corrected.get((number, place), {})), stars)
                for place, row in enumerate(table.rows)
            ),
        )
        for number, table in enumerate(tables)
    )


def stars_of(p: float | None) -> str:
    """One star below 0.05, two below 0.01."""
    return next((stars for level, stars in LEVELS if p is not None and p < level), "")


def _starred(row: Row, stars: str) -> Row:
    return replace(row, stars=stars_of((row.holm if stars == "holm" else row.p).get("t")))

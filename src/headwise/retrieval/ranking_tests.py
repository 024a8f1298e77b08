"""Rankings side by side: tests between them, and the file that keeps the measures of every claim."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.disk import new_file, save_content
from headwise.documents import parse
from headwise.errors import InputError
from headwise.metrics.ranking import MEASURES, RankingScores
from headwise.metrics.significance import PairedTest, holm, paired_test


@dataclass(frozen=True)
class Comparison:
    """A run tested against another by one measure, over all judged claims."""

    run: str
    against: str
    measure: str
    test: PairedTest
    p_holm: float
    """The p-value of the test, corrected for all tests that were made together."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        names = {"run": self.run, "against": self.against, "measure": self.measure}
        return {**names, **self.test.as_data(), "p_holm": self.p_holm}


def compare_runs(
    scores: Mapping[str, RankingScores],
    *,
    measures: Sequence[str] = MEASURES,
    pairs: Sequence[tuple[str, str]] | None = None,
    seed: int = 0,
) -> list[Comparison]:
    """Test runs against each other by every measure, and correct all p-values together (Holm).

    Args:
        scores: of each run.
        measures: which.
        pairs: a run and the one that it is tested against; None: every other run against the first.
        seed: of the resampling.
    """
    first, *others = scores
    pairs = [(run, first) for run in others] if pairs is None else pairs
    for run, against in pairs:
        _check_claims(scores, against, run)
    asked = [(run, against, measure) for run, against in pairs for measure in measures]
    tests = [
        paired_test(_column(scores[against], measure), _column(scores[run], measure, like=scores[against]), seed=seed)
        for run, against, measure in asked
    ]
    corrected = holm([test.p for test in tests])
    return [Comparison(*each, test, p) for each, test, p in zip(asked, tests, corrected, strict=True)]


def new_per_query(path: Path | None, *, overwrite: bool) -> AbstractContextManager[None]:
    """Lock the file for the measures of every claim; one that cannot be written is refused before any work is done."""
    if path is None:
        return nullcontext()
    if path.suffix != ".json":
        raise InputError(f"--per-query {path}: expected a name that ends in .json.")
    return new_file(path, "--per-query", replace=overwrite, example="claims.json")


def write_per_query(path: Path, scores: Mapping[str, RankingScores]) -> None:
    """Write the measures of every claim of every run, all or nothing."""
    content = {"measures": list(MEASURES), "runs": {name: each.as_data() for name, each in scores.items()}}
    save_content(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_per_query(path: Path) -> dict[str, RankingScores]:
    """Read what `write_per_query` wrote; the averages are taken again."""
    try:
        content = parse(path.read_text(encoding="utf-8"))
        return {name: _scores(run) for name, run in content["runs"].items()}
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror or error}; check its name.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} does not hold the measures of every claim: expected the JSON that --per-query writes; write it "
            "again."
        ) from error


def _scores(run: Mapping[str, Any]) -> RankingScores:
    per_query = {
        claim: {measure: float(row[measure]) for measure in MEASURES} for claim, row in run["per_query"].items()
    }
    return RankingScores.of(per_query, run["reachable"])


def _column(scores: RankingScores, measure: str, *, like: RankingScores | None = None) -> list[float]:
    """A measure of every claim, in the order of `like`."""
    return [scores.per_query[claim][measure] for claim in (like or scores).per_query]


def _check_claims(scores: Mapping[str, RankingScores], first: str, second: str) -> None:
    different = scores[first].per_query.keys() ^ scores[second].per_query.keys()
    if different:
        raise InputError(
            f"{len(different)} claims, such as {min(different)!r}, are in only one of {first} and {second}: expected "
            "the same claims in both; score them with the same judgements."
        )

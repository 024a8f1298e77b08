"""Evaluating runs: their measures against judgements, tests between them, and the file with every claim's measures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.disk import save_content
from headwise.documents import parse
from headwise.errors import InputError
from headwise.metrics.ranking import MEASURES, RankingScores, score_ranking
from headwise.metrics.significance import PairedTest, holm, paired_test
from headwise.retrieval.collections import Collection, Qrels, check_documents, choose_claims
from headwise.retrieval.corpus import open_corpus
from headwise.retrieval.trec import read_qrels, read_run


@dataclass(frozen=True)
class Comparison:
    """A run tested against another by one measure, over all judged claims."""

    run: str
    against: str
    measure: str
    test: PairedTest
    p_holm: float
    """The p-value of the test, corrected for all tests of the same call."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        names = {"run": self.run, "against": self.against, "measure": self.measure}
        return {**names, **self.test.as_data(), "p_holm": self.p_holm}


def compare_runs(
    scores: Mapping[str, RankingScores],
    *,
    measures: Sequence[str] | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    seed: int = 0,
) -> list[Comparison]:
    """Test runs against each other by every measure, and correct all p-values together (Holm).

    Args:
        scores: of each run.
        measures: which; None: all that the runs were scored by.
        pairs: a run and the one that it is tested against; None: every other run against the first.
        seed: of the resampling.
    """
    first, *others = scores
    if measures is None:
        measures = list(scores[first].strict)
    names, tests = [], []
    for run, against in [(run, first) for run in others] if pairs is None else pairs:
        one, other = scores[against].per_query, scores[run].per_query
        if different := one.keys() ^ other.keys():
            raise InputError(
                f"{len(different)} claims, such as {min(different)!r}, are in only one of {against} and {run}: "
                "expected the same claims in both; score them with the same judgements."
            )
        for measure in measures:
            values = [[side[claim][measure] for claim in one] for side in (one, other)]
            names.append((run, against, measure))
            tests.append(paired_test(*values, seed=seed))
    corrected = holm([test.p for test in tests])
    return [Comparison(*name, test, p) for name, test, p in zip(names, tests, corrected, strict=True)]


def read_judgements(
    qrels: Path | None, collection: Collection | None, split: str | None = None, *, cache: Path | None = None
) -> tuple[str, Qrels, Sequence[str]]:
    """The judgements of a qrels file or of a collection, with their source and notes about what was left out.

    Judgements of a collection count as in `retrieve`: those of unknown documents are refused, or dropped.
    """
    if qrels is not None and collection is not None:
        raise InputError(
            f"qrels={qrels} and collection={collection.folder}: judgements come from one of them; leave one out."
        )
    if qrels is not None:
        if split is not None:
            raise InputError(f"split={split} chooses claims of a collection: leave it out, or give collection=FOLDER.")
        judged = read_qrels(qrels)
        if not any(grade > 0 for grades in judged.values() for grade in grades.values()):
            raise InputError(f"{qrels} has no grade above 0, so nothing is to be found: give judgements with answers.")
        return str(qrels), judged, ()
    if collection is None:
        raise InputError("no judgements to score by: give qrels=FILE or collection=FOLDER.")
    if not choose_claims(collection, split).qrels:
        raise InputError(f"{collection.folder} has no judgements: give those of its claims as qrels=FILE.")
    collection = check_documents(collection, open_corpus(collection, cache))
    claims = choose_claims(collection, split)
    return f"{collection.folder} ({claims.split})", claims.qrels, collection.notes


def score_run(
    path: Path, qrels: Qrels, source: str, measures: Sequence[str] = MEASURES
) -> tuple[RankingScores, list[str]]:
    """The measures of a TREC run, and notes about claims that only one of run and judgements has.

    Args:
        path: the run.
        qrels: the judgements.
        source: of the judgements, for messages.
        measures: as in `score_ranking`.
    """
    run = read_run(path)
    if run.keys().isdisjoint(qrels):
        raise InputError(
            f"{path} and {source} share no claim: the one begins with {next(iter(run))!r}, the other with "
            f"{next(iter(qrels))!r}; give the judgements that belong to the run."
        )
    scores, notes = score_ranking(qrels, run, measures), []
    if missing := len(scores.per_query.keys() - run.keys()):
        notes.append(f"{missing} of {len(scores.per_query)} judged claims have no candidates: 0 each")
    if unjudged := len(run.keys() - qrels.keys()):
        notes.append(f"{unjudged} of {len(run)} claims are not judged: ignored")
    return scores, notes


def write_per_query(path: Path, scores: Mapping[str, RankingScores]) -> None:
    """Write the measures of every claim of every run, all or nothing."""
    names = list(dict.fromkeys(name for each in scores.values() for name in each.strict))
    content = {"measures": names, "runs": {name: each.as_data() for name, each in scores.items()}}
    save_content(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_per_query(path: Path) -> dict[str, RankingScores]:
    """Read what `write_per_query` wrote; the averages are computed again."""
    try:
        scores, content = {}, parse(path.read_text(encoding="utf-8"))
        for name, run in content["runs"].items():
            rows = run["per_query"].items()
            values = {claim: {measure: float(row[measure]) for measure in content["measures"]} for claim, row in rows}
            scores[name] = RankingScores.of(values, run["reachable"])
        return scores
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror or error}; check its name.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} does not hold the measures of every claim: expected the JSON that write_per_query writes; write "
            "it again."
        ) from error

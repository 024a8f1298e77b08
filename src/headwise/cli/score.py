"""`headwise score`: what TREC runs are worth, and whether they differ."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headwise.errors import InputError
from headwise.experiments.collections import Claims, CollectionChoice, choose_claims
from headwise.experiments.ranking import Comparison, compare_runs, new_per_query, write_per_query
from headwise.metrics.ranking import MEASURES, RankingScores, score_ranking
from headwise.tasks.retrieval.cache import retrieval_cache
from headwise.tasks.retrieval.collection import Qrels, Run
from headwise.tasks.retrieval.corpus import documents_key, open_corpus
from headwise.tasks.retrieval.read import check_documents
from headwise.tasks.retrieval.trec import read_qrels, read_run

# Columns of a file or a pipe, which need not be broken as those of a terminal.
WIDTH = 160


def run_score(
    runs: list[Path],
    qrels: Path | None,
    choice: CollectionChoice | None,
    split: str | None,
    per_query: Path | None,
    *,
    cache: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Measure runs, test the others against the first, and print both."""
    with new_per_query(per_query, overwrite=overwrite):
        names = run_names(runs)
        judged = _judged(qrels, choice, split, cache)
        scores = {name: _scored(name, path, judged) for name, path in zip(names, runs, strict=True)}
        tests = compare_runs(scores)
        if per_query is not None:
            write_per_query(per_query, scores)
    if as_json:
        files = dict(zip(names, map(str, runs), strict=True))
        typer.echo(json.dumps(_as_data(judged, files, scores, tests), indent=2, ensure_ascii=False))
    else:
        print_tables(measures_table(scores), *_tables_of(tests))


def run_names(paths: Sequence[Path]) -> list[str]:
    """A short name for every file: without folder and suffix if that tells them apart, with them if not."""
    whole = [path.expanduser().resolve() for path in paths]
    for number, path in enumerate(whole):
        if path in whole[:number]:
            raise InputError(f"{paths[number]} is given twice: name every run once.")
    forms: list[Callable[[Path], str]] = [
        lambda path: path.stem,
        lambda path: path.name,
        lambda path: f"{path.parent.name}/{path.stem}",
    ]
    for form in forms:
        names = [form(path) for path in whole]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def measures_table(scores: Mapping[str, RankingScores]) -> Table:
    """Two rows for each run: over the claims whose gold is among the candidates, and over all."""
    caption = "n of m: the claims with a gold document among their candidates; all: strict, the others count 0."
    table = Table("run", "claims", box=None, caption=caption, caption_justify="left")
    for name in MEASURES:
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in scores.items():
        total = len(each.per_query)
        table.add_row(escape(name), f"{len(each.reachable)} of {total}", *_cells(each.found))
        table.add_row("", f"all {total}", *_cells(each.strict))
    return table


def tests_table(tests: Sequence[Comparison]) -> Table:
    """A row for each measure of one run: its difference from the first run, and how sure that is."""
    table = Table(title=f"{escape(tests[0].run)} against {escape(tests[0].against)}", title_justify="left", box=None)
    table.add_column("measure", no_wrap=True)
    for name in ("change", "95 % interval", "p", "Holm", "better", "worse", "equal"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in tests:
        test = each.test
        interval = f"{test.low:+.4f} to {test.high:+.4f}"
        counts = (str(count) for count in (test.better, test.worse, test.equal))
        table.add_row(each.measure, f"{test.difference:+.4f}", interval, f"{test.p:.4f}", f"{each.p_holm:.4f}", *counts)
    return table


def print_tables(*tables: Table, stream: TextIO | None = None) -> None:
    """Print tables, on standard output if nothing else is named, broken only to fit a terminal."""
    stream = sys.stdout if stream is None else stream
    console = Console(file=stream, width=None if stream.isatty() else WIDTH)
    for number, table in enumerate(tables):
        if number:
            console.print()
        console.print(table)


@dataclass(frozen=True)
class _Judged:
    where: str
    """For messages."""
    qrels: Qrels


def _judged(path: Path | None, choice: CollectionChoice | None, split: str | None, cache: Path | None) -> _Judged:
    if path is not None and choice is not None:
        raise InputError(
            f"--qrels {path} and --collection {choice.folder}: judgements come from one of them; leave one out."
        )
    if path is not None:
        if split is not None:
            raise InputError(
                f"--split {split} chooses claims of a --collection: leave it out, or give one for --qrels."
            )
        judged = read_qrels(path)
        if not any(grade > 0 for grades in judged.values() for grade in grades.values()):
            raise InputError(f"{path} has no grade above 0, so nothing is to be found: give judgements with answers.")
        return _Judged(str(path), judged)
    if choice is None:
        raise InputError("no judgements to score by: give --qrels FILE, or --collection FOLDER.")
    claims = _claims(choice, split, cache)
    return _Judged(f"{choice.folder} ({claims.split})", claims.qrels)


def _claims(choice: CollectionChoice, split: str | None, cache: Path | None) -> Claims:
    """As `retrieve` counts them: judgements of documents that nobody can find are refused, or dropped if asked."""
    collection = choice.read()
    if not choose_claims(collection, split).qrels:
        raise InputError(f"{choice.folder} has no judgements: give those of its claims with --qrels FILE.")
    corpus = open_corpus(collection, retrieval_cache(cache), documents_key(collection))
    checked = check_documents(collection, corpus, drop_unknown=choice.drop_unknown)
    for note in checked.notes:
        typer.echo(note, err=True)
    return choose_claims(checked, split)


def _scored(name: str, path: Path, judged: _Judged) -> RankingScores:
    run = read_run(path)
    if run.keys().isdisjoint(judged.qrels):
        raise InputError(
            f"{path} and {judged.where} share no claim: the one begins with {next(iter(run))!r}, the other with "
            f"{next(iter(judged.qrels))!r}; give the judgements that belong to the run."
        )
    scores = score_ranking(judged.qrels, run)
    _tell_what_is_missing(name, run, scores, judged)
    return scores


def _tell_what_is_missing(name: str, run: Run, scores: RankingScores, judged: _Judged) -> None:
    missing = len(scores.per_query.keys() - run.keys())
    if missing:
        typer.echo(f"{name}: {missing} of {len(scores.per_query)} judged claims have no candidates: 0 each", err=True)
    passed = len(run.keys() - judged.qrels.keys())
    if passed:
        typer.echo(f"{name}: {passed} of {len(run)} claims are not judged: passed over", err=True)


def _tables_of(tests: list[Comparison]) -> list[Table]:
    """A table for each run; the last says how to read them."""
    tables = [tests_table([each for each in tests if each.run == run]) for run in {each.run: None for each in tests}]
    if tables:
        tables[-1].caption_justify = "left"
        tables[-1].caption = (
            "Over all claims. p: paired randomisation test, two-sided; Holm: corrected for all "
            f"{len(tests)} tests shown; better, worse, equal: claims."
        )
    return tables


def _cells(values: Mapping[str, float] | None) -> list[str]:
    return ["-" if values is None else f"{values[name]:.4f}" for name in MEASURES]


def _as_data(
    judged: _Judged, files: dict[str, str], scores: dict[str, RankingScores], tests: list[Comparison]
) -> dict[str, object]:
    return {
        "judgements": judged.where,
        "measures": list(MEASURES),
        "runs": {
            name: {
                "file": files[name],
                **each.summary(),
                "reachable": list(each.reachable),
                "per_query": each.per_query,
            }
            for name, each in scores.items()
        },
        "tests": [each.as_data() for each in tests],
    }

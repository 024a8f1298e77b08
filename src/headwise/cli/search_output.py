"""`headwise score`: what TREC runs are worth, and whether they differ."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headwise.cache import retrieval_cache
from headwise.cli.progress_bar import keeping, progress
from headwise.errors import InputError
from headwise.experiments.searcher import Found, Named, Paper, Reading, check_claim, open_searcher
from headwise.metrics.ranking import MEASURES, RankingScores, score_ranking
from headwise.retrieval.collections import Qrels, Run
from headwise.retrieval.corpus import documents_key, open_corpus
from headwise.retrieval.explain import Explanation, Word
from headwise.retrieval.ranking_tests import Comparison, compare_runs, new_per_query, write_per_query
from headwise.retrieval.retrieval_task import check_documents
from headwise.retrieval.retrieve import Claims, CollectionChoice, choose_claims
from headwise.retrieval.trec import read_qrels, read_run
from headwise.training.encoders import quiet_libraries

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


# `headwise search`: the papers behind one claim, and where the claim's attention goes in the best of them.


# How many words are named and marked.
STRONGEST = 10
# Seen without colours too.
STYLE = "bold reverse"
# After Ctrl-C.
KEPT = "nothing was found yet, and the same command begins again with what the cache has"
# Where there are no styles: in a file or a pipe.
MARK = "**"


def run_search(
    run: Path,
    claim: str,
    named: Named,
    *,
    top: int,
    depth: int,
    explain: bool,
    batch: int | None,
    precision: str,
    cache: Path | None,
    as_json: bool,
) -> None:
    """Search for one claim and print what was found."""
    claim = check_claim(claim)
    reading = Reading(top, depth, explain, batch, precision)
    quiet_libraries()
    with keeping(lambda: KEPT), progress() as shown:
        searcher = open_searcher(run, named, cache=cache, listener=shown)
        found = searcher.search(claim, reading, shown)
    if as_json:
        about = {"run": str(run), "collection": str(searcher.folder), "documents": len(searcher.index.corpus)}
        typer.echo(json.dumps({**about, **found.as_dict()}, indent=2, ensure_ascii=False))
    else:
        _print(found, len(searcher.index.corpus))


def _print(found: Found, documents: int) -> None:
    """Print tables and text, broken only to fit a terminal."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    console.print(_papers(found))
    console.print(f"model: the logit of the re-ranker, which read the best {found.candidates} of {documents} by BM25.")
    if found.explanation is not None:
        for part in _explained(found.papers[0], found.explanation, styled=console.color_system is not None):
            console.print()
            console.print(part)


def _papers(found: Found) -> Table:
    """A row for each paper, the best first."""
    table = Table(box=None)
    for name in ("rank", "model", "BM25", "BM25 rank"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("paper", no_wrap=True)
    table.add_column("title")  # the only one that may give way
    for paper in found.papers:
        numbers = (str(paper.rank), f"{paper.score:.3f}", f"{paper.bm25_score:.3f}", str(paper.bm25_rank))
        title = Text(_visible(paper.title) or "-", no_wrap=True, overflow="ellipsis")
        table.add_row(*numbers, Text(_visible(paper.id)), title)
    return table


def _explained(paper: Paper, explanation: Explanation, *, styled: bool) -> Iterator[Text | Table]:
    words = explanation.strongest(STRONGEST)
    yield Text(f"claim: {_visible(explanation.claim)}")
    yield Text(f"paper: {_visible(paper.id)} {_visible(paper.title)}".rstrip())
    yield _marked(explanation, words, styled=styled)
    yield _words(words)
    yield _links(explanation)
    yield Text(_remarks(explanation))


def _marked(explanation: Explanation, words: list[Word], *, styled: bool) -> Text:
    """What the model read of the paper, with these words set off."""
    text, marked, place = _visible(explanation.text), Text(), 0
    for word in sorted(words, key=lambda word: word.start):
        marked.append(text[place : word.start])
        shown = text[word.start : word.end]
        marked.append(shown if styled else f"{MARK}{shown}{MARK}", STYLE if styled else None)
        place = word.end
    marked.append(text[place : explanation.read])
    return marked.append(" ..." if explanation.truncated and text[explanation.read :].strip() else "")


def _words(words: list[Word]) -> Table:
    table = Table("word", box=None)
    table.add_column("share", justify="right", no_wrap=True)
    for word in words:
        table.add_row(Text(_visible(word.text)), _percent(word.share))
    return table


def _links(explanation: Explanation) -> Table:
    table = Table("word of the claim", "looks most at", box=None)
    table.add_column("share", justify="right", no_wrap=True)
    for link in explanation.links:
        strongest = link.strongest
        table.add_row(Text(_visible(link.text)), Text(_visible(strongest.text)), _percent(strongest.share))
    return table


def _remarks(explanation: Explanation) -> str:
    """What one has to know to read the tables."""
    parts = (explanation.special_share, explanation.claim_share, explanation.paper_share)
    special, claim, paper = map(_percent, parts)
    even = _percent(1 / len(explanation.words))
    remarks = [
        "Attention is where the model looks, not a proof of why it decides.",
        f"Over all layers and heads, {special} of the claim's attention went to special tokens such as [CLS], {claim} "
        f"to the claim itself, and {paper} to the paper: shares are of that to its {len(explanation.words)} words,",
        f"each of which would have {even} if the claim looked at them evenly.",
    ]
    if explanation.truncated:
        remarks.append("The pair was longer than the model reads: the rest was cut off.")
    return " ".join(remarks)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _visible(text: str) -> str:
    """The text, character by character, with a space for what would move the cursor or cannot be written."""
    return "".join(
        " " if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") else character for character in text
    )

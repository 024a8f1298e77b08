"""The commands of retrieval: retrieve, rerank, score, search."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headwise.cli.console import WIDTH, print_json, print_tables
from headwise.cli.parameters import AllowCode, AsJson
from headwise.cli.progress_bar import keeping, progress
from headwise.errors import InputError, choices

if TYPE_CHECKING:
    from headwise.metrics.ranking import RankingScores
    from headwise.retrieval.evaluate import Comparison
    from headwise.retrieval.explain import Explanation
    from headwise.retrieval.search import Paper, Ranking, SearchResult

Batch = Annotated[int | None, typer.Option(min=1, help="Pairs at a time.", show_default=False)]
Cache = Annotated[
    Path | None,
    typer.Option(help="Folder for indexes; default HEADWISE_CACHE or the user's cache folder.", show_default=False),
]
Layout = Annotated[
    str | None, typer.Option(help="beir, scifact or cross-genre; by default decided by the files.", show_default=False)
]
Gold = Annotated[
    str, typer.Option(help="Of SciFact: evidence (papers that support or refute) or cited (as BEIR counts).")
]
DropUnknown = Annotated[
    bool, typer.Option("--drop-unknown", help="Ignore judgements of documents that are not in the corpus.")
]
Split = Annotated[
    str | None, typer.Option(help="Which claims; default test, or the only split there is; all for every claim.")
]
PerQuery = Annotated[
    Path | None, typer.Option("--per-query", help="File for the measures of every claim (.json).", show_default=False)
]
Stem = Annotated[str, typer.Option(help="Language whose word endings are cut off, or none.")]
StopWords = Annotated[str, typer.Option("--stop-words", help="Language whose most common words are left out, or none.")]
Output = Annotated[Path | None, typer.Option(help="TREC run to write; default standard output.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace output files.")]
Run = Annotated[
    Path, typer.Argument(help="Re-ranker: folder that `headwise train` or a CrossEncoder wrote.", show_default=False)
]
Of = Annotated[
    Path | None, typer.Option(help="Folder of the collection; default that of training.", show_default=False)
]
Precision = Annotated[str, typer.Option(help="fp32, or bf16: faster on processors made for it, scores a little off.")]

# Words of an explanation that are listed and marked; without styles, in a file or a pipe, MARK stands around them.
STRONGEST, STYLE, MARK = 10, "bold reverse", "**"


def add_commands(app: typer.Typer) -> None:
    """Put the commands of retrieval on the command line."""
    for command in (retrieve, rerank, score, search):
        app.command()(command)


def retrieve(
    collection: Annotated[Path, typer.Argument(help="Folder of the collection.", show_default=False)],
    top: Annotated[int, typer.Option(min=1, help="Candidates for each claim.")] = 100,
    split: Split = None,
    output: Output = None,
    layout: Layout = None,
    gold: Gold = "evidence",
    drop_unknown: DropUnknown = False,
    stem: Stem = "english",
    stop_words: StopWords = "english",
    k1: Annotated[float, typer.Option(min=0, help="BM25: how soon a repeated word stops counting.")] = 1.5,
    b: Annotated[float, typer.Option(min=0, max=1, help="BM25: how much long documents are held back.")] = 0.75,
    cache: Cache = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the index again.")] = False,
    per_query: PerQuery = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Find candidates for every claim of COLLECTION with BM25: a TREC run."""
    from headwise.retrieval.bm25 import IndexOptions, Words
    from headwise.retrieval.formats import read_collection
    from headwise.retrieval.search import retrieve

    with _output_files(output, per_query, overwrite=overwrite, as_json=as_json), progress() as shown:
        with keeping(lambda: "no run was written, and the same command begins again with what the cache has"):
            options = IndexOptions(Words(stem, stop_words), k1, b)
            papers = read_collection(collection, layout, gold=gold, drop_unknown=drop_unknown)
            ranking = retrieve(papers, shown, split=split, top=top, options=options, cache=cache, rebuild=rebuild)
            _check_judged(ranking.measures, per_query)
            _write(ranking, output, per_query)
        shown.end()
        _print_ranking(ranking, output, per_query, ranking.summary, as_json=as_json)


def rerank(
    run: Run,
    candidates: Annotated[Path, typer.Option(help="TREC run, or a table of Cross-genre-IR.", show_default=False)],
    collection: Of = None,
    split: Split = None,
    output: Output = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only the first so many candidates of each claim.")] = None,
    layout: Layout = None,
    gold: Gold = "evidence",
    drop_unknown: DropUnknown = False,
    batch: Batch = None,
    precision: Precision = "fp32",
    cache: Cache = None,
    per_query: PerQuery = None,
    overwrite: Overwrite = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Order the candidates of every claim by the model of RUN: a TREC run. Resumes where it was stopped."""
    from headwise.retrieval.rerank import is_table, read_candidates, rerank
    from headwise.retrieval.search import PRECISIONS

    with _output_files(output, per_query, overwrite=overwrite, as_json=as_json), progress() as shown:
        if precision not in PRECISIONS:
            raise InputError(f"--precision {precision}: {choices(precision, PRECISIONS)}.")
        from headwise.experiments.searcher import collection_of, reranker_folder
        from headwise.training.encoders import quiet_libraries

        folder = reranker_folder(run)
        quiet_libraries()
        papers = None
        if collection is not None or not is_table(candidates):  # a table brings its texts
            papers = collection_of(folder, collection, layout=layout, gold=gold, drop_unknown=drop_unknown)
        read = read_candidates(candidates, papers, shown, split=split, top=top, cache=cache)
        _check_judged(read.claims.qrels, per_query)
        ranking = rerank(folder, read, shown, batch=batch, precision=precision, cache=cache)
        _write(ranking, output, per_query)
        shown.end()
        summary = {"run": str(folder), **ranking.summary}
        _print_ranking(ranking, output, per_query, summary, as_json=as_json)
        ranking.done()


def score(
    runs: Annotated[list[Path], typer.Argument(help="TREC runs; others are compared with the first.")],
    qrels: Annotated[
        Path | None, typer.Option(help="Judgements: a TREC or BEIR qrels file.", show_default=False)
    ] = None,
    collection: Annotated[
        Path | None, typer.Option(help="Folder of a collection that has them.", show_default=False)
    ] = None,
    split: Split = None,
    layout: Layout = None,
    gold: Gold = "evidence",
    drop_unknown: DropUnknown = False,
    cache: Cache = None,
    per_query: PerQuery = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Measure TREC runs, and test claim by claim whether the others differ from the first."""
    from headwise.metrics.ranking import MEASURES
    from headwise.retrieval.evaluate import compare_runs, read_judgements, score_run, write_per_query
    from headwise.retrieval.formats import read_collection

    with _output_files(None, per_query, overwrite=overwrite):
        names = _short_names(runs)
        papers = None
        if collection is None and layout is not None:
            raise InputError(f"--layout {layout} is for --collection: name a collection, or leave --layout out.")
        if collection is None and gold != "evidence":
            raise InputError(f"--gold {gold} is for --collection: name a collection, or leave --gold out.")
        if collection is not None:
            papers = read_collection(collection, layout, gold=gold, drop_unknown=drop_unknown)
        source, judged, notes = read_judgements(qrels, papers, split, cache=cache)
        scores = {}
        for name, path in zip(names, runs, strict=True):
            scores[name], more = score_run(path, judged, source)
            notes = [*notes, *(f"{name}: {note}" for note in more)]
        for note in notes:
            typer.echo(note, err=True)
        tests = compare_runs(scores)
        if per_query is not None:
            write_per_query(per_query, scores)
    if as_json:
        files = dict(zip(names, map(str, runs), strict=True))
        about = {name: {"file": files[name], **each.summary(), **each.as_data()} for name, each in scores.items()}
        result = {"judgements": source, "measures": list(MEASURES), "runs": about}
        print_json({**result, "tests": [test.as_data() for test in tests]})
    else:
        by_run = [[test for test in tests if test.run == name] for name in names[1:]]
        tables = [_tests_table(each, len(tests) if each is by_run[-1] else None) for each in by_run]
        print_tables(_measures_table(scores), *tables)


def search(
    run: Run,
    claim: Annotated[str, typer.Argument(help="The claim, in quotation marks.", show_default=False)],
    collection: Of = None,
    top: Annotated[int, typer.Option(min=1, help="Papers to show.")] = 5,
    depth: Annotated[int, typer.Option(min=1, help="Candidates that the model reads.")] = 100,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the words of the best paper that the claim attends to.")
    ] = False,
    layout: Layout = None,
    batch: Batch = None,
    precision: Precision = "fp32",
    cache: Cache = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the papers behind one claim: BM25, then the model of RUN."""
    from headwise.retrieval.search import check_request

    claim = check_request(claim, top=top, depth=depth, precision=precision)
    from headwise.experiments.searcher import open_searcher
    from headwise.training.encoders import quiet_libraries

    quiet_libraries()
    nothing = "nothing was found yet, and the same command begins again with what the cache has"
    with keeping(lambda: nothing), progress() as shown:
        searcher = open_searcher(run, collection, layout=layout, cache=cache, progress=shown)
        result = searcher.search(
            claim, top=top, depth=depth, explain=explain, batch=batch, precision=precision, progress=shown
        )
    documents = len(searcher.index.corpus)
    if as_json:
        about = {"run": str(run), "collection": str(searcher.folder), "documents": documents}
        print_json({**about, **result.as_dict()})
    else:
        _print_papers(result, documents)


@contextmanager
def _output_files(
    output: Path | None, per_query: Path | None, *, overwrite: bool, as_json: bool = False
) -> Iterator[None]:
    """Refuse files that cannot be written, before any work, and lock them for the block."""
    from headwise.disk import new_file

    if output is None and as_json:
        raise InputError("--json needs --output: without it the run goes to standard output; name a file for it.")
    if output is not None and per_query is not None and output.absolute() == per_query.absolute():
        raise InputError(f"--output and --per-query are both {output}: name two files.")
    if per_query is not None and per_query.suffix != ".json":
        raise InputError(f"--per-query {per_query}: expected a name that ends in .json.")
    with ExitStack() as stack:
        for path, option, example in ((output, "--output", "run.trec"), (per_query, "--per-query", "claims.json")):
            if path is not None:
                stack.enter_context(new_file(path, option, replace=overwrite, example=example))
        yield


def _check_judged(judged: object, per_query: Path | None) -> None:
    if per_query is not None and not judged:
        raise InputError(f"--per-query {per_query}: no claim is judged, so there is nothing to write; leave it out.")


def _write(ranking: Ranking, output: Path | None, per_query: Path | None) -> None:
    """Write both files, each whole or not at all; if the second fails, a new first one is removed."""
    from headwise.retrieval.evaluate import write_per_query
    from headwise.retrieval.trec import write_run

    fresh = per_query is not None and not per_query.exists()
    if per_query is not None:
        write_per_query(per_query, ranking.measures)
    try:
        if output is not None:
            write_run(output, ranking.run, ranking.tag)
    except BaseException:
        if per_query is not None and fresh:
            per_query.unlink(missing_ok=True)
        raise


def _print_ranking(
    ranking: Ranking, output: Path | None, per_query: Path | None, summary: Mapping[str, Any], *, as_json: bool
) -> None:
    """Print the run if it has no file, and the measures; as JSON, the summary with the names of the files."""
    from headwise.retrieval.trec import run_lines

    if as_json:
        print_json({**summary, "output": str(output)} | ({"per_query": str(per_query)} if per_query else {}))
        return
    if output is None:
        typer.echo("".join(run_lines(ranking.run, ranking.tag)), nl=False)
    if ranking.measures:
        print_tables(_measures_table(ranking.measures), stream=sys.stderr if output is None else None)
    if output is not None:
        typer.echo(f"saved in {output}")


def _short_names(paths: Sequence[Path]) -> list[str]:
    """A short name for every file: without folder and suffix if these names differ, with them if not."""
    whole = [path.expanduser().resolve() for path in paths]
    for number, path in enumerate(whole):
        if path in whole[:number]:
            raise InputError(f"{paths[number]} is given twice: name every run once.")
    forms = [
        [path.stem for path in whole],
        [path.name for path in whole],
        [f"{path.parent.name}/{path.stem}" for path in whole],
    ]
    return next((names for names in forms if len(set(names)) == len(names)), [str(path) for path in paths])


def _measures_table(scores: Mapping[str, RankingScores]) -> Table:
    """Two rows for each run: over the claims whose gold is among the candidates, and over all."""
    from headwise.metrics.ranking import MEASURES

    caption = "n of m: the claims with a gold document among their candidates; all: strict, the others count 0."
    table = Table("run", "claims", box=None, caption=caption, caption_justify="left")
    for name in MEASURES:
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in scores.items():
        total = len(each.per_query)
        rows = ((escape(name), f"{len(each.reachable)} of {total}", each.found), ("", f"all {total}", each.strict))
        for label, claims, values in rows:
            cells = ["-" if values is None else f"{values[measure]:.4f}" for measure in MEASURES]
            table.add_row(label, claims, *cells)
    return table


def _tests_table(tests: Sequence[Comparison], explained: int | None) -> Table:
    """A row for each measure of one run: its difference from the first run; `explained`: of how many tests in all."""
    table = Table(title=f"{escape(tests[0].run)} against {escape(tests[0].against)}", title_justify="left", box=None)
    table.add_column("measure", no_wrap=True)
    for name in ("change", "95 % interval", "p", "Holm", "better", "worse", "equal"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in tests:
        test = each.test
        interval = f"{test.low:+.4f} to {test.high:+.4f}"
        counts = (str(count) for count in (test.better, test.worse, test.equal))
        table.add_row(each.measure, f"{test.difference:+.4f}", interval, f"{test.p:.4f}", f"{each.p_holm:.4f}", *counts)
    if explained is not None:
        table.caption_justify = "left"
        table.caption = (
            "Over all claims. p: paired randomisation test, two-sided; Holm: corrected for all "
            f"{explained} tests shown; better, worse, equal: claims."
        )
    return table


def _print_papers(result: SearchResult, documents: int) -> None:
    """Print a table of papers and the explanation, broken only to fit a terminal."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    table = Table(box=None)
    for name in ("rank", "model", "BM25", "BM25 rank"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("paper", no_wrap=True)
    table.add_column("title")  # the only one that may be cut
    for paper in result.papers:
        numbers = (str(paper.rank), f"{paper.score:.3f}", f"{paper.bm25_score:.3f}", str(paper.bm25_rank))
        title = Text(_printable(paper.title) or "-", no_wrap=True, overflow="ellipsis")
        table.add_row(*numbers, Text(_printable(paper.id)), title)
    console.print(table)
    console.print(f"model: the logit of the re-ranker, which read the best {result.candidates} of {documents} by BM25.")
    if result.explanation is not None:
        for part in _explained(result.papers[0], result.explanation, styled=console.color_system is not None):
            console.print()
            console.print(part)


def _explained(paper: Paper, explanation: Explanation, *, styled: bool) -> Iterator[Text | Table]:
    """The paper with its strongest words marked, these as a table, the words of the claim, and how to read it."""
    strongest = explanation.strongest(STRONGEST)
    yield Text(f"claim: {_printable(explanation.claim)}")
    yield Text(f"paper: {_printable(paper.id)} {_printable(paper.title)}".rstrip())
    text, marked, end = _printable(explanation.text), Text(), 0
    for word in sorted(strongest, key=lambda word: word.start):
        marked.append(text[end : word.start])
        shown = text[word.start : word.end]
        marked.append(shown if styled else f"{MARK}{shown}{MARK}", STYLE if styled else None)
        end = word.end
    marked.append(text[end : explanation.read])
    yield marked.append(" ..." if explanation.truncated and text[explanation.read :].strip() else "")
    words = [((word.text,), word.share) for word in strongest]
    links = [((link.text, link.strongest.text), link.strongest.share) for link in explanation.links]
    for headings, rows in ((("word",), words), (("word of the claim", "looks most at"), links)):
        table = Table(*headings, box=None)
        table.add_column("share", justify="right", no_wrap=True)
        for texts, share in rows:
            table.add_row(*(Text(_printable(each)) for each in texts), f"{100 * share:.1f} %")
        yield table
    parts = (explanation.special_share, explanation.claim_share, explanation.paper_share, 1 / len(explanation.words))
    special, own, to_paper, even = (f"{100 * share:.1f} %" for share in parts)
    yield Text(
        "Attention is where the model looks, not a proof of why it decides. Over all layers and heads, "
        f"{special} of the claim's attention went to special tokens such as [CLS], {own} to the claim itself, and "
        f"{to_paper} to the paper: shares are of that to its {len(explanation.words)} words, each of which would have "
        f"{even} if the claim looked at them evenly."
        + (" The pair was longer than the model reads: the rest was cut off." if explanation.truncated else "")
    )


def _printable(text: str) -> str:
    """The text, character by character, with a space for what would move the cursor or cannot be written."""
    return "".join(
        " " if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") else character for character in text
    )

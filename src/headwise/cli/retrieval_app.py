"""The commands of retrieval: retrieve, rerank, score, search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.allow_code import AllowCode
from headwise.errors import InputError

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Pairs at a time.", show_default=False)]
Cache = Annotated[
    Path | None,
    typer.Option(help="Folder for indexes; default HEADWISE_CACHE or the user's cache folder.", show_default=False),
]
Layout = Annotated[
    str | None, typer.Option(help="beir, scifact or cross-genre; found out if not given.", show_default=False)
]
Gold = Annotated[
    str, typer.Option(help="Of SciFact: evidence (papers that support or refute) or cited (as BEIR counts).")
]
DropUnknown = Annotated[
    bool, typer.Option("--drop-unknown", help="Pass over judgements of documents that are not in the corpus.")
]
Split = Annotated[
    str | None, typer.Option(help="Which claims; default test, or the only split there is; all for every claim.")
]
PerQuery = Annotated[
    Path | None, typer.Option("--per-query", help="File for the measures of every claim (.json).", show_default=False)
]
Stem = Annotated[str, typer.Option(help="Language whose word endings are cut off, or none.")]
StopWords = Annotated[str, typer.Option("--stop-words", help="Language whose commonest words are left out, or none.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace output files.")]
Run = Annotated[
    Path, typer.Argument(help="Re-ranker: folder that `headwise train` or a CrossEncoder made.", show_default=False)
]
Precision = Annotated[str, typer.Option(help="fp32, or bf16: faster on processors made for it, scores a little off.")]


def add_commands(app: typer.Typer) -> None:
    """Put the commands of retrieval on the command line."""
    for command in (retrieve, rerank, score, search):
        app.command()(command)


def retrieve(
    collection: Annotated[Path, typer.Argument(help="Folder of the collection.", show_default=False)],
    top: Annotated[int, typer.Option(min=1, help="Candidates for each claim.")] = 100,
    split: Split = None,
    output: Annotated[Path | None, typer.Option(help="TREC run to write; default standard output.")] = None,
    layout: Layout = None,
    gold: Gold = "evidence",
    drop_unknown: DropUnknown = False,
    stem: Stem = "english",
    stop_words: StopWords = "english",
    k1: Annotated[float, typer.Option(min=0, help="BM25: how soon a repeated word stops counting.")] = 1.5,
    b: Annotated[float, typer.Option(min=0, max=1, help="BM25: how much long documents are held back.")] = 0.75,
    cache: Cache = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the index again.")] = False,
    per_query: PerQuery = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Find candidates for every claim of COLLECTION with BM25: a TREC run."""
    from headwise.cli.ranking_output import RetrieveRequest as Asked
    from headwise.cli.ranking_output import RunOutput, run_retrieve
    from headwise.retrieval.retrieve import CollectionChoice

    choice = CollectionChoice(collection, layout=layout, gold=gold, drop_unknown=drop_unknown)
    written = RunOutput(output, per_query, overwrite, as_json)
    run_retrieve(Asked(choice, split, top, written, rebuild), stem=stem, stop_words=stop_words, k1=k1, b=b, cache=cache)


def rerank(
    run: Run,
    candidates: Annotated[
        Path,
        typer.Option(help="TREC run, or a table of Cross-genre-IR.", show_default=False),
    ],
    collection: Annotated[
        Path | None, typer.Option(help="Folder of the collection; default that of training.", show_default=False)
    ] = None,
    split: Split = None,
    output: Annotated[Path | None, typer.Option(help="TREC run to write; default standard output.")] = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only so many candidates of each claim.")] = None,
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
    """Order the candidates of every claim by the model of RUN: a TREC run. Goes on where it was stopped."""
    from headwise.cli.ranking_output import RerankRequest as Asked
    from headwise.cli.ranking_output import RunOutput, run_rerank
    from headwise.experiments.searcher import Named
    from headwise.retrieval.candidates import Chosen

    named = Named(collection, layout, gold, drop_unknown)
    written = RunOutput(output, per_query, overwrite, as_json)
    asked = Asked(run, candidates, named, Chosen(split, top), written)
    run_rerank(asked, batch=batch, precision=precision, cache=cache)


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
    from headwise.cli.search_output import run_score
    from headwise.retrieval.retrieve import CollectionChoice

    if collection is None and layout is not None:
        raise InputError(f"--layout {layout} is for --collection: name a collection, or leave --layout out.")
    choice = None if collection is None else CollectionChoice(collection, layout, gold, drop_unknown)
    run_score(runs, qrels, choice, split, per_query, cache=cache, overwrite=overwrite, as_json=as_json)


def search(
    run: Run,
    claim: Annotated[str, typer.Argument(help="The claim, in quotation marks.", show_default=False)],
    collection: Annotated[
        Path | None, typer.Option(help="Folder of the collection; default that of training.", show_default=False)
    ] = None,
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
    from headwise.cli.search_output import run_search
    from headwise.experiments.searcher import Named

    run_search(
        run,
        claim,
        Named(collection, layout),
        top=top,
        depth=depth,
        explain=explain,
        batch=batch,
        precision=precision,
        cache=cache,
        as_json=as_json,
    )

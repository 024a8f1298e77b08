"""The commands of retrieval: retrieve, rerank, score, search."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table

from headwise.cli import parameters as opt
from headwise.cli.console import print_parts, show, text_table
from headwise.cli.progress_bar import keeping, progress
from headwise.cli.search_results import page_file, print_papers, write_page
from headwise.errors import InputError, choices

if TYPE_CHECKING:
    from headwise.metrics.ranking import RankingScores
    from headwise.retrieval.collections import Collection
    from headwise.retrieval.dense_index import Mapper
    from headwise.retrieval.evaluate import Comparison
    from headwise.retrieval.search import Ranking

Cache = Annotated[
    Path | None,
    typer.Option(help="Folder for indexes; default HEADWISE_CACHE or the user's cache folder.", show_default=False),
]
Layout = Annotated[
    str | None,
    typer.Option(
        help="beir, scifact, cross-genre, table or text; by default decided by the files.", show_default=False
    ),
]
Download = Annotated[bool, typer.Option("--download", help="Let ir_datasets download a data set (irds:ID).")]


@dataclass(frozen=True)
class PaperOptions:
    """How the papers of a collection are read."""

    layout: Layout = None
    id: Annotated[
        str | None, typer.Option(help="Of a table of papers: the column of ids; default id, docno, pmid ...")
    ] = None
    title: Annotated[str | None, typer.Option(help="Of a table: the column of titles; default title.")] = None
    text: Annotated[str | None, typer.Option(help="Of a table: the column of texts; default text, abstract ...")] = None
    download: Download = False

    @property
    def form(self) -> dict[str, Any]:
        """How the files are read."""
        from headwise.retrieval.papers import Columns

        columns = Columns(self.id, self.title, self.text)
        return {"layout": self.layout, "columns": columns, "download": self.download}


@dataclass(frozen=True)
class ClaimOptions:
    """Which claims of a collection, and how its files are read."""

    split: Annotated[
        str | None, typer.Option(help="Which claims; default test, or the only split there is; all for every claim.")
    ] = None
    layout: Layout = None
    gold: Annotated[
        str, typer.Option(help="Of SciFact: evidence (papers that support or refute) or cited (as BEIR counts).")
    ] = "evidence"
    drop_unknown: Annotated[
        bool, typer.Option("--drop-unknown", help="Ignore judgements of documents that are not in the corpus.")
    ] = False
    download: Download = False
    cache: Cache = None

    @property
    def form(self) -> dict[str, Any]:
        """How the files are read."""
        names = ("layout", "gold", "drop_unknown", "download")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class MeasureOptions:
    """Where the measures go."""

    per_query: Annotated[
        Path | None,
        typer.Option("--per-query", help="File for the measures of every claim (.json).", show_default=False),
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace output files.")] = False
    measures: Annotated[
        str | None,
        typer.Option(help="In the notation of ir-measures: 'nDCG@10 RR R@20 AP(rel=2)'; default MRR, recall, nDCG@10."),
    ] = None
    as_json: opt.AsJson = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of the measures."""
        from headwise.metrics.ranking import MEASURES, parse_measures

        return MEASURES if self.measures is None else parse_measures(self.measures)

    @contextmanager
    def locked(self, output: Path | None = None) -> Iterator[None]:
        """Refuse files that cannot be written, before any work, and lock them for the block."""
        from headwise.disk import new_file

        if self.per_query is not None and self.per_query.suffix != ".json":
            raise InputError(f"--per-query {self.per_query}: expected a name that ends in .json.")
        files = ((output, "--output", "run.trec"), (self.per_query, "--per-query", "claims.json"))
        with ExitStack() as stack:
            for path, option, example in files:
                if path is not None:
                    stack.enter_context(new_file(path, option, replace=self.overwrite, example=example))
            yield


@dataclass(frozen=True)
class RankingOptions(MeasureOptions):
    """Where a ranking and its measures go."""

    output: Annotated[Path | None, typer.Option(help="TREC run to write; default standard output.")] = None

    @contextmanager
    def files(self) -> Iterator[None]:
        """The same for both files."""
        if self.output is None and self.as_json:
            raise InputError("--json needs --output: without it the run goes to standard output; name a file for it.")
        if self.output is not None and self.per_query is not None:
            if self.output.absolute() == self.per_query.absolute():
                raise InputError(f"--output and --per-query are both {self.output}: name two files.")
        with self.locked(self.output):
            yield

    @contextmanager
    def others(self, paths: Mapping[str, Path | None]) -> Iterator[None]:
        """The same for more files, by the options that name them."""
        from headwise.disk import new_file

        with ExitStack() as stack:
            for option, path in paths.items():
                if path is not None:
                    stack.enter_context(new_file(path, option, replace=self.overwrite))
            yield

    def check_judged(self, judged: object) -> None:
        """Refuse a file of measures if there are none."""
        if self.per_query is not None and not judged:
            raise InputError(
                f"--per-query {self.per_query}: no claim is judged, so there is nothing to write; leave it out."
            )

    def write(self, ranking: Ranking) -> None:
        """Write both files, each whole or not at all; if the second fails, a new first one is removed."""
        from headwise.retrieval.evaluate import write_per_query
        from headwise.retrieval.trec import write_run

        fresh = self.per_query is not None and not self.per_query.exists()
        if self.per_query is not None:
            write_per_query(self.per_query, ranking.measures)
        try:
            if self.output is not None:
                write_run(self.output, ranking.run, ranking.tag)
        except BaseException:
            if self.per_query is not None and fresh:
                self.per_query.unlink(missing_ok=True)
            raise

    def show(self, ranking: Ranking, summary: Mapping[str, Any]) -> None:
        """Print the run if it has no file, and the measures; as JSON, the summary with the names of the files."""
        from headwise.retrieval.trec import run_lines

        tables = [_measures_table(ranking.measures)] if ranking.measures else []
        if self.output is None:
            typer.echo("".join(run_lines(ranking.run, ranking.tag)), nl=False)
            print_parts(*tables, stream=sys.stderr)
            return
        files = {"output": str(self.output)} | ({"per_query": str(self.per_query)} if self.per_query else {})
        show(self.as_json, {**summary, **files}, *tables, f"saved in {self.output}")


@dataclass(frozen=True)
class FusionOptions:
    """How the scores of stages become one."""

    encoder: Annotated[
        str | None,
        typer.Option(help="builtin:minilm-l6 (the default), or folder of an encoder or sentence-transformers model."),
    ] = None
    fusion: Annotated[
        str, typer.Option(help="Of hybrid: convex (weighted sum of scaled scores) or rrf (reciprocal rank fusion).")
    ] = "convex"
    alpha: Annotated[
        float | None, typer.Option(help="Share of the cosine in convex fusion, 0 to 1; default fitted, else 0.6.")
    ] = None

    @property
    def of_fusion(self) -> dict[str, Any]:
        """For the library."""
        return {"fusion": self.fusion, "alpha": self.alpha}

    @property
    def of_encoder(self) -> dict[str, Any]:
        """For the library, where it has a default of its own."""
        return {} if self.encoder is None else {"encoder": self.encoder}


@dataclass(frozen=True)
class StageOptions(FusionOptions):
    """What finds papers, and how the scores of stages become one."""

    stage: Annotated[
        str | None,
        typer.Option(help="bm25, dense (an encoder's cosine) or hybrid (both); default hybrid, or that of the run."),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """For the library."""
        return {**self.of_fusion, **self.of_encoder, **({} if self.stage is None else {"stage": self.stage})}


Fit = Annotated[
    str,
    typer.Option(help="Split that weights are fitted on, none, or auto: validation, dev or train if it is not scored."),
]
Run = Annotated[
    Path, typer.Argument(help="Re-ranker: folder that `headwise train` or a CrossEncoder wrote.", show_default=False)
]
Template = Annotated[
    str | None,
    typer.Option(help="For a re-ranker that reads one string: how it is written, with {claim} and {text} in it."),
]
Of = Annotated[
    Path | None, typer.Option(help="Folder of the collection; default that of training.", show_default=False)
]
Batch = Annotated[int | None, typer.Option(min=1, help="Pairs at a time.", show_default=False)]
Precision = Annotated[str, typer.Option(help="fp32, or bf16: faster on processors made for it, scores a little off.")]


@opt.grouped
def retrieve(
    collection: Annotated[Path, typer.Argument(help="Folder of the collection.", show_default=False)],
    claims: ClaimOptions,
    stages: StageOptions,
    files: RankingOptions,
    top: Annotated[int, typer.Option(min=1, help="Candidates for each claim.")] = 100,
    fit: Fit = "auto",
    stem: Annotated[str, typer.Option(help="Language whose word endings are cut off, or none.")] = "english",
    stop_words: Annotated[
        str, typer.Option("--stop-words", help="Language whose most common words are left out, or none.")
    ] = "english",
    k1: Annotated[float, typer.Option(min=0, help="BM25: how soon a repeated word stops counting.")] = 1.5,
    b: Annotated[float, typer.Option(min=0, max=1, help="BM25: how much long documents are held back.")] = 0.75,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the indexes again.")] = False,
    engine: Annotated[str, typer.Option(help="What embeds papers. local: this process; ray: a Ray cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a running Ray cluster; default a small one here.", show_default=False)
    ] = None,
    save_qrels: Annotated[
        Path | None, typer.Option(help="Also write the judgements of these claims, in TREC's form.", show_default=False)
    ] = None,
    save_topics: Annotated[
        Path | None, typer.Option(help="Also write these claims: id, tab, text.", show_default=False)
    ] = None,
) -> None:
    """Find candidates for every claim of COLLECTION by BM25, an encoder, or both: a TREC run."""
    from headwise.retrieval.bm25 import IndexOptions, Words
    from headwise.retrieval.collections import choose_claims
    from headwise.retrieval.formats import read_collection
    from headwise.retrieval.search import retrieve
    from headwise.retrieval.trec import write_qrels, write_topics

    if stages.stage == "bm25" and stages.encoder is not None:
        raise InputError(f"--encoder {stages.encoder} is for the stages dense and hybrid: leave one of them out.")
    saved = {"--save-qrels": save_qrels, "--save-topics": save_topics}
    with files.files(), files.others(saved), progress() as shown:
        with keeping(lambda: "no run was written, and the same command begins again with what the cache has"):
            options: dict[str, Any] = {"options": IndexOptions(Words(stem, stop_words), k1, b), "rebuild": rebuild}
            papers = read_collection(collection, **claims.form)
            options |= {"split": claims.split, "top": top, "fit": fit, "cache": claims.cache, "measures": files.names}
            with embedding_on(engine, address) as mapper:
                ranking = retrieve(papers, shown, **stages.given, **options, mapper=mapper)
            files.check_judged(ranking.measures)
            files.write(ranking)
            wanted = choose_claims(papers, claims.split)
            if save_qrels is not None:
                write_qrels(save_qrels, wanted.qrels)
            if save_topics is not None:
                write_topics(save_topics, wanted.texts)
        shown.end()
        files.show(ranking, ranking.summary)


@contextmanager
def embedding_on(engine: str, address: str | None) -> Iterator[Mapper | None]:
    """What embeds papers: a connected Ray cluster; None for this process."""
    if engine == "local" and address is None:
        yield None
        return
    from headwise.experiments.sweeps.worker_pool import choose_engine

    workers = choose_engine(engine, address=address)  # refuses a name that is unknown, and a cluster that is not there
    from headwise.experiments.sweeps.ray_workers import RayWorkers, embed_on_cluster

    with workers:
        yield embed_on_cluster(workers) if isinstance(workers, RayWorkers) else None


@opt.grouped
def rerank(
    run: Run,
    claims: ClaimOptions,
    stages: StageOptions,
    files: RankingOptions,
    candidates: Annotated[
        Path | None,
        typer.Option(help="TREC run, or a table of Cross-genre-IR; default what --stage finds.", show_default=False),
    ] = None,
    collection: Of = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only the first so many candidates of each claim.")] = None,
    fit: Fit = "auto",
    template: Template = None,
    batch: Batch = None,
    precision: Precision = "fp32",
    allow_code: opt.AllowCode = False,
) -> None:
    """Order the papers of every claim by BM25, cosine and the model of RUN: a TREC run. Resumes where it was stopped.

    With --candidates and without --stage the model alone decides, unless it was trained with `residual`.
    """
    from headwise.retrieval.rerank import find_candidates, is_table, read_candidates, rerank
    from headwise.retrieval.reranker import Reranker
    from headwise.retrieval.search import PRECISIONS, StoredScore

    with files.files(), progress() as shown:
        if precision not in PRECISIONS:
            raise InputError(f"--precision {precision}: {choices(precision, PRECISIONS)}.")
        from headwise.experiments.searcher import collection_of, reranker_folder

        folder = reranker_folder(run)
        table = candidates is not None and is_table(candidates)
        if table and stages.stage is not None:
            raise InputError(
                f"--stage {stages.stage} needs papers of a collection, and {candidates} has its own texts."
            )
        papers = None
        if collection is not None or not table:  # a table brings its texts
            papers = collection_of(folder, collection, **claims.form)
        options: dict[str, Any]
        options = {"split": claims.split, "top": top, "cache": claims.cache, "measures": files.names}
        given = None if candidates is None else read_candidates(candidates, papers, shown, **options)
        reranker = Reranker.load(folder, template=template)
        stored = StoredScore.read(folder)
        # The logits of a model with an offset say what its first stage misses: alone they are no ranking.
        residual = stored is not None and stored.score.offset > 0
        if table and residual:
            shown.log(f"{run} was trained with residual: without its first stage, its scores are no ranking")
        if given is not None and stages.stage is None and (table or not residual):
            read = given
        else:
            options |= {"fit": fit, **stages.given}
            read = find_candidates(cast("Collection", papers), shown, reranker=reranker, given=given, **options)
        files.check_judged(read.claims.qrels)
        ranking = rerank(folder, read, shown, reranker=reranker, batch=batch, precision=precision, cache=claims.cache)
        files.write(ranking)
        shown.end()
        files.show(ranking, {"run": str(folder), **ranking.summary})
        ranking.done()


@opt.grouped
def score(
    claims: ClaimOptions,
    fusion: FusionOptions,
    files: MeasureOptions,
    runs: Annotated[
        list[Path] | None, typer.Argument(help="TREC runs; others are compared with the first.", show_default=False)
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(help="Also rank by bm25, dense or hybrid; may be repeated. After the runs.", show_default=False),
    ] = None,
    fit: Fit = "auto",
    qrels: Annotated[
        Path | None, typer.Option(help="Judgements: a TREC or BEIR qrels file.", show_default=False)
    ] = None,
    collection: Annotated[
        Path | None, typer.Option(help="Folder of a collection that has them.", show_default=False)
    ] = None,
) -> None:
    """Measure TREC runs and stages, and test claim by claim whether the others differ from the first."""
    from headwise.retrieval.evaluate import compare_runs, read_judgements, score_run, write_per_query
    from headwise.retrieval.formats import read_collection
    from headwise.retrieval.fusion import check_stage
    from headwise.retrieval.search import retrieve

    with files.locked():
        names = dict(zip(_short_names(runs or []), runs or [], strict=True))
        stages = list(dict.fromkeys(stage or []))
        if not names and not stages:
            raise InputError("there is nothing to measure: name TREC runs, or stages of a collection by --stage.")
        for each in stages:
            check_stage(each)
            if collection is None:
                raise InputError(f"--stage {each} searches a collection: name it by --collection FOLDER.")
            if each in names:
                raise InputError(f"a run and a stage are both named {each}: rename the file {names[each]}.")
        papers = None if collection is None else read_collection(collection, **claims.form)
        if collection is None and claims.layout is not None:
            raise InputError(f"--layout {claims.layout} is for --collection: name a collection, or leave --layout out.")
        if collection is None and claims.gold != "evidence":
            raise InputError(f"--gold {claims.gold} is for --collection: name a collection, or leave --gold out.")
        source, judged, notes = read_judgements(qrels, papers, claims.split, cache=claims.cache)
        scores = {}
        for name, path in names.items():
            scores[name], more = score_run(path, judged, source, files.names)
            notes = [*notes, *(f"{name}: {note}" for note in more)]
        about: dict[str, dict[str, Any]] = {name: {"file": str(path)} for name, path in names.items()}
        if papers is not None and stages:
            with progress() as shown:
                for each in stages:
                    options = fusion.of_fusion | {"fit": fit} if each == "hybrid" else {}
                    options |= {} if each == "bm25" else fusion.of_encoder
                    ranking = retrieve(
                        replace(papers, notes=[]),
                        shown,
                        stage=each,
                        split=claims.split,
                        cache=claims.cache,
                        measures=files.names,
                        **options,
                    )
                    scores[each] = ranking.measures[each]
                    about[each] = {
                        key: ranking.summary[key] for key in ("stage", "top", "score") if key in ranking.summary
                    }
        for note in notes:
            typer.echo(note, err=True)
        tests = compare_runs(scores)
        if files.per_query is not None:
            write_per_query(files.per_query, scores)
    runs_data = {name: {**about[name], **each.summary(), **each.as_data()} for name, each in scores.items()}
    content = {"judgements": source, "measures": list(files.names), "runs": runs_data}
    by_run = [[test for test in tests if test.run == name] for name in scores][1:]
    tables = [_tests_table(each, len(tests) if each is by_run[-1] else None) for each in by_run]
    show(files.as_json, {**content, "tests": [test.as_data() for test in tests]}, _measures_table(scores), *tables)


@opt.grouped
def search(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] CLAIM", help="A re-ranker, if any, and the claim in quotation marks.", show_default=False
        ),
    ],
    stages: StageOptions,
    papers: PaperOptions,
    collection: Of = None,
    rerank: Annotated[
        Path | None, typer.Option(help="The same as RUN: a run, or a folder of a CrossEncoder.", show_default=False)
    ] = None,
    template: Template = None,
    top: Annotated[int, typer.Option(min=1, help="Papers to show.")] = 5,
    depth: Annotated[int, typer.Option(min=1, help="Candidates that BM25 and the encoder find each.")] = 100,
    reads: Annotated[
        int | None,
        typer.Option(min=1, help="Papers that the re-ranker reads; default as many as were validated, else 20."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Of BM25, cosine and re-ranker, such as 0.3,0.5,0.2.", show_default=False)
    ] = None,
    fit: Fit = "none",
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show why the best paper was found: its words, and what each sentence adds."),
    ] = False,
    explain_html: Annotated[
        Path | None, typer.Option(help="The same as a page (.html), which needs no network.", show_default=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page.")] = False,
    batch: Batch = None,
    precision: Precision = "fp32",
    cache: Cache = None,
    allow_code: opt.AllowCode = False,
    as_json: opt.AsJson = False,
) -> None:
    """Find the papers behind one claim: BM25 and an encoder, then the model of RUN, if there is one."""
    from headwise.retrieval.fusion import Weights
    from headwise.retrieval.search import check_request

    run, claim = _run_and_claim(words, rerank)
    claim = check_request(claim, top=top, depth=depth, precision=precision)
    from headwise.experiments.searcher import open_searcher

    options: dict[str, Any] = {**stages.given, "fit": fit, "depth": depth, "reads": reads, "template": template}
    options["weights"] = None if weights is None else Weights.read(weights)
    nothing = "nothing was found yet, and the same command begins again with what the cache has"
    page = nullcontext() if explain_html is None else page_file(explain_html, overwrite=overwrite)
    with page, keeping(lambda: nothing), progress() as shown:
        searcher = open_searcher(run, collection, cache=cache, progress=shown, **papers.form, **options)
        why = explain or explain_html is not None
        result = searcher.search(claim, top=top, explain=why, batch=batch, precision=precision, progress=shown)
        if explain_html is not None:
            write_page(explain_html, result, len(searcher.stages.index.corpus))
    documents = len(searcher.stages.index.corpus)
    if as_json:
        about = {"run": None if run is None else str(run), "collection": str(searcher.folder), "documents": documents}
        pages = {} if explain_html is None else {"explain_html": str(explain_html)}
        show(True, {**about, "stage": searcher.stages.stage, **result.as_dict(), **pages})
    else:
        print_papers(result, documents, explain=explain)
        if explain_html is not None:
            typer.echo(f"saved in {explain_html}")


def _run_and_claim(words: Sequence[str], rerank: Path | None) -> tuple[Path | None, str]:
    """The folder of the re-ranker, if there is one, and the claim."""
    if len(words) > 2:
        raise InputError(f"expected [RUN] CLAIM, got {len(words)} words: write the claim in quotation marks.")
    if len(words) == 2 and rerank is not None:
        raise InputError(f"RUN is {words[0]} and --rerank is {rerank}: name one re-ranker.")
    if len(words) == 1 and rerank is None and Path(words[0]).is_dir():
        raise InputError(f"{words[0]} is a folder, and there is no claim: write one after it, in quotation marks.")
    return (Path(words[0]) if len(words) == 2 else rerank), words[-1]


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
    measures = list(next(iter(scores.values())).strict)
    caption = "n of m: the claims with a gold document among their candidates; all: strict, the others count 0."
    rows = []
    for name, each in scores.items():
        total = len(each.per_query)
        parts = ((name, f"{len(each.reachable)} of {total}", each.found), ("", f"all {total}", each.strict))
        for label, claims, values in parts:
            cells = ("-" if values is None else f"{values[measure]:.4f}" for measure in measures)
            rows.append([label, claims, *cells])
    return text_table(["run", "claims"], rows, numbers=measures, caption=caption, whole=True)


def _tests_table(tests: Sequence[Comparison], explained: int | None) -> Table:
    """A row for each measure of one run: its difference from the first run; `explained`: of how many tests in all."""
    rows = []
    for each in tests:
        test = each.test
        interval = f"{test.low:+.4f} to {test.high:+.4f}"
        counts = (str(count) for count in (test.better, test.worse, test.equal))
        rows.append([each.measure, f"{test.difference:+.4f}", interval, f"{test.p:.4f}", f"{each.p_holm:.4f}", *counts])
    columns = ["change", "95 % interval", "p", "Holm", "better", "worse", "equal"]
    title = f"{tests[0].run} against {tests[0].against}"
    caption = (
        "Over all claims. p: paired randomisation test, two-sided; Holm: corrected for all "
        f"{explained} tests shown; better, worse, equal: claims."
    )
    return text_table(["measure"], rows, numbers=columns, title=title, caption=caption if explained else "", whole=True)

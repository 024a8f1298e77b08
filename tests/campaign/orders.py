"""A valid order for every command, and several for some: what bad inputs are made from."""

from __future__ import annotations

from dataclasses import dataclass

from campaign.options import commands

PAIRS = ("--data", "pairs")
RANKING = ("rerank", "reranker", "--candidates", "many.trec", "--collection", "library", "--output", "out/run.trec")


@dataclass(frozen=True)
class Order:
    """A command that works, with the parts of the bench that it needs."""

    name: str
    words: tuple[str, ...]
    needs: tuple[str, ...]
    writes: tuple[str, ...] = ()
    """Where it writes: folders and files in the box."""
    recipe: str | None = None
    """The YAML file that it reads."""
    tables: tuple[str, ...] = ()
    """Files of rows that it reads."""
    runs: tuple[str, ...] = ()
    """Folders of runs or models that it reads."""
    reads: tuple[str, ...] = ()
    """Patterns of other files that it reads."""
    caches: tuple[str, ...] = ()
    """Folders of what can be computed again: damage there may be repaired."""
    dry: bool = False
    """It plans only, and needs no data."""
    continues: bool = False
    """It continues what is in its output, and may get further before it meets what is wrong."""
    serves: bool = False
    """It runs until Ctrl-C."""
    failed_runs: bool = False
    """It may end with 1: some of its runs failed, and it lists them."""

    @property
    def command(self) -> tuple[str, ...]:
        """Its name on the command line."""
        return self.words[: 2 if self.words[0] in ("heads", "data", "knowledge") else 1]


def _train(name: str, recipe: str, *needs: str, data: str = "pairs") -> Order:
    words = ("train", f"{recipe}.yaml", "--data", data, "--output", "out")
    tables = tuple(f"{data}/{split}.tsv" for split in ("train", "validation", "test")) if data == "pairs" else ()
    if recipe == "joint":
        tables = ("several/agree/train.tsv", "several/score/train.tsv", "several/type/validation.tsv")
    return Order(
        name,
        words,
        (f"{recipe}.yaml", "encoder", *needs),
        ("out",),
        recipe=f"{recipe}.yaml",
        tables=tables,
        runs=("encoder",),
        reads=("papers/*", "papers/qrels/*") if recipe == "retrieval" else (),
    )


def _heads(kind: str, *more: str, reads: str | None = None) -> Order:
    writes = tuple(f"joint/heads/{kind}.{ending}" for ending in ("json", "csv", "safetensors"))
    read = () if reads is None else (f"joint/heads/{reads}.*",)
    return Order(
        f"heads-{kind}", ("heads", kind, "joint", "--overwrite", *more), ("joint",), writes, runs=("joint",), reads=read
    )


def _figure(kind: str, *runs: str) -> Order:
    reads = tuple(f"{run}/analysis/*" for run in runs)
    return Order(f"figure-{kind}", ("figure", kind, *runs, "-o", "out.png"), runs, ("out.png",), runs=runs, reads=reads)


def _retrieve(collection: str, reads: str, *more: str) -> Order:
    words = ("retrieve", collection, "--output", "out.trec", *more)
    return Order(f"retrieve-{collection}", words, (collection,), ("out.trec",), reads=(reads,))


RERANK = ("rerank", "reranker", "--candidates", "candidates.trec", "--collection", "papers", "--output", "out.trec")
PAPERS = ("papers/*", "papers/qrels/*")

ORDERS: tuple[Order, ...] = (
    _train("train", "recipe", "pairs"),
    _train("train-guided", "guided", "pairs"),
    _train("train-ssa", "ssa", "pairs"),
    _train("train-knowledge", "knowing", "pairs"),
    _train("train-joint", "joint", "several", data="several"),
    _train("train-retrieval", "retrieval", "papers", data="."),
    Order(
        "train-vectors",
        ("train", "vectors.yaml", *PAIRS, "--output", "out"),
        ("vectors.yaml", "encoder", "pairs", "vectors.zip"),
        ("out",),
        recipe="vectors.yaml",
        reads=("vectors.zip",),
    ),
    Order(
        "train-resume",
        ("train", "long.yaml", *PAIRS, "--output", "stopped", "--resume"),
        ("long.yaml", "encoder", "pairs", "stopped"),
        ("stopped",),
        recipe="long.yaml",
        tables=("pairs/train.tsv",),
        reads=("stopped/*", "stopped/unfinished/*", "stopped/unfinished/*/*"),
        continues=True,
    ),
    Order("evaluate", ("evaluate", "plain", *PAIRS), ("plain", "pairs"), tables=("pairs/test.tsv",), runs=("plain",)),
    Order("evaluate-joint", ("evaluate", "joint"), ("joint",), runs=("joint",)),
    Order(
        "predict",
        ("predict", "plain", "--input", "texts.tsv", "--output", "out.tsv"),
        ("plain", "texts.tsv"),
        ("out.tsv",),
        tables=("texts.tsv",),
        runs=("plain",),
    ),
    Order(
        "tokens",
        ("tokens", "supervised", "--text", "a red cat", "--pair", "the dog", "--html", "out.html"),
        ("supervised",),
        ("out.html",),
        runs=("supervised",),
    ),
    Order("export", ("export", "plain", "--output", "out"), ("plain",), ("out",), runs=("plain",)),
    Order(
        "export-joint", ("export", "joint", "--task", "agree", "--output", "out"), ("joint",), ("out",), runs=("joint",)
    ),
    Order("list", ("list", "recipes"), ()),
    Order("doctor", ("doctor", "encoder", "--length", "24"), ("encoder",), runs=("encoder",)),
    Order(
        "retrieve",
        ("retrieve", "papers", "--output", "out.trec", "--per-query", "out.json"),
        ("papers",),
        ("out.trec", "out.json"),
        reads=PAPERS,
    ),
    _retrieve("papers.zip", "papers.zip"),
    _retrieve("scifact", "scifact/*", "--split", "train"),
    _retrieve("genres", "genres/*", "--split", "train"),
    Order(
        "rerank",
        RERANK,
        ("reranker", "candidates.trec", "papers"),
        ("out.trec",),
        runs=("reranker",),
        reads=("candidates.trec", *PAPERS),
    ),
    Order(
        "rerank-resume",
        (*RANKING[:-1], "partial/run.trec"),
        ("reranker", "many.trec", "library", "partial"),
        ("partial",),
        runs=("reranker",),
        reads=("partial/*",),
        continues=True,
    ),
    Order(
        "retrieve-cached",
        ("retrieve", "papers", "--cache", "cache", "--output", "out.trec"),
        ("papers", "cache"),
        ("out.trec",),
        reads=("cache/retrieval/*/*",),
        caches=("cache",),
    ),
    Order(
        "score",
        ("score", "candidates.trec", "bm25.trec", "--qrels", "qrels.txt", "--per-query", "out.json"),
        ("candidates.trec", "bm25.trec", "qrels.txt"),
        ("out.json",),
        reads=("candidates.trec", "bm25.trec", "qrels.txt"),
    ),
    Order(
        "search",
        ("search", "reranker", "the cat", "--collection", "papers", "--explain"),
        ("reranker", "papers"),
        runs=("reranker",),
        reads=PAPERS,
    ),
    Order(
        "sweep",
        ("sweep", "sweep.yaml", *PAIRS, "--output", "swept", "--workers", "1"),
        ("sweep.yaml", "pairs", "encoder", "swept"),
        ("swept",),
        recipe="sweep.yaml",
        reads=("swept/*.json", "swept/runs/*", "swept/sweeps/*"),
        failed_runs=True,
    ),
    Order(
        "sweep-dry",
        ("sweep", "sweep.yaml", *PAIRS, "--output", "out", "--dry-run"),
        ("sweep.yaml", "pairs", "encoder"),
        recipe="sweep.yaml",
        dry=True,
    ),
    Order(
        "tune",
        ("tune", "recipe.yaml", *PAIRS, "--output", "tuned", "--vary", "training.learning_rate=[3e-3, 1e-3]"),
        ("recipe.yaml", "pairs", "encoder", "tuned"),
        ("tuned",),
        recipe="recipe.yaml",
        reads=("tuned/*", "tuned/runs/*"),
        failed_runs=True,
    ),
    Order(
        "tune-dry",
        ("tune", "guided.yaml", *PAIRS, "--output", "out", "--dry-run"),
        ("guided.yaml", "pairs", "encoder"),
        recipe="guided.yaml",
        dry=True,
    ),
    Order(
        "compare-sweep",
        ("compare", "swept", "--output", "out.md", "--resamples", "100"),
        ("swept",),
        ("out.md",),
        reads=("swept/*.json", "swept/runs/*", "swept/sweeps/*"),
    ),
    Order(
        "compare-runs",
        ("compare", "plain", "guided", "--by", "guides", "--resamples", "100"),
        ("plain", "guided"),
        reads=("plain/*.json", "guided/*.json"),
    ),
    _figure("heatmap", "plain", "guided"),
    _figure("pca", "plain"),
    _figure("curves", "plain", "guided"),
    Order(
        "figure-layers",
        ("figure", "layers", "layers", "-o", "out.svg"),
        ("layers",),
        ("out.svg",),
        reads=("layers/*.json", "layers/runs/*", "layers/sweeps/*"),
    ),
    Order(
        "figure-dissociation",
        ("figure", "dissociation", "joint", "-o", "out.png"),
        ("joint",),
        ("out.png",),
        runs=("joint",),
        reads=("joint/heads/*",),
    ),
    Order(
        "analyze",
        ("analyze", "bare-plain", "--keep", "2", "--limit", "4"),
        ("bare-plain",),
        ("bare-plain/analysis",),
        runs=("bare-plain",),
    ),
    Order(
        "analyze-joint",
        ("analyze", "bare-joint", "--task", "type", "--keep", "1", "--limit", "2"),
        ("bare-joint",),
        ("bare-joint/analysis",),
        runs=("bare-joint",),
    ),
    Order(
        "report",
        ("report", "guided", "--baseline", "plain", "--results", "swept", "-o", "out.html"),
        ("guided", "plain", "swept"),
        ("out.html",),
        runs=("guided", "plain"),
        reads=("guided/analysis/*", "plain/analysis/*", "swept/runs/*"),
    ),
    Order("explore", ("explore", "plain"), ("plain",), runs=("plain",), reads=("plain/analysis/*",), serves=True),
    Order(
        "data-ag-pair",
        ("data", "ag-pair", "--news", "news.csv", "--out", "out.tsv"),
        ("news.csv",),
        ("out.tsv",),
        tables=("news.csv",),
    ),
    Order(
        "data-check",
        ("data", "check", "pairs/train.tsv", "pairs/test.tsv"),
        ("pairs",),
        tables=("pairs/train.tsv", "pairs/test.tsv"),
    ),
    Order(
        "data-check-model",
        ("data", "check", "pairs/train.tsv", "--model", "encoder"),
        ("pairs", "encoder"),
        tables=("pairs/train.tsv",),
        runs=("encoder",),
    ),
    Order("heads-patterns", ("heads", "patterns", "plain", "--limit", "4"), ("plain",), runs=("plain",)),
    _heads("importance", "--examples", "8"),
    _heads("prune-curve", "--percent", "25", "--random", "1", "--examples", "8"),
    _heads("dissociation", "--resamples", "10", reads="prune-curve"),
    _heads("similarity", "--examples", "8", reads="dissociation"),
    Order(
        "knowledge-build",
        ("knowledge", "build", "knowing.yaml", *PAIRS, "--workers", "1", "--json"),
        ("knowing.yaml", "pairs", "encoder"),
        recipe="knowing.yaml",
        tables=("pairs/train.tsv",),
    ),
    Order(
        "knowledge-show",
        ("knowledge", "show", "knowing.yaml", *PAIRS, "--workers", "1"),
        ("knowing.yaml", "pairs", "encoder"),
        recipe="knowing.yaml",
        tables=("pairs/train.tsv",),
    ),
    Order(
        "knowledge-cached",
        ("knowledge", "show", "knowing.yaml", *PAIRS, "--workers", "1", "--cache", "cache"),
        ("knowing.yaml", "pairs", "encoder", "cache"),
        reads=("cache/*/*",),
        caches=("cache",),
    ),
    # Too long to run to its end for every input: its bad inputs must be refused before any training.
    Order("demo", ("demo", "--output", "out"), (), ("out",)),
)


def uncovered() -> list[str]:
    """Commands that no order types in."""
    covered = {order.command for order in ORDERS}
    return [" ".join(name) for name in commands() if name not in covered]

"""A valid order for every command, and several for some, and the bad inputs that are made from them."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from campaign.options import commands

RANKING = "rerank reranker --candidates many.trec --collection library --output"
OUTPUTS = ("--output", "-o", "--out", "--html", "--per-query")
# The files and folders of the bench, beside its recipes.
BENCH = frozenset(
    "encoder pairs several papers papers.zip scifact genres library texts.tsv news.csv vectors.zip candidates.trec "
    "many.trec bm25.trec qrels.txt plain guided supervised joint reranker bare-plain bare-joint swept layers tuned "
    "stopped partial cache out page".split()
)

# What a command may do with an input.
BAD = "bad"
"""It is wrong: the command must refuse it with exit code 2."""
SAME = "same"
"""It may be wrong in a place that does not matter: refused, or the same result as with the valid input."""
OPEN = "open"
"""It may be another valid input: refused, or done."""


@dataclass(frozen=True)
class Order:
    """A command that works, with the parts of the bench that it needs."""

    name: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()
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
    flags: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """Its name on the command line."""
        return self.words[: 2 if self.words[0] in ("heads", "data", "knowledge") else 1]

    @property
    def dry(self) -> bool:
        """Whether it plans only, and needs no data."""
        return "--dry-run" in self.words

    @property
    def continues(self) -> bool:
        """Whether it continues what is in its output, and may get further before it meets what is wrong."""
        return "continues" in self.flags

    @property
    def serves(self) -> bool:
        """Whether it runs until Ctrl-C."""
        return self.command in (("explore",), ("mark",))

    @property
    def failed_runs(self) -> bool:
        """Whether it may end with 1: some of its runs failed, and it lists them."""
        return self.command[0] in ("sweep", "tune") and not self.dry


@dataclass(frozen=True)
class Case:
    """A command, typed in the folder where its input lies."""

    words: tuple[str, ...]
    what: str
    verdict: str
    without_rights: bool = False
    """Typed by somebody who may not write everywhere, as the administrator may."""


@dataclass
class Draw:
    """What a generator of bad inputs works with: seeded chance, a valid order, and a box with its input."""

    chance: random.Random
    order: Order
    box: Path
    words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the valid words."""
        self.words = list(self.order.words)

    def case(self, what: str, verdict: str, *, without_rights: bool = False) -> Case:
        """The case as it stands now."""
        return Case(tuple(self.words), what, verdict, without_rights)

    def pick(self, patterns: tuple[str, ...]) -> Path | None:
        """One of the files that the patterns name, if there is any."""
        found = sorted({path for pattern in patterns for path in self.box.glob(pattern) if path.is_file()})
        return self.chance.choice(found) if found else None

    def name(self, path: Path) -> str:
        """A file as one would type it."""
        return path.relative_to(self.box).as_posix()


def named_parts(words: Iterable[str]) -> tuple[str, ...]:
    """The parts of the bench that words of a command or patterns of files name; a recipe needs its encoder too."""
    before, named = "", dict.fromkeys(["encoder"] if any(word.endswith(".yaml") for word in words) else [])
    for word in words:
        first, inside, _ = word.partition("/")
        # An output that is no file in a folder is not there yet.
        if (first in BENCH or word.endswith(".yaml")) and (inside or before not in OUTPUTS):
            named[first] = None
        before = word
    return tuple(named)


def _order(
    name: str,
    typed: str,
    *,
    writes: str | None = None,
    tables: str = "",
    runs: str = "",
    reads: str = "",
    caches: str = "",
    flags: str = "",
) -> Order:
    """An order; it writes its outputs if nothing else is said."""
    words = tuple(shlex.split(typed))
    outputs = [words[place + 1] for place, word in enumerate(words) if word in OUTPUTS and "--dry-run" not in words]
    lists = [tuple(part.split()) for part in (tables, runs, reads, caches, flags)]
    needs = named_parts([*words, *(each for part in lists[:3] for each in part)])
    # Orders about a cache are about nothing else: the recipe is that of another order.
    recipe = None if caches else next((word for word in words if word.endswith(".yaml")), None)
    return Order(name, words, needs, tuple(outputs if writes is None else writes.split()), recipe, *lists)


def _train(name: str, recipe: str, data: str, **more: str) -> Order:
    return _order(name, f"train {recipe}.yaml --data {data} --output out", runs="encoder", **more)


def _heads(kind: str, options: str, reads: str = "") -> Order:
    writes = " ".join(f"joint/heads/{kind}.{ending}" for ending in ("json", "csv", "safetensors"))
    typed = f"heads {kind} joint --overwrite {options}"
    return _order(f"heads-{kind}", typed, writes=writes, runs="joint", reads=reads)


PAIRS = "pairs/train.tsv pairs/validation.tsv pairs/test.tsv"
SEVERAL = "several/agree/train.tsv several/score/train.tsv several/type/validation.tsv"
PAPERS = "papers/* papers/qrels/*"
SWEPT = "swept/*.json swept/runs/* swept/sweeps/*"
STOPPED = "stopped/* stopped/unfinished/* stopped/unfinished/*/*"
KNOWLEDGE = "knowing.yaml --data pairs --workers 1"
RATES = "--vary 'training.learning_rate=[3e-3, 1e-3]'"

ORDERS: tuple[Order, ...] = (
    _train("train", "recipe", "pairs", tables=PAIRS),
    _train("train-guided", "guided", "pairs", tables=PAIRS),
    _train("train-ssa", "ssa", "pairs", tables=PAIRS),
    _train("train-knowledge", "knowing", "pairs", tables=PAIRS),
    _train("train-joint", "joint", "several", tables=SEVERAL),
    _train("train-retrieval", "retrieval", ".", reads=PAPERS),
    _order(
        "train-file",
        "train --data pairs/train.tsv --model encoder --set training.max_steps=2 --output out",
        tables="pairs/train.tsv",
        runs="encoder",
    ),
    _order("init", "init pairs/train.tsv --yes --output out.yml", tables="pairs/train.tsv"),
    _order(
        "train-vectors",
        "train vectors.yaml --data pairs --output out",
        reads="vectors.zip",
    ),
    _order(
        "train-resume",
        "train long.yaml --data pairs --output stopped --resume",
        tables="pairs/train.tsv",
        reads=STOPPED,
        flags="continues",
    ),
    _order("evaluate", "evaluate plain --data pairs", tables="pairs/test.tsv", runs="plain"),
    _order("evaluate-joint", "evaluate joint", runs="joint"),
    _order("predict", "predict plain --input texts.tsv --output out.tsv", tables="texts.tsv", runs="plain"),
    _order("predict-text", "predict plain --text 'a red cat' --pair 'the dog' --explain", runs="plain"),
    _order("tokens", "tokens supervised --text 'a red cat' --pair 'the dog' --html out.html", runs="supervised"),
    _order(
        "tokens-file",
        "tokens supervised --input texts.tsv --output out.jsonl",
        tables="texts.tsv",
        runs="supervised",
    ),
    _order("export", "export plain --output out", runs="plain"),
    _order("push", "push plain me/mine", runs="plain"),
    _order("export-joint", "export joint --task agree --output out", runs="joint"),
    _order("list", "list recipes"),
    _order("doctor", "doctor encoder --length 24", runs="encoder"),
    _order("retrieve", "retrieve papers --stage bm25 --output out.trec --per-query out.json", reads=PAPERS),
    _order(
        "retrieve-hybrid",
        "retrieve papers --encoder encoder --alpha 0.5 --output out.trec",
        runs="encoder",
        reads=PAPERS,
    ),
    _order("retrieve-papers.zip", "retrieve papers.zip --stage bm25 --output out.trec", reads="papers.zip"),
    _order("retrieve-scifact", "retrieve scifact --stage bm25 --output out.trec --split train", reads="scifact/*"),
    _order("retrieve-genres", "retrieve genres --stage bm25 --output out.trec --split train", reads="genres/*"),
    _order(
        "rerank",
        "rerank reranker --candidates candidates.trec --collection papers --output out.trec",
        runs="reranker",
        reads=f"candidates.trec {PAPERS}",
    ),
    _order(
        "rerank-resume",
        f"{RANKING} partial/run.trec",
        writes="partial",
        runs="reranker",
        reads="partial/*",
        flags="continues",
    ),
    _order(
        "retrieve-cached",
        "retrieve papers --stage bm25 --cache cache --output out.trec",
        reads="cache/retrieval/*/*",
        caches="cache",
    ),
    _order(
        "score",
        "score candidates.trec bm25.trec --qrels qrels.txt --per-query out.json",
        reads="candidates.trec bm25.trec qrels.txt",
    ),
    _order(
        "score-stages",
        "score --stage bm25 --stage dense --collection papers --split test --encoder encoder",
        runs="encoder",
        reads=PAPERS,
    ),
    _order(
        "rerank-stage",
        "rerank reranker --collection papers --stage bm25 --output out.trec",
        runs="reranker",
        reads=PAPERS,
    ),
    _order(
        "search",
        "search reranker 'the cat' --collection papers --stage bm25 --explain",
        runs="reranker",
        reads=PAPERS,
    ),
    _order(
        "search-collection",
        "search 'the cat' --collection papers --encoder encoder",
        runs="encoder",
        reads=PAPERS,
    ),
    _order(
        "sweep",
        "sweep sweep.yaml --data pairs --output swept --workers 1",
        reads=SWEPT,
    ),
    _order(
        "sweep-dry",
        "sweep sweep.yaml --data pairs --output out --dry-run",
    ),
    _order(
        "tune",
        f"tune recipe.yaml --data pairs --output tuned {RATES}",
        reads="tuned/* tuned/runs/*",
    ),
    _order(
        "tune-dry",
        "tune guided.yaml --data pairs --output out --dry-run",
    ),
    _order("compare-sweep", "compare swept --output out.md --resamples 100", reads=SWEPT),
    _order("compare-runs", "compare plain guided --by guides --resamples 100", reads="plain/*.json guided/*.json"),
    *(
        _order(
            f"figure-{kind}",
            f"figure {kind} {runs} -o out.png",
            runs=runs,
            reads=" ".join(f"{run}/analysis/*" for run in runs.split()),
        )
        for kind, runs in {"heatmap": "plain guided", "pca": "plain", "curves": "plain guided"}.items()
    ),
    _order("figure-layers", "figure layers layers -o out.svg", reads=SWEPT.replace("swept", "layers")),
    _order("figure-dissociation", "figure dissociation joint -o out.png", runs="joint", reads="joint/heads/*"),
    _order("analyze", "analyze bare-plain --keep 2 --limit 4", writes="bare-plain/analysis", runs="bare-plain"),
    _order(
        "analyze-joint",
        "analyze bare-joint --task type --keep 1 --limit 2",
        writes="bare-joint/analysis",
        runs="bare-joint",
    ),
    _order(
        "report",
        "report guided --baseline plain --results swept -o out.html",
        runs="guided plain",
        reads="guided/analysis/* plain/analysis/* swept/runs/*",
    ),
    _order("explore", "explore plain", runs="plain", reads="plain/analysis/*"),
    _order("mark", "mark texts.tsv --output out.jsonl --no-browser", tables="texts.tsv"),
    _order("data-ag-pair", "data ag-pair --news news.csv --out out.tsv", tables="news.csv"),
    _order("data-check", "data check pairs/train.tsv pairs/test.tsv", tables="pairs/train.tsv pairs/test.tsv"),
    _order(
        "data-check-model",
        "data check pairs/train.tsv --model encoder",
        tables="pairs/train.tsv",
        runs="encoder",
    ),
    _order("heads-patterns", "heads patterns plain --limit 4", runs="plain"),
    _heads("importance", "--examples 8"),
    _heads("prune-curve", "--percent 25 --random 1 --examples 8"),
    _heads("dissociation", "--resamples 10", "joint/heads/prune-curve.*"),
    _heads("similarity", "--examples 8", "joint/heads/dissociation.*"),
    *(
        _order(
            f"knowledge-{kind}",
            f"knowledge {kind} {KNOWLEDGE} {options}",
            tables="pairs/train.tsv",
        )
        for kind, options in {"build": "--json", "show": ""}.items()
    ),
    _order(
        "knowledge-cached",
        f"knowledge show {KNOWLEDGE} --cache cache",
        reads="cache/*/*",
        caches="cache",
    ),
    # Too long to run to its end for every input: its bad inputs must be refused before any training.
    _order("demo", "demo --output out"),
)


def uncovered() -> list[str]:
    """Commands that no order types in."""
    covered = {order.command for order in ORDERS}
    return [" ".join(name) for name in commands() if name not in covered]

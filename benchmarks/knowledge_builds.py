"""How fast knowledge is worked out from texts, and how fast it is found again."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from guide_variants import encoder
from joblib.externals.loky import get_reusable_executor
from measure import Row, code_version

from headwise.data import build_task
from headwise.errors import InputError
from headwise.patterns import PMI, Dependency, Stored, WordSimilarity, gather
from headwise.patterns.base import Knowledge, Resources, Texts
from headwise.patterns.parallel import SMALL, cores
from headwise.training.word_knowledge import input_embeddings

SOURCES: dict[str, Knowledge] = {
    "pmi": PMI(),
    "dependency spacy": Dependency(source="spacy"),
    "wordsim wordnet": WordSimilarity(source="wordnet"),
    "wordsim vectors": WordSimilarity(source="vectors"),
    "wordsim embeddings": WordSimilarity(source="embeddings"),
}


def make_pairs(count: int) -> tuple[Texts, ...]:
    """Premises and hypotheses of the built-in task."""
    return build_task("clinic", {"sizes": {"train": count}}).read("train").texts


def measure_build(source: str, pairs: tuple[Texts, ...]) -> Row:
    """A row for one source of knowledge; one whose libraries are missing is told as skipped."""
    pattern, workers = SOURCES[source], cores() if len(pairs) >= SMALL else 1
    heading = {"kind": "build", "source": source, "pairs": len(pairs), "workers": workers, "code": code_version()}
    try:
        prepared, resources = clocked(prepare, pattern)
    except InputError as error:
        return heading | {"skipped": str(error)}
    with TemporaryDirectory() as folder, running_workers(pairs, Path(folder) / "start"):
        built, store = clocked(find_or_build, pattern, pairs, resources, Path(folder))
        opened, again = clocked(find_or_build, pattern, pairs, resources, Path(folder))
        if not store.built or again.built or len(again) != len(pairs):
            raise RuntimeError(f"the knowledge of {source} was not built once and then found.")
    return heading | {
        "seconds_to_prepare": round(prepared, 3),
        "seconds_to_build": round(built, 3),
        "seconds_to_open": round(opened, 4),
        "pairs_per_second": round(len(pairs) / built, 1),
    }


def prepare(pattern: Knowledge) -> Resources:
    """Load libraries and models in this process, and hash what knowledge is made of."""
    embeddings = getattr(pattern, "source", None) == "embeddings"
    resources = Resources(embeddings=input_embeddings(encoder()) if embeddings else None)
    pattern.fingerprint(resources)
    return resources


@contextmanager
def running_workers(pairs: tuple[Texts, ...], cache: Path) -> Iterator[None]:
    """Worker processes that have imported what all sources need: it takes seconds, however many pairs there are.

    Every source gets new ones, since joblib ends a worker that has grown by 300 MB, as it does with several sources.
    """
    find_or_build(PMI(), pairs[:SMALL], Resources(), cache)
    try:
        yield
    finally:
        get_reusable_executor(reuse=True).shutdown(wait=True)


def find_or_build(pattern: Knowledge, pairs: tuple[Texts, ...], resources: Resources, cache: Path) -> Stored:
    corpus = pairs if pattern.from_corpus else ()
    return gather(pattern, pairs, corpus=corpus, resources=resources, cache=cache)


def clocked(function: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """Seconds that a call takes, and its answer."""
    start = time.perf_counter()
    answer = function(*args)
    return time.perf_counter() - start, answer

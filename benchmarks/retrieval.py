"""What the first stages of retrieval cost on a corpus as large as that of Cross-genre-IR: 222,000 abstracts.

    python benchmarks/retrieval.py                    222,000 abstracts, 1,000 claims: some two minutes, 1 GB of disk
    python benchmarks/retrieval.py --quick --check    8,000 abstracts in under 50 s; exit 1 if a bar is missed

The corpus is generated: words follow Zipf's law as those of English do, the commonest are the English stop words, the
others are made up; lengths are log-normal around 200 words. A claim is twelve words of one abstract, in their order,
and this abstract is its gold document. Four processes do the work, one after the other, so that their peaks of memory
can be told apart: two make the indexes of BM25 and of vectors, one opens that of BM25 and searches for all claims at
top 100, and one does so with vectors (dense) and with both (hybrid), which includes encoding the claims by MiniLM-L6.

Embedding all abstracts takes too long here. The dense index holds random vectors of the encoder's size, which cost
what real ones do, except that no gold document is found by them; a sample of the abstracts is embedded, and the time
for all of them is computed from it.

Times are those of the machine. Two bars are absolute: hybrid search answers at least 50 claims per second, with less
than 2.5 GB of memory. The others are ratios: disk, and memory above that of the imported libraries, to the size
of the corpus file; opening to making; and our search, which cuts claims into words and keeps ties in order, to that of
bm25s for claims that are cut already.

stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

SEED = 0
SIZES = {"full": (222_000, 1_000), "quick": (8_000, 300)}  # abstracts, claims
TOP = 100
VOCABULARY = 300_000
# Zipf's law as Mandelbrot wrote it: the share of the word of rank r is that of 1 / (r + OFFSET) ** EXPONENT.
EXPONENT, OFFSET = 1.07, 2.7
MEAN_LENGTH, SPREAD = 200, 0.4
CLAIM_WORDS = 12
AT_ONCE = 2_000  # abstracts
ROUNDS = 3
SYLLABLES = [first + vowel for first in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "ai", "or")]
# Name of a bar -> its limit. The small corpus has other limits, since interpreter and libraries weigh more there.
LIMITS = {
    "full": {"index memory": 4.5, "search memory": 1.5, "disk": 2.0, "open / index": 0.1, "ours / bm25s": 1.1},
    "quick": {"index memory": 12.0, "search memory": 7.0, "disk": 2.8, "open / index": 0.1, "ours / bm25s": 1.3},
}
QUERIES_PER_SECOND, MEMORY = 50, 2500  # of hybrid search; MB
EMBEDDED = {222_000: 512, 8_000: 48}  # abstracts of the sample
Row = dict[str, Any]


# -- the corpus --------------------------------------------------------------------------------------------------------


def make_vocabulary() -> list[str]:
    """Words by rank: the stop words, then made-up ones, all different."""
    from headwise.retrieval.bm25 import Words

    words = sorted(Words("none", "english").left_out)
    base = len(SYLLABLES)
    for number in range(VOCABULARY - len(words)):
        word = SYLLABLES[number % base] + SYLLABLES[number // base % base] + SYLLABLES[number // base**2]
        words.append(word)
    return words


def make_texts(abstracts: int, random: np.random.Generator) -> Iterator[list[str]]:
    """The words of one abstract after the other."""
    vocabulary = np.array(make_vocabulary(), object)
    shares = 1 / (np.arange(len(vocabulary)) + 1 + OFFSET) ** EXPONENT
    bounds = np.cumsum(shares / shares.sum())
    for start in range(0, abstracts, AT_ONCE):
        count = min(AT_ONCE, abstracts - start)
        lengths = random.lognormal(np.log(MEAN_LENGTH) - SPREAD**2 / 2, SPREAD, count).astype(int) + CLAIM_WORDS
        ranks = np.searchsorted(bounds, random.random(lengths.sum())).clip(max=len(vocabulary) - 1)
        for words in np.split(vocabulary[ranks], np.cumsum(lengths)[:-1]):
            yield words.tolist()


def write_collection(folder: Path, abstracts: int, claims: int) -> None:
    """A collection in the layout of BEIR."""
    random = np.random.default_rng(SEED)
    asked = set(random.choice(abstracts, claims, replace=False).tolist())
    (folder / "qrels").mkdir()
    with (
        (folder / "corpus.jsonl").open("w") as corpus,
        (folder / "queries.jsonl").open("w") as queries,
        (folder / "qrels" / "test.tsv").open("w") as qrels,
    ):
        qrels.write("query-id\tcorpus-id\tscore\n")
        for place, words in enumerate(make_texts(abstracts, random)):
            row = {"_id": f"d{place}", "title": " ".join(words[:8]), "text": " ".join(words[8:]) + "."}
            corpus.write(json.dumps(row) + "\n")
            if place in asked:
                chosen = sorted(random.choice(len(words), CLAIM_WORDS, replace=False).tolist())
                queries.write(json.dumps({"_id": f"c{place}", "text": " ".join(words[at] for at in chosen)}) + "\n")
                qrels.write(f"c{place}\td{place}\t1\n")


# -- what the two processes do -----------------------------------------------------------------------------------------


def index_part(folder: Path, cache: Path) -> Row:
    from headwise.retrieval.bm25 import open_index
    from headwise.retrieval.formats import read_collection

    imports, begin = peak_memory(), time.perf_counter()
    index = open_index(read_collection(folder), cache=cache)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "imports_mb": imports, "peak_mb": peak_memory(), "built": index.built}


def search_part(folder: Path, cache: Path) -> Row:
    from headwise.retrieval.bm25 import open_index
    from headwise.retrieval.formats import read_collection

    imports = peak_memory()
    collection = read_collection(folder)
    begin = time.perf_counter()
    index = open_index(collection, cache=cache)
    opened = time.perf_counter() - begin
    run, seconds = timed(lambda: index.candidates(collection.claims, TOP))
    peak = peak_memory()  # before bm25s searches as well
    qrels = collection.qrels["test"]
    found = sum(not run[claim].keys().isdisjoint(qrels[claim]) for claim in qrels) / len(qrels)
    return {
        "built": index.built,
        "open_seconds": opened,
        "queries_per_second": len(run) / seconds,
        "imports_mb": imports,
        "peak_mb": peak,
        "gold_found": found,
        "ours_to_bm25s": compared(index, list(collection.claims.values())),
    }


def dense_part(folder: Path, cache: Path) -> Row:
    from headwise.retrieval.corpus import open_corpus
    from headwise.retrieval.dense_index import open_dense_index
    from headwise.retrieval.embedder import Embedder
    from headwise.retrieval.formats import read_collection

    embedder, corpus = Embedder.load(), open_corpus(read_collection(folder), cache)
    imports = peak_memory()
    vectors = random_vectors(len(corpus), embedder.dimension)
    index, seconds = timed(lambda: open_dense_index(corpus, embedder, cache=cache, vectors=vectors))
    peak = peak_memory()
    sample = [corpus.document(position).whole for position in range(EMBEDDED[len(corpus)])]
    _, embedding = timed(lambda: embedder.embed(sample))
    return {
        "seconds": seconds,
        "imports_mb": imports,
        "peak_mb": peak,
        "built": index.built,
        "embedded": len(sample),
        "embedded_per_second": len(sample) / embedding,
        "hours_for_all": len(corpus) / len(sample) * embedding / 3600,
    }


def random_vectors(count: int, dimension: int) -> np.ndarray:
    vectors = np.random.default_rng(SEED).normal(size=(count, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def hybrid_part(folder: Path, cache: Path) -> Row:
    from headwise.retrieval.bm25 import open_index
    from headwise.retrieval.dense_index import DenseIndex
    from headwise.retrieval.embedder import Embedder
    from headwise.retrieval.formats import read_collection
    from headwise.retrieval.fusion import Weights, fuse
    from headwise.retrieval.stages import Stages

    collection, begin = read_collection(folder), time.perf_counter()
    index, embedder = open_index(collection, cache=cache), Embedder.load()
    (vectors,) = (path for path in (cache / "retrieval").glob("dense-given-*") if path.is_dir())
    dense = DenseIndex(vectors, index.corpus, embedder)
    opened = time.perf_counter() - begin
    stages, weights, claims = Stages("hybrid", index, dense), Weights(), collection.claims

    def search() -> dict[str, dict[str, float]]:
        return {claim: each.run(fuse(each, weights)) for claim, each in stages.scores(claims, TOP).items()}

    embedder.embed(list(claims.values())[:8], queries=True)  # warm-up
    _, encoding = timed(lambda: embedder.embed(list(claims.values()), queries=True))
    _, lexical = timed(lambda: index.candidates(claims, TOP))
    _, near = timed(lambda: DenseIndex(vectors, index.corpus, embedder).candidates(claims, TOP))
    begin = time.process_time()
    run, both = timed(search)
    processor = time.process_time() - begin
    one = {claim: claims[claim] for claim in list(claims)[:20]}
    _, single = timed(lambda: [stages.scores({claim: text}, TOP) for claim, text in one.items()])
    gold = collection.qrels["test"]
    return {
        "open_seconds": opened,
        "queries_per_second": {
            "encoding": len(claims) / encoding,
            "bm25": len(claims) / lexical,
            "dense": len(claims) / near,
            "hybrid": len(claims) / both,
            "hybrid, one claim at a time": len(one) / single,
        },
        "hybrid_cpu_seconds_per_claim": processor / len(claims),  # of all cores, whatever else runs
        "peak_mb": peak_memory(),
        "gold_found": sum(not run[claim].keys().isdisjoint(gold[claim]) for claim in gold) / len(gold),
    }


def compared(index: Any, claims: list[str]) -> list[float]:
    """Our time / that of bm25s, round by round; each begins half of the rounds."""
    from bm25s import BM25

    model, words = BM25.load(index.folder, mmap=True, show_progress=False), index.words
    for name in ("data", "indices", "indptr"):  # as plain arrays, as ours are: slices of memmap objects are slow
        model.scores[name] = model.scores[name].view(np.ndarray)
    cut = [words.cut(claim) for claim in claims]
    ratios = []
    for number in range(ROUNDS):
        tasks = {
            "ours": lambda: index.search(claims, TOP),
            "bm25s": lambda: model.retrieve(cut, k=TOP, show_progress=False, backend_selection="numpy"),
        }
        seconds = {name: timed(tasks[name])[1] for name in list(tasks)[:: 1 if number % 2 == 0 else -1]}
        ratios.append(seconds["ours"] / seconds["bm25s"])
    return ratios


def timed(work: Any) -> tuple[Any, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin


def peak_memory() -> float:
    """Peak resident memory of this process in MB, mapped files included as far as they were looked at."""
    try:
        # Not ru_maxrss, which on Linux begins with the memory of the process that started this one.
        lines = Path("/proc/self/status").read_text().splitlines()
        return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)
    except (OSError, StopIteration):
        unit = 1024**2 if sys.platform == "darwin" else 1024
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


PARTS = {"index": index_part, "search": search_part, "dense": dense_part, "hybrid": hybrid_part}


# -- the report --------------------------------------------------------------------------------------------------------


def run_part(name: str, folder: Path, cache: Path) -> Row:
    from harness import fail

    command = [sys.executable, __file__, "--part", name, str(folder), str(cache)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        fail(f"the process for {name} ended with code {done.returncode}.", 1)
    return json.loads(done.stdout)


def measure(size: str, folder: Path) -> Row:
    from harness import progress

    abstracts, claims = SIZES[size]
    papers, cache = folder / "papers", folder / "cache"
    papers.mkdir()
    _, seconds = timed(lambda: write_collection(papers, abstracts, claims))
    text = (papers / "corpus.jsonl").stat().st_size / 1024**2
    progress(f"{abstracts} abstracts, {text:.0f} MB, written in {seconds:.0f} s")
    index = run_part("index", papers, cache)
    progress(f"indexed in {index['seconds']:.1f} s, peak {index['peak_mb']:.0f} MB")
    search = run_part("search", papers, cache)
    progress(f"opened in {search['open_seconds']:.2f} s, {search['queries_per_second']:.0f} queries per second")
    dense = run_part("dense", papers, cache)
    progress(
        f"vectors stored in {dense['seconds']:.1f} s; {dense['embedded_per_second']:.1f} abstracts embedded a second"
    )
    hybrid = run_part("hybrid", papers, cache)
    progress(f"queries per second: {rounded(hybrid['queries_per_second'])}, peak {hybrid['peak_mb']:.0f} MB")
    stored = {
        kind: sum(path.stat().st_size for path in cache.glob(f"retrieval/{kind}-*/*")) / 1024**2
        for kind in ("documents", "index", "dense")
    }
    return {
        "abstracts": abstracts,
        "claims": claims,
        "text_mb": text,
        "disk_mb": stored,
        "index": index,
        "search": search,
        "dense": dense,
        "hybrid": hybrid,
    }


def bars_of(row: Row, size: str) -> list[Row]:
    from harness import make_bar

    index, search = row["index"], row["search"]
    values = {
        "index memory": (index["peak_mb"] - index["imports_mb"]) / row["text_mb"],
        "search memory": (search["peak_mb"] - search["imports_mb"]) / row["text_mb"],
        "disk": (row["disk_mb"]["documents"] + row["disk_mb"]["index"]) / row["text_mb"],
        "open / index": search["open_seconds"] / index["seconds"],
        "ours / bm25s": median(search["ours_to_bm25s"]),
    }
    bars = [make_bar(f"retrieval {size}: {name}", round(values[name], 3), LIMITS[size][name]) for name in values]
    rate, memory = row["hybrid"]["queries_per_second"]["hybrid"], row["hybrid"]["peak_mb"]
    share = round(QUERIES_PER_SECOND / rate, 3)
    return [
        *bars,
        make_bar(f"retrieval {size}: {QUERIES_PER_SECOND} / hybrid queries per second", share, 1.0),
        make_bar(f"retrieval {size}: hybrid memory, MB", memory, MEMORY),
    ]


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time and memory of the index and the search for candidates.")
    parser.add_argument("--quick", action="store_true", help="a small corpus: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--part", nargs=3, metavar=("NAME", "FOLDER", "CACHE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = read_options()
    if options.part:  # before torch is imported, which would count as memory of the search
        name, folder, cache = options.part
        print(json.dumps(PARTS[name](Path(folder), Path(cache))))
        return 0
    from harness import finish, machine
    from measure import code_version

    size = "quick" if options.quick else "full"
    with tempfile.TemporaryDirectory() as folder:
        row = measure(size, Path(folder))
    world = {"machine": machine(), "code": code_version(), "load": rounded(list(os.getloadavg()))}
    return finish({"rows": [{"kind": "retrieval", **rounded(row), **world}], "bars": bars_of(row, size)}, options.check)


if __name__ == "__main__":
    sys.exit(main())

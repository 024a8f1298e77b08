"""The dense index: a vector for every document, kept in half precision and mapped into memory.

Vectors are found again by the hash of their text, so that a collection that has grown embeds only what is new. While an
index is built its vectors are kept in parts, so that a build that was killed resumes.

Shapes: N documents, U different texts, Q texts to search for, D dimensions, K results.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headwise.cache import META, digest, fault, find_or_build, retrieval_cache
from headwise.disk import LOCK
from headwise.errors import InputError
from headwise.limits import parse_json
from headwise.retrieval.collections import Collection
from headwise.retrieval.corpus import SURROGATES, Corpus, open_corpus

if TYPE_CHECKING:  # it would load all that training needs
    from headwise.retrieval.embedder import Embedder
    from headwise.training.callbacks import Listener

# Goes into the hash: raise it when these files change.
FORMAT = 1
VECTORS, TEXTS, GRAPH = "vectors.npy", "texts.npy", "graph.usearch"  # [N,D] float16, [N] hashes of texts
# Texts that are embedded, and kept, together: a kill loses at most so many for each worker.
PART = 1024
# Documents and texts of one matrix product: small enough for the caches of a processor, large enough to be fast.
BLOCK, QUERIES = 8192, 256
# More documents than this are searched by a graph of neighbours, unless the caller decides.
EXACT_LIMIT = 1_000_000
# Texts and results by which the recall of the graph is measured, and the effort of a search in it.
SAMPLE, RECALL_AT, EXPANSION = 200, 100, 256
# Words of a document that stand for a claim where the collection has none.
CLAIM_WORDS = 15

Scores = NDArray[np.float32]
Results = list[list[tuple[int, float]]]
# Embeds lists of texts: the number of each list with its vectors, in any order.
Mapper: TypeAlias = "Callable[[Embedder, Iterable[list[str]]], Iterator[tuple[int, Scores]]]"


class DenseIndex:
    """An index that `open_dense_index` has built or found."""

    def __init__(
        self, folder: Path, corpus: Corpus, embedder: Embedder, *, built: bool = False, graph: Graph | None = None
    ) -> None:
        """Open the vectors of these documents; with a graph of neighbours the search is approximate."""
        self.folder, self.corpus, self.embedder, self.built, self.graph = folder, corpus, embedder, built, graph
        # As a plain array, since slices of memmap objects are slow to make; it still reads from the file.
        self.vectors: NDArray[np.float16] = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False).view(
            np.ndarray
        )
        self._last: tuple[tuple[str, ...], Scores] | None = None

    def search(self, texts: Sequence[str] | Scores, top: int, *, progress: Listener | None = None) -> Results:
        """The positions and cosines of the nearest documents for each text, the nearest first; ties by position.

        Args:
            texts: claims, or their vectors [Q,D] as `Embedder.embed` makes them.
            top: documents for each.
            progress: receives the number of texts done so far.
        """
        if top < 1:
            raise InputError(f"top {top}: expected at least 1 candidate for each claim.")
        queries, results = self.encode(texts), []
        for start in range(0, len(queries), QUERIES):
            part = queries[start : start + QUERIES]
            results += nearest(self.vectors, part, top) if self.graph is None else self.graph.search(self, part, top)
            if progress is not None:
                progress.advance(len(results))
        return results

    def candidates(
        self, claims: Mapping[str, str], top: int, *, progress: Listener | None = None
    ) -> dict[str, dict[str, float]]:
        """A run: for each claim, by its id, the ids of the nearest documents with their cosines, the nearest first."""
        results, ids = self.search(list(claims.values()), top, progress=progress), self.corpus.ids
        return {
            claim: {ids[position]: score for position, score in each}
            for claim, each in zip(claims, results, strict=True)
        }

    def cosines(self, texts: Sequence[str] | Scores, positions: Sequence[Sequence[int]]) -> list[Scores]:
        """The cosines of each text with the documents at its positions, in their order."""
        queries = self.encode(texts)
        if len(queries) != len(positions):
            raise InputError(f"{len(queries)} texts and {len(positions)} lists of positions: expected one for each.")
        return [
            self.vectors[np.asarray(each, np.intp)].astype(np.float32) @ query
            for query, each in zip(queries, positions, strict=True)
        ]

    def encode(self, texts: Sequence[str] | Scores) -> Scores:
        """[Q,D] the vectors of claims; those of the last call are kept. Vectors are checked and returned."""
        self.corpus.check_unchanged()
        if isinstance(texts, np.ndarray):
            return check_vectors(texts, self.vectors.shape[1], f"the index of {self.embedder.name}")
        if self._last is None or self._last[0] != tuple(texts):
            self._last = tuple(texts), self.embedder.embed(texts, queries=True)
        return self._last[1]


def check_vectors(vectors: NDArray[Any], dimension: int, what: str) -> Scores:
    """Vectors in float32 and of length 1; others than finite [N,D] are refused."""
    if vectors.ndim != 2 or vectors.shape[1] != dimension or not np.issubdtype(vectors.dtype, np.floating):
        raise InputError(
            f"vectors of shape {list(vectors.shape)} and type {vectors.dtype} do not match {what}: expected floats "
            f"[texts, {dimension}]; embed the texts with the encoder of the index."
        )
    wide = vectors.astype(np.float32)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or (lengths == 0).any():
        (bad,) = np.nonzero(~np.isfinite(lengths[:, 0]) | (lengths[:, 0] == 0))
        raise InputError(f"vector {bad[0]} has the length {lengths[bad[0], 0]:g}: expected finite numbers, not all 0.")
    unit: Scores = wide / lengths
    return unit


def nearest(vectors: NDArray[np.float16], queries: Scores, top: int) -> Results:
    """The exact nearest documents of each query, in blocks: memory for QUERIES x BLOCK scores, whatever N is."""
    top = min(top, len(vectors))
    best = np.full((len(queries), top), -np.inf, np.float32)  # [Q,K]
    places = np.zeros((len(queries), top), np.int64)
    for start in range(0, len(vectors), BLOCK):
        scores = queries @ vectors[start : start + BLOCK].astype(np.float32).T  # [Q,block]
        # Where a score only equals the worst so far, the earlier position stays.
        rows, columns = np.nonzero(scores > best[:, -1:])
        for row in np.unique(rows):
            new = columns[np.searchsorted(rows, row) : np.searchsorted(rows, row, "right")]
            merged = np.concatenate([best[row], scores[row, new]])
            order = np.argsort(-merged, kind="stable")[:top]
            best[row], places[row] = merged[order], np.concatenate([places[row], new + start])[order]
    return [list(zip(*pair, strict=True)) for pair in zip(places.tolist(), best.tolist(), strict=True)]


# -- building ----------------------------------------------------------------------------------------------------------


def open_dense_index(
    collection: Collection | Corpus,
    embedder: Embedder,
    *,
    cache: Path | None = None,
    rebuild: bool = False,
    progress: Listener | None = None,
    approximate: bool | None = None,
    vectors: NDArray[Any] | None = None,
    mapper: Mapper | None = None,
) -> DenseIndex:
    """The dense index of a collection: found in the cache, or built now and kept there.

    Only texts that no index of this encoder in the cache has are embedded; a build that was killed resumes.

    Args:
        collection: whose documents to search in, or those documents.
        embedder: makes the vectors, of documents and of claims.
        cache: its folder `retrieval` keeps vectors; None: $HEADWISE_CACHE, else the user's cache folder.
        rebuild: embed everything again.
        progress: shows how far it is, if something has to be built.
        approximate: search by a graph of neighbours (usearch) instead of all vectors; None: above a million documents.
        vectors: of all documents, [N,D], if they were computed elsewhere.
        mapper: embeds lists of texts, for example on a cluster; None: this process.
    """
    corpus = collection
    if isinstance(corpus, Collection):
        corpus = open_corpus(corpus, cache, rebuild=rebuild, progress=progress)
    about: dict[str, Any] = {"documents": corpus.key, "encoder": embedder.key, "format": FORMAT}
    source = embedder.key[:16]
    if vectors is not None:
        vectors = check_vectors(vectors, embedder.dimension, f"the encoder {embedder.name}").astype(np.float16)
        if len(vectors) != len(corpus):
            raise InputError(f"{len(vectors)} vectors for {len(corpus)} documents: expected one for each, in order.")
        about["vectors"], source = hashlib.sha256(vectors.tobytes()).hexdigest(), "given"
    key, root = digest(about), retrieval_cache(cache)
    folder = root / f"dense-{source}-{key[:16]}"
    store = VectorStore(root, embedder, progress)

    def build(draft: Path) -> Mapping[str, Any]:
        if vectors is not None:
            np.save(draft / VECTORS, vectors)
        else:
            store.collect(corpus, draft, mapper or store.embed_here, rebuild=rebuild)
        return {"about": about, "dimension": embedder.dimension}

    try:
        built = find_or_build(folder, key, build, rebuild=rebuild)
        if built:
            store.remove_parts()
        index = DenseIndex(folder, corpus, embedder, built=built)
        if approximate or (approximate is None and len(corpus) > EXACT_LIMIT):
            index.graph = open_graph(index, claims_of(collection, corpus), key, rebuild=built, progress=progress)
    finally:
        if progress is not None:
            progress.end()
    return index


def claims_of(collection: Collection | Corpus, corpus: Corpus) -> list[str]:
    """Texts to measure the recall with: claims of the collection, or the first words of some documents."""
    claims = list(collection.claims.values()) if isinstance(collection, Collection) else []
    if not claims:
        chosen = np.random.default_rng(0).permutation(len(corpus))[:SAMPLE].tolist()
        claims = [" ".join(corpus.document(position).whole.split()[:CLAIM_WORDS]) for position in chosen]
    return claims[:SAMPLE]


class VectorStore:
    """The vectors that an encoder has made: in whole indexes, and in parts of one that is being built."""

    def __init__(self, root: Path, embedder: Embedder, progress: Listener | None) -> None:
        """Below the folder of all indexes."""
        self._root, self._embedder, self._progress = root, embedder, progress
        self._done = 0

    def collect(self, corpus: Corpus, draft: Path, mapper: Mapper, *, rebuild: bool) -> None:
        """Write the vectors of all documents, and the hashes of their texts."""
        hashes = np.array([text_hash(corpus.document(position).whole) for position in range(len(corpus))], "S16")
        texts, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)  # [U], [U], [N]
        known = [] if rebuild else list(self._stored())
        missing = np.ones(len(texts), bool)
        for names, _ in known:
            missing[np.isin(texts, names)] = False
        todo = np.sort(first[missing]).tolist()  # in the order of the documents
        parts = [todo[start : start + PART] for start in range(0, len(todo), PART)]
        self._done = len(texts) - len(todo)
        if self._progress is not None and todo:
            self._progress.start("embed", len(texts), self._done)
        lists = ([corpus.document(position).whole for position in part] for part in parts)
        for number, vectors in mapper(self._embedder, lists):
            known.append(self._keep(hashes[parts[number]], vectors, rebuild=rebuild))
            self._done += len(parts[number])
            if self._progress is not None:
                self._progress.advance(self._done)
        shape = (len(corpus), self._embedder.dimension)
        output = np.lib.format.open_memmap(draft / VECTORS, mode="w+", dtype=np.float16, shape=shape)
        rows = np.full((2, len(texts)), -1)  # [2,U] which of the known arrays, and which of its rows
        for number, (names, _) in enumerate(known):
            _, mine, theirs = np.intersect1d(texts, names, return_indices=True)
            rows[0, mine], rows[1, mine] = number, theirs
        for start in range(0, len(corpus), BLOCK):
            which, row = rows[:, inverse[start : start + BLOCK]]
            for number in np.unique(which):
                (places,) = np.nonzero(which == number)
                output[start + places] = known[number][1][row[places]]
        output.flush()
        np.save(draft / TEXTS, hashes)

    def embed_here(self, embedder: Embedder, lists: Iterable[list[str]]) -> Iterator[tuple[int, Scores]]:
        """A mapper: embed the lists in this process."""

        def advance(done: int) -> None:
            if self._progress is not None:
                self._progress.advance(self._done + done)

        for number, texts in enumerate(lists):
            yield number, embedder.embed(texts, after_batch=advance)

    def remove_parts(self) -> None:
        """Remove what whole indexes have now."""
        for folder in self._folders("part"):
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_name(folder.name + LOCK).unlink(missing_ok=True)

    def _keep(
        self, hashes: NDArray[np.bytes_], vectors: Scores, *, rebuild: bool
    ) -> tuple[NDArray[np.bytes_], NDArray[np.float16]]:
        """Keep a part on disk; a kill leaves it whole or absent."""
        about = {"encoder": self._embedder.key, "texts": hashlib.sha256(hashes.tobytes()).hexdigest(), "format": FORMAT}
        folder = self._root / f"part-{self._embedder.key[:16]}-{digest(about)[:16]}"

        def build(draft: Path) -> Mapping[str, Any]:
            np.save(draft / VECTORS, vectors.astype(np.float16))
            np.save(draft / TEXTS, hashes)
            return {"about": about}

        find_or_build(folder, digest(about), build, rebuild=rebuild)
        return hashes, np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)

    def _stored(self) -> Iterator[tuple[NDArray[np.bytes_], NDArray[np.float16]]]:
        """Hashes and vectors of everything in the cache that this encoder made; what is damaged is left out."""
        for folder in (*self._folders("dense"), *self._folders("part")):
            try:
                meta = parse_json((folder / META).read_text(encoding="utf-8"))
                if meta["about"]["encoder"] != self._embedder.key or fault(folder, str(meta["key"])) is not None:
                    continue
                arrays = (np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in (TEXTS, VECTORS))
                names, vectors = arrays
            except (OSError, ValueError, KeyError, TypeError):  # removed meanwhile by another process, or damaged
                continue
            yield np.asarray(names), vectors

    def _folders(self, kind: str) -> list[Path]:
        return [path for path in sorted(self._root.glob(f"{kind}-{self._embedder.key[:16]}-*")) if path.is_dir()]


def text_hash(text: str) -> bytes:
    """16 bytes by which a text is found again; the last one is never 0, which numpy would cut off."""
    return hashlib.blake2b(text.encode("utf-8", SURROGATES), digest_size=15).digest() + b"."


# -- approximate search ------------------------------------------------------------------------------------------------


class Graph:
    """A graph of neighbours (HNSW), by usearch; its recall was measured when it was built."""

    def __init__(self, path: Path, recall: float) -> None:
        """Map the file of a graph into memory; `recall` is that of the best RECALL_AT documents."""
        self.recall, self._index = recall, _usearch().Index.restore(path, view=True)
        self._index.expansion_search = EXPANSION

    def search(self, index: DenseIndex, queries: Scores, top: int) -> Results:
        """The nearest documents that the graph finds, with their exact cosines; ties by position."""
        found = self._index.search(queries, min(top, len(index.vectors)))
        lists = [np.sort(each.keys.astype(np.int64)) for each in ([found] if len(queries) == 1 else found)]
        results: Results = []
        for positions, cosines in zip(lists, index.cosines(queries, [each.tolist() for each in lists]), strict=True):
            order = np.argsort(-cosines, kind="stable")
            results.append(list(zip(positions[order].tolist(), cosines[order].tolist(), strict=True)))
        return results


def open_graph(
    index: DenseIndex, claims: Sequence[str], key: str, *, rebuild: bool = False, progress: Listener | None = None
) -> Graph:
    """The graph of an index, found or built; its recall against exact search is logged."""
    usearch, about = _usearch(), {"index": key, "format": FORMAT}
    folder = index.folder.with_name(f"graph-{digest(about)[:24]}")

    def build(draft: Path) -> Mapping[str, Any]:
        if progress is not None:
            progress.start("graph", len(index.vectors))
        graph = usearch.Index(ndim=index.vectors.shape[1], metric="ip", dtype="f16")
        for start in range(0, len(index.vectors), BLOCK):
            part = index.vectors[start : start + BLOCK]
            graph.add(np.arange(start, start + len(part), dtype=np.uint64), part)
            if progress is not None:
                progress.advance(start + len(part))
        graph.save(draft / GRAPH)
        return {"about": about, "recall": recall(Graph(draft / GRAPH, 0.0), index, claims), "claims": len(claims)}

    find_or_build(folder, digest(about), build, rebuild=rebuild)
    meta = parse_json((folder / META).read_text(encoding="utf-8"))
    graph = Graph(folder / GRAPH, float(meta["recall"]))
    if progress is not None:
        progress.log(
            f"approximate search: {graph.recall:.1%} of the {RECALL_AT} nearest documents are found, measured with "
            f"{meta['claims']} claims against exact search"
        )
    return graph


def recall(graph: Graph, index: DenseIndex, claims: Sequence[str]) -> float:
    """The share of the exact RECALL_AT nearest documents that the graph finds."""
    queries = index.embedder.embed(claims, queries=True)
    exact, found = nearest(index.vectors, queries, RECALL_AT), graph.search(index, queries, RECALL_AT)
    shares = [
        len({position for position, _ in one} & {position for position, _ in other}) / len(one)
        for one, other in zip(exact, found, strict=True)
    ]
    return float(np.mean(shares))


def _usearch() -> Any:
    try:
        from usearch import index
    except ImportError:
        raise InputError("approximate search needs usearch: install it by pip install 'headwise[ann]'.") from None
    return index

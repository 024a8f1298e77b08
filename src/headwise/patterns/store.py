"""The store of knowledge: computed once per data set by several processes, and kept in the cache for all runs.

Shapes: N examples; W words and E entries of all of them together.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from headwise.cache import find_or_build
from headwise.disk import cache_folder, user_cache, write_atomically
from headwise.errors import InputError, StateError
from headwise.patterns.base import Builder, Knowledge, Resources, Texts, WordMatrix, options_of
from headwise.patterns.parallel import SMALL, Processes, apply, cores, cut, end_workers

# words [N+1], entries [N+1]: where the words and the entries of each example start, and the end of the last;
# spans [W,3], rows [E], columns [E], values [E]: as in WordMatrix, one example after the other.
NAMES = ("words", "spans", "entries", "rows", "columns", "values")
FORMAT = 1

Arrays = Mapping[str, NDArray[Any]]
Progress = Callable[[int, int], None]
NOTHING = Resources()


def default_cache() -> Path:
    """The folder of all stores: $HEADWISE_CACHE, else headwise/knowledge in the user's cache folder."""
    return cache_folder() or user_cache() / "knowledge"


def gather(
    pattern: Knowledge,
    examples: Sequence[Texts],
    *,
    corpus: Sequence[Texts] = (),
    resources: Resources = NOTHING,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    rebuild: bool = False,
) -> Stored:
    """What a pattern knows about the words of each example: read from the cache, or computed now and kept there.

    Args:
        pattern: the kind of knowledge, with its options.
        examples: the one or two texts of each example.
        corpus: the training texts, for the patterns that count words in them.
        resources: other sources of the pattern.
        cache: the folder of all stores; None: `default_cache()`.
        workers: how many processes to use; None: one for each core that this process may use.
        progress: called with how many of how many examples are done, those of an interrupted build included.
        rebuild: compute it again even if it is present.
    """
    if workers is None:
        workers = cores()
    elif isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers={workers!r}: expected a whole number of 1 or more, or None for all cores.")
    if not len(examples):
        raise InputError(f"pattern {pattern.name}: there are no examples to gather knowledge about; give at least one.")
    key = store_key(pattern, examples, corpus, resources)
    folder = Path(cache or default_cache()).expanduser() / f"{pattern.name}-{key}"

    # The finished parts of an unfinished store, one file each, so that a kill costs only what was running.
    unfinished = folder.with_name(f"{folder.name}.parts")
    paths = {part: unfinished / f"{part.start:09d}-{part.stop:09d}.npz" for part in cut(len(examples))}
    report = progress or (lambda done, total: None)

    def build(draft: Path) -> dict[str, Any]:
        if rebuild:
            shutil.rmtree(unfinished, ignore_errors=True)
        missing = [part for part, path in paths.items() if not _is_intact(path)]
        if missing:  # else the corpus need not be counted again
            left = sum(map(len, missing))
            used = list(corpus) if pattern.from_corpus else []
            work = functools.partial(_flat_part, pattern.name, pattern.builder(used, resources, Processes(workers)))
            report(len(examples) - left, len(examples))
            busy = workers if left >= SMALL else 1
            items = [(part, list(examples[part.start : part.stop])) for part in missing]
            # Closed, so that an error here ends the workers at once.
            with closing(apply(work, items, workers=busy, ordered=False)) as finished:
                for part, arrays in finished:
                    content = io.BytesIO()
                    np.savez(content, allow_pickle=False, **arrays)
                    unfinished.mkdir(exist_ok=True)
                    write_atomically(paths[part], content.getvalue())
                    left -= len(part)
                    report(len(examples) - left, len(examples))
            end_workers()  # or the next pattern would be loaded on top of this one
        for name in NAMES:
            np.save(draft / f"{name}.npy", _joined(paths.values(), name), allow_pickle=False)
        return about(pattern, resources)

    built = find_or_build(folder, key, build, rebuild=rebuild)
    if built:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Stored(folder, key, built)


def store_key(pattern: Knowledge, examples: Sequence[Texts], corpus: Sequence[Texts], resources: Resources) -> str:
    """A hash of the pattern, its options, its sources, and the texts in their order.

    The corpus counts only for patterns that use it. Model, seed and longest length never do.
    """
    try:
        content = hashlib.sha256(json.dumps(about(pattern, resources), sort_keys=True).encode())
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise StateError(f"pattern {pattern.name}: its options and fingerprint must be plain data: {error}.") from error
    _add_texts(content, examples, f"pattern {pattern.name}: example")
    if pattern.from_corpus:
        _add_texts(content, corpus, f"pattern {pattern.name}: corpus example")
    return content.hexdigest()[:32]


def about(pattern: Knowledge, resources: Resources) -> dict[str, Any]:
    """What decides the values besides the texts."""
    fingerprint = pattern.fingerprint(resources)
    return {"format": FORMAT, "name": pattern.name, "options": options_of(pattern), "fingerprint": fingerprint}


def _add_texts(content: Any, examples: Sequence[Texts], what: str) -> None:
    """Hash texts with their lengths: otherwise ("ab", "c") and ("a", "bc") would be the same."""
    content.update(b"%d:" % len(examples))
    for number, texts in enumerate(examples):
        if not isinstance(texts, tuple | list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{what} {number}: expected a tuple of texts such as ('one', 'two'), got {texts!r:.100}.")
        content.update(b"%d:" % len(texts))
        for text in texts:
            encoded = text.encode("utf-8", "surrogatepass")
            content.update(b"%d:" % len(encoded))
            content.update(encoded)


class Stored(Sequence[WordMatrix]):
    """The matrices of a data set, memory-mapped: only what is read takes memory, once for all processes.

    Spans, rows and columns are uint16 where they fit, else int32: widen them before you multiply. All are read-only.
    """

    def __init__(self, folder: Path, key: str, built: bool = False, indices: Sequence[int] | None = None) -> None:
        """Open a folder that `gather` returned.

        Args:
            folder: the folder of the store.
            key: the hash of its content.
            built: whether it was computed now, or was in the cache.
            indices: which of its examples to show; None: all.
        """
        self.folder, self.key, self.built = folder, key, built
        try:
            mapped = {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in NAMES}
        except (OSError, ValueError, EOFError) as error:
            raise StateError(f"{folder} has changed meanwhile ({error}): gather the knowledge again.") from error
        # As plain arrays, since slices of memmap objects are slow to make; they still refer to the file.
        self._arrays = {name: array.view(np.ndarray) for name, array in mapped.items()}
        self._indices = range(len(self._arrays["words"]) - 1) if indices is None else indices

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> WordMatrix: ...
    @overload
    def __getitem__(self, index: slice) -> list[WordMatrix]: ...
    def __getitem__(self, index: int | slice) -> WordMatrix | list[WordMatrix]:
        """What is known about an example."""
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        arrays, example = self._arrays, self._indices[index]
        words = slice(*arrays["words"][example : example + 2].tolist())
        entries = slice(*arrays["entries"][example : example + 2].tolist())
        return WordMatrix(
            arrays["spans"][words], arrays["rows"][entries], arrays["columns"][entries], arrays["values"][entries]
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets the path, not the content."""
        return Stored, (self.folder, self.key, self.built, self._indices)

    def subset(self, indices: Sequence[int]) -> Stored:
        """These examples, in this order."""
        return Stored(self.folder, self.key, self.built, [self._indices[index] for index in indices])


def _is_intact(path: Path) -> bool:
    """Whether a part of an unfinished store is there, and not damaged."""
    try:
        with np.load(path, allow_pickle=False) as content:
            return all(len(content[name]) > 0 or name not in ("words", "entries") for name in NAMES)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return False


def _joined(paths: Iterable[Path], name: str) -> NDArray[Any]:
    """One array of all parts."""
    arrays = []
    for path in paths:
        with np.load(path, allow_pickle=False) as content:
            arrays.append(content[name])
    if name in ("words", "entries"):
        return _starts(np.concatenate([np.diff(array) for array in arrays]))
    return np.concatenate(arrays)  # numbers of 2 and of 4 bytes together take 4


def _flat_part(name: str, builder: Builder, item: tuple[range, Sequence[Texts]]) -> tuple[range, Arrays]:
    """The matrices of a part as flat arrays; refuses what is not a `WordMatrix` of these texts."""
    part, examples = item
    matrices = builder(examples)
    if len(matrices) != len(examples):
        raise StateError(
            f"pattern {name}: its builder returned {len(matrices)} matrices for {len(examples)} examples; expected one "
            "for each."
        )
    for number, (matrix, texts) in enumerate(zip(matrices, examples, strict=True), part.start):
        if reason := _problem(matrix, texts):
            raise StateError(f"pattern {name}: its builder returned a bad matrix for example {number}: {reason}.")
    arrays: dict[str, NDArray[Any]] = {
        "words": _starts([len(matrix.spans) for matrix in matrices]),
        "entries": _starts([len(matrix.rows) for matrix in matrices]),
        "values": np.concatenate([matrix.values for matrix in matrices]).astype(np.float32),
    }
    for field in ("spans", "rows", "columns"):  # in 2 bytes each where they fit, else in 4
        numbers = np.concatenate([getattr(matrix, field) for matrix in matrices]).astype(np.int64)
        arrays[field] = numbers.astype(np.int32 if (numbers > np.iinfo(np.uint16).max).any() else np.uint16)
    return part, arrays


def _problem(matrix: Any, texts: Texts) -> str | None:
    """Why something is not a matrix of the words of these texts."""
    if not isinstance(matrix, WordMatrix):
        return f"expected a WordMatrix, got {type(matrix).__name__}"
    spans, rows, columns, values = map(np.asarray, (matrix.spans, matrix.rows, matrix.columns, matrix.values))
    if any(array.dtype.kind not in "iu" for array in (spans, rows, columns)):
        return "spans, rows and columns must be whole numbers"
    if spans.ndim != 2 or spans.shape[1] != 3:
        return f"spans must be [words,3], got {list(spans.shape)}"
    if rows.ndim != 1 or not rows.shape == columns.shape == values.shape:
        shapes = [list(array.shape) for array in (rows, columns, values)]
        return f"rows, columns and values must be lists of one length, got shapes {shapes}"
    text, start, stop = spans.astype(np.int64).T
    if ((text < 0) | (text >= len(texts))).any():
        return f"a word is in a text that is not there (the example has {len(texts)})"
    lengths = np.array([len(each) for each in texts], np.int64)
    if ((start < 0) | (start >= stop) | (stop > lengths[text])).any():
        return "a word is empty or reaches out of its text"
    rows, columns = rows.astype(np.int64), columns.astype(np.int64)
    if ((rows < 0) | (rows > columns) | (columns >= len(spans))).any():
        return f"an entry breaks 0 <= row <= column < {len(spans)} words"
    with np.errstate(over="ignore"):
        kept = values.astype(np.float32)
    if not (np.isfinite(kept) & (kept > 0)).all():
        return "a value is not a finite number above 0 (as float32)"
    return "a pair of words occurs twice" if len(np.unique(rows * len(spans) + columns)) < len(rows) else None


def _starts(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])

"""Matrices of words as a few flat arrays, which files can hold.

Shapes: N examples; W words and E entries of all of them together.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headwise.errors import StateError
from headwise.limits import parse_json
from headwise.patterns.base import digest
from headwise.patterns.knowledge import Texts, WordMatrix

# words [N+1], entries [N+1]: where the words and the entries of each example start, and the end of the last;
# spans [W,3], rows [E], columns [E], values [E]: as in WordMatrix, one example after the other.
NAMES = ("words", "spans", "entries", "rows", "columns", "values")

Arrays = Mapping[str, NDArray[Any]]


def flatten(pattern: str, matrices: Sequence[WordMatrix], examples: Sequence[Texts], first: int = 0) -> Arrays:
    """The matrices of some examples, the first of which has the number `first`; refuses what breaks `WordMatrix`."""
    if len(matrices) != len(examples):
        raise StateError(
            f"pattern {pattern}: its builder gave {len(matrices)} matrices for {len(examples)} examples; expected one "
            "for each."
        )
    for number, (matrix, texts) in enumerate(zip(matrices, examples, strict=True), first):
        if reason := _unfit(matrix, texts):
            raise StateError(f"pattern {pattern}: its builder gave a bad matrix for example {number}: {reason}.")
    return {
        "words": _starts([len(matrix.spans) for matrix in matrices]),
        "spans": _compact([matrix.spans for matrix in matrices], (3,)),
        "entries": _starts([len(matrix.rows) for matrix in matrices]),
        "rows": _compact([matrix.rows for matrix in matrices]),
        "columns": _compact([matrix.columns for matrix in matrices]),
        "values": np.concatenate([matrix.values for matrix in matrices]).astype(np.float32),
    }


def join(parts: Sequence[Arrays]) -> Arrays:
    """Parts as one, in their order."""
    joined: dict[str, NDArray[Any]] = {}
    for name in NAMES:
        pieces = [part[name] for part in parts]
        if name in ("words", "entries"):
            joined[name] = _starts(np.concatenate([np.diff(piece) for piece in pieces]))
        else:
            joined[name] = np.concatenate(pieces)  # numbers of 2 and of 4 bytes together take 4
    return joined


def inconsistent(arrays: Arrays, examples: int) -> str | None:
    """Why arrays cannot be those of so many examples."""
    for starts, pieces in (("words", ("spans",)), ("entries", ("rows", "columns", "values"))):
        begin = arrays[starts]
        if begin.dtype != np.int64 or begin.shape != (examples + 1,) or begin[0] != 0 or (np.diff(begin) < 0).any():
            return f"{starts} are not the starts of {examples} examples"
        for name in pieces:
            shape = (int(begin[-1]), 3) if name == "spans" else (int(begin[-1]),)
            kinds = ("float32",) if name == "values" else ("uint16", "int32")
            if arrays[name].shape != shape or str(arrays[name].dtype) not in kinds:
                return f"{name} do not fit {starts}"
    return None


def _unfit(matrix: Any, texts: Texts) -> str | None:
    """Why something is no matrix of the words of these texts."""
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
    return _bad_spans(spans.astype(np.int64), texts) or _bad_entries(
        rows.astype(np.int64), columns.astype(np.int64), values, len(spans)
    )


def _bad_spans(spans: NDArray[np.int64], texts: Texts) -> str | None:
    which, start, stop = spans.T
    if ((which < 0) | (which >= len(texts))).any():
        return f"a word stands in a text that is not there (the example has {len(texts)})"
    lengths = np.array([len(text) for text in texts], np.int64)
    if ((start < 0) | (start >= stop) | (stop > lengths[which])).any():
        return "a word is empty or reaches out of its text"
    return None


def _bad_entries(rows: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[Any], words: int) -> str | None:
    if ((rows < 0) | (rows > columns) | (columns >= words)).any():
        return f"an entry breaks 0 <= row <= column < {words} words"
    with np.errstate(over="ignore"):
        kept = values.astype(np.float32)
    if not (np.isfinite(kept) & (kept > 0)).all():
        return "a value is not a finite number above 0 (as float32)"
    if len(np.unique(rows * words + columns)) < len(rows):
        return "a pair of words stands there twice"
    return None


def _starts(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _compact(pieces: Sequence[NDArray[Any]], rest: tuple[int, ...] = ()) -> NDArray[Any]:
    """The pieces after each other, in 2 bytes each where they fit, else in 4."""
    numbers = np.concatenate([np.empty((0, *rest), np.int64), *pieces]).astype(np.int64)
    return numbers.astype(np.int32 if (numbers > np.iinfo(np.uint16).max).any() else np.uint16)


# Flat arrays as a folder of files that is whole or not there, tells when it was damaged, and is mapped into memory.


FORMAT = 1
META = "meta.json"
# Stands in the meta file: a folder with it is ours, and may be replaced.
MARK = "headwise-knowledge"


class Damage(Exception):
    """What is wrong with files that should be read. It never leaves the library."""


def write(folder: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Write arrays as a folder, so that a reader, or a kill, sees all of it or nothing; replaces what is there."""
    draft = folder.with_name(f"{folder.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed
        draft.mkdir(parents=True)
        files = {name: _save(draft / f"{name}.npy", arrays[name]) for name in NAMES}
        meta = json.loads(json.dumps({"mark": MARK, **about, "format": FORMAT, "files": files}))  # as it is read back
        with (draft / META).open("w", encoding="utf-8") as file:
            json.dump({**meta, "seal": digest(meta)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read(folder: Path, key: str, examples: int, *, hashes: bool = True) -> Arrays:
    """The arrays of a folder; `Damage` if they are not what was written under this key for so many examples."""
    meta = _meta(folder)
    if meta.get("format") != FORMAT:
        raise Damage(f"{META} is of format {meta.get('format')!r}, not {FORMAT}")
    if meta.get("mark") != MARK or meta.get("key") != key:
        raise Damage(f"{META} belongs to something else")
    if meta.get("seal") != digest({name: value for name, value in meta.items() if name != "seal"}):
        raise Damage(f"{META} is not what was written")
    for name in NAMES:
        _check(folder / f"{name}.npy", meta["files"][name], hashes)
    arrays = load(folder)
    if reason := inconsistent(arrays, examples):
        raise Damage(reason)
    return arrays


def load(folder: Path) -> Arrays:
    """The arrays of a folder, mapped into memory."""
    try:
        return {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in NAMES}
    except (OSError, ValueError, EOFError) as error:
        raise Damage(f"an array cannot be read ({error})") from error


def is_ours(folder: Path) -> bool:
    """Whether a folder was written by us, or holds nothing but files named as ours: only such a one is replaced."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        if _meta(folder).get("mark") == MARK:
            return True
    except Damage:
        pass
    return {path.name for path in folder.iterdir()} <= {META, *(f"{name}.npy" for name in NAMES)}


def stamp(folder: Path) -> tuple[Any, ...] | None:
    """Changes when a file is written again: as long as it is the same, hashes need not be worked out again."""
    try:
        found = [(folder / f"{name}.npy").stat() for name in NAMES]
    except OSError:
        return None
    return (str(folder.absolute()), *((each.st_ino, each.st_size, each.st_mtime_ns) for each in found))


def _meta(folder: Path) -> dict[str, Any]:
    try:
        meta = parse_json((folder / META).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Damage(f"{META} is missing") from error
    except (OSError, ValueError) as error:
        raise Damage(f"{META} cannot be read ({error})") from error
    if not isinstance(meta, dict):
        raise Damage(f"{META} is not a table")
    return meta


def _check(path: Path, known: Mapping[str, Any], hashes: bool) -> None:
    try:
        size = path.stat().st_size
        if size != known["bytes"]:
            raise Damage(f"{path.name} has {size} bytes, not {known['bytes']}")
        if hashes and _hash(path) != known["sha256"]:
            raise Damage(f"{path.name} is not what was written: its hash differs")
    except FileNotFoundError as error:
        raise Damage(f"{path.name} is missing") from error
    except OSError as error:
        raise Damage(f"{path.name} cannot be read ({error.strerror or error})") from error


class _Hashed:
    """Writes to a file and takes down what it writes.

    numpy would fill a real file by itself, and then not notice a full disk.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash, self._size = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)
        self._file.write(data)

    def about(self) -> dict[str, Any]:
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}


def _save(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    with path.open("wb") as file:
        hashed = _Hashed(file)
        np.save(hashed, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return hashed.about()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

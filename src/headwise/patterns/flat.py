"""Matrices of words as a few flat arrays, which files can hold.

Shapes: N examples; W words and E entries of all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import StateError
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

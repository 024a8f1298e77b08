"""Scores that are kept as they are worked out, so that a run that is stopped goes on where it was.

The file is text. Its first line says what the scores are of, every other holds those of one piece of the work:

    {"mark": "headwise-rerank", "of": {...}}
    [0.25, -1.5, ...]
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from headwise.disk import LOCK, disk_errors, held
from headwise.errors import InputError
from headwise.json_text import parse_json

MARK = "headwise-rerank"
SUFFIX = ".partial"


class Partial:
    """The pieces that are done. A kill in the middle of writing loses the piece that was being written."""

    def __init__(self, path: Path, of: Mapping[str, Any], sizes: Sequence[int], *, overwrite: bool = False) -> None:
        """Open the file at `path`, or begin it.

        Args:
            path: the file.
            of: plain data that decides the scores; what was kept for other data is refused.
            sizes: how many scores each piece has.
            overwrite: begin again instead of refusing.
        """
        self.path, self._of = path, json.loads(json.dumps(of))
        self.scores: list[list[float]] = []
        with _writing(path):
            lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
            if lines and (differs := _difference(lines[0], self._of)):
                if not overwrite:
                    raise InputError(
                        f"{path} holds scores of something else ({differs}): finish what it was made for, remove it, "
                        "or add --overwrite."
                    )
                lines = []
            self._keep(lines, sizes)

    def add(self, scores: Sequence[float]) -> None:
        """Keep the scores of the next piece; they are on the disk when this returns."""
        values = [float(score) for score in scores]
        with _writing(self.path), self.path.open("ab") as file:
            file.write(json.dumps(values).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.scores.append(values)

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def _keep(self, lines: list[bytes], sizes: Sequence[int]) -> None:
        """Take over the pieces that are whole, and cut off what follows them."""
        head = json.dumps({"mark": MARK, "of": self._of}).encode()
        for line, size in zip(lines[1:], sizes, strict=False):
            scores = _piece(line, size)
            if scores is None:
                break
            self.scores.append(scores)
        kept = [head, *lines[1 : 1 + len(self.scores)]]
        if not lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(head + b"\n")
        else:
            os.truncate(self.path, sum(len(line) + 1 for line in kept))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Only one process may work on a partial file; the lock of one that has died is free."""
    with ExitStack() as stack:
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(path.with_name(path.name + LOCK), path))
        yield


def _difference(line: bytes, of: dict[str, Any]) -> str | None:
    """In what the scores of a file are of something else, in a few words."""
    try:
        head = parse_json(line)
        before = head["of"] if head["mark"] == MARK else None
    except (ValueError, KeyError, TypeError, RecursionError):
        before = None
    if not isinstance(before, dict):
        return "it was not written by headwise"
    differing = [name for name in {**of, **before} if of.get(name) != before.get(name)]
    return f"another {' and another '.join(differing)}" if differing else None


def _piece(line: bytes, size: int) -> list[float] | None:
    """The scores of a line, or None if it is not whole."""
    try:
        scores = parse_json(line)
    except ValueError:
        return None
    if not isinstance(scores, list) or len(scores) != size:
        return None
    return scores if all(isinstance(score, float) and math.isfinite(score) for score in scores) else None


def _writing(path: Path) -> AbstractContextManager[None]:
    """Errors of the disk in one sentence."""
    remedy = "make room, or name another place with --output; the same command then goes on."
    return disk_errors(f"the scores so far could not be kept in {path}", remedy)

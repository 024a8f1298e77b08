"""Folders of files that are whole or not there: built once, found again by the hash of what they are made from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from headwise.disk import LOCK, cache_folder, locked, user_cache, writing
from headwise.errors import HeadwiseWarning, InputError
from headwise.limits import parse_json

META = "meta.json"
# Stands in the meta file: a folder with it is ours, and may be replaced.
MARK = "headwise-retrieval"
DRAFT = ".draft"
# Before DRAFT: a folder that is being replaced.
OLD = ".old"
# For messages about the disk.
WHAT = "the folder of indexes"
# The folders whose hashes this process has worked out once; a stamp changes when a file is written again.
_verified: set[tuple[Any, ...]] = set()


def retrieval_cache(cache: Path | None) -> Path:
    """The folder of all stores: below the one that is named, else $HEADWISE_CACHE, else the user's cache folder."""
    return (cache or cache_folder() or user_cache()) / "retrieval"


def digest(value: Any) -> str:
    """A hash of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_or_build(folder: Path, key: str, build: Callable[[Path], Mapping[str, Any]], *, rebuild: bool = False) -> bool:
    """Make sure that a folder is there and whole; returns whether it had to be built.

    Args:
        folder: where it should be.
        key: the hash of what it is made from.
        build: writes the files into the folder it is given, and returns what the meta file should say about them.
        rebuild: build it even if it is there.
    """
    if not rebuild and fault(folder, key) is None:
        return False
    with locked(folder, WHAT):
        found = fault(folder, key)  # another process may have built it while we waited
        if found is None and not rebuild:
            return False
        _make_way(folder, found)
        _sweep(folder.parent)
        _build(folder, key, build)
    return True


def fault(folder: Path, key: str) -> str | None:
    """What is wrong with a folder: None if nothing is, an empty text if there is none."""
    if not os.path.lexists(folder):
        return ""
    try:
        meta = parse_json((folder / META).read_text(encoding="utf-8"))
        if meta["mark"] != MARK or meta["key"] != key:
            return f"{META} belongs to something else"
        if meta["seal"] != digest({name: value for name, value in meta.items() if name != "seal"}):
            return f"{META} is not what was written"
        return _bad_file(folder, meta["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{META} cannot be read ({type(error).__name__})"


def _bad_file(folder: Path, files: Mapping[str, Any]) -> str | None:
    """Which file is not what was written. Sizes are always looked at, hashes once per process."""
    stamp: list[Any] = [str(folder.absolute())]
    for name, known in files.items():
        try:
            found = (folder / name).stat()
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if found.st_size != known["bytes"]:
            return f"{name} has {found.st_size} bytes, not {known['bytes']}"
        stamp += [found.st_ino, found.st_mtime_ns]
    if tuple(stamp) not in _verified:
        for name, known in files.items():
            if file_digest(folder / name) != known["sha256"]:
                return f"{name} is not what was written: its hash differs"
        _verified.add(tuple(stamp))
    return None


def _build(folder: Path, key: str, build: Callable[[Path], Mapping[str, Any]]) -> None:
    draft, old = folder.with_name(folder.name + DRAFT), folder.with_name(folder.name + OLD + DRAFT)
    try:
        with writing(folder.parent, WHAT):
            for left in (draft, old):  # by a builder that was killed
                shutil.rmtree(left, ignore_errors=True)
            draft.mkdir()
            about = build(draft)
            files = {path.name: _settled(path) for path in sorted(draft.iterdir())}
            meta = json.loads(json.dumps({"mark": MARK, "key": key, **about, "files": files}))  # as it is read back
            (draft / META).write_text(json.dumps({**meta, "seal": digest(meta)}, indent=1), encoding="utf-8")
            _settled(draft / META)
            if folder.exists():
                folder.replace(old)  # a kill while it is deleted in place would leave what nobody knows as ours
            draft.replace(folder)
    finally:
        for left in (draft, old):
            shutil.rmtree(left, ignore_errors=True)


def _settled(path: Path) -> dict[str, Any]:
    """Size and hash of a file, once it is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    if path.suffix == ".npy":
        try:
            np.load(path, mmap_mode="r", allow_pickle=False)  # numpy may not notice a full disk when it writes
        except ValueError as error:
            raise OSError(f"{path.name} was not written in full") from error
    return {"bytes": path.stat().st_size, "sha256": file_digest(path)}


def _make_way(folder: Path, found: str | None) -> None:
    """Refuse to replace what is not ours, and say so where something damaged is replaced."""
    if os.path.lexists(folder) and (folder.is_symlink() or not (folder / META).is_file()):
        raise InputError(
            f"{folder} stands where an index should be kept, and was not made by headwise: move it away, or choose "
            "another cache folder."
        )
    if found:
        warnings.warn(f"{folder} is damaged and is built again: {found}.", HeadwiseWarning, stacklevel=5)


def _sweep(cache: Path) -> None:
    """Remove what killed builders of other folders have left: theirs are the drafts that nobody holds the lock of."""
    for draft in cache.glob(f"*{DRAFT}"):
        name = draft.name.removesuffix(DRAFT).removesuffix(OLD)
        try:
            with FileLock(cache / f"{name}{LOCK}", timeout=0):
                shutil.rmtree(draft, ignore_errors=True)
        except Timeout:
            continue

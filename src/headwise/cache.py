"""The cache: folders that are complete or absent, found again by the hash of what they are built from.

A folder holds the files of one entry (arrays are memory-mapped by their readers) and meta.json, which names the key,
and the size and hash of every file. An entry is checked before it is used, built under a lock, and put in position by
one rename. Knowledge about words and retrieval indexes are entries.
"""

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
# In the meta file of every entry: only folders with it are replaced.
MARK = "headwise-cache"
# Of headwise 0.1: the first kind is read as it is, others are built again.
OLD_MARKS = ("headwise-retrieval", "headwise-knowledge")
DRAFT = ".draft"
# Before DRAFT: a folder that is being replaced.
OLD = ".old"
# The folders whose hashes this process has checked; the key changes when a file is written again.
_verified: set[tuple[Any, ...]] = set()


def retrieval_cache(cache: Path | None) -> Path:
    """The folder of all indexes: below `cache`, else below $HEADWISE_CACHE, else in the user's cache folder."""
    return (cache or cache_folder() or user_cache()) / "retrieval"


def digest(value: Any) -> str:
    """A hash of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_or_build(folder: Path, key: str, build: Callable[[Path], Mapping[str, Any]], *, rebuild: bool = False) -> bool:
    """Make sure that an entry is present and intact; returns whether it had to be built.

    Args:
        folder: the folder of the entry.
        key: the hash of what it is built from.
        build: writes the files into the folder that it is called with, and returns more content for the meta file.
        rebuild: build it even if it is present.
    """
    # Without the lock first: an entry can be read where nothing can be written.
    if not rebuild and fault(folder, key) is None:
        return False
    with locked(folder, "the cache"):
        reason = fault(folder, key)  # another process may have built it meanwhile
        if reason is None and not rebuild:
            return False
        if os.path.lexists(folder) and not _is_entry(folder):
            raise InputError(
                f"{folder} is where a cache entry belongs, and was not made by headwise: move it away, or choose "
                "another cache folder."
            )
        if reason:
            warnings.warn(f"{folder} is damaged and is built again: {reason}.", HeadwiseWarning, stacklevel=4)
        _remove_abandoned(folder.parent)
        draft, old = folder.with_name(folder.name + DRAFT), folder.with_name(folder.name + OLD + DRAFT)
        try:
            with writing(folder.parent, "the cache"):
                for left in (draft, old):  # by a process that was killed
                    shutil.rmtree(left, ignore_errors=True)
                draft.mkdir()
                about = build(draft)
                files = {path.name: _settled(path) for path in sorted(draft.iterdir())}
                meta = json.loads(json.dumps({"mark": MARK, "key": key, **about, "files": files}))  # as it is read back
                (draft / META).write_text(json.dumps({**meta, "seal": digest(meta)}, indent=1), encoding="utf-8")
                _settled(draft / META)
                if folder.exists():
                    folder.replace(old)  # a kill during a deletion would leave a folder without our mark
                draft.replace(folder)
        finally:
            for left in (draft, old):
                shutil.rmtree(left, ignore_errors=True)
    return True


def fault(folder: Path, key: str) -> str | None:
    """What is wrong with an entry: None if nothing is, an empty text if it is absent.

    Sizes are always checked, hashes once per process.
    """
    if not os.path.lexists(folder):
        return ""
    name = META
    try:
        meta = parse_json((folder / META).read_text(encoding="utf-8"))
        if meta["mark"] in OLD_MARKS[1:]:
            return ""
        if meta["mark"] not in (MARK, OLD_MARKS[0]) or meta["key"] != key:
            return f"{META} belongs to something else"
        if meta["seal"] != digest({name: value for name, value in meta.items() if name != "seal"}):
            return f"{META} is not what was written"
        stamp: list[Any] = [str(folder.absolute())]
        for name, known in meta["files"].items():
            status = (folder / name).stat()
            if status.st_size != known["bytes"]:
                return f"{name} has {status.st_size} bytes, not {known['bytes']}"
            stamp += [status.st_ino, status.st_mtime_ns]
        if tuple(stamp) not in _verified:
            for name, known in meta["files"].items():
                if file_digest(folder / name) != known["sha256"]:
                    return f"{name} is not what was written: its hash differs"
            _verified.add(tuple(stamp))
    except FileNotFoundError:
        return f"{name} is missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{name} cannot be read ({getattr(error, 'strerror', None) or type(error).__name__})"
    return None


def _is_entry(folder: Path) -> bool:
    """Whether a folder may be replaced: it has our mark, or an unreadable meta file, or nothing but arrays."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        if parse_json((folder / META).read_text(encoding="utf-8"))["mark"] in (MARK, *OLD_MARKS):
            return True
    except (FileNotFoundError, KeyError, TypeError):  # another program's meta file, or a damaged one
        pass
    except (OSError, ValueError):
        return True
    return all(path.name == META or path.suffix == ".npy" for path in folder.iterdir())


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


def _remove_abandoned(cache: Path) -> None:
    """Remove the drafts of killed processes: those whose lock is free."""
    for draft in cache.glob(f"*{DRAFT}"):
        name = draft.name.removesuffix(DRAFT).removesuffix(OLD)
        try:
            with FileLock(cache / f"{name}{LOCK}", timeout=0):
                shutil.rmtree(draft, ignore_errors=True)
        except Timeout:
            continue

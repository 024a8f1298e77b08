"""Files that are whole or not there, and the folder for what can be worked out again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from headwise.errors import DiskError

LOCK = ".lock"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a kill, sees the old content or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def save_content(path: Path, content: str | bytes) -> None:
    """Write a file that the user asked for, whole or not at all; a disk that refuses is told in one sentence."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise DiskError(f"{path} could not be written: {error.strerror or error}.") from error


def cache_folder() -> Path | None:
    """The folder that $HEADWISE_CACHE names, if it does."""
    own = os.environ.get("HEADWISE_CACHE")
    return Path(own).expanduser() if own else None


def user_cache() -> Path:
    """Where programs of this user keep what can be worked out again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "headwise"


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """One process at a time may make this folder of a cache; the lock of a process that has died is free."""
    with writing(folder.parent, what):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(folder.name + LOCK))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def writing(cache: Path, what: str, *also: type[Exception]) -> Iterator[None]:
    """Errors of the disk, and others that mean as much, in one sentence; `what` the folder is."""
    troubles: tuple[type[Exception], ...] = (OSError, NotImplementedError, *also)
    try:
        yield
    except troubles as error:
        if isinstance(error, DiskError):
            raise
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise DiskError(
            f"{what} {cache} could not be written ({reason}): make room or give the right to write, or choose another "
            "folder with --cache or HEADWISE_CACHE."
        ) from error

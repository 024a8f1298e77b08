"""Files that are whole or not there, and the folder for what can be worked out again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from headwise.errors import DiskError, InputError

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


def check_new_file(path: Path, option: str, *, replace: bool, by: str = "--overwrite", example: str = "") -> None:
    """Refuse a file that cannot be written, before any work is done.

    Args:
        path: the file.
        option: what the user called it by.
        replace: whether a file that is there may be replaced.
        by: the option that allows that.
        example: a name for it, for those who gave a folder.
    """
    if path.is_dir():
        such_as = f", such as {path / example}" if example else ""
        raise InputError(f"{option} {path} is a folder: name a file in it{such_as}.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.absolute().parent}; make it first.")
    if path.exists() and not replace:
        raise InputError(f"{option} {path} exists already: choose another name, or add {by}.")


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
    """Errors while a cache is written, and others that mean as much, in one sentence; `what` the folder is."""
    remedy = "make room or give the right to write, or choose another folder with --cache or HEADWISE_CACHE."
    with disk_errors(f"{what} {cache} could not be written", remedy, NotImplementedError, *also):
        yield


@contextmanager
def disk_errors(what: str, remedy: str, *also: type[Exception]) -> Iterator[None]:
    """Errors of the disk in one sentence: what went wrong, why, and what to do. A lock that is not free is none."""
    troubles: tuple[type[Exception], ...] = (OSError, *also)
    try:
        yield
    except (InputError, DiskError, Timeout):
        raise
    except troubles as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise DiskError(f"{what} ({reason}): {remedy}") from error

"""Files that are whole or not there, locks on outputs, and the folder for what can be computed again."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from headwise.errors import BusyError, DiskError, InputError

LOCK = ".lock"
# In a folder that a command writes into, while it does.
FOLDER_LOCK = ".headwise.lock"
# Seconds in which a lock that is just being released may become free.
PATIENCE = 0.2
# A process that ends removes its lock and its empty folder: another one then tries again.
ATTEMPTS = 10


# -- files -------------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a kill, sees the old content or the new one."""
    with _draft(path, content) as draft:
        draft.replace(path)
    _sync_folder(path.parent)


def write_once(path: Path, content: str | bytes) -> bool:
    """Write a file that does not exist yet, whole or not at all; False if it exists."""
    with _draft(path, content) as draft:
        try:
            os.link(draft, path)  # unlike a rename, this fails if the name is taken
        except FileExistsError:
            return False
        except OSError:  # a disk without links
            if path.exists():
                return False
            draft.replace(path)
    _sync_folder(path.parent)
    return True


def save_content(path: Path, content: str | bytes) -> None:
    """Write a file that the user asked for, whole or not at all; an error of the disk becomes one sentence."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise DiskError(f"{path} could not be written: {error.strerror or error}.") from error


@contextmanager
def _draft(path: Path, content: str | bytes) -> Iterator[Path]:
    """A new file beside `path` with this content, on the disk; gone after the block.

    Its name is random and must be free, so that writers do not meet and a planted link is not followed.
    """
    draft = path.with_name(f"{draft_prefix(path)}{uuid.uuid4().hex}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(draft, flags, 0o666)  # less the umask, as for every ordinary file
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def draft_prefix(path: Path) -> str:
    """What the names of the drafts of one file, or folder, begin with: a hash, since its own name may be long."""
    return f".headwise-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]}-"


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power failure, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def ordinary_modes(folder: Path) -> None:
    """Give all files below a folder the mode of a file that this process creates: some libraries write 0600."""
    with _draft(folder / FOLDER_LOCK, b"") as draft:
        mode = draft.stat().st_mode & 0o777
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o777 != mode:
            path.chmod(mode)


# -- what a killed process leaves --------------------------------------------------------------------------------------


def is_leftover(name: str) -> bool:
    """Whether a file of this name is a lock or a draft of ours, which a kill may leave and nobody needs."""
    return name == FOLDER_LOCK or (name.startswith(".headwise") and name.endswith((".new", LOCK)))


def holds_nothing(folder: Path) -> bool:
    """Whether a folder does not exist, or is empty but for what a killed process left."""
    return not folder.is_dir() or all(is_leftover(path.name) for path in folder.iterdir())


def clear_drafts(folder: Path) -> None:
    """Remove the drafts of killed processes from a folder and those below it; only for whoever holds its lock."""
    for path in folder.rglob(".headwise*.new"):
        path.unlink(missing_ok=True)


def clear_drafts_of(path: Path) -> None:
    """Remove the drafts of one file that killed processes left; only for whoever holds its lock."""
    for left in path.parent.glob(f"{draft_prefix(path)}*.new"):
        left.unlink(missing_ok=True)


# -- locks -------------------------------------------------------------------------------------------------------------


@contextmanager
def held(lock: Path, what: Path) -> Iterator[None]:
    """Hold a lock for the block, or raise a BusyError that names the process that has it.

    The operating system frees the lock when the process ends, however it ends. The lock file goes with the block, and
    only its holder removes it: filelock does not take a file that was removed meanwhile for the lock.

    Args:
        lock: the lock file.
        what: what it guards, for messages.
    """
    # First, since filelock would wait where no file can be made.
    os.close(os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666))
    guard = FileLock(lock)
    try:
        guard.acquire(timeout=PATIENCE, poll_interval=PATIENCE / 10)
    except Timeout:
        raise BusyError(
            f"{what} is in use by {_signature(lock)[1]}: wait until it ends, or choose another output."
        ) from None
    mine = None
    try:
        with suppress(OSError):
            mine = lock.lstat()
        _sign(lock)
        yield
    finally:
        with suppress(OSError):
            if mine is not None and os.path.samestat(lock.lstat(), mine):
                lock.unlink()
        guard.release()


def holder(lock: Path) -> str | None:
    """Which other process holds a lock; None if it is free."""
    guard = FileLock(lock)
    try:
        if lock.is_file():
            guard.acquire(timeout=0)
            guard.release()
    except Timeout:
        pid, name = _signature(lock)
        return None if pid == os.getpid() else name
    except OSError:
        pass
    return None


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Be the only process that writes into a folder for the block; made if it is missing, removed if it stays empty.

    A folder that cannot be made or written is refused.
    """
    check_folder(folder)
    made: list[Path] = []
    try:
        with ExitStack() as stack:
            with disk_errors(f"{folder} cannot be written", "choose another folder, or get the right to write."):
                for attempt in range(1, ATTEMPTS + 1):
                    made = [*(each for each in (folder, *folder.parents) if not each.exists()), *made]
                    folder.mkdir(parents=True, exist_ok=True)
                    try:
                        stack.enter_context(held(folder / FOLDER_LOCK, folder))
                        break
                    except FileNotFoundError:
                        if attempt == ATTEMPTS:
                            raise
                for left in folder.glob(".headwise*.new"):
                    left.unlink(missing_ok=True)
            yield
    finally:
        for each in made:
            with suppress(OSError):  # not empty
                each.rmdir()


@contextmanager
def new_file(
    path: Path, option: str, *, replace: bool, by: str = "overwrite=True", example: str = ""
) -> Iterator[None]:
    """Be the only process that writes a file for the block; refuses, before any work, one that cannot be written.

    Args:
        path: the file.
        option: what the user called it by.
        replace: whether a file that is there may be replaced.
        by: the option that allows that.
        example: a name for it, for those who gave a folder.
    """
    check_new_file(path, option, replace=replace, by=by, example=example)
    with ExitStack() as stack:
        with disk_errors(f"{option} {path} cannot be written", "choose another place, or get the right to write."):
            stack.enter_context(held(path.with_name(f"{draft_prefix(path)}file{LOCK}"), path))
            clear_drafts_of(path)
        check_new_file(path, option, replace=replace, by=by, example=example)  # the last holder may have written it
        yield


def _sign(lock: Path) -> None:
    """Write who holds a lock into it, for messages only. Options are left out: they may hold a password."""
    program = Path(sys.argv[0]).name
    words = ["headwise" if program == "__main__.py" else program, *sys.argv[1:2]]
    command = " ".join(word for word in words if not word.startswith("-"))
    about = {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "since": time.time()}
    with suppress(OSError):  # Windows refuses; a full disk must not end what needs no room
        descriptor = os.open(lock, os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(about))


def _signature(lock: Path) -> tuple[int | None, str]:
    """The process that signed a lock, and words for it; the file may be empty, or of a process that was killed."""
    unknown = "another process"
    try:
        about = json.loads(lock.read_text(encoding="utf-8"))
        pid, host, command = int(about["pid"]), str(about["host"]), str(about["command"])
        since = datetime.fromtimestamp(float(about["since"])).strftime("%Y-%m-%d %H:%M:%S")
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None, unknown
    if host != socket.gethostname():
        return pid, f"process {pid} on {host} ({command}, since {since})"
    try:
        if os.name == "posix":  # elsewhere signal 0 would end it
            os.kill(pid, 0)
    except ProcessLookupError:
        return pid, unknown
    except (PermissionError, OverflowError):
        pass
    return pid, f"process {pid} ({command}, since {since})"


# -- checks before any work --------------------------------------------------------------------------------------------


def check_folder(folder: Path) -> None:
    """Refuse a path where no folder can be: a file, a place below one, or the home of a user who is not known."""
    try:
        folder.expanduser()
    except RuntimeError:
        raise InputError(f"{folder} begins with ~ and a user that is not known here: choose another folder.") from None
    with disk_errors(f"{folder} cannot be used", "choose another folder."):
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
        if not there.is_dir():
            below = "" if there == folder.absolute() else f"{folder} cannot be a folder: "
            raise InputError(f"{below}{there} is a file: choose a folder (output=...).")


def check_new_file(path: Path, option: str, *, replace: bool, by: str = "overwrite=True", example: str = "") -> None:
    """Refuse a file that cannot be written, before any work is done; see `new_file`."""
    with disk_errors(f"{option} {path} cannot be written", "choose another name."):
        if path.is_dir():
            such_as = f", such as {path / example}" if example else ""
            raise InputError(f"{option} {path} is a folder: name a file in it{such_as}.")
        if not path.absolute().parent.is_dir():
            raise InputError(f"{option} {path}: there is no folder {path.absolute().parent}; make it first.")
        if path.exists() and not path.is_file():
            raise InputError(f"{option} {path} is no ordinary file: choose another name.")
        if path.exists() and not replace:
            raise InputError(f"{option} {path} exists already: choose another name, or add {by}.")


# -- caches ------------------------------------------------------------------------------------------------------------


def cache_folder() -> Path | None:
    """The folder that $HEADWISE_CACHE names, if it does."""
    own = os.environ.get("HEADWISE_CACHE")
    return Path(own).expanduser() if own else None


def user_cache() -> Path:
    """Where programs of this user keep what can be computed again."""
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
    remedy = "make room or give the right to write, or choose another folder (cache=..., or HEADWISE_CACHE)."
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

"""Files that are whole or not there, and the folder for what can be worked out again."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader, or a kill, sees the old content or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def cache_folder() -> Path | None:
    """The folder that $HEADWISE_CACHE names, if it does."""
    own = os.environ.get("HEADWISE_CACHE")
    return Path(own).expanduser() if own else None


def user_cache() -> Path:
    """Where programs of this user keep what can be worked out again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "headwise"

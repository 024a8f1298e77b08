"""A file that a command is to write: refused before any work if it cannot be."""

from __future__ import annotations

from pathlib import Path

from headwise.errors import InputError


def check_new_file(path: Path, *, force: bool) -> None:
    """Refuse a folder, a file in no folder, and one that is there already unless it may be replaced."""
    if path.is_dir():
        raise InputError(f"--output {path} is a folder: name a file in it.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"--output {path}: there is no folder {path.absolute().parent}; make it first.")
    if path.exists() and not force:
        raise InputError(f"--output {path} exists already: choose another name, or add --force.")

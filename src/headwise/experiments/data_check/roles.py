"""What each file is for: its name says so, or its place among the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwise.errors import InputError

TRAIN, VALIDATION, TEST, OTHER = ROLES = ("train", "validation", "test", "other")
# As people write them in the names of files.
SPELLINGS = {
    TRAIN: ("train", "training"),
    VALIDATION: ("validation", "valid", "val", "dev", "development", "trial"),
    TEST: ("test", "testing"),
    OTHER: ("other",),
}
ROLE_OF = {spelling: role for role, spellings in SPELLINGS.items() for spelling in spellings}


@dataclass(frozen=True)
class GivenFile:
    """A file, what it is for, and a short name that no other has."""

    path: Path
    role: str
    name: str


def given_files(given: Sequence[str]) -> list[GivenFile]:
    """The files that were named, train first; `train=FILE` says outright what a file is for."""
    if not given:
        raise InputError("no file to check: name at least one.")
    parsed = [_parsed(text) for text in given]
    paths = [path for path, _ in parsed]
    _check_different(paths)
    roles = _filled([role for _, role in parsed])
    ordered = sorted(zip(paths, roles, strict=True), key=lambda each: ROLES.index(each[1]))
    return [GivenFile(*each, name) for each, name in zip(ordered, _names(ordered), strict=True)]


def _parsed(text: str) -> tuple[Path, str | None]:
    role, equals, rest = text.partition("=")
    if equals and role in ROLE_OF and not Path(text).exists():
        return Path(rest).expanduser(), ROLE_OF[role]
    path = Path(text).expanduser()
    parts = re.split("[^a-z]+", path.name.lower())
    return path, next((ROLE_OF[part] for part in parts if part in ROLE_OF and part != OTHER), None)


def _check_different(paths: Sequence[Path]) -> None:
    whole = [path.resolve() for path in paths]
    for number, path in enumerate(whole):
        if path in whole[:number]:
            raise InputError(f"{paths[number]} is given twice: name every file once.")


def _filled(roles: Sequence[str | None]) -> list[str]:
    """Where no name tells, the first is for training and the last for testing."""
    filled, unknown = list(roles), [place for place, role in enumerate(roles) if role is None]
    if len(roles) > 1 and unknown and TRAIN not in roles:
        filled[unknown.pop(0)] = TRAIN
    if len(roles) > 1 and unknown and TEST not in roles:
        filled[unknown.pop()] = TEST
    return [role or OTHER for role in filled]


def _names(files: Sequence[tuple[Path, str]]) -> list[str]:
    """The role, or what the file is called; a second one gets a number."""
    names: list[str] = []
    for path, role in files:
        plain = path.name.partition(".")[0] or path.name if role == OTHER else role
        numbered = (plain if number == 1 else f"{plain} {number}" for number in range(1, len(files) + 2))
        names.append(next(name for name in numbered if name not in names))
    return names

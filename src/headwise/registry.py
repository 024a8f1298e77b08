"""A table from names to classes, with manners."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from headwise.errors import InputError, choices

Entry = TypeVar("Entry", bound=type)


class Registry(Mapping[str, type]):
    """Names to classes; refuses bad and taken names, and answers unknown ones with what there is."""

    def __init__(self, kind: str) -> None:
        """`kind` is the word for an entry in messages, such as 'guide'."""
        self._kind = kind
        self._entries: dict[str, type] = {}

    def add(self, name: str, entry: Entry) -> Entry:
        """Enter a class under a name."""
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise InputError(
                f"{self._kind} name {name!r}: expected lower-case letters, digits and hyphens, starting with a letter."
            )
        if name in self._entries:
            raise InputError(f"{self._kind} name {name!r} is taken by {self._entries[name].__name__}: choose another.")
        self._entries[name] = entry
        return entry

    def remove(self, name: str) -> None:
        """Take an entry out again."""
        self[name]
        del self._entries[name]

    def __getitem__(self, name: str) -> type:
        """The class of this name."""
        if name not in self._entries:
            raise InputError(f"unknown {self._kind} {name!r}: {choices(name, self._entries)}.")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        """Whether the name is taken."""
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """The names, in the order of entry."""
        return iter(self._entries)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._entries)


def politely(kind: Any, label: str, positional: tuple[str, ...] = ()) -> Callable[..., None]:
    """A dataclass's `__init__` that answers unknown options with the known ones.

    Args:
        kind: the dataclass.
        label: what it is called in messages.
        positional: options that may be given without their names.
    """
    initialise = kind.__init__

    @functools.wraps(initialise)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        known = [field.name for field in fields(kind)]
        if len(args) > len(positional):
            example = f"for example {known[0]}={args[-1]!r}" if known else "it has none"
            raise InputError(f"{label}{args!r}: name the options, {example}.")
        unnamed = dict(zip(positional, args, strict=False))
        for option in unnamed:
            if option in options:
                raise InputError(f"{label} is given its {option} twice: {unnamed[option]!r}, {options[option]!r}.")
        for option in options:
            if option not in known:
                raise InputError(f"{label} has no option {option!r}: {choices(option, known)}.")
        initialise(self, **unnamed, **options)

    return checked

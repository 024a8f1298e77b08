"""A table from names to classes, with manners; and names of a package that are imported on first use."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, TypeVar

from headwise.errors import InputError, choices

Entry = TypeVar("Entry", bound=type)


class Registry(Mapping[str, type]):
    """Names to classes; refuses bad and taken names, and answers unknown ones with what there is."""

    def __init__(self, kind: str, modules: Mapping[str, str] | None = None) -> None:
        """Start with entries of our own.

        Args:
            kind: the word for an entry in messages, such as 'guide'.
            modules: for each name the module that adds it; imported when the name is used for the first time.
        """
        self._kind = kind
        self._entries: dict[str, type | str] = dict(modules or {})

    def add(self, name: str, entry: Entry) -> Entry:
        """Enter a class under a name."""
        if name not in self._entries and not re.fullmatch(r"[a-z][a-z0-9-]*", name):
            raise InputError(
                f"{self._kind} name {name!r}: expected lower-case letters, digits and hyphens, starting with a letter."
            )
        if self._entries.get(name, entry.__module__) != entry.__module__:
            raise InputError(f"{self._kind} name {name!r} is taken by {self[name].__name__}: choose another.")
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
        entry = self._entries[name]
        if isinstance(entry, str):
            import_module(entry)  # which adds it
            return self[name]
        return entry

    def __contains__(self, name: object) -> bool:
        """Whether the name is taken."""
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """The names, in the order of entry."""
        return iter(self._entries)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._entries)


def lazy_names(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A `__getattr__` of a package (PEP 562), which imports a name when it is used for the first time.

    Args:
        package: the name of the package.
        modules: for each module of the package the names that it has.
    """

    def load(name: str) -> Any:
        for module, names in modules.items():
            if name in names:
                return getattr(import_module(f"{package}.{module}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load


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

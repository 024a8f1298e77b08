"""The options of every command, read from the functions that the command line is made of."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Option:
    """An option or an argument of a command."""

    name: str
    flags: tuple[str, ...]
    """As one types it; none for an argument."""
    kind: type
    """str, int, float, bool or Path."""
    many: bool
    required: bool
    least: float | None
    most: float | None


@cache
def commands() -> dict[tuple[str, ...], tuple[Option, ...]]:
    """Every command by its name, with its options."""
    from headwise.cli.main import app

    return dict(_commands(app))


def _commands(app: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], tuple[Option, ...]]]:
    for each in app.registered_commands:
        name = each.name or each.callback.__name__.replace("_", "-")
        yield (*path, name), tuple(_options(each.callback))
    for group in app.registered_groups:
        yield from _commands(group.typer_instance, (*path, group.name))


def _options(function: Any) -> Iterator[Option]:
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        base, *extras = typing.get_args(hints[name]) if hasattr(hints[name], "__metadata__") else (hints[name],)
        info = extras[0] if extras else None
        argument = type(info).__name__ == "ArgumentInfo"
        # In an annotation the first name stands where a default would.
        names = (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))
        declared = tuple(flag for flag in names if isinstance(flag, str) and flag.startswith("-"))
        flags = () if argument else declared or (f"--{name.replace('_', '-')}",)
        kind, many = _kind(base)
        flags = tuple(flag.partition("/")[0] for flag in flags)
        required = parameter.default is inspect.Parameter.empty
        yield Option(name, flags, kind, many, required, getattr(info, "min", None), getattr(info, "max", None))


def _kind(hint: Any) -> tuple[type, bool]:
    """The type of one value, and whether there may be several."""
    parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
    if isinstance(hint, types.UnionType):
        return _kind(parts[0])
    if typing.get_origin(hint) is list:
        return parts[0], True
    return hint if hint in (str, int, float, bool, Path) else str, False

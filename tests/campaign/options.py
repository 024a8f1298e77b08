"""The options of every command, as the command line declares them."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer


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

    return dict(_commands(typer.main.get_command(app), ()))


def _commands(group: Any, before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], tuple[Option, ...]]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*before, name))
        else:
            yield (*before, name), tuple(_option(each) for each in command.params if each.name != "help")


def _option(each: Any) -> Option:
    hint = each.type_descriptor.annotation  # str, or list[str]
    flags = tuple(each.opts) if each.param_type_name == "option" else ()
    kind = typing.get_args(hint)[0] if typing.get_origin(hint) is list else hint
    return Option(each.name, flags, kind, each.multiple or each.nargs == -1, each.required, each.min, each.max)

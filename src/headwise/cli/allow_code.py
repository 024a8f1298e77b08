"""The option --allow-code of the commands that read a recipe or a run."""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.code_permission import allowing_code


def _allow(context: typer.Context, allowed: bool) -> bool:
    """Give the permission until the command ends."""
    if allowed:
        context.with_resource(allowing_code())
    return allowed


AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        callback=_allow,
        help="Import the Python code that the recipe or the run names (package.module:function); only if you trust it.",
    ),
]
"""A command needs only the parameter: the permission is in force while the command runs."""

"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
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
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Examples at a time.", show_default=False)]
Cache = Annotated[
    Path | None,
    typer.Option(
        help="Folder for knowledge computed from texts, and indexes; default HEADWISE_CACHE or the user's cache.",
        show_default=False,
    ),
]
Change = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value: training.num_train_epochs=1.")
]
Data = Annotated[Path | None, typer.Option(help="Folder with the files of the task, or tasks.", show_default=False)]
Download = Annotated[bool, typer.Option("--download", help="Allow the network for models and data that are not here.")]
OneTask = Annotated[
    str | None, typer.Option("--task", help="Of a run on several tasks, which one.", show_default=False)
]
Recipe = Annotated[str, typer.Argument(help="YAML file, or a name of `headwise list recipes`.", show_default=False)]
Run = Annotated[Path, typer.Argument(help="Folder that `headwise train` wrote.", show_default=False)]

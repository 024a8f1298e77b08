"""Arguments and options of the commands; those that several commands share are defined here, once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headwise.code_permission import allowing_code


def _allow(context: typer.Context, allowed: bool) -> bool:
    """Permit foreign code until the command ends."""
    if allowed:
        context.with_resource(allowing_code())
    return allowed


def read_first(context: typer.Context, name: str) -> str:
    """Refuse a file that is not YAML, or too large or deep, before torch is imported, which takes seconds."""
    path = Path(name)
    # Several processes of one run report a mistake once, when they have found each other.
    if not context.resilient_parsing and os.environ.get("WORLD_SIZE", "1") == "1" and path.is_file():
        from headwise.experiments.recipe_files import read_yaml

        read_yaml(path, name)
    return name


AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        callback=_allow,
        help="Import the Python code that the recipe or the run names (package.module:function); only if you trust it.",
    ),
]
"""A command only needs the parameter: the permission is in force while the command runs."""
Also = Annotated[
    list[Path] | None, typer.Option(help="Another run to show, such as one with MDG alone; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Baseline = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Run to compare with, such as the same one without guides.")
]
Batch = Annotated[int | None, typer.Option(min=1, help="Examples per batch; default that of the recipe.")]
Cache = Annotated[
    Path | None,
    typer.Option(help="Folder for computed knowledge and indexes; default $HEADWISE_CACHE or the user's cache folder."),
]
Change = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a value of the recipe: training.num_train_epochs=1; may be repeated."
    ),
]
Data = Annotated[Path | None, typer.Option(help="Folder with the files of the task, or tasks.")]
Download = Annotated[bool, typer.Option("--download", help="Download models and data that are missing.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and stop.")]
ExampleFile = Annotated[
    Path | None, typer.Option("--examples", help="File with the task's text columns, whose rows are shown.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="AXIS=LABEL", help="Use only these labels of an axis: system=plain,ag; may be repeated."),
]
OneTask = Annotated[str | None, typer.Option("--task", help="Task, for a run on several tasks.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
Recipe = Annotated[str, typer.Argument(callback=read_first, help="YAML file, or a name of `headwise list recipes`.")]
Results = Annotated[
    Path | None,
    typer.Option(help="Folder of `headwise sweep`, whose plots and tests over seeds are added to the page."),
]
Run = Annotated[Path, typer.Argument(help="Folder that `headwise train` wrote.")]
Split = Annotated[str, typer.Option(help="train, validation, test, or another split of the task.")]
SweepName = Annotated[str | None, typer.Option("--sweep", help="Name of the sweep, if the folder has several.")]
Threads = Annotated[
    int, typer.Option(min=1, help="CPU threads per run; more change the last digits of results, so keep one number.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Parallel processes; default one per core.")]

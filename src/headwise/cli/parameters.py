"""Arguments and options of the commands; those that several commands share are defined here, once.

A command may take a group of options as one parameter: a dataclass whose fields are options, see `grouped`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from headwise.errors import InputError
from headwise.limits import allowing_code

if TYPE_CHECKING:
    from headwise.experiments.apply import Source
    from headwise.experiments.file_recipe import Choice


# Endings of files that people name where a recipe is expected.
EXAMPLE_FILES = (".csv", ".tsv", ".jsonl", ".xlsx", ".conll", ".parquet")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer whose parameters that are dataclasses have become one option for each field."""
    parameters: dict[str, inspect.Parameter] = {}
    groups: dict[str, tuple[Any, list[str]]] = {}

    def add(function: Callable[..., Any]) -> list[str]:
        hints, own = get_type_hints(function, include_extras=True), inspect.signature(function).parameters
        for name, each in own.items():
            kind = hints[name]
            if is_dataclass(kind) and isinstance(kind, type):
                groups[name] = (kind, add(kind))
            else:
                parameters[name] = each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        return list(own)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, (kind, fields) in groups.items():
            values[name] = kind(**{field: values.pop(field) for field in fields})
        command(**values)

    add(command)
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    return run


def _allow(context: typer.Context, allowed: bool) -> bool:
    """Permit foreign code until the command ends."""
    if allowed:
        context.with_resource(allowing_code())
    return allowed


def read_first(context: typer.Context, name: str | None) -> str | None:
    """Refuse a file that is not YAML, or too large or deep, before torch is imported, which takes seconds."""
    if name is None:
        return None
    path = Path(name)
    if path.suffix.lower() in EXAMPLE_FILES:
        raise InputError(f"{name} is a file of examples, not a recipe: put --data before it.")
    # Several processes of one run report a mistake once, when they have found each other.
    if not context.resilient_parsing and os.environ.get("WORLD_SIZE", "1") == "1" and path.is_file():
        from headwise.experiments.recipe_files import read_yaml

        read_yaml(path, name)
    return name


def names(text: str | None) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        callback=_allow,
        help="Import the Python code that the recipe or the run names (package.module:function); only if you trust it.",
    ),
]
"""A command only needs the parameter: the permission is in force while the command runs."""
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Examples per batch; default that of the recipe.")]
Cache = Annotated[
    Path | None,
    typer.Option(help="Folder for computed knowledge and indexes; default $HEADWISE_CACHE or the user's cache folder."),
]
Download = Annotated[bool, typer.Option("--download", help="Download models and data that are missing.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and stop.")]
ExampleFile = Annotated[
    Path | None, typer.Option("--examples", help="File with the task's text columns, whose rows are shown.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
OneTask = Annotated[str | None, typer.Option("--task", help="Task, for a run on several tasks.")]
OptionalRecipe = Annotated[
    str | None,
    typer.Argument(
        callback=read_first,
        help="YAML file, or a name of `headwise list recipes`; without one, --data is a file of examples.",
        show_default=False,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="AXIS=LABEL", help="Use only these labels of an axis: system=plain,ag; may be repeated."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")]
Recipe = Annotated[str, typer.Argument(callback=read_first, help="YAML file, or a name of `headwise list recipes`.")]
Run = Annotated[Path, typer.Argument(help="Folder that `headwise train` wrote.")]
Split = Annotated[str, typer.Option(help="train, validation, test, or another split of the task.")]
SweepName = Annotated[str | None, typer.Option("--sweep", help="Name of the sweep, if the folder has several.")]
Threads = Annotated[
    int, typer.Option(min=1, help="CPU threads per run; more change the last digits of results, so keep one number.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="Parallel processes; default one per core.")]


@dataclass(frozen=True)
class DataOptions:
    """Where the files of a run's tasks are, and what is allowed to get them."""

    data: Annotated[Path | None, typer.Option(help="Folder with the files of the task, or tasks.")] = None
    download: Download = False
    allow_code: AllowCode = False

    @property
    def source(self) -> Source:
        """The same for the library."""
        from headwise.experiments.apply import Source

        return Source(self.data, self.download)


@dataclass(frozen=True)
class ColumnOptions:
    """What a file of examples is about, for training without a recipe."""

    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Without a recipe: the column of the texts; default detected.")
    ] = None
    pair: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of the second text of a pair.")] = None
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of the labels; default detected.")] = (
        None
    )
    kind: Annotated[
        str | None,
        typer.Option(help="classification, regression, multi_label or token_labels; default detected from the labels."),
    ] = None
    model: Annotated[str | None, typer.Option(help="Folder or Hub name of the encoder; default builtin:minilm-l6.")] = (
        None
    )
    delimiter: Annotated[str | None, typer.Option(help="Sign between fields, or tab; default detected.")] = None
    encoding: Annotated[str | None, typer.Option(help="Such as latin-1; default detected.")] = None
    sheet: Annotated[str | None, typer.Option(help="Sheet of an Excel file that has several.")] = None

    @property
    def choice(self) -> Choice:
        """The same for the library."""
        from headwise.experiments.file_recipe import Choice

        written = {name: getattr(self, name) for name in ("delimiter", "encoding", "sheet")}
        return Choice(self.text, self.pair, self.label, self.kind, self.model, written)


@dataclass(frozen=True)
class RecipeOptions(DataOptions):
    """Changes of a recipe, and where its files are."""

    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a value of the recipe: training.num_train_epochs=1; may be repeated.",
        ),
    ] = None
    cache: Cache = None

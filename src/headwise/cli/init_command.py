"""`headwise init`: a few questions about a file, and a recipe for it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli import parameters as opt
from headwise.cli.console import show
from headwise.errors import InputError

if TYPE_CHECKING:
    from headwise.experiments.file_recipe import Choice, Columns

NONE = "none"
QUESTIONS = {
    "label": "Column of the labels",
    "text": "Column of the texts",
    "pair": "Column of the second text of a pair",
    "kind": "What is predicted (classification, regression, multi_label, token_labels)",
    "model": "Encoder (folder or Hub name)",
}
# Of the values in a column, and their characters.
SHOWN, LONGEST = 3, 60


@opt.grouped
def init(
    data: Annotated[Path, typer.Argument(metavar="FILE", help="File of examples, or a folder with train and test.")],
    columns: opt.ColumnOptions,
    output: Annotated[Path | None, typer.Option(help="Recipe to write; default NAME.yaml.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take what is detected.")] = False,
    overwrite: opt.Overwrite = False,
    as_json: opt.AsJson = False,
) -> None:
    """Ask a few questions about FILE, and write a recipe with comments."""
    from headwise.disk import new_file, save_content
    from headwise.experiments.file_recipe import commented, file_recipe, find_files, read_columns
    from headwise.experiments.recipe import check_recipe

    root, files = find_files(data.expanduser())
    choice = columns.choice
    found = read_columns(root / files["train"], choice)
    if not yes and sys.stdin.isatty():
        choice = _ask(found, choice)
    written = file_recipe(data, choice, columns=found)
    check_recipe(written.data, str(data))
    target = output or Path(f"{written.data['name']}.yaml")
    command = shlex.join(["headwise", "train", str(target), "--data", str(data)])
    if target.suffix not in (".yaml", ".yml"):
        raise InputError(f"--output {target}: expected a name that ends in .yaml.")
    with new_file(target, "--output", replace=overwrite):
        save_content(target, commented(written.data, command))
    content = {"recipe": str(target), **written.data, "command": command}
    show(as_json, content, *written.notes, f"saved in {target}", f"train with: {command}")


def _ask(columns: Columns, choice: Choice) -> Choice:
    """Ask for what was not given; what was detected is the default."""
    for name, values in columns.values.items():
        typer.echo(f"{name}: {' | '.join(f'{str(each):.{LONGEST}}' for each in values[:SHOWN])}", err=True)
    detected = _detected(columns, choice)
    for option, question in QUESTIONS.items():
        if getattr(choice, option) is not None or (option == "pair" and len(columns.values) < 3):
            continue
        if detected is None or option in ("kind", "model"):  # the answers so far may settle them
            detected = _detected(columns, choice)
        default = None if detected is None else getattr(detected, option) or NONE
        if option == "pair" and detected is not None and choice.text != detected.text:
            default = NONE
        while True:
            answer = typer.prompt(question, default=default, err=True).strip()
            given: dict[str, Any] = {option: None if answer == NONE else answer}
            changed = replace(choice, **given)
            if (problem := _problem(columns, changed, option)) is None:
                choice = changed
                break
            typer.echo(problem, err=True)
    return choice


def _detected(columns: Columns, choice: Choice) -> Choice | None:
    """The choice with what can be detected; None if it cannot be."""
    from headwise.experiments.file_recipe import complete

    try:
        return complete(columns, choice)
    except InputError:
        return None


def _problem(columns: Columns, choice: Choice, option: str) -> str | None:
    """What is wrong with an answer, if anything is."""
    from headwise.experiments.file_recipe import complete

    try:
        complete(columns, choice)
    except InputError as error:
        return str(error)
    return None

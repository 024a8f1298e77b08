"""The command `headwise`: stdout is the result, stderr the log; exit 2 is a mistake of the caller, 1 a failure."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headwise import __version__
from headwise.errors import HeadwiseError, InputError

app = typer.Typer(
    name="headwise",
    help="Make the attention heads of the encoder you fine-tune work harder, and see what they do.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(help="Folder of a saved model, or its name on the Hub.", show_default=False)],
    batch: Annotated[int, typer.Option(help="Batch size for the memory estimate.")] = 16,
    length: Annotated[int, typer.Option(help="Tokens per example for the memory estimate.")] = 256,
    download: Annotated[bool, typer.Option("--download", help="Allow the network if the model is not here.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Tell whether headwise can see the attention of MODEL, by which route, and what that costs."""
    from headwise.cli.doctor import show  # torch loads only when a command needs it

    show(model, batch=batch, length=length, download=download, as_json=as_json)


def run() -> None:
    """Run the command line; mistakes of the caller end in one sentence, not in a traceback."""
    try:
        app()
    except HeadwiseError as error:
        typer.echo(f"headwise: {error}", err=True)
        sys.exit(2 if isinstance(error, InputError) else 1)

"""The command `headwise push`: a finished run on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli import parameters as opt
from headwise.cli.console import show, text_table


def push(
    run: opt.Run,
    repo: Annotated[str, typer.Argument(help="USER/NAME on the Hugging Face Hub.")],
    upload: Annotated[
        bool, typer.Option("--yes", "--push", help="Upload; without it, only show what would be.")
    ] = False,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    card: Annotated[
        Path | None, typer.Option(help="Model card instead of the one that is written from the results.")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Upload the model of RUN to the Hugging Face Hub with a model card; without --yes, only show both."""
    from headwise.experiments import hub

    prepared = hub.prepare_upload(run, repo, private=private, card=card)
    sizes = prepared.sizes
    total = sum(sizes.values())
    if upload:
        typer.echo(f"uploading {len(sizes)} files ({_megabytes(total)}) to {repo}", err=True)
    address = hub.upload(prepared) if upload else None
    content = {
        "run": str(run),
        "repo": repo,
        "private": private,
        "files": [{"name": name, "bytes": size} for name, size in sizes.items()],
        "card": prepared.card,
        "address": address,
    }
    if address is not None:
        show(as_json, content, f"uploaded to {address}")
        return
    rows = ([name, _megabytes(size)] for name, size in sizes.items())
    table = text_table(("file",), rows, numbers=("size",))
    kind = "private" if private else "public"
    plan = f"{len(sizes)} files, {_megabytes(total)}, for {repo} ({kind} if it is new)"
    show(as_json, content, prepared.card.rstrip(), "", table, plan, "nothing was uploaded: add --yes to upload")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"

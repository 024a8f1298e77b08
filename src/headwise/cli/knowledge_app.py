"""`headwise knowledge`: what the guides of a recipe know about words."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwise.cli import parameters as opt
from headwise.cli.console import print_json, print_tables, text_table
from headwise.cli.progress_bar import progress
from headwise.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from headwise.experiments.gather_knowledge import Found, Pair
    from headwise.patterns.base import Texts

knowledge = typer.Typer(
    help="Compute what the guides of a recipe know about words, and look at it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@knowledge.command("build")
def knowledge_build(
    recipe: opt.Recipe,
    changes: opt.Change = None,
    data: opt.Data = None,
    cache: opt.Cache = None,
    workers: opt.Workers = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Compute knowledge again that is in the cache.")] = False,
    download: opt.Download = False,
    allow_code: opt.AllowCode = False,
    as_json: opt.AsJson = False,
) -> None:
    """Compute what the guides of RECIPE know about the words of its training texts; `train` does so if needed."""
    from rich.filesize import decimal

    from headwise.patterns.base import options_of

    _, found = _gathered(recipe, changes or [], data, cache, workers, download, rebuild=rebuild)
    rows: list[dict[str, Any]] = []
    for each in found:
        store, pattern = each.store, each.need.pattern
        row: dict[str, Any] = {
            "guide": each.need.guide,
            "pattern": {"name": pattern.name, **options_of(pattern)},
            "examples": len(each.matrices),
            "pairs": each.pairs,
            "built": store.built,
            "seconds": round(each.seconds, 3),
            "bytes": sum(path.stat().st_size for path in store.folder.iterdir()),
            "key": store.key,
            "folder": str(store.folder),
        }
        rows.append(row)
    if as_json:
        print_json({"knowledge": rows})
        return
    cells = []
    for row in rows:
        seconds = f"{row['seconds']:.1f}" if row["built"] else "found"
        cells.append([row["guide"], str(row["examples"]), str(row["pairs"]), seconds, decimal(row["bytes"])])
    print_tables(text_table(("guide", "examples", "word pairs", "seconds", "size"), cells))
    for row in rows:  # not in the table, which would break them
        typer.echo(f"{row['guide']} is in {row['folder']}")


@knowledge.command("show")
def knowledge_show(
    recipe: opt.Recipe,
    example: Annotated[int, typer.Option(help="Training example, from 0.")] = 0,
    top: Annotated[int, typer.Option(min=1, help="Pairs of words to print, the strongest first.")] = 10,
    changes: opt.Change = None,
    data: opt.Data = None,
    cache: opt.Cache = None,
    workers: opt.Workers = None,
    download: opt.Download = False,
    allow_code: opt.AllowCode = False,
    as_json: opt.AsJson = False,
) -> None:
    """Print what the guides of RECIPE know about the words of one training example."""
    from headwise.experiments.gather_knowledge import strongest

    texts, found = _gathered(recipe, changes or [], data, cache, workers, download, example=example)
    pairs = {each.need.guide: strongest(each.matrices[example], texts) for each in found}
    if as_json:
        shown = {guide: [asdict(pair) for pair in each[:top]] for guide, each in pairs.items()}
        print_json({"example": example, "texts": list(texts), "pairs": shown})
        return
    for number, text in enumerate(texts):
        typer.echo(f"text {number}: {text}")
    for guide, each in pairs.items():
        typer.echo(f"\n{guide}: the strongest {min(top, len(each))} of {len(each)} pairs (at: text.word, from 0)")
        print_tables(_table(each[:top]))


def _gathered(
    name: str,
    changes: list[str],
    data: Path | None,
    cache: Path | None,
    workers: int | None,
    download: bool,
    *,
    rebuild: bool = False,
    example: int = 0,
) -> tuple[Texts, list[Found]]:
    """The texts of a training example of a recipe, and the knowledge that its guides need."""
    from headwise.experiments.gather_knowledge import Sources, embeddings_of, gather_knowledge
    from headwise.experiments.recipe_files import read_recipe
    from headwise.experiments.splits import read_splits
    from headwise.patterns.base import PATTERNS, Knowledge
    from headwise.training import needs_of
    from headwise.training.encoders import quiet_libraries

    quiet_libraries()
    recipe = read_recipe(name, changes, several=False)
    needs = needs_of(recipe.guides)
    if not needs:
        known = [pattern for pattern, kind in PATTERNS.items() if issubclass(kind, Knowledge)]
        raise InputError(
            f"{name}: none of its guides ({', '.join(recipe.guides) or 'it has none'}) needs knowledge; "
            f"those that do: {', '.join(known)}."
        )
    splits = read_splits(recipe, data, network=download, cache=cache)
    texts = splits.train.texts
    if not 0 <= example < len(texts):
        raise InputError(f"--example {example}: expected a number from 0 to {len(texts) - 1}, the last example.")
    sources = Sources(lambda: embeddings_of(recipe, network=download), data, cache)
    with progress() as shown:
        found = gather_knowledge(needs, splits, sources, progress=shown, workers=workers, rebuild=rebuild)
    return texts[example], found


def _table(pairs: list[Pair]) -> Table:
    rows = []
    for pair in pairs:
        words = [cell for word in (pair.first, pair.second) for cell in (word.word, f"{word.text}.{word.index}")]
        rows.append([*words, f"{pair.value:.3f}", "across texts" if pair.across else ""])
    return text_table(("word", "at", "word", "at", "value", ""), rows)

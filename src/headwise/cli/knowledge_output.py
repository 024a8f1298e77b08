"""`headwise knowledge`: what the guides of a recipe know about words."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headwise.cli.progress_bar import progress
from headwise.errors import InputError
from headwise.experiments.gather_knowledge import Found, Pair, Sources, embeddings_of, gather_knowledge, strongest
from headwise.experiments.recipe_files import read_recipe
from headwise.experiments.splits import Splits, read_splits
from headwise.patterns import PATTERNS
from headwise.patterns.base import options_of
from headwise.patterns.knowledge import Knowledge
from headwise.training import Need, needs_of
from headwise.training.encoders import quiet_libraries


@dataclass(frozen=True)
class Choice:
    """What the caller asks about."""

    recipe: str
    changes: list[str]
    data: Path | None
    cache: Path | None
    workers: int | None
    download: bool


def build(choice: Choice, *, rebuild: bool, as_json: bool) -> None:
    """Build or find all knowledge of a recipe, and print how much there is and where."""
    splits, needs, sources = _read(choice)
    rows = [_row(each) for each in _gathered(choice, splits, needs, sources, rebuild=rebuild)]
    if as_json:
        typer.echo(json.dumps({"knowledge": rows}, indent=2, ensure_ascii=False))
        return
    table = Table("guide", "examples", "word pairs", "seconds", "size", box=None)
    for row in rows:
        seconds = f"{row['seconds']:.1f}" if row["built"] else "found"
        table.add_row(row["guide"], str(row["examples"]), str(row["pairs"]), seconds, _size(row["bytes"]))
    Console().print(table)
    for row in rows:  # not in the table, which would break them
        typer.echo(f"{row['guide']} is in {row['folder']}")


def show(choice: Choice, example: int, *, top: int, as_json: bool) -> None:
    """Print the strongest pairs of words of a training example, for every guide that has knowledge."""
    splits, needs, sources = _read(choice)
    texts = splits.train.texts
    if not 0 <= example < len(texts):
        raise InputError(f"--example {example}: expected a number from 0 to {len(texts) - 1}, the last example.")
    found = _gathered(choice, splits, needs, sources)
    pairs = {each.need.guide: strongest(each.matrices[example], texts[example]) for each in found}
    if as_json:
        shown = {guide: [asdict(pair) for pair in each[:top]] for guide, each in pairs.items()}
        answer = {"example": example, "texts": list(texts[example]), "pairs": shown}
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    for number, text in enumerate(texts[example]):
        typer.echo(f"text {number}: {text}")
    for guide, each in pairs.items():
        typer.echo(f"\n{guide}: the strongest {min(top, len(each))} of {len(each)} pairs (at: text.word, from 0)")
        Console().print(_table(each[:top]))


def _read(choice: Choice) -> tuple[Splits, list[Need], Sources]:
    """The examples of a recipe, what its guides need, and what that is made of."""
    quiet_libraries()
    recipe = read_recipe(choice.recipe, choice.changes, several=False)
    needs = needs_of(recipe.guides)
    if not needs:
        known = [name for name, kind in PATTERNS.items() if issubclass(kind, Knowledge)]
        raise InputError(
            f"{choice.recipe}: none of its guides ({', '.join(recipe.guides) or 'it has none'}) needs knowledge; "
            f"those that do: {', '.join(known)}."
        )
    splits = read_splits(recipe, choice.data, network=choice.download, cache=choice.cache)
    sources = Sources(lambda: embeddings_of(recipe, network=choice.download), choice.data, choice.cache)
    return splits, needs, sources


def _gathered(
    choice: Choice, splits: Splits, needs: list[Need], sources: Sources, *, rebuild: bool = False
) -> list[Found]:
    with progress() as shown:
        return gather_knowledge(needs, splits, sources, listener=shown, workers=choice.workers, rebuild=rebuild)


def _row(found: Found) -> dict[str, Any]:
    store, pattern = found.store, found.need.pattern
    return {
        "guide": found.need.guide,
        "pattern": {"name": pattern.name, **options_of(pattern)},
        "examples": len(found.matrices),
        "pairs": found.pairs,
        "built": store.built,
        "seconds": round(found.seconds, 3),
        "bytes": sum(path.stat().st_size for path in store.folder.iterdir()),
        "key": store.key,
        "folder": str(store.folder),
    }


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _table(pairs: list[Pair]) -> Table:
    table = Table("word", "at", "word", "at", "value", "", box=None)
    for pair in pairs:
        words = (
            cell for word in (pair.first, pair.second) for cell in (escape(word.word), f"{word.text}.{word.index}")
        )
        table.add_row(*words, f"{pair.value:.3f}", "across texts" if pair.across else "")
    return table

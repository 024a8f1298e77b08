"""`headwise knowledge`: what the guides of a recipe know about words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from headwise.cli import parameters as opt
from headwise.cli.console import show, text_table
from headwise.cli.progress_bar import progress
from headwise.errors import InputError

if TYPE_CHECKING:
    from headwise.experiments.gather_knowledge import Found, Pair
    from headwise.patterns.base import Texts

knowledge = typer.Typer(
    help="Compute what the guides of a recipe know about words, and look at it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@knowledge.command("build")
@opt.grouped
def knowledge_build(
    recipe: opt.Recipe,
    options: opt.RecipeOptions,
    workers: opt.Workers = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Compute knowledge again that is in the cache.")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Compute what the guides of RECIPE know about the words of its training texts; `train` does so if needed."""
    from rich.filesize import decimal

    from headwise.patterns.base import options_of

    _, found = _gathered(recipe, options, workers, rebuild=rebuild)
    content: list[dict[str, Any]] = []
    rows, folders = [], []  # folders are not in the table, which would break them
    for each in found:
        store, pattern = each.store, each.need.pattern
        size = sum(path.stat().st_size for path in store.folder.iterdir())
        entry = {
            "guide": each.need.guide,
            "pattern": {"name": pattern.name, **options_of(pattern)},
            "examples": len(each.matrices),
            "pairs": each.pairs,
            "built": store.built,
            "seconds": round(each.seconds, 3),
            "bytes": size,
            "key": store.key,
            "folder": str(store.folder),
        }
        content.append(entry)
        seconds = f"{each.seconds:.1f}" if store.built else "found"
        rows.append([each.need.guide, str(len(each.matrices)), str(each.pairs), seconds, decimal(size)])
        folders.append(f"{each.need.guide} is in {store.folder}")
    table = text_table(("guide", "examples", "word pairs", "seconds", "size"), rows)
    show(as_json, {"knowledge": content}, table, *folders)


@knowledge.command("show")
@opt.grouped
def knowledge_show(
    recipe: opt.Recipe,
    options: opt.RecipeOptions,
    example: Annotated[int, typer.Option(help="Training example, from 0.")] = 0,
    top: Annotated[int, typer.Option(min=1, help="Pairs of words to print, the strongest first.")] = 10,
    workers: opt.Workers = None,
    as_json: opt.AsJson = False,
) -> None:
    """Print what the guides of RECIPE know about the words of one training example."""
    from headwise.experiments.gather_knowledge import strongest

    texts, found = _gathered(recipe, options, workers, example=example)
    content: dict[str, Any] = {}
    parts: list[Table | str] = [f"text {number}: {text}" for number, text in enumerate(texts)]
    for each in found:
        pairs = strongest(each.matrices[example], texts)
        content[each.need.guide] = [asdict(pair) for pair in pairs[:top]]
        count = f"the strongest {min(top, len(pairs))} of {len(pairs)} pairs"
        parts += [f"\n{each.need.guide}: {count} (at: text.word, from 0)", _table(pairs[:top])]
    show(as_json, {"example": example, "texts": list(texts), "pairs": content}, *parts)


def _gathered(
    name: str, options: opt.RecipeOptions, workers: int | None, *, rebuild: bool = False, example: int = 0
) -> tuple[Texts, list[Found]]:
    """The texts of a training example of a recipe, and the knowledge that its guides need."""
    from headwise.experiments.gather_knowledge import Sources, embeddings_of, gather_knowledge
    from headwise.experiments.recipe_files import read_recipe
    from headwise.experiments.splits import read_splits
    from headwise.patterns.base import PATTERNS, Knowledge
    from headwise.training import needs_of

    recipe = read_recipe(name, options.changes or [], several=False)
    needs = needs_of(recipe.guides)
    if not needs:
        known = [pattern for pattern, kind in PATTERNS.items() if issubclass(kind, Knowledge)]
        raise InputError(
            f"{name}: none of its guides ({', '.join(recipe.guides) or 'it has none'}) needs knowledge; "
            f"those that do: {', '.join(known)}."
        )
    network = options.download
    splits = read_splits(recipe, options.data, network=network, cache=options.cache)
    texts = splits.train.texts
    if not 0 <= example < len(texts):
        raise InputError(f"--example {example}: expected a number from 0 to {len(texts) - 1}, the last example.")
    sources = Sources(lambda: embeddings_of(recipe, network=network), options.data, options.cache)
    with progress() as shown:
        found = gather_knowledge(needs, splits, sources, progress=shown, workers=workers, rebuild=rebuild)
    return texts[example], found


def _table(pairs: list[Pair]) -> Table:
    rows = []
    for pair in pairs:
        words = [cell for word in (pair.first, pair.second) for cell in (word.word, f"{word.text}.{word.index}")]
        rows.append([*words, f"{pair.value:.3f}", "across texts" if pair.across else ""])
    return text_table(("word", "at", "word", "at", "value", ""), rows)

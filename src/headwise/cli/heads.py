"""`headwise heads patterns`: which patterns the heads of a run follow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from headwise.cli.progress import progress
from headwise.errors import InputError
from headwise.experiments.apply import Loaded, Source, load_run
from headwise.experiments.data import read_split
from headwise.experiments.pattern_scores import missing_marks, pattern_scores
from headwise.heads import PatternScore, PatternSummary
from headwise.patterns import PATTERNS, Pattern, build_pattern, mark_ids
from headwise.patterns.knowledge import Knowledge
from headwise.training.quiet import quiet_libraries


def show_patterns(
    folder: Path,
    split: str,
    source: Source,
    *,
    task: str | None = None,
    names: Sequence[str],
    limit: int,
    top: int,
    batch: int | None,
    as_json: bool,
) -> None:
    """Score the heads of a run against patterns and print the strongest; all fixed patterns if none is named."""
    patterns = [build_pattern(name) for name in dict.fromkeys(names) if _is_fixed(name)]
    quiet_libraries()
    run = load_run(folder, task)
    chosen = read_split(run.recipe, run.task, split, source.data or run.data, network=source.network)
    chosen = chosen.subset(range(min(limit, len(chosen))))
    with progress() as shown:
        if not patterns:
            patterns, left_out = _known(run)
            for pattern in left_out:
                shown.tell(f"left out {pattern.name}: the tokenizer has no {' or '.join(pattern.marks)}")
        shown.start(run.recipe.name, len(chosen))
        length = run.recipe.data.max_length
        found = pattern_scores(
            run.model, run.tokenizer, chosen, patterns, max_length=length, batch=batch, after_batch=shown.advance
        )
    if as_json:
        typer.echo(json.dumps({"run": str(folder), "split": split, **_as_data(found, top)}, indent=2))
    else:
        Console().print(_table(found, top))


def _fixed() -> list[str]:
    return [name for name, kind in PATTERNS.items() if not issubclass(kind, Knowledge)]


def _is_fixed(name: str) -> bool:
    """True, or a refusal."""
    if issubclass(PATTERNS[name], Knowledge):
        raise InputError(
            f"--pattern {name} is made of knowledge: only fixed patterns can be detected from the command line for "
            f"now; choose from {', '.join(sorted(_fixed()))}."
        )
    return True


def _known(run: Loaded) -> tuple[list[Pattern], list[Pattern]]:
    """The fixed patterns that the run's tokenizer allows, and those that it does not."""
    known = mark_ids(run.tokenizer)
    patterns = [build_pattern(name) for name in _fixed()]
    return (
        [pattern for pattern in patterns if not missing_marks(pattern, known)],
        [pattern for pattern in patterns if missing_marks(pattern, known)],
    )


def _as_data(found: PatternSummary, top: int) -> dict[str, Any]:
    data = found.as_dict()
    for name, score in data["patterns"].items():
        score["strongest"] = [head._asdict() for head in found.strongest(name, top)]
    return data


def _table(found: PatternSummary, top: int) -> Table:
    """Patterns in rows; the share of even attention, of the mean head, and of the strongest heads."""
    table = Table("pattern", "examples", "even", "mean", "strongest heads", box=None)
    for name, score in found.patterns.items():
        heads = [f"layer {head.layer} head {head.head}: {head.share:.2f}" for head in found.strongest(name, top)]
        table.add_row(name, str(score.examples), *_numbers(score), "\n".join(heads) or "-")
    return table


def _numbers(score: PatternScore) -> list[str]:
    return ["-" if value is None else f"{value:.2f}" for value in (score.even, score.share)]

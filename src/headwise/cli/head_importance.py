"""`headwise heads importance`: how much each task needs each head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import typer
from rich.table import Table

from headwise.cli.progress import progress
from headwise.cli.score import print_tables
from headwise.experiments.apply import Source, finished_record
from headwise.experiments.head_files import answers_folder, json_text, write_answers
from headwise.experiments.head_importance import (
    NAME,
    ImportanceSettings,
    importance_content,
    importance_rows,
    run_importance,
)
from headwise.experiments.run_tasks import load_tasks
from headwise.heads.importance import SHARES, HeadImportance
from headwise.heads.pruning import ranked_heads
from headwise.heads.task_similarity import ImportanceSimilarity, importance_similarity
from headwise.training.quiet import quiet_libraries


def show_importance(
    run: Path,
    names: Sequence[str],
    settings: ImportanceSettings,
    source: Source,
    *,
    top: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure importance for the tasks named, or for all; write it, and print the strongest heads."""
    finished_record(run)
    with answers_folder(run, output) as folder:
        quiet_libraries()
        tasks = load_tasks(run, names)
        with progress() as shown:
            found = run_importance(tasks.runs, settings, source, shown)
        content = importance_content(tasks, settings, found)
        paths = write_answers(folder, NAME, content, rows=importance_rows(found))
    if as_json:
        typer.echo(json_text({**content, "files": [str(path) for path in paths]}), nl=False)
        return
    tables = [_heads(found, top), _stability(found)]
    if len(found) > 1:
        tables.append(overlap_table(importance_similarity({task: each.scores for task, each in found.items()})))
    print_tables(*tables)
    typer.echo(f"saved in {folder}")


def _heads(found: Mapping[str, HeadImportance], top: int) -> Table:
    table = Table("task", "examples", "strongest heads", box=None)
    for task, each in found.items():
        strongest = [_head(each, layer, head) for layer, head in ranked_heads(each.scores)[:top]]
        table.add_row(task, str(each.examples), "\n".join(strongest))
    return table


def _head(found: HeadImportance, layer: int, head: int) -> str:
    width = "" if found.half_width is None else f" ± {found.half_width[layer, head]:.3g}"
    return f"layer {layer} head {head}: {found.scores[layer, head]:.4g}{width}"


def _stability(found: Mapping[str, HeadImportance]) -> Table:
    """How alike the rankings of two halves are."""
    shares = [
        share for share in SHARES if any(each.stability and share in each.stability.overlap for each in found.values())
    ]
    table = Table(title="two halves of the examples", title_justify="left", box=None)
    for name in ("task", "rank correlation", *(f"overlap of top {share:.0%}" for share in shares)):
        table.add_column(name, justify="left" if name == "task" else "right")
    for task, each in found.items():
        if each.stability is not None:
            overlaps = (each.stability.overlap.get(share) for share in shares)
            cells = ("-" if overlap is None else f"{overlap:.2f}" for overlap in overlaps)
            table.add_row(task, f"{each.stability.spearman:.3f}", *cells)
    return table


def overlap_table(found: ImportanceSimilarity) -> Table:
    """How far tasks need the same heads; by chance the overlap would be what stands in the head."""
    table = Table(title="between tasks", title_justify="left", box=None)
    chance = (f"top {share:.0%} (chance {found.chance[share]:.2f})" for share in found.overlap)
    for name in ("tasks", "rank correlation", *chance):
        table.add_column(name, justify="left" if name == "tasks" else "right")
    for first, one in enumerate(found.tasks):
        for second in range(first + 1, len(found.tasks)):
            overlaps = (f"{values[first, second]:.2f}" for values in found.overlap.values())
            table.add_row(f"{one}, {found.tasks[second]}", f"{found.spearman[first, second]:.3f}", *overlaps)
    return table

"""`headwise heads similarity`: how alike the tasks of a run are."""

from __future__ import annotations

from pathlib import Path

import numpy
import typer
from rich.table import Table

from headwise.cli.head_importance import overlap_table
from headwise.cli.progress import progress
from headwise.cli.score import print_tables
from headwise.experiments.apply import Source, finished_record
from headwise.experiments.head_files import answers_folder, json_text, write_answers
from headwise.experiments.head_importance import ImportanceSettings
from headwise.experiments.head_similarity import NAME, TaskSimilarity, measure_similarity
from headwise.experiments.run_tasks import load_tasks
from headwise.training.quiet import quiet_libraries


def show_similarity(
    run: Path, settings: ImportanceSettings, source: Source, *, output: Path | None, as_json: bool
) -> None:
    """Measure the similarity of a run's tasks, write it, and print it."""
    finished_record(run)
    with answers_folder(run, output) as folder:
        quiet_libraries()
        tasks = load_tasks(run)
        with progress() as shown:
            found = measure_similarity(tasks, settings, source, answers=folder, listener=shown)
        paths = write_answers(folder, NAME, found.as_dict())
    if as_json:
        typer.echo(json_text({**found.as_dict(), "files": [str(path) for path in paths]}), nl=False)
        return
    print_tables(overlap_table(found.importance), _gradients(found), _layers(found))
    typer.echo(f"saved in {folder}")


def _gradients(found: TaskSimilarity) -> Table:
    """Each two tasks: the cosine of their gradients, beside that of the halves of each, and their D-score."""
    caption = "halves: cosine between two halves of one task's examples; where it is low, a gradient is mostly noise."
    table = Table(title="gradients of the encoder", title_justify="left", box=None, caption=caption)
    table.caption_justify = "left"
    for name in ("tasks", "cosine", "halves of each", "D-score of the two"):
        table.add_column(name, justify="left" if name == "tasks" else "right", no_wrap=True)
    ceilings = dict(zip(found.tasks, found.gradients.ceiling, strict=True))
    for pair in found.pairs():
        halves = ", ".join(_number(ceilings[task]) for task in pair["tasks"])
        score = "-" if pair["d_score"] is None else f"{pair['d_score']:.1f}"
        table.add_row(", ".join(pair["tasks"]), _number(pair["gradient_cosine"]), halves, score)
    return table


def _layers(found: TaskSimilarity) -> Table:
    """The cosine of each two tasks by layer."""
    table = Table(title="by layer", title_justify="left", box=None)
    table.add_column("part", no_wrap=True)
    pairs = [tuple(map(found.tasks.index, pair["tasks"])) for pair in found.pairs()]
    for pair in found.pairs():
        table.add_column(", ".join(pair["tasks"]), justify="right")
    for name, cosines in found.gradients.groups.items():
        table.add_row(name, *(_number(cosines[pair]) for pair in pairs))
    return table


def _number(value: float) -> str:
    return "n/a" if numpy.isnan(value) else f"{value:.3f}"

"""`headwise train`, `evaluate`, `predict`: ask the library, show the answer."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from headwise.cli.progress_bar import INTERRUPTED, NOTHING, keeping, progress
from headwise.disk import save_content
from headwise.experiments import record
from headwise.experiments.prepare import Place
from headwise.experiments.recipe_files import read_recipe, recipe_text
from headwise.experiments.run import train
from headwise.training import distributed as processes
from headwise.training.encoders import quiet_libraries

if TYPE_CHECKING:
    from headwise.experiments.apply import Source
    from headwise.experiments.token_scores import TokenScores
    from headwise.reports.token_page import Piece, ScoredText, ScoredToken


def run_train(
    name: str,
    changes: list[str],
    *,
    data: Path | None,
    output: Path | None,
    resume: bool,
    cache: Path | None,
    download: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Train a recipe and print its metrics."""
    processes.initialize()
    with processes.all_or_none():
        recipe = read_recipe(name, changes)
    place = Place(output or Path("runs") / f"{recipe.name}-seed{recipe.seed}", data, download, cache)
    if dry_run:
        as_text = json.dumps(recipe.as_data(), indent=2, ensure_ascii=False) if as_json else recipe_text(recipe)
        typer.echo(as_text.rstrip())
        return
    quiet_libraries()
    with keeping(lambda: _kept(place.output)), progress() as shown:
        result = train(recipe, place, resume=resume, command=tuple(command()), listener=shown)
    if result.interrupted:
        done, total = result.steps
        typer.echo(f"headwise: stopped after step {done} of {total}, saved; resume with: {_resume_command()}", err=True)
        raise typer.Exit(INTERRUPTED)
    if as_json:
        typer.echo(json.dumps({"output": str(place.output), **result.record}, indent=2, ensure_ascii=False))
        return
    happened = result.record["results"]
    Console().print(joint_table(happened) if "tasks" in happened else metrics_table(_scored(happened["metrics"])))
    typer.echo(f"saved in {place.output}")


def run_evaluate(
    folder: Path, split: str, source: Source, *, task: str | None, batch: int | None, as_json: bool
) -> None:
    """Score a run on a split and print the metrics; of several tasks all of them, if none is named."""
    from headwise.experiments.apply import evaluate, load_tasks

    quiet_libraries()
    tasks = load_tasks(folder, [] if task is None else [task])
    with progress() as shown:
        answers = {name: evaluate(run, split, source, batch=batch, listener=shown) for name, run in tasks.runs.items()}
    if as_json:
        answer = {"tasks": answers} if tasks.joint else next(iter(answers.values()))
        typer.echo(json.dumps({"run": str(folder), **answer}, indent=2))
        return
    for name, each in answers.items():
        row = f"{split} ({each['examples']})"
        Console().print(metrics_table({f"{name} {row}" if tasks.joint else row: each["metrics"]}))


def run_predict(
    folder: Path,
    source: Path,
    target: Path,
    *,
    task: str | None,
    batch: int | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Predict a file."""
    from headwise.experiments.apply import load_run, new_target, predict, write_rows

    with new_target(target, overwrite=overwrite):
        quiet_libraries()
        run = load_run(folder, task)
        with progress() as shown:
            rows = predict(run, source, batch=batch, listener=shown)
        write_rows(rows, target)
    summary: dict[str, Any] = {"output": str(target), "rows": len(rows)}
    typer.echo(json.dumps(summary) if as_json else f"{len(rows)} predictions written to {target}")


def metrics_table(rows: dict[str, dict[str, float]]) -> Table:
    """Splits in rows, metrics in columns."""
    names = list(next(iter(rows.values()), {}))
    table = Table("split", *names, box=None)
    for split, scores in rows.items():
        table.add_row(split, *(f"{scores[name]:.4f}" for name in names))
    return table


def _scored(metrics: dict[str, dict[str, float] | None]) -> dict[str, dict[str, float]]:
    return {split: scores for split, scores in metrics.items() if scores}


def joint_table(happened: dict[str, Any]) -> Table:
    """Tasks and their metrics in rows; the best and the last model, and those of the control, in columns."""
    columns = {"best": happened["metrics"], "last": happened["last"]}
    if "control" in happened:
        columns |= {
            f"control {name}": happened["control"][key] for name, key in (("best", "metrics"), ("last", "last"))
        }
    table = Table("split", "metric", *columns, box=None)
    for split, scores in _scored(happened["metrics"]).items():
        for name in scores:
            table.add_row(split, name, *(f"{(each[split] or {})[name]:.4f}" for each in columns.values()))
    return table


def command() -> list[str]:
    """The command line without the folder of the program."""
    name = Path(sys.argv[0]).name
    return [*(["python", "-m", "headwise"] if name == "__main__.py" else [name]), *sys.argv[1:]]


def program() -> list[str]:
    """How this program was called, in words that call it again from the same folder."""
    name = Path(sys.argv[0]).name
    if name == "__main__.py":
        return [sys.executable, "-m", "headwise"]
    return [name] if shutil.which(name) == sys.argv[0] else [sys.argv[0]]


def _kept(output: Path) -> str:
    """What a run has left in its folder that was stopped at once."""
    if not (output / record.NAME).is_file():
        return NOTHING
    if record.finished(record.read(output)):
        return f"the run is finished, and saved in {output}"
    return f"what was saved in {output} is kept; resume with: {_resume_command()}"


def _resume_command() -> str:
    """A line for the shell that resumes this run; how several processes were launched is not known here."""
    if processes.count() > 1:
        return "the same launch, and --resume at its end"
    words = [word for word in sys.argv[1:] if word != "--resume"]
    place = words.index("--") if "--" in words else len(words)
    return shlex.join([*program(), *words[:place], "--resume", *words[place:]])


# `headwise export`: a run as a plain classifier of transformers.


def run_export(run: Path, target: Path, *, task: str | None, as_json: bool) -> None:
    """Export, and say where."""
    from headwise.experiments.apply import export

    quiet_libraries()
    answer = export(run, target, task)
    typer.echo(json.dumps(answer, indent=2) if as_json else f"saved in {target}")


# `headwise tokens`: how much each token of a text matters, in colour.


TOP = 5


def show_tokens(
    folder: Path, text: str, pair: str | None, *, page: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Score the tokens of a text by a run; print them, and write a page if asked."""
    from headwise.experiments.apply import load_run, new_target
    from headwise.experiments.token_scores import token_scores
    from headwise.reports.token_page import token_page

    endings = (".html", ".htm")
    with nullcontext() if page is None else new_target(page, overwrite=overwrite, option="--html", endings=endings):
        quiet_libraries()
        run = load_run(folder)
        found = token_scores(run, folder, text, pair)
        scored = scored_text(found)
        if found.cut:
            typer.echo(f"headwise: the text was cut to {run.recipe.data.max_length} tokens, as in training", err=True)
        if page is not None:
            save_content(page, token_page([scored], f"Tokens that matter to {run.recipe.name}"))
    if as_json:
        files = {} if page is None else {"html": str(page)}
        typer.echo(json.dumps({"run": str(folder), **scored.as_data(), **files}, indent=2, ensure_ascii=False))
        return
    _print(scored)
    if page is not None:
        typer.echo(f"saved in {page}")


def scored_text(found: TokenScores) -> ScoredText:
    """What the reports draw."""
    from headwise.reports.token_page import ScoredText, ScoredToken

    parts = zip(found.tokens, found.scores, found.kept, found.segments, strict=True)
    tokens = tuple(ScoredToken(*part) for part in parts)
    return ScoredText(tokens, found.prediction, found.probabilities, found.threshold, found.spelling)


def _print(scored: ScoredText) -> None:
    from headwise.reports.token_page import lines, printable

    console = Console(highlight=False)
    colour = console.is_terminal and not console.no_color
    for line in lines(scored):
        shown = Text()
        for piece in line:
            shown.append(" " if piece.blank_before else "")
            shown.append(*_shown(piece, colour=colour))
        console.print(shown)
    chances = ", ".join(f"{name} {value:.3f}" for name, value in scored.probabilities.items())
    console.print(Text(f"prediction: {scored.prediction}" + (f" ({chances})" if chances else "")))
    strongest = sorted((token for token in scored.tokens if token.score is not None), key=lambda token: -_value(token))
    named = ", ".join(f"{printable(token.text)} {_value(token):.3f}" for token in strongest[:TOP])
    console.print(Text(f"highest scores: {named}"))
    if scored.threshold is not None:
        left_out = [token for token in strongest if not token.kept]
        console.print(
            Text(
                f"pooled: {len(strongest) - len(left_out)} of {len(strongest)} tokens (threshold {scored.threshold:g})"
            )
        )


def _shown(piece: Piece, *, colour: bool) -> tuple[str, Style]:
    """The piece on a background that grows stronger with its score; without colours, with the score behind it."""
    score = piece.token.score
    if score is None:
        return piece.display, Style(dim=True)
    if not colour:
        return f"{piece.display}({score:.2f})", Style.null()
    red, green, blue = (round(255 + (end - 255) * score) for end in (30, 110, 200))
    ink = "white" if score > 0.6 else "black"
    return piece.display, Style(color=ink, bgcolor=f"rgb({red},{green},{blue})", italic=not piece.token.kept)


def _value(token: ScoredToken) -> float:
    return token.score or 0.0

"""The commands of single runs: train, evaluate, predict, tokens, export."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from headwise.cli import parameters as opt
from headwise.cli.console import print_parts, show, text_table
from headwise.cli.progress_bar import INTERRUPTED, NOTHING, keeping, progress
from headwise.errors import InputError

if TYPE_CHECKING:
    from headwise.experiments.recipe import Recipe
    from headwise.experiments.token_scores import TokenScores
    from headwise.reports.token_page import ScoredText

# Tokens with the highest scores that are listed.
TOP = 5


@opt.grouped
def train(
    options: opt.RecipeOptions,
    columns: opt.ColumnOptions,
    recipe: opt.OptionalRecipe = None,
    save_recipe: Annotated[Path | None, typer.Option(help="YAML file to write: the recipe that is run.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the run; default runs/NAME-seedN.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the unfinished run in the folder.")] = False,
    dry_run: opt.DryRun = False,
    as_json: opt.AsJson = False,
) -> None:
    """Train the model of RECIPE, or on a file: --data FILE.csv --text COLUMN --label COLUMN.

    The best model on validation is kept and scored on test.
    """
    from headwise.experiments.final_score import final_sentences
    from headwise.experiments.prepare import RunPaths
    from headwise.experiments.recipe_files import recipe_text
    from headwise.experiments.record import baseline_sentences
    from headwise.experiments.run import train
    from headwise.training import distributed

    distributed.initialize()
    with distributed.all_or_none():
        content, root = _content(recipe, options, columns)
        if save_recipe is not None and distributed.first():
            _save_recipe(save_recipe, content, options.data)
    folder = output or Path("runs") / f"{content.name}-seed{content.seed}"
    if dry_run:
        show(as_json, content.as_data(), recipe_text(content).rstrip())
        return
    paths = RunPaths(folder, root, options.download, options.cache)
    with keeping(lambda: _kept(folder)), progress() as shown:
        result = train(content, paths, resume=resume, command=tuple(command_line()), progress=shown)
    if result.interrupted:
        done, total = result.steps
        typer.echo(f"headwise: stopped after step {done} of {total}, saved; resume with: {resume_line()}", err=True)
        raise typer.Exit(INTERRUPTED)
    results = result.record["results"]
    table, lines = _result_table(results), [*baseline_sentences(results), *final_sentences(results)]
    show(as_json, {"output": str(folder), **result.record}, table, *lines, f"saved in {folder}")


def _content(name: str | None, options: opt.RecipeOptions, columns: opt.ColumnOptions) -> tuple[Recipe, Path | None]:
    """The recipe to run, and the folder of its files; a recipe for a file is reported with its splits."""
    from headwise.experiments.recipe import check_recipe
    from headwise.experiments.recipe_files import parse_change, read_recipe, recipe_data, with_change
    from headwise.training import distributed

    changes = options.changes or []
    if name is None:
        from headwise.experiments.file_recipe import file_recipe, split_table
        from headwise.experiments.splits import read_splits

        if options.data is None:
            raise InputError("expected a recipe, or a file of examples: name one (--data FILE.csv --text COLUMN).")
        written = file_recipe(options.data, columns.choice)
        data = written.data
        for change in changes:
            data = with_change(data, *parse_change(change), f"changes={change!r:.200}")
        recipe = check_recipe(data, str(options.data))
        if distributed.first():
            for note in written.notes:
                typer.echo(note, err=True)
            split = read_splits(recipe, written.root, network=options.download)
            print_parts(text_table(*split_table(split)), stream=sys.stderr)
        return recipe, written.root
    given = [f"--{option}" for option, value in vars(columns).items() if value is not None]
    if given:
        fix = "--set model=..." if given == ["--model"] else "--set task.KEY=VALUE"
        raise InputError(f"{', '.join(given)}: for training without a recipe; with {name!r} use {fix}.")
    if options.data is None or not options.data.is_file() or "tasks" in recipe_data(name):
        return read_recipe(name, changes), options.data
    return read_recipe(name, [f"task.files.train={json.dumps(options.data.name)}", *changes]), options.data.parent


def _save_recipe(path: Path, content: Recipe, data: Path | None) -> None:
    """Write the recipe of a run; a file that has another one is left as it is."""
    from headwise.disk import save_content
    from headwise.experiments.file_recipe import commented

    shown = "" if data is None else f" --data {shlex.quote(str(data))}"
    text = commented(content.as_data(), f"headwise train {shlex.quote(str(path))}{shown}")
    if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
        raise InputError(f"{path} exists already: choose another file (save_recipe=...).")
    save_content(path, text)


def _result_table(results: Mapping[str, Any]) -> Table:
    """The metrics of a run; of several tasks those of the best and the last model, and of the control, in columns."""
    scored = {split: scores for split, scores in results["metrics"].items() if scores}
    if "tasks" in results:
        columns = {"best": results["metrics"], "last": results["last"]}
        if "control" in results:
            columns |= {"control best": results["control"]["metrics"], "control last": results["control"]["last"]}
        rows = [
            [split, name, *(f"{(each[split] or {})[name]:.4f}" for each in columns.values())]
            for split, scores in scored.items()
            for name in scores
        ]
        return text_table(("split", "metric", *columns), rows)
    return _metrics_table(scored)


def _metrics_table(scored: dict[str, dict[str, float]]) -> Table:
    """Splits in rows, metrics in columns."""
    names = list(next(iter(scored.values()), {}))
    rows = ([split, *(f"{scores[name]:.4f}" for name in names)] for split, scores in scored.items())
    return text_table(("split", *names), rows)


def command_line() -> list[str]:
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
    """What a run that was stopped at once has left in its folder."""
    from headwise.experiments import record

    if not (output / record.NAME).is_file():
        return NOTHING
    if record.finished(record.read(output)):
        return f"the run is finished, and saved in {output}"
    return f"what was saved in {output} is kept; resume with: {resume_line()}"


def resume_line() -> str:
    """A line for the shell that resumes this run; how several processes were launched is not known here."""
    from headwise.training import distributed

    if distributed.count() > 1:
        return "the same launch, and --resume at its end"
    words = [word for word in sys.argv[1:] if word != "--resume"]
    end = words.index("--") if "--" in words else len(words)
    return shlex.join([*program(), *words[:end], "--resume", *words[end:]])


@opt.grouped
def evaluate(
    run: opt.Run,
    source: opt.DataOptions,
    split: opt.Split = "test",
    task: opt.OneTask = None,
    batch: opt.Batch = None,
    as_json: opt.AsJson = False,
) -> None:
    """Score the model of RUN on a split of its task, or of each of its tasks."""
    from headwise.experiments.apply import evaluate, load_tasks

    tasks, tables = load_tasks(run, [] if task is None else [task]), []
    with progress() as shown:
        results = {
            name: evaluate(each, split, source.source, batch=batch, progress=shown) for name, each in tasks.runs.items()
        }
    for name, each in results.items():
        row = f"{split} ({each['examples']})"
        tables.append(_metrics_table({f"{name} {row}" if tasks.joint else row: each["metrics"]}))
    content = {"tasks": results} if tasks.joint else next(iter(results.values()))
    show(as_json, {"run": str(run), **content}, *tables)


def predict(
    run: opt.Run,
    text: Annotated[str | None, typer.Option(help="A text, or the first one of a pair.")] = None,
    pair: Annotated[str | None, typer.Option(help="The second text, for tasks of pairs.")] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", help="File with the task's text columns; -: a text per line, a pair with a tab."),
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--output", help="File to write: .tsv, .csv or .jsonl; default: print.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Names of all columns of an input without a header: id,text,note.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Add how much each word counts.")] = False,
    task: opt.OneTask = None,
    batch: opt.Batch = None,
    overwrite: opt.Overwrite = False,
    allow_code: opt.AllowCode = False,
    as_json: opt.AsJson = False,
) -> None:
    """Predict a text, or every row of a file, with the model of RUN."""
    if (text is None) == (source is None) or (text is None and pair is not None):
        raise InputError("expected either --text (and --pair), or --input: name a text or a file.")
    if text is not None and (target is not None or columns is not None):
        raise InputError("--output and --columns are for --input: leave them out with --text.")
    from headwise.experiments.apply import load_run, new_target, predict, rows_text, write_rows

    examples: Path | list[tuple[str, ...]]
    if source is None:
        examples = [(str(text),) if pair is None else (str(text), pair)]
    elif str(source) == "-":
        examples = [tuple(line.rstrip("\r\n").split("\t")) for line in sys.stdin if line.strip()]
        if not examples:
            raise InputError("--input - has no lines: write one text on each.")
    else:
        examples = source
    with nullcontext() if target is None else new_target(target, overwrite=overwrite, option="--output"):
        model = load_run(run, task)
        with progress() if source is not None else nullcontext() as shown:
            names = opt.names(columns)
            rows = predict(model, examples, columns=names, batch=batch, explain=explain, progress=shown)
        if target is not None:
            write_rows(rows, target)
            done = f"{len(rows)} predictions written to {target}"
            show(as_json, {"output": str(target), "rows": len(rows)}, done)
            return
    if source is None:
        (row,) = rows
        texts = {"text": text} | ({} if pair is None else {"pair": pair})
        show(as_json, {"run": str(run), **texts, **row}, *_prediction(row, str(text)))
    else:
        show(as_json, {"run": str(run), "rows": rows}, rows_text(rows).rstrip("\n"))


def _prediction(row: Mapping[str, Any], text: str) -> list[Table | str]:
    """The answer to one text, for people."""
    answer, words = row["prediction"], row.get("words")
    chances = {name.removeprefix("probability_"): row[name] for name in row if name.startswith("probability_")}
    parts: list[Table | str]
    if isinstance(answer, list) and not chances:
        parts = [text_table(("word", "label"), zip(text.split(), answer, strict=True))]
    else:
        shown = (
            f"{answer:.4f}" if isinstance(answer, float) else ", ".join(answer) if isinstance(answer, list) else answer
        )
        parts = [f"prediction: {shown or 'none'}"]
    if chances:
        ordered = sorted(chances.items(), key=lambda each: -each[1])
        parts.append(
            text_table(("label",), ([name, f"{chance:.4f}"] for name, chance in ordered), numbers=("probability",))
        )
    if words is not None:
        cells = ([each["word"], f"{each['drop']:+.4f}", f"{each['attention']:.4f}"] for each in words)
        parts.append(text_table(("word",), cells, numbers=("drop", "attention")))
        parts.append("drop: how much less certain the prediction is without the word (log-probability)")
    return parts


def export(
    run: opt.Run,
    target: Annotated[Path, typer.Option("--output", help="New folder for the model.")],
    task: opt.OneTask = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write an ONNX file, for any head.")] = False,
    allow_code: opt.AllowCode = False,
    as_json: opt.AsJson = False,
) -> None:
    """Write the classifier of RUN as a plain transformers model without a token head, or as ONNX."""
    from headwise.experiments.apply import export

    result = export(run, target, task, onnx=onnx)
    lines = [f"saved in {target}"]
    if onnx:
        difference = result["largest_difference"]
        checked = "not checked, since onnxruntime is missing" if difference is None else f"{difference:.1g}"
        lines = [
            f"head {result['head']}, inputs {', '.join(result['inputs'])}",
            f"largest difference from torch: {checked}",
            f"saved in {result['file']}",
        ]
    show(as_json, result, *lines)


def tokens(
    run: opt.Run,
    text: Annotated[str | None, typer.Option(help="The text, or the first one of a pair.")] = None,
    pair: Annotated[str | None, typer.Option(help="The second text, for tasks of pairs.")] = None,
    source: Annotated[
        Path | None, typer.Option("--input", help="File with the task's text columns, instead of a text.")
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--output", help="File to write for --input: .jsonl, one line for each row.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="HTML page to write as well.")] = None,
    overwrite: opt.Overwrite = False,
    allow_code: opt.AllowCode = False,
    as_json: opt.AsJson = False,
) -> None:
    """Show how much each token of a text matters to RUN, which was trained with SSA.

    With --input, score every row of a file; the file that this writes is a source of marked words for other runs.
    """
    if source is not None:
        _score_file(run, source, target, [text, pair, html], overwrite=overwrite, as_json=as_json)
        return
    if text is None or target is not None:
        raise InputError("expected either --text, or both --input and --output: name a text or a file.")
    from headwise.disk import save_content
    from headwise.experiments.apply import load_run, new_target
    from headwise.experiments.token_scores import token_scores
    from headwise.reports.token_page import token_page

    endings = (".html", ".htm")
    with nullcontext() if html is None else new_target(html, overwrite=overwrite, option="--html", endings=endings):
        model = load_run(run)
        scores = token_scores(model, run, text, pair)
        scored = _scored(scores)
        if scores.cut:
            typer.echo(f"headwise: the text was cut to {model.recipe.data.max_length} tokens, as in training", err=True)
        if html is not None:
            save_content(html, token_page([scored], f"Tokens that matter to {model.recipe.name}"))
    if as_json:
        texts = [text] if pair is None else [text, pair]
        show(True, {"run": str(run), **_token_data(scores, texts), **({} if html is None else {"html": str(html)})})
        return
    _print_tokens(scored)
    if html is not None:
        typer.echo(f"saved in {html}")


def _scored(scores: TokenScores) -> ScoredText:
    from headwise.reports.token_page import ScoredText, ScoredToken

    parts = zip(scores.tokens, scores.scores, scores.kept, scores.segments, strict=True)
    each = tuple(ScoredToken(*part) for part in parts)
    return ScoredText(each, scores.prediction, scores.probabilities, scores.threshold, scores.spelling)


def _token_data(scores: TokenScores, texts: Sequence[str]) -> dict[str, Any]:
    """The scores of an example as JSON, with what is needed to find the tokens in its texts."""
    return {"texts": list(texts), **_scored(scores).as_data(), "offsets": [list(each) for each in scores.offsets]}


def _score_file(
    run: Path, source: Path, target: Path | None, others: Sequence[object], *, overwrite: bool, as_json: bool
) -> None:
    """Score the tokens of every row of a file; `others` are options that only a single text has."""
    if target is None or any(each is not None for each in others):
        raise InputError("--input needs --output, and takes no --text, --pair or --html: change the options.")
    from headwise.disk import save_content
    from headwise.experiments.apply import load_run, new_target
    from headwise.experiments.token_scores import token_scores

    with new_target(target, overwrite=overwrite, option="--output", endings=(".jsonl", ".ndjson")):
        model = load_run(run)
        rows = model.task.read_file(source, labelled=False).texts
        lines = []
        with progress() as shown:
            shown.start("texts", len(rows))
            for number, texts in enumerate(rows, 1):
                scores = token_scores(model, run, texts[0], texts[1] if len(texts) == 2 else None)
                lines.append(json.dumps(_token_data(scores, texts), ensure_ascii=False) + "\n")
                shown.advance(number)
        save_content(target, "".join(lines))
    show(as_json, {"output": str(target), "rows": len(rows)}, f"token scores of {len(rows)} rows written to {target}")


def _print_tokens(scored: ScoredText) -> None:
    """Tokens on a background that grows stronger with the score; without colours, with the score behind each token."""
    from headwise.reports.token_page import lines, printable

    console = Console(highlight=False)
    for line in lines(scored):
        shown = Text()
        for piece in line:
            score, text, style = piece.token.score, piece.display, Style.null()
            if score is None:
                style = Style(dim=True)
            elif not console.is_terminal or console.no_color:
                text = f"{text}({score:.2f})"
            else:
                red, green, blue = (round(255 + (end - 255) * score) for end in (30, 110, 200))
                ink = "white" if score > 0.6 else "black"
                style = Style(color=ink, bgcolor=f"rgb({red},{green},{blue})", italic=not piece.token.kept)
            shown.append(" " if piece.blank_before else "").append(text, style)
        console.print(shown)
    chances = ", ".join(f"{name} {value:.3f}" for name, value in scored.probabilities.items())
    console.print(Text(f"prediction: {scored.prediction}" + (f" ({chances})" if chances else "")))
    strongest = sorted(
        (token for token in scored.tokens if token.score is not None), key=lambda each: -(each.score or 0.0)
    )
    named = ", ".join(f"{printable(token.text)} {token.score:.3f}" for token in strongest[:TOP])
    console.print(Text(f"highest scores: {named}"))
    if scored.threshold is not None:
        kept = sum(token.kept for token in strongest)
        console.print(Text(f"pooled: {kept} of {len(strongest)} tokens (threshold {scored.threshold:g})"))

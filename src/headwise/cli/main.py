"""The command `headwise`: stdout is the result, stderr the log.

Exit codes: 0 done; 1 failed; 2 something that the caller can put right (bad input, a full disk); 130 stopped by
Ctrl-C, with one sentence about what was kept.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperOption

from headwise import __version__
from headwise.cli.data_app import data as data_commands
from headwise.cli.experiments_app import add_experiments
from headwise.cli.heads_app import heads
from headwise.cli.knowledge_app import knowledge
from headwise.cli.parameters import AllowCode, AsJson, Batch, Cache, Change, Data, Download, OneTask, Recipe, Run
from headwise.cli.progress_bar import INTERRUPTED, Interrupts, sentence
from headwise.cli.report import add_commands as add_report_commands
from headwise.cli.results_app import add_results
from headwise.cli.retrieval import add_commands
from headwise.errors import (
    DiskError,
    HeadwiseError,
    HeadwiseWarning,
    InputError,
    UnsupportedModelError,
    is_panic,
    one_line,
)

# How pathlib begins when a path cannot be resolved: an unknown ~user, a link to itself.
BAD_PATHS = ("Could not determine home directory", "Symlink loop")

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
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options before the command."""


@app.command()
def train(
    recipe: Recipe,
    changes: Change = None,
    data: Data = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the run; default runs/NAME-seedN.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the unfinished run in the folder.")] = False,
    cache: Cache = None,
    download: Download = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved recipe and stop.")] = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Train the model of RECIPE: the best one on validation is kept and scored on test."""
    from headwise.cli.train_commands import run_train

    run_train(
        recipe,
        changes or [],
        data=data,
        output=output,
        resume=resume,
        cache=cache,
        download=download,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command()
def evaluate(
    run: Run,
    split: Annotated[str, typer.Option(help="train, validation, test, or another split of the task.")] = "test",
    task: OneTask = None,
    data: Data = None,
    batch: Batch = None,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Score the model of RUN on a split of its task, or of each of its tasks."""
    from headwise.cli.train_commands import run_evaluate
    from headwise.experiments.apply import Source

    run_evaluate(run, split, Source(data, download), task=task, batch=batch, as_json=as_json)


@app.command()
def predict(
    run: Run,
    source: Annotated[Path, typer.Option("--input", help="File with the task's text columns.", show_default=False)],
    target: Annotated[Path, typer.Option("--output", help="File to write: .tsv, .csv or .jsonl.", show_default=False)],
    task: OneTask = None,
    batch: Batch = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")] = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Predict every row of a file with the model of RUN."""
    from headwise.cli.train_commands import run_predict

    run_predict(run, source, target, task=task, batch=batch, overwrite=overwrite, as_json=as_json)


@app.command()
def tokens(
    run: Run,
    text: Annotated[str, typer.Option(help="The text, or the first one of a pair.", show_default=False)],
    pair: Annotated[str | None, typer.Option(help="The second text, for tasks of pairs.", show_default=False)] = None,
    html: Annotated[Path | None, typer.Option(help="Also write a page of HTML.", show_default=False)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page.")] = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Show how much each token of a text matters to RUN, which was trained with SSA."""
    from headwise.cli.train_commands import show_tokens

    show_tokens(run, text, pair, page=html, overwrite=overwrite, as_json=as_json)


@app.command()
def export(
    run: Run,
    target: Annotated[Path, typer.Option("--output", help="New folder for the model.", show_default=False)],
    task: OneTask = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Write the classifier of RUN as plain transformers knows it, without a token head."""
    from headwise.cli.train_commands import run_export

    run_export(run, target, task=task, as_json=as_json)


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help="guides, tasks, recipes, sweeps or models.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """List what there is to choose from."""
    from headwise.cli.listing import show

    show(kind, as_json=as_json)


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for models and pictures.")] = Path("demo"),
    examples: Annotated[int, typer.Option(min=60, help="Training examples.")] = 3000,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over them.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Decides weights, order and data.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Train MiniLM-L6 plain and guided on built-in clinical sentences, and compare the two."""
    from headwise.cli.demo import run_demo

    run_demo(output, examples=examples, epochs=epochs, seed=seed, as_json=as_json)


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(help="Folder of a saved model, or its name on the Hub.", show_default=False)],
    batch: Annotated[int, typer.Option(help="Batch size for the memory estimate.")] = 16,
    length: Annotated[int, typer.Option(help="Tokens per example for the memory estimate.")] = 256,
    download: Annotated[bool, typer.Option("--download", help="Allow the network if the model is not here.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Tell whether headwise can see the attention of MODEL, by which route, and what that costs."""
    from headwise.cli.listing import show_diagnosis as show  # torch loads only when a command needs it

    show(model, batch=batch, length=length, download=download, as_json=as_json)


add_commands(app)
add_experiments(app)
add_results(app)
add_report_commands(app)
app.add_typer(data_commands, name="data")
app.add_typer(heads, name="heads")
app.add_typer(knowledge, name="knowledge")


def _tell(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Warnings of ours are for users, in one sentence; those of other libraries stay as they are."""
    if issubclass(category, HeadwiseWarning):
        typer.echo(f"headwise: {one_line(as_options(str(message)))}", err=True)
    else:
        typer.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)


def run() -> None:
    """Run the command line; mistakes of the caller end in one sentence, not in a traceback."""
    debug = "--debug" in sys.argv[1:]
    if debug:  # also after the command, where people type it
        sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    interrupts = Interrupts()
    try:
        with warnings.catch_warnings(), _one_voice(), interrupts.noted():
            warnings.showwarning = _tell
            _check_words(sys.argv[1:])
            app()
    except SystemExit as end:
        stop = getattr(end.__context__, "__cause__", None)
        if isinstance(stop, KeyboardInterrupt):  # which typer turns into an exit
            _say_stopped(stop)
        _end(INTERRUPTED if isinstance(stop, KeyboardInterrupt) else end.code)
    except KeyboardInterrupt as stop:  # before or after that
        _say_stopped(stop)
        _end(INTERRUPTED)
    except BaseException as error:
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        if interrupts.seen and not isinstance(error, DiskError) and not debug:  # it is what became of Ctrl-C
            _say_stopped()
            _end(INTERRUPTED)
        _tell_error(error, _message(error), debug)
        mistake = isinstance(error, InputError | DiskError | UnsupportedModelError) or _is_bad_path(error)
        _end(2 if mistake else 1)


def _check_words(words: list[str]) -> None:
    """Refuse bytes that are no text: a record, which lists the command, could not hold them."""
    for word in words:
        try:
            word.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError(f"{word!r:.80} is no UTF-8: type it again, or rename the file.") from None


def _is_bad_path(error: BaseException) -> bool:
    """Whether a path that the user gave can never be opened: too long a name, a link to itself, an unknown ~user."""
    if isinstance(error, RuntimeError):
        return str(error).startswith(BAD_PATHS)
    return isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP)


def _message(error: BaseException) -> str:
    if isinstance(error, HeadwiseError):
        return as_options(str(error))
    if isinstance(error, RuntimeError) and _is_bad_path(error):
        return f"a path cannot be used ({str(error)[:200].rstrip('.')}): give another one, written out."
    if isinstance(error, OSError) and _is_bad_path(error):
        return f"the path {str(error.filename)[:80]!r} cannot be used ({error.strerror}): give another one."
    reason = " ".join(str(error).split())[:300]
    return f"unexpected {type(error).__name__}: {reason} (add --debug for the traceback)"


def as_options(message: str, words: Sequence[str] | None = None) -> str:
    """A message of the library with its arguments (`overwrite=True`) as options (`--overwrite`).

    Those of the command that the words of the command line name come first, then those of any command: `resume=True` in
    a message of `headwise evaluate` is the `--resume` of `headwise train`.
    """
    root: Any = typer.main.get_command(app)
    commands, command = [root], root
    for each in commands:  # grows while it is walked
        commands += getattr(each, "commands", {}).values()
    for word in sys.argv[1:] if words is None else words:
        command = getattr(command, "commands", {}).get(word, command)
    options = {each.name: each for one in (*commands, command) for each in one.params if isinstance(each, TyperOption)}

    def option(match: re.Match[str]) -> str:
        option = options.get(match[1])
        if option is None:
            return match[0]
        if not option.is_flag:
            return f"{option.opts[0]} {match[2]}"
        return option.opts[0] if match[2] == "True" else "".join(option.secondary_opts) or f"no {option.opts[0]}"

    return re.sub(r"(?<![.\w])([a-z]\w*)=('[^']*'|[\w/.\-]*\w|\.\.\.)", option, message)


def _say_stopped(stop: BaseException | None = None) -> None:
    """One sentence, by the first of several processes."""
    if os.environ.get("RANK", "0") == "0":
        typer.echo(sentence(stop), err=True)


def _one_voice() -> AbstractContextManager[Any]:
    """Of several processes that a launcher has started only the first one speaks, but for errors."""
    stack = ExitStack()
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return stack
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # or each warns of a setting that is not the user's
    if os.environ.get("RANK", "0") != "0":
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        stack.enter_context(redirect_stdout(nowhere))
        stack.enter_context(redirect_stderr(nowhere))
    return stack


def _tell_error(error: BaseException, message: str, debug: bool) -> None:
    """One sentence, or the traceback; of several processes with the same error, one reports it."""
    processes = sys.modules.get("headwise.training.distributed")
    if processes is not None and not processes.reports(error):
        return
    if not debug:
        typer.echo(f"headwise: {one_line(message)}", err=True)
    elif processes is None or processes.count() == 1:
        raise error
    else:  # which must end by _end
        traceback.print_exception(error)


def _end(code: Any) -> NoReturn:
    """End with a code; several processes cannot end as one does."""
    processes = sys.modules.get("headwise.training.distributed")  # not imported: nothing to end
    if processes is not None:
        processes.exit_together(code if isinstance(code, int) else int(code is not None))
    sys.exit(code)

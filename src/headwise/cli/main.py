"""The command `headwise`: stdout is the result, stderr the log.

Exit codes: 0 done; 1 failed; 2 something that the caller can correct (bad input, a full disk); 130 stopped by Ctrl-C,
with one sentence about what was kept.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperOption

from headwise import __version__
from headwise.cli import parameters as opt
from headwise.cli.console import loading_shown
from headwise.cli.data_app import data, mark
from headwise.cli.experiments_app import sweep, tune
from headwise.cli.heads_app import heads
from headwise.cli.init_command import init
from headwise.cli.knowledge_app import knowledge
from headwise.cli.listing import doctor, list_names
from headwise.cli.progress_bar import INTERRUPTED, noted_interrupts, sentence
from headwise.cli.push import push
from headwise.cli.report import analyze, explore, report
from headwise.cli.results_app import compare, figure
from headwise.cli.retrieval import rerank, retrieve, score, search
from headwise.cli.train_commands import evaluate, export, predict, tokens, train
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
QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}

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


def demo(
    output: Annotated[Path, typer.Option(help="Folder for models and pictures.")] = Path("demo"),
    examples: Annotated[int, typer.Option(min=60, max=1000, help="Training examples.")] = 100,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of training.")] = 5,
    seeds: Annotated[int, typer.Option(min=1, help="Each model is trained with so many seeds.")] = 3,
    as_json: opt.AsJson = False,
) -> None:
    """Train MiniLM-L6 on built-in ward notes: plain, guided by marked words, and guided by random words."""
    from headwise.cli.demo import run_demo

    run_demo(output, examples=examples, epochs=epochs, seeds=seeds, as_json=as_json)


# In the order of the help.
for command in (
    init,
    train,
    evaluate,
    predict,
    tokens,
    export,
    push,
    list_names,
    demo,
    doctor,
    retrieve,
    rerank,
    score,
    search,
):
    app.command("list" if command is list_names else None)(command)
for command in (sweep, tune, compare, figure, analyze, report, explore, mark):
    app.command()(command)
for name, group in {"data": data, "heads": heads, "knowledge": knowledge}.items():
    app.add_typer(group, name=name)


def run() -> None:
    """Run the command line; mistakes of the caller end in one sentence, not in a traceback."""
    debug = "--debug" in sys.argv[1:]
    if debug:  # also after the command, where people type it
        sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    interrupts: list[int] = []
    try:
        with (
            warnings.catch_warnings(),
            _only_the_first_process_prints(),
            loading_shown(),
            noted_interrupts() as interrupts,
        ):
            warnings.showwarning = _show_warning
            _quiet_libraries()
            for word in sys.argv[1:]:  # a record, which lists the command, could not hold bytes that are no text
                if any("\ud800" <= letter <= "\udfff" for letter in word):
                    raise InputError(f"{word!r:.80} is no UTF-8: type it again, or rename the file.")
            app()
    except SystemExit as end:
        stop = getattr(end.__context__, "__cause__", None)
        if isinstance(stop, KeyboardInterrupt):  # which typer turns into an exit
            _end_stopped(stop)
        _end(end.code)
    except KeyboardInterrupt as stop:  # before or after that
        _end_stopped(stop)
    except BaseException as error:
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        if interrupts and not isinstance(error, DiskError) and not debug:  # the error is a consequence of Ctrl-C
            _end_stopped()
        message, code = _explain(error)
        processes = sys.modules.get("headwise.training.distributed")
        if processes is None or processes.reports(error):  # of several processes with the same error, one reports it
            if not debug:
                typer.echo(f"headwise: {one_line(message)}", err=True)
            elif processes is None or processes.count() == 1:
                raise
            else:  # which must end by _end
                traceback.print_exception(error)
        _end(code)


def _explain(error: BaseException) -> tuple[str, int]:
    """The sentence for an error, and the exit code."""
    if isinstance(error, HeadwiseError):
        mistake = isinstance(error, InputError | DiskError | UnsupportedModelError)
        return as_options(str(error)), 2 if mistake else 1
    if isinstance(error, RuntimeError) and str(error).startswith(BAD_PATHS):
        return f"a path cannot be used ({str(error)[:200].rstrip('.')}): give another one, written out.", 2
    if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return f"the path {str(error.filename)[:80]!r} cannot be used ({error.strerror}): give another one.", 2
    reason = " ".join(str(error).split())[:300]
    return f"unexpected {type(error).__name__}: {reason} (add --debug for the traceback)", 1


def as_options(message: str, words: Sequence[str] | None = None) -> str:
    """A message of the library with its arguments (`overwrite=True`) as options (`--overwrite`).

    Options of the command on the command line come first, then those of any command: `resume=True` in a message of
    `headwise evaluate` is the `--resume` of `headwise train`.
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
        # What belongs to a call, as in rationale(form='mse'), is an option of a guide, not of a command.
        if option is None or re.search(r"\w\([^()]*$", message[: match.start()]):
            return match[0]
        if not option.is_flag:
            return f"{option.opts[0]} {match[2]}"
        return option.opts[0] if match[2] == "True" else "".join(option.secondary_opts) or f"no {option.opts[0]}"

    return re.sub(r"(?<![.\w])([a-z]\w*)=('[^']*'|[\w/.\-]*\w|\.\.\.)", option, message)


def _show_warning(
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


def _quiet_libraries() -> None:
    """No progress bars, hints and warnings of libraries; their errors stay."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if "transformers" in sys.modules:  # which reads these variables only when it is imported
        from headwise.training.encoders import quiet_libraries

        quiet_libraries()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(transformers|accelerate|torch)\b")


@contextmanager
def _only_the_first_process_prints() -> Iterator[None]:
    """Of several processes that a launcher has started only the first one prints, except for errors."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # or each warns of a setting that is not the user's
        if os.environ.get("RANK", "0") != "0":
            with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                yield
            return
    yield


def _end_stopped(stop: BaseException | None = None) -> NoReturn:
    if os.environ.get("RANK", "0") == "0":
        typer.echo(sentence(stop), err=True)
    _end(INTERRUPTED)


def _end(code: Any) -> NoReturn:
    """End with a code; several processes cannot end as one does."""
    processes = sys.modules.get("headwise.training.distributed")  # not imported: nothing to end
    if processes is not None:
        processes.exit_together(code if isinstance(code, int) else int(code is not None))
    sys.exit(code)

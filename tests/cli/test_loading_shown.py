"""What a command shows while libraries and models are being loaded, and what it does not load."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HELP = """
import io, json, sys
from contextlib import redirect_stdout
from headwise.cli import main
import typer
def walk(command, words):
    for name, each in getattr(command, "commands", {}).items():
        yield [*words, name]
        yield from walk(each, [*words, name])
shown = {}
for words in ([], *walk(typer.main.get_command(main.app), [])):
    with redirect_stdout(io.StringIO()) as out:
        main.app([*words, "--help"], standalone_mode=False)
    shown[" ".join(words)] = out.getvalue()
loaded = [name for name in ("torch", "transformers", "pandas", "scipy", "matplotlib") if name in sys.modules]
print(json.dumps({"shown": shown, "loaded": loaded}))
"""

TERMINAL = """
import io, sys
from headwise.cli import main
class Terminal(io.StringIO):
    def isatty(self): return True
terminal, real, seen = Terminal(), sys.stderr, []
def importing(event, args):
    if (event, args[:1]) == ("import", ("torch._C",)): seen.append(terminal.getvalue())
sys.addaudithook(importing)
sys.stderr = terminal
sys.argv = ["headwise", "doctor", "builtin:minilm-l6", "--json"]
try:
    main.run()
finally:
    sys.stderr = real
    print(seen[0], terminal.getvalue(), len(sys.meta_path), sep="|", file=sys.stderr)
"""


def run(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)


def test_help_of_every_command_loads_nothing_heavy():
    answer = json.loads(run(HELP).stdout)
    assert answer["loaded"] == []
    assert {"", "train", "push", "heads importance"} <= set(answer["shown"])
    assert all("Usage:" in text for text in answer["shown"].values())


@pytest.mark.slow
def test_a_terminal_shows_what_is_loaded_before_it_is_loaded():
    done = run(TERMINAL)
    before, after, finders = done.stderr.strip().split("|")
    assert before == "loading torch and transformers\n"
    assert after.startswith(before + "loading ")  # the model
    assert "minilm" in after
    assert json.loads(done.stdout)["route"]


def test_a_pipe_gets_no_such_lines(headwise, finished):
    code, _, err = headwise("evaluate", finished, "--json")
    assert code == 0
    assert "loading" not in err

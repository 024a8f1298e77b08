"""`headwise list`, help, completion, and how errors end."""

import json
import os
import subprocess
import sys

import list_catalogue
import pytest
import typer
from tiny_runs import assert_done, assert_one_sentence

import headwise.retrieval  # noqa: F401 (adds its task to the table)
from headwise.cli.main import app
from headwise.data import TASKS
from headwise.errors import InputError, StateError
from headwise.experiments.recipe_files import bundled
from headwise.guides import GUIDES
from headwise.training import BUILTIN

KINDS = {"guides": list(GUIDES), "tasks": list(TASKS), "recipes": list(bundled()), "models": list(BUILTIN)}


# What each row of --json has to say.
KEYS = {
    "guides": ("minimises", "options"),
    "tasks": ("description", "source", "kind", "primary", "metrics", "sentences"),
    "recipes": ("description", "task"),
    "models": ("description", "install"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_json_and_table(headwise, kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = headwise("list", kind, "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)[kind]
    assert [row["name"] for row in rows] == KINDS[kind]
    assert all(row[key] for row in rows for key in KEYS[kind])
    code, out, err = headwise("list", kind)
    assert (code, err) == (0, "")
    for name in KINDS[kind]:
        assert any(line.split()[:1] == [name] for line in out.splitlines())


def test_the_catalogue_is_what_the_registries_hold():
    """`python tests/list_catalogue.py --write` brings it up to date."""
    assert list_catalogue.FILE.read_text(encoding="utf-8") == list_catalogue.text()


def test_unknown_kind(headwise):
    assert_one_sentence(headwise("list", "guide"), "'guide'", "did you mean 'guides'?", "models", "recipes", "tasks")


def test_every_command_has_help_with_a_sentence_for_each_option(headwise):
    def names(group, before=()):
        for name, command in group.commands.items():
            yield from names(command, (*before, name)) if hasattr(command, "commands") else [((*before, name), command)]

    out, _ = assert_done(headwise("--help"))
    for name, command in names(typer.main.get_command(app)):
        assert f"\n  {name[0]} " in out
        shown, _ = assert_done(headwise(*name, "--help"))
        assert "--json" in shown
        assert [option.name for option in command.params if not getattr(option, "help", None)] in ([], ["help"])


def test_completion_for_the_shell():
    """What typer prints must be a script that bash takes, and must answer."""
    # typer asks which shell it was started from; bash would step aside for a lone command.
    words = ["bash", "-c", '"$0" -m headwise --show-completion; exit $?', sys.executable]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert "_HEADWISE_COMPLETE" in shown.stdout or "COMPLETE" in shown.stdout
    assert subprocess.run(["bash", "-n"], input=shown.stdout, text=True, timeout=20).returncode == 0
    variables = {"_HEADWISE_COMPLETE": "complete_bash", "COMP_WORDS": "headwise tr", "COMP_CWORD": "1"}
    command = os.path.join(os.path.dirname(sys.executable), "headwise")
    if os.path.exists(command):
        answer = subprocess.run([command], capture_output=True, text=True, env=os.environ | variables, timeout=60)
        assert answer.stdout.split() == ["train"]


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("wrong here."), 2, "headwise: wrong here."),
        (StateError("not now."), 1, "headwise: not now."),
        (ZeroDivisionError("a\nb"), 1, "headwise: unexpected ZeroDivisionError: a b (add --debug for the traceback)"),
    ],
)
def test_exit_codes(headwise, monkeypatch, error, code, text):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr("headwise.cli.listing.files", fail)
    assert headwise("list", "guides") == (code, "", text + "\n")
    for words in (("--debug", "list", "guides"), ("list", "guides", "--debug")):
        with pytest.raises(type(error)):
            headwise(*words)

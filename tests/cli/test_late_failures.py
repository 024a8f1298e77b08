"""Mistakes that were once noticed too late or not at all: each is refused at once, in one sentence."""

import json
import shutil

import pytest
from small_collection import write_collection
from small_sweeps import write_sweep
from tiny_runs import assert_one_sentence


def test_an_empty_layout_is_refused(headwise, tmp_path):
    collection = write_collection(tmp_path / "papers", train=2, test=2)
    assert_one_sentence(headwise("retrieve", collection, "--layout", ""), "layout", "beir")


def test_gold_without_a_collection_is_refused(headwise, tmp_path):
    (tmp_path / "run.trec").write_text("v0 Q0 d 1 1.0 t\n", encoding="utf-8")
    (tmp_path / "qrels.txt").write_text("v0 0 d 1\n", encoding="utf-8")
    result = headwise("score", tmp_path / "run.trec", "--qrels", tmp_path / "qrels.txt", "--gold", "cited")
    assert_one_sentence(result, "--gold cited is for --collection")


def test_a_padding_token_without_an_embedding_is_refused(headwise, write_recipe, encoder, pairs, tmp_path):
    folder = shutil.copytree(encoder, tmp_path / "changed")
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "pad_token": "[NEW]"}), encoding="utf-8")
    result = headwise("train", write_recipe(model=str(folder)), "--data", pairs, "--output", tmp_path / "run")
    assert_one_sentence(result, "embeddings for", "restore it")
    assert not (tmp_path / "run").exists()


def test_the_demo_refuses_a_folder_with_other_files(headwise, tmp_path):
    (tmp_path / "notes.txt").write_text("mine\n", encoding="utf-8")
    assert_one_sentence(headwise("demo", "--output", tmp_path), "holds other files (notes.txt)")


def test_a_sweep_refuses_a_damaged_result(headwise, encoder, pairs, tmp_path):
    file = write_sweep(tmp_path / "sweep.yaml", encoder, seeds=[1], recipe__training__steps=1)
    words = ("sweep", file, "--data", pairs, "--output", tmp_path / "results", "--workers", "1")
    assert headwise(*words)[0] == 0
    path = sorted((tmp_path / "results" / "runs").glob("*.json"))[0]
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    code, _, err = headwise(*words)
    assert (code, "is no JSON" in err) == (2, True)


@pytest.mark.parametrize("name", ["prune-curve.json", "dissociation.json"])
def test_a_folder_in_place_of_a_result_of_heads_is_refused(headwise, joint, tmp_path, name):
    (tmp_path / "heads" / name).mkdir(parents=True)
    result = headwise("heads", "dissociation", joint, "--output", tmp_path / "heads", "--percent", "25")
    assert result[0] == 2
    assert f"{name} is a folder" in result[2]
    assert [path.name for path in (tmp_path / "heads").iterdir() if not path.name.startswith(".")] == [name]

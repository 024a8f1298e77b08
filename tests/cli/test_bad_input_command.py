"""Bad input to the commands: one sentence, exit code 2, and nothing is written."""

import json
import shutil
import socket
from pathlib import Path

import pytest
from tiny_runs import LONGEST, assert_one_sentence, rows, write_data, write_table


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("the network was used without being asked to")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def refused(headwise, write_recipe, tmp_path):
    """Train a recipe with changes on a folder of data, in vain."""

    def check(*parts, data=None, kind="pairs", words=(), **changes):
        data = write_data(tmp_path / "data", kind) if data is None else data
        changes = {"task": kind, **changes}
        result = headwise("train", write_recipe(**changes), "--data", data, "--output", tmp_path / "run", *words)
        assert_one_sentence(result, *parts)
        assert not (tmp_path / "run").exists()

    return check


@pytest.fixture
def data(tmp_path):
    """Files of pairs, of which some are then spoiled."""
    return write_data(tmp_path / "data")


# -- words -------------------------------------------------------------------------------------------------------------


def test_paths_that_cannot_be_opened(headwise, write_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.tsv").symlink_to("loop.tsv")
    assert_one_sentence(headwise("compare", "n" * 300), "nnnn")
    assert_one_sentence(headwise("data", "check", tmp_path / "loop.tsv"), "loop.tsv")
    words = ["train", write_recipe(), "--data", write_data(tmp_path / "data"), "--output", "~nobody-at-all/x"]
    assert_one_sentence(headwise(*words), "~nobody-at-all/x", "choose another folder")
    assert_one_sentence(headwise("data", "check", "~nobody-at-all/x.tsv"), "home directory", "give another one")
    assert not (tmp_path / "~nobody-at-all").exists()


@pytest.mark.parametrize("word", ["x\u2028y", "x\ry\x1b[31m", "\udcff"])
def test_words_that_would_split_the_sentence(headwise, word):
    assert_one_sentence(headwise("evaluate", word), "x y" if "x" in word else "no UTF-8")


# -- data: tests/data has more mistakes --------------------------------------------------------------------------------


def test_no_data_folder(refused, headwise, write_recipe, tmp_path):
    refused("train", str(tmp_path / "nowhere"), data=tmp_path / "nowhere")
    assert_one_sentence(headwise("train", write_recipe(), "--output", tmp_path / "run"), "data root", "none was given")
    assert not (tmp_path / "run").exists()


def test_missing_files_and_columns(refused, data):
    task = {"name": "pairs", "files": {"train": "train.tsv", "validation": "dev.tsv"}}
    refused("files.validation", str(data / "dev.tsv"), data=data, task=task)
    write_table(data / "train.tsv", [["premise", "sentence2", "label"], *rows(6, 0)[1:]])
    refused("train.tsv", "'sentence1'", "'premise'", "'sentence2'", "'label'", data=data)
    path = data / "validation.tsv"
    path.write_text(path.read_text().replace("\n", " "))  # a header of a thousand columns
    write_data(data.parent / "whole")
    (data.parent / "whole" / "train.tsv").replace(data / "train.tsv")
    refused("validation.tsv has no column", " ...: the first line looks like an example", data=data)
    (data / "train.tsv").unlink()
    refused("train", "train.tsv", data=data)


def test_unknown_label(refused, data):
    write_table(data / "test.tsv", [*rows(6, 0), ["a cat", "the dog", "agre"]])
    refused("test.tsv line 8", "unknown label 'agre'", "'agree'", "deny", data=data)


@pytest.mark.parametrize("label", [float("nan"), None])
def test_a_missing_label_in_json(refused, data, label):
    lines = [{"sentence1": first, "sentence2": second, "label": name} for first, second, name in rows(40, 1)[1:]]
    lines[7]["label"] = label
    (data / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {"train": "train.jsonl", "validation": "validation.tsv", "test": "test.tsv"}
    task = {"name": "pairs", "files": files, "unlabelled": {"rule": "error"}}
    if label is not None:
        refused("train.jsonl", "line 8", "NaN", "unlabelled.values", data=data, task=task)
        return
    refused("train.jsonl", "line 8", "expected a label", data=data, task=task)
    refused("1 of 40 training examples", data=data, task=task | {"unlabelled": {"rule": "keep"}})


def test_a_data_set_of_the_hub_while_offline(refused):
    pytest.importorskip("datasets")
    refused("no-such/data-set", "Hub", "--download", task={"name": "pairs", "hub": "no-such/data-set"})


# -- recipe ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"trainning": {}}, ("unknown key 'trainning'", "'training'")),
        ({"guides": {"mdg": {"weight": -0.1}}}, ("mdg", "-0.1", "0 or more")),
        ({"guides": {"mdg": {"layers": [2]}}}, ("layer 2 is out of range", "0 to 1")),
        ({"data__max_length": LONGEST + 1}, (f"data.max_length is {LONGEST + 1}", f"at most {LONGEST} tokens")),
        ({"training__freeze": ["embeddings", "encoder"]}, ("frozen",)),
        ({"training__batch": "many"}, ("training.per_device_train_batch_size is 'many'", "a whole number")),
        ({"model": "builtin:minilm"}, ("builtin:minilm", "did you mean 'builtin:minilm-l6'")),
        ({"model": "no-such/model"}, ("'no-such/model'", "no network was allowed", "--download")),
    ],
)
def test_wrong_recipe(refused, changes, parts):
    refused(*parts, **changes)


def test_a_folder_that_is_no_model(refused, encoder, tmp_path):
    (tmp_path / "empty").mkdir()
    refused("no config.json", model=str(tmp_path / "empty"))
    copy = shutil.copytree(encoder, tmp_path / "copy")
    (copy / "model.safetensors").write_bytes(b"\x00" * 20)
    refused(str(copy), model=str(copy))
    (copy / "model.safetensors").unlink()
    refused(str(copy), model=str(copy))
    odd = shutil.copytree(encoder, tmp_path / "odd")
    config = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps(config | {"num_hidden_layers": config["num_hidden_layers"] + 1}))
    refused("lacks", "weights of the encoder", model=str(odd))


def test_a_decoder_with_guides(refused, encoder, tmp_path):
    from transformers import AutoTokenizer, GPT2Config, GPT2ForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(encoder)
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=len(tokenizer), pad_token_id=0)
    GPT2ForSequenceClassification(config).save_pretrained(tmp_path / "decoder")
    tokenizer.save_pretrained(tmp_path / "decoder")
    refused("encoder", model=str(tmp_path / "decoder"), guides={"mdg": {}})


def test_no_recipe(headwise, write_recipe, tmp_path):
    path = tmp_path / "r.yaml"
    for text, parts in (
        ("a: b: c", ("not valid YAML", "line 1")),
        ("task: pairs\nseed: 1\nseed: 2\n", ("'seed' stands twice", "line 3")),
        ("[]", ("a recipe is a list of keys",)),
    ):
        path.write_text(text)
        assert_one_sentence(headwise("train", path, "--output", tmp_path / "run"), str(path), *parts)
    assert_one_sentence(headwise("train", "no.yaml", "--output", tmp_path / "run"), "'no.yaml'", "no such file", "demo")
    assert_one_sentence(headwise("train", "pair"), "did you mean 'pairs'")
    assert_one_sentence(headwise("train", write_recipe(guides=["mgd"]), "--dry-run"), "'mgd'", "'mdg'")
    assert not (tmp_path / "run").exists()


def test_wrong_set(refused):
    for change in ("seed", "seed=[", "sead=1"):
        refused(change.partition("=")[0], words=("--set", change))


# -- places ------------------------------------------------------------------------------------------------------------


def contents(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_an_output_that_is_taken(headwise, write_recipe, finished, pairs, tmp_path):
    run, same = finished, write_recipe()
    before = contents(run)
    words = ["--data", pairs, "--output", run]
    assert_one_sentence(headwise("train", same, *words), "a finished run of this recipe", "--resume", "--output")
    assert_one_sentence(headwise("train", write_recipe(seed=2), *words), "holds another run (small, seed 1)")
    assert_one_sentence(headwise("train", write_recipe(seed=2), *words, "--resume"), "holds another run")
    assert contents(run) == before
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "thesis.tex").write_text("precious")
    assert_one_sentence(headwise("train", same, *words[:2], "--output", tmp_path / "files"), "other files")
    assert_one_sentence(headwise("train", same, *words[:2], "--output", tmp_path / "files", "--resume"), "other files")
    assert_one_sentence(headwise("train", same, *words[:2], "--output", tmp_path / "files/thesis.tex"), "is a file")
    below = tmp_path / "files" / "thesis.tex" / "run"
    assert_one_sentence(headwise("train", same, *words[:2], "--output", below), str(below))
    assert contents(tmp_path / "files") == {tmp_path / "files" / "thesis.tex": b"precious"}


def test_resume_without_a_run(refused, headwise, write_recipe, pairs, tmp_path):
    refused("no run to resume", words=("--resume",))
    (tmp_path / "empty").mkdir()
    words = ["--data", pairs, "--output", tmp_path / "empty", "--resume"]
    assert_one_sentence(headwise("train", write_recipe(), *words), "no run to resume")
    assert not contents(tmp_path / "empty")


def test_no_run(headwise, encoder, tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path, encoder):
        assert_one_sentence(headwise("evaluate", folder), str(folder), "not a run of headwise")
    (tmp_path / "headwise.json").write_text("{")
    assert_one_sentence(headwise("evaluate", tmp_path), "headwise.json is damaged")
    (tmp_path / "headwise.json").write_text(json.dumps({"format": 9}))
    assert_one_sentence(headwise("evaluate", tmp_path), "format 9")


def test_evaluate(headwise, finished, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    assert_one_sentence(headwise("evaluate", run, "--split", "tests"), "no tests split", "did you mean 'test'")
    assert_one_sentence(headwise("evaluate", run, "--data", tmp_path / "no"), str(tmp_path / "no"))
    (run / "model.safetensors").write_bytes(b"\x00" * 20)
    assert_one_sentence(headwise("evaluate", run), str(run))
    (run / "model.safetensors").unlink()
    assert_one_sentence(headwise("evaluate", run), str(run))


def test_predict(headwise, finished, tmp_path):
    run, target = finished, tmp_path / "out.tsv"
    good = write_table(tmp_path / "in.tsv", rows(3, 1))

    def refused(*parts, source=good, output=target):
        assert_one_sentence(headwise("predict", run, "--input", source, "--output", output), *parts)
        assert not target.exists()

    refused("no.tsv", "does not exist", source=tmp_path / "no.tsv")
    refused(
        "no column 'sentence1'", "'text'", source=write_table(tmp_path / "a.tsv", [["text", "sentence2"], ["a", "b"]])
    )
    refused("b.tsv", "no examples", source=write_table(tmp_path / "b.tsv", [["sentence1", "sentence2"]]))
    refused("c.tsv line 2", source=write_table(tmp_path / "c.tsv", [["sentence1", "sentence2"], ["a"]]))
    refused("out.parquet", ".tsv, .csv or .jsonl", output=tmp_path / "out.parquet")
    refused("no folder", str(tmp_path / "no"), output=tmp_path / "no" / "out.tsv")
    (tmp_path / "folder.tsv").mkdir()
    refused("folder.tsv", output=tmp_path / "folder.tsv")


# -- several processes -------------------------------------------------------------------------------------------------


def test_several_processes_that_nobody_launched(refused, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused("WORLD_SIZE is 2", "RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT is not set", "accelerate launch or torchrun")


def test_processes_that_cut_the_model(refused, monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    refused("FSDP", "plain data-parallel")


def test_accelerate_that_has_started_one_process_of_several(refused, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for name in ("ACCELERATE_MIXED_PRECISION", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "no")
    refused("has started this one alone", "--multi_gpu", "torchrun")

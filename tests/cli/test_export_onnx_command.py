"""`headwise export --onnx`: a run with any head for onnxruntime and a tokenizer, without headwise."""

import errno
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import onnxruntime
import pytest
import torch
from tiny_runs import assert_done, assert_one_sentence, build_tokenizer, undisturbed, write_encoder
from transformers import AutoConfig, AutoTokenizer, BertForMaskedLM, BertTokenizer

from headwise.attention import prune
from headwise.errors import InputError
from headwise.experiments.apply import export
from headwise.training import load

QUICK = {"guides": {}, "training__epochs": 1, "baseline": False}
LONG = "the old man finds a red house and " * 6
# Padded batches and single examples of several lengths, pairs first; one is longer than the run allows.
INPUTS = [
    (["the cat", "a", "the old man likes the red house"], ["a dog sees the river", "tree", "never"]),
    (["surely the bird"], ["perhaps"]),
    ([LONG, "a"], [LONG, "the"]),
    (["the cat sees a dog", "woman"],),
    (["green"],),
    ([""],),
]


def onnx_logits(folder, texts):
    """As a user without headwise computes them."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    batch = AutoTokenizer.from_pretrained(folder)(*texts, padding=True, truncation=True, return_tensors="np")
    return session.run(["logits"], dict(batch))[0]


def assert_same_logits(run, folder):
    model, tokenizer = load(run), AutoTokenizer.from_pretrained(run)
    for texts in INPUTS:
        batch = tokenizer(*texts, padding=True, truncation=True, max_length=24, return_tensors="pt")
        with torch.no_grad():
            expected = model(**batch).logits
        torch.testing.assert_close(torch.tensor(onnx_logits(folder, texts)), expected, rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def one_layer(tmp_path_factory):
    return str(write_encoder(tmp_path_factory.mktemp("one-layer"), layers=1))


@pytest.mark.parametrize("head", ["cls", "mean", "segments", "relu"])
def test_every_head_has_the_logits_of_torch(headwise, one_layer, pairs, tmp_path, head):
    run = undisturbed(tmp_path / "run", one_layer, pairs, {**QUICK, "head": head})
    folder = tmp_path / "onnx"
    result = json.loads(assert_done(headwise("export", run, "--output", folder, "--onnx", "--json"))[0])
    assert 0 <= result.pop("largest_difference") < 1e-4
    assert result == {
        "run": str(run),
        "output": str(folder),
        "token_head_removed": False,
        "file": str(folder / "model.onnx"),
        "head": head,
        "inputs": ["input_ids", "attention_mask"],
    }
    names = {"config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    config = AutoConfig.from_pretrained(folder)
    assert config.id2label == {0: "agree", 1: "deny", 2: "open"}
    assert config.model_max_length == AutoTokenizer.from_pretrained(folder).model_max_length == 24
    assert_same_logits(run, folder)


def test_a_pruned_hybrid_model_with_token_types(headwise, tmp_path, pairs):
    tokenizer = BertTokenizer(vocab=build_tokenizer().get_vocab())
    model = BertForMaskedLM.from_pretrained(write_encoder(tmp_path / "encoder", tokenizer, layers=1))
    pruned = tmp_path / "pruned"
    prune(model, [(0, 1), (0, 2)]).save_pretrained(pruned)
    tokenizer.save_pretrained(pruned)
    run = undisturbed(tmp_path / "run", str(pruned), pairs, {**QUICK, "ssa": {}})
    out, _ = assert_done(headwise("export", run, "--output", tmp_path / "onnx", "--onnx"))
    assert "inputs input_ids, token_type_ids, attention_mask\n" in out
    assert out.endswith(f"saved in {tmp_path / 'onnx' / 'model.onnx'}\n")
    assert_same_logits(run, tmp_path / "onnx")


def test_missing_packages(headwise, finished, tmp_path, monkeypatch):
    program = SimpleNamespace(save=lambda path: path.write_bytes(b"a graph"))
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: program)
    words = ("export", finished, "--output", tmp_path / "onnx", "--onnx")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "onnxscript", None)
        assert_one_sentence(headwise(*words), "need onnx and onnxscript", "pip install 'headwise[onnx]'")
        assert not (tmp_path / "onnx").exists()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "not checked, since onnxruntime is missing" in assert_done(headwise(*words))[0]


def test_a_failure_leaves_nothing(headwise, finished, tmp_path, monkeypatch):
    def half_written(path):
        path.write_bytes(b"half a graph")

    def full(path):
        half_written(path)
        raise OSError(errno.ENOSPC, "No space left on device")

    def assert_refused(*parts):
        assert_one_sentence(headwise("export", finished, "--output", tmp_path / "onnx", "--onnx"), *parts)
        assert list(tmp_path.iterdir()) == []

    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: SimpleNamespace(save=half_written))
    assert_refused("cannot be written as ONNX (onnxruntime: ", "headwise predict")
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: SimpleNamespace(save=full))
    assert_refused("could not be written (No space left on device)", "make room")
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: 1 // 0)
    assert_refused("cannot be written as ONNX (ZeroDivisionError: ")


def test_other_logits_are_refused(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: SimpleNamespace(save=lambda path: path.touch()))
    session = SimpleNamespace(run=lambda _, inputs: [torch.ones(len(inputs["input_ids"]), 3).numpy()])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: session)
    with pytest.raises(InputError, match=r"its logits differ by .* under onnxruntime"):
        export(finished, tmp_path / "onnx", onnx=True)
    assert list(tmp_path.iterdir()) == []


def test_onnxruntime_reports_nothing_and_leaves_no_file(tmp_path):
    """On some machines its telemetry writes a file into the folder for temporary files as soon as it is imported."""
    code = (
        "import os\nfrom headwise.training.onnx_export import check_onnx\ncheck_onnx()\n"
        "print(os.environ.get('ORT_DISABLE_TELEMETRY'))\nimport onnxruntime"
    )
    for given, expected in (({}, "1"), ({"ORT_DISABLE_TELEMETRY": "0"}, "0")):
        environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"} | given
        environment["TMPDIR"] = str(tmp_path)
        run = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
        assert run.stdout.strip() == expected
        assert given or os.listdir(tmp_path) == []

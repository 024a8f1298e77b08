"""`headwise doctor`: what it says of models, and of mistakes."""

import json
import platform
import subprocess
import sys

import pytest
import torch
import transformers
from conftest import SIZES, build_model
from tiny_runs import assert_one_sentence, json_of

import headwise as hw
from headwise.attention.doctor import diagnose
from headwise.errors import InputError

PRUNED = {0: [1, 2], 2: [0, 1, 2, 3]}
IMAGES = {"image_size": 12, "patch_size": 4, "num_channels": 3}


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("doctor used the network without --download")

    monkeypatch.setattr("huggingface_hub.file_download.get_hf_file_metadata", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def saved(tmp_path):
    def save(family, **changes):
        folder = tmp_path / family
        build_model(family, **changes).save_pretrained(folder)
        return str(folder)

    return save


@pytest.mark.parametrize(("family", "route"), [("bert", "fused"), ("deberta-v2", "eager fallback")])
def test_supported_models(saved, headwise, family, route):
    folder = saved(family)
    code, out, _ = headwise("doctor", folder, "--batch", "5", "--length", "7", "--json")
    found = json.loads(out)
    assert code == 0
    layers, heads = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
    reason, kernel = found.pop("reason"), found.pop("kernel")
    assert found == {
        "model": folder,
        "family": family,
        "route": route,
        "layers": layers,
        "heads": heads,
        "pruned": {},
        "verified": True,
        "loads_offline": True,
        "batch": 5,
        "length": 7,
        "map_bytes": 5 * layers * heads * 7 * 7 * 4,
        "received_bytes": 5 * layers * heads * 7 * 4,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    assert reason == "" if route == "fused" else "after dropout" in reason
    assert kernel == ("SDPA: its config has no attention dropout" if route == "fused" else "")
    code, out, err = headwise("doctor", folder, "--length", "8")
    assert (code, err) == (0, "")
    for part in (family, route, "3 x 4", torch.__version__, transformers.__version__, "batch 16 x 8 tokens"):
        assert part in out


@pytest.mark.parametrize(
    ("kind", "options"),
    [("BertForSequenceClassification", {}), ("DistilBertModel", {}), ("ViTForImageClassification", IMAGES)],
)
def test_pruned_heads_are_listed(tmp_path, headwise, kind, options):
    kind = getattr(transformers, kind)
    hw.prune(kind(kind.config_class(**{**SIZES, **options})), PRUNED).save_pretrained(tmp_path)
    found = json_of(headwise("doctor", tmp_path, "--batch", "5", "--length", "7", "--json"))
    assert found["pruned"] == {"0": [1, 2], "2": [0, 1, 2, 3]}
    assert (found["layers"], found["heads"], found["verified"], found["loads_offline"]) == (3, 4, True, True)
    assert found["map_bytes"] == 5 * 6 * 7 * 7 * 4  # of the heads that are left
    out = headwise("doctor", tmp_path, "--length", "7")[1]
    assert "6 of 12 (layer 0: 1, 2; layer 2: 0, 1, 2, 3)" in " ".join(out.split())
    (tmp_path / "model.safetensors").unlink()  # the config alone says the same
    found = json.loads(headwise("doctor", tmp_path, "--length", "7", "--json")[1])
    assert (found["pruned"], found["loads_offline"]) == ({"0": [1, 2], "2": [0, 1, 2, 3]}, False)


def test_the_kernel_that_trains(saved, headwise):
    folder = saved("bert", dropout=0.2)
    expected = "ours in training on a CPU (attention dropout 0.2), SDPA in evaluation and on other devices"
    assert json.loads(headwise("doctor", folder, "--length", "8", "--json")[1])["kernel"] == expected
    assert expected in " ".join(headwise("doctor", folder, "--length", "8")[1].split())


def test_weights_that_do_not_fit_the_config(tmp_path, headwise):
    hw.prune(build_model("bert"), PRUNED).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    del content["headwise_pruned"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert_one_sentence(headwise("doctor", tmp_path), str(tmp_path), "its weights do not fit its config.json")


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}, "decoder"),
        ("SqueezeBert", {"embedding_size": 32}, "ignores custom attention"),
        ("FNet", {}, "no attention that headwise can see"),
    ],
)
def test_unsupported_models_end_with_exit_code_1(tmp_path, headwise, name, options, reason):
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **options})
    getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path)
    code, out, _ = headwise("doctor", tmp_path)
    assert (code, "unsupported" in out) == (1, True)
    code, out, err = headwise("doctor", tmp_path, "--json")
    assert code == 1
    assert "Traceback" not in err
    found = json.loads(out)
    assert (found["route"], found["verified"]) == ("unsupported", False)
    assert reason in found["reason"]
    assert [found[name] for name in ("layers", "heads", "map_bytes", "received_bytes")] == [None] * 4


@pytest.mark.parametrize("content", [None, "{", "{}", '{"model_type": "no-such-type"}', '{"model_type": 3}'])
def test_a_folder_without_a_model(tmp_path, headwise, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    assert_one_sentence(headwise("doctor", tmp_path), str(tmp_path), *(["no model that"] if content is None else []))


def test_wrong_words(saved, headwise, tmp_path):
    missing, file, folder = tmp_path / "nowhere", tmp_path / "model.bin", saved("roberta")
    file.write_bytes(b"\x00\x01")
    assert_one_sentence(headwise("doctor", missing), str(missing), "no such folder", "--download")
    assert_one_sentence(headwise("doctor", file, "--json"), str(file))
    assert_one_sentence(headwise("doctor", folder, "--length", "39"), "--length 39", "at most 38 tokens")
    assert_one_sentence(headwise("doctor", folder, "--batch", "0"), "--batch 0", "1 or more")
    with pytest.raises(InputError, match="length=41: roberta here takes at most 38 tokens"):
        diagnose(folder, length=41)
    assert diagnose(folder).length == 38


def test_the_settings_of_transformers_are_left_alone(saved):
    transformers.logging.disable_progress_bar()
    before = transformers.logging.get_verbosity()
    try:
        found = diagnose(saved("bert", max_position_embeddings=300))
        assert (found.batch, found.length) == (16, 256)
        assert transformers.logging.get_verbosity() == before
        assert not transformers.logging.is_progress_bar_enabled()
    finally:
        transformers.logging.enable_progress_bar()


def test_from_the_shell(saved):
    """Once as a real process: stdout is one JSON object and nothing else."""
    words = [sys.executable, "-m", "headwise", "doctor", saved("bert"), "--length", "8", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["route"] == "fused"

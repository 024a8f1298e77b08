"""`headwise doctor`: what it says of models, and of mistakes."""

import json
import platform
import subprocess
import sys

import pytest
import torch
import transformers
from conftest import SIZES, build_model

import headwise as hw
from headwise.attention.doctor import diagnose
from headwise.cli import main
from headwise.errors import InputError

pytestmark = pytest.mark.usefixtures("_offline")


@pytest.fixture
def _offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("doctor used the network without being asked to")

    monkeypatch.setattr("huggingface_hub.file_download.get_hf_file_metadata", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def saved(tmp_path):
    def save(family, **changes):
        folder = tmp_path / family
        build_model(family, **changes).save_pretrained(folder)
        return str(folder)

    return save


@pytest.fixture
def headwise(monkeypatch, capsys):
    """Type a command; get the exit code, stdout and stderr."""

    def type_in(*words):
        monkeypatch.setattr(sys, "argv", ["headwise", *words])
        capsys.readouterr()
        code = 0
        try:
            main.run()
        except SystemExit as error:
            code = error.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return type_in


def assert_one_sentence(result, *parts, code=2):
    """A mistake of the caller: exit code 2, nothing on stdout, one line on stderr, no traceback."""
    assert result[0] == code
    assert result[1] == ""
    assert len(result[2].strip().splitlines()) == 1
    assert result[2].startswith("headwise: ")
    for part in parts:
        assert part in result[2]


@pytest.mark.parametrize(
    ("family", "route"),
    [("bert", "fused"), ("albert", "fused"), ("modernbert", "fused"), ("deberta-v2", "eager fallback")],
)
def test_supported_models(saved, headwise, family, route):
    folder = saved(family)
    code, out, _ = headwise("doctor", folder, "--batch", "5", "--length", "7", "--json")
    found = json.loads(out)
    assert code == 0
    layers, heads = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
    expected = {
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
    reason = found.pop("reason")
    assert found == expected
    assert reason == "" if route == "fused" else "after dropout" in reason


PRUNED = {0: [1, 2], 2: [0, 1, 2, 3]}
IMAGES = {"image_size": 12, "patch_size": 4, "num_channels": 3}


def save_pruned(kind, folder, **options):
    kind = getattr(transformers, kind)
    hw.prune(kind(kind.config_class(**{**SIZES, **options})), PRUNED).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("BertForSequenceClassification", {}),
        ("RobertaForTokenClassification", {}),
        ("BertForMaskedLM", {}),
        ("DistilBertModel", {}),
        ("ViTModel", IMAGES),
        ("ViTForImageClassification", IMAGES),
    ],
)
def test_pruned_heads_are_listed(tmp_path, headwise, kind, options):
    folder = save_pruned(kind, tmp_path, **options)
    code, out, err = headwise("doctor", folder, "--batch", "5", "--length", "7", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["pruned"] == {"0": [1, 2], "2": [0, 1, 2, 3]}
    assert (found["layers"], found["heads"], found["verified"], found["loads_offline"]) == (3, 4, True, True)
    assert found["map_bytes"] == 5 * 6 * 7 * 7 * 4  # of the heads that are left
    code, out, err = headwise("doctor", folder, "--length", "7")
    assert code == 0, err
    assert "pruned heads" in out
    assert "6 of 12 (layer 0: 1, 2; layer 2: 0, 1, 2, 3)" in " ".join(out.split())


def test_a_pruned_config_without_weights_has_the_same_heads(tmp_path, headwise):
    folder = save_pruned("BertModel", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    found = json.loads(headwise("doctor", folder, "--length", "7", "--json")[1])
    assert (found["pruned"], found["loads_offline"]) == ({"0": [1, 2], "2": [0, 1, 2, 3]}, False)


def test_weights_that_do_not_fit_the_config(tmp_path, headwise):
    folder = save_pruned("BertModel", tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    del content["headwise_pruned"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert_one_sentence(headwise("doctor", folder), folder, "its weights do not fit its config.json")


def test_an_image_encoder(tmp_path, headwise):
    transformers.ViTModel(transformers.ViTConfig(**{**SIZES, **IMAGES})).save_pretrained(tmp_path)
    code, out, err = headwise("doctor", str(tmp_path), "--length", "7")
    assert code == 0, err
    assert "3 x 4" in out
    assert "pruned" not in out


def test_the_memory_is_that_of_the_default_batch(saved):
    found = diagnose(saved("bert", max_position_embeddings=300))
    assert (found.batch, found.length) == (16, 256)
    assert found.map_bytes == 16 * 12 * 256 * 256 * 4
    assert found.received_bytes == 16 * 12 * 256 * 4


def test_the_table_says_the_same_in_words(saved, headwise):
    code, out, err = headwise("doctor", saved("bert"), "--length", "8")
    assert code == 0
    for part in ("bert", "fused", "3 x 4", torch.__version__, transformers.__version__, "batch 16 x 8 tokens"):
        assert part in out
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}, "decoder"),
        ("SqueezeBert", {"embedding_size": 32}, "ignores custom attention"),
        ("FNet", {}, "no attention that headwise can see"),
    ],
)
@pytest.mark.parametrize("form", ["json", "table"])
def test_unsupported_models_end_with_exit_code_1(tmp_path, headwise, name, options, reason, form):
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **options})
    getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path)
    code, out, err = headwise("doctor", str(tmp_path), *(["--json"] if form == "json" else []))
    assert code == 1
    assert "Traceback" not in err
    if form == "table":
        assert "unsupported" in out
        return
    found = json.loads(out)
    assert found["route"] == "unsupported"
    assert reason in found["reason"]
    assert found["verified"] is False
    assert [found[name] for name in ("layers", "heads", "map_bytes", "received_bytes")] == [None] * 4


def test_a_config_without_weights_is_examined_but_does_not_load(tmp_path):
    build_model("bert").config.save_pretrained(tmp_path)
    found = diagnose(str(tmp_path), length=8)
    assert (found.route, found.verified, found.loads_offline) == ("fused", True, False)


def test_no_such_model(tmp_path, headwise):
    missing = str(tmp_path / "nowhere")
    assert_one_sentence(headwise("doctor", missing), missing, "no such folder", "--download")
    assert_one_sentence(headwise("doctor", missing, "--json"), missing)


def test_a_folder_without_a_model(tmp_path, headwise):
    assert_one_sentence(headwise("doctor", str(tmp_path)), str(tmp_path), "no model that transformers can read")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"model_type": "no-such-type"}', '{"model_type": 3}'])
def test_a_folder_with_a_broken_config(tmp_path, headwise, content):
    (tmp_path / "config.json").write_text(content)
    assert_one_sentence(headwise("doctor", str(tmp_path)), str(tmp_path))


def test_a_file_that_is_no_folder(tmp_path, headwise):
    path = tmp_path / "model.bin"
    path.write_bytes(b"\x00\x01")
    assert_one_sentence(headwise("doctor", str(path)), str(path))


def test_a_batch_longer_than_the_model(saved, headwise):
    assert_one_sentence(headwise("doctor", saved("roberta"), "--length", "39"), "--length 39", "at most 38 tokens")


@pytest.mark.parametrize(("option", "value"), [("--batch", "0"), ("--length", "-3")])
def test_sizes_below_one(saved, headwise, option, value):
    assert_one_sentence(headwise("doctor", saved("bert"), option, value), f"{option} {value}", "1 or more")


def test_the_settings_of_transformers_are_left_alone(saved):
    transformers.logging.disable_progress_bar()
    before = transformers.logging.get_verbosity()
    try:
        diagnose(saved("bert"), length=8)
        assert transformers.logging.get_verbosity() == before
        assert not transformers.logging.is_progress_bar_enabled()
    finally:
        transformers.logging.enable_progress_bar()


def test_wrong_numbers_from_python_say_so_too(saved):
    with pytest.raises(InputError, match="length=41: bert here takes at most 40 tokens"):
        diagnose(saved("bert"), length=41)


def test_from_the_shell(saved):
    """Once as a process of its own: stdout is one JSON object and nothing else."""
    words = [sys.executable, "-m", "headwise", "doctor"]
    good = subprocess.run(
        [*words, saved("bert"), "--length", "8", "--json"], capture_output=True, text=True, timeout=120
    )
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["route"] == "fused"

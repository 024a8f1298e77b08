"""Other people's model folders: nothing in them is run, and what is wrong is one sentence."""

import ast
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from conftest import build_model
from small_collection import write_collection
from tiny_runs import assert_one_sentence, build_tokenizer
from transformers import AutoModelForSequenceClassification, BertConfig, BertLMHeadModel

import headwise as hw
from headwise.errors import InputError

PACKAGE = Path(hw.__file__).parent
LOADERS = {"from_pretrained", "from_config", "_from_config"}
CANARY = "from pathlib import Path\nPath({mark!r}).write_text('ran')\n"


# -- one place, and never without these words --------------------------------------------------------------------------


def loading_calls(path):
    """Every call in a file that loads something by transformers, with its keywords."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOADERS:
            given = {each.arg: getattr(each.value, "value", None) for each in node.keywords}
            yield ast.unparse(node.func), given


def test_everything_is_loaded_in_one_file_without_remote_code_and_pickles():
    found = {path.relative_to(PACKAGE).as_posix(): list(loading_calls(path)) for path in PACKAGE.rglob("*.py")}
    found = {path: calls for path, calls in found.items() if calls}
    assert list(found) == ["attention/pretrained.py"]
    calls = dict(found["attention/pretrained.py"])
    names = {"AutoConfig.from_pretrained", "AutoTokenizer.from_pretrained", "kind.from_pretrained", "auto.from_config"}
    assert set(calls) == names
    assert all(given.get("trust_remote_code") is False for given in calls.values())
    assert calls["kind.from_pretrained"]["use_safetensors"] is True


def test_nothing_unpickles():
    text = {path.name: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    for word in ("torch.load(", "joblib.load(", "pickle.load", "allow_pickle=True", "yaml.unsafe", "read_pickle"):
        users = [name for name, source in text.items() if word in source]
        assert users == (["parallel.py"] if word == "pickle.load" else []), word  # what our own processes send


# -- folders with code -------------------------------------------------------------------------------------------------


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "mark"


def add_code(folder, mark, *, model_type="own-kind", file="config.json"):
    """A model folder that wants its own Python file to be run."""
    (folder / "own_code.py").write_text(CANARY.format(mark=str(mark)))
    names = ("Config", "Model", "ModelForSequenceClassification", "Tokenizer")
    classes = {f"Auto{name}": f"own_code.Own{name}" for name in names}
    if file == "tokenizer_config.json":
        classes["AutoTokenizer"] = ["own_code.OwnTokenizer", None]
    content = json.loads((folder / file).read_text()) | {"auto_map": classes}
    if file == "config.json":
        content["model_type"] = model_type
    (folder / file).write_text(json.dumps(content))
    return folder


@pytest.fixture
def reranker(encoder, tmp_path):
    folder = tmp_path / "reranker"
    torch.manual_seed(1)
    AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def words_for(encoder, finished, reranker, write_recipe, pairs, tmp_path):
    """By command: the folder that it reads, and the command."""
    shutil.copytree(encoder, tmp_path / "encoder")
    shutil.copytree(finished, tmp_path / "run")
    papers = write_collection(tmp_path / "papers", train=2, test=2)
    (tmp_path / "bm25.trec").write_text("v0 Q0 v0-yes 1 1.0 t\nv1 Q0 v1-yes 1 1.0 t\n")

    def words(command):
        folder = tmp_path / {"evaluate": "run", "rerank": "reranker"}.get(command, "encoder")
        output = ["--output", tmp_path / "out"]
        more = {
            "doctor": ["--length", "8"],
            "evaluate": [],
            "rerank": ["--candidates", tmp_path / "bm25.trec", "--collection", papers, *output],
        }
        if command == "train":
            return folder, [command, write_recipe(model=str(folder)), "--data", pairs, *output]
        return folder, [command, folder, *more[command]]

    return words


COMMANDS = ["doctor", "train", "evaluate", "rerank"]


@pytest.mark.parametrize(
    ("command", "kind"),
    [(command, {"model_type": "own-kind"}) for command in COMMANDS]
    + [("doctor", {"model_type": "bert"}), ("train", {"file": "tokenizer_config.json"})],
)
def test_a_folder_with_code_ends_in_one_sentence(headwise, words_for, command, kind, mark, tmp_path):
    folder, words = words_for(command)
    add_code(folder, mark, **kind)
    assert_one_sentence(headwise(*words), "own_code.py", "never runs")
    assert not mark.exists()
    assert "own_code" not in sys.modules
    assert not (tmp_path / "out").exists()


def test_code_in_another_repository_is_not_fetched(headwise, words_for):
    folder, words = words_for("doctor")
    content = json.loads((folder / "config.json").read_text())
    content |= {"model_type": "own-kind", "auto_map": {"AutoConfig": "somebody/repository--own.Config"}}
    (folder / "config.json").write_text(json.dumps(content))
    assert_one_sentence(headwise(*words), "auto_map", "never runs")


def test_an_own_way_to_generate_is_not_run(tmp_path, mark):
    config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    BertLMHeadModel(config).save_pretrained(tmp_path)
    (tmp_path / "custom_generate").mkdir()
    (tmp_path / "custom_generate" / "generate.py").write_text(CANARY.format(mark=str(mark)))
    assert type(hw.load(tmp_path)) is BertLMHeadModel
    assert not mark.exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("adapter_config.json", {"peft_type": "LORA", "megatron_core": "canary"}, r"adapter .*merge_and_unload"),
        ("config.json", {"attn_implementation": "somebody/kernel"}, "somebody/kernel.*remove attn_implementation"),
    ],
)
def test_other_ways_to_name_code(tmp_path, file, content, message):
    build_model("bert").save_pretrained(tmp_path)
    path = tmp_path / file
    before = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(before | content))
    with pytest.raises(InputError, match=message):
        hw.load(tmp_path)


# -- weights that are pickles, or damaged ------------------------------------------------------------------------------


def unpack(folder):
    """The weights as a pickle that leaves a mark if it is loaded."""

    class Canary:
        def __reduce__(self):
            return Path.write_text, (folder.parent / "mark", "ran")

    (folder / "model.safetensors").unlink()
    torch.save({"bert.pooler.dense.weight": Canary()}, folder / "pytorch_model.bin")


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def garble(folder):
    (folder / "model.safetensors").write_bytes(b"not weights at all, " * 100)


DAMAGED = ("model.safetensors is damaged (", "copy the file again, or save the model again.")
PICKLED = ("pytorch_model.bin", "safetensors", "save_pretrained")


@pytest.mark.parametrize(
    ("command", "harm", "parts"),
    [
        *((command, unpack, PICKLED) for command in ("doctor", "train", "rerank")),
        *(
            ("doctor", garble, DAMAGED),
            ("train", cut, DAMAGED),
            ("evaluate", cut, DAMAGED),
            ("rerank", garble, DAMAGED),
        ),
    ],
)
def test_weights_that_are_pickles_or_damaged(headwise, words_for, command, harm, parts, mark):
    folder, words = words_for(command)
    harm(folder)
    assert_one_sentence(headwise(*words), str(folder), *parts)
    assert not mark.exists()


def test_damaged_weights_from_python(tmp_path):
    hw.prune(build_model("bert"), {0: [1]}).save_pretrained(tmp_path)
    cut(tmp_path)
    with pytest.raises(
        InputError, match=r"the model in .* cannot be loaded: model\.safetensors is damaged \("
    ) as caught:
        hw.load(tmp_path)
    assert "\n" not in str(caught.value)

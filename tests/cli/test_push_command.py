"""`headwise push`: a run on the Hub, here one on this machine."""

import json
import shutil
import subprocess
import sys

import pytest
from fake_hub import fake_hub
from huggingface_hub import ModelCard
from tiny_runs import assert_done, assert_one_sentence

from headwise.training import load


def run_process(*words, env):
    done = subprocess.run(
        [sys.executable, "-m", "headwise", *map(str, words)], capture_output=True, text=True, env=env, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_without_yes_it_shows_files_and_card_and_nothing_private(headwise, finished):
    out, _ = assert_done(headwise("push", finished, "me/mine"))
    assert out.startswith("---\nlibrary_name: transformers")
    assert out.rstrip().endswith("nothing was uploaded: add --yes to upload")
    content = json.loads(assert_done(headwise("push", finished, "me/mine", "--private", "--json"))[0])
    assert (content["repo"], content["private"], content["address"]) == ("me/mine", True, None)
    names = {each["name"]: each["bytes"] for each in content["files"]}
    assert {"README.md", "config.json", "headwise.json", "log.jsonl", "model.safetensors", "tokenizer.json"} <= set(
        names
    )
    assert "outputs.json" not in names  # it has the labels of the data
    assert names["model.safetensors"] == (finished / "model.safetensors").stat().st_size
    assert str(finished.parent) not in content["card"]


def test_upload_and_load_what_was_uploaded(finished, tmp_path):
    with fake_hub() as hub:
        env = hub.environment(tmp_path / "home")
        out, err = assert_done(run_process("push", finished, "me/mine", "--yes", "--private", env=env))
        assert out == f"uploaded to {hub.address}/me/mine\n"
        assert err.startswith("uploading ")
        assert (hub.repos, hub.commits) == ({"me/mine": True}, ["Upload run with headwise"])
        files = hub.files["me/mine"]
        hub.refuses = True
        assert_one_sentence(run_quietly("push", finished, "me/mine", "--yes", env=env), "you may not", "hf auth login")
    folder = tmp_path / "loaded"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    ours, theirs = (load(each).state_dict() for each in (finished, folder))
    assert all(ours[name].equal(theirs[name]) for name in {*ours, *theirs})
    record = json.loads(files["headwise.json"])
    assert (record["data"], record["command"], record["recipe"]["model"]) == (None, [], "./encoder0")
    assert str(tmp_path.parent) not in files["headwise.json"].decode() + files["README.md"].decode()
    assert ModelCard(files["README.md"].decode()).data.eval_results


def run_quietly(*words, env):
    """Without the line that says what is being uploaded."""
    code, out, err = run_process(*words, env=env)
    return code, out, "".join(line for line in err.splitlines(True) if not line.startswith("uploading "))


@pytest.mark.slow
def test_without_token_network_or_hub_it_is_one_sentence(finished, tmp_path):
    with fake_hub() as hub:
        env = hub.environment(tmp_path / "home")
    gone = env  # nobody listens any more
    words = ("push", finished, "me/mine", "--yes")
    assert_one_sentence(run_quietly(*words, env=gone), "cannot be reached")
    offline = {**env, "HF_HUB_OFFLINE": "1"}
    assert_one_sentence(run_quietly(*words, env=offline), "HF_HUB_OFFLINE is set")
    nobody = {name: value for name, value in env.items() if name != "HF_TOKEN"}
    assert_one_sentence(run_quietly(*words, env=nobody), "hf auth login", "HF_TOKEN")


def test_bad_names_runs_and_cards_are_refused(headwise, finished, tmp_path):
    for name in ("mine", "a/b/c", "me/mi ne", "../x"):
        assert_one_sentence(headwise("push", finished, name), "USER/NAME" if name != "mine" else "me/mine")
    assert_one_sentence(headwise("push", tmp_path, "me/mine"), "is not a run of headwise")
    assert_one_sentence(headwise("push", finished, "me/mine", "--card", tmp_path / "no.md"), "--card", "no such file")
    empty = tmp_path / "run"
    empty.mkdir()
    shutil.copy(finished / "headwise.json", empty)
    assert_one_sentence(headwise("push", empty, "me/mine"), "has no config.json")


PUSH = """
import sys, torch, headwise as hw
model = hw.load(sys.argv[1])
if sys.argv[2] == "pruned":
    hw.prune(model, {0: [1]})
    model.save_pretrained(sys.argv[3]); model = hw.load(sys.argv[3])
model.push_to_hub("me/mine")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plain", "pruned"])
def test_push_to_hub_of_a_loaded_model(finished, tmp_path, how):
    with fake_hub() as hub:
        words = [sys.executable, "-c", PUSH, str(finished), how, str(tmp_path / "smaller")]
        subprocess.run(words, check=True, env=hub.environment(tmp_path / "home"), capture_output=True)
        files = hub.files["me/mine"]
    folder = tmp_path / "loaded"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    before = load(finished if how == "plain" else tmp_path / "smaller").state_dict()
    after = load(folder).state_dict()
    assert all(before[name].equal(after[name]) for name in {*before, *after})
    noted = 'headwise.load(snapshot_download("me/mine"))' in files["README.md"].decode()
    assert noted is (how == "pruned")

"""Runs on several tasks: stopped and resumed, evaluated, refused."""

import json
import shlex
import shutil
import signal

import pytest
import torch
import yaml
from tiny_runs import (
    IAT,
    JOINT,
    Process,
    assert_done,
    assert_one_sentence,
    build_tokenizer,
    digest,
    json_of,
    log,
    record,
    rows,
    write_table,
)
from transformers import AutoModelForSequenceClassification

import headwise as hw
from headwise.errors import InputError
from headwise.retrieval.reranker import Reranker

STEP = "headwise.training.callbacks.Clock.on_step_end"
PLACES = ("", "last", "control", "control/last")


def outcome(run):
    """All that must not depend on how often a run was stopped."""
    found = [digest(run / place / f"{name}.safetensors") for place in PLACES for name in ("model", "headwise_heads")]
    for folder in (run, run / "control"):
        happened = record(folder)["results"]
        found.append({key: each for key, each in happened.items() if not key.startswith("seconds")})
        found.append([entry for entry in log(folder) if "loss" in entry])
    found.append(sorted(str(path.relative_to(run)) for path in run.rglob("*")))
    return found


@pytest.fixture
def words(write_joint, several, tmp_path):
    """The command of the run in tmp_path/run; it is the recipe of `with_iat`."""
    return ["train", write_joint(iat=IAT), "--data", several, "--output", str(tmp_path / "run")]


# -- stopped and resumed -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_in_every_part_and_resumed(headwise, words, with_iat, tmp_path):
    """One run through all of it; the calls are counted anew in each process."""
    kills = [
        (STEP, 6),  # in the trunk
        ("headwise.experiments.iat_arms.importance_on", 2),  # between two tasks
        (STEP, 2),  # with important heads only: step 21, with a checkpoint at 20
        ("headwise.training.checkpoints._forget_best", 1),  # while the control's first checkpoint is copied
        (STEP, 1),  # in the control
        ("headwise.experiments.run.save_multitask", 3),  # the control is saved, the run is not
    ]
    for number, (place, count) in enumerate(kills):
        resume = ["--resume"] if number else []
        code, _, err = Process(tmp_path / f"p{number}", *words, *resume, at=(place, count, signal.SIGKILL)).result()
        assert code == -signal.SIGKILL, (place, err)
        assert record(tmp_path / "run")["results"] is None
    assert headwise(*words, "--resume")[0] == 0
    assert outcome(tmp_path / "run") == outcome(with_iat)
    assert json_of(headwise(*words, "--resume", "--json"))["results"] == record(tmp_path / "run")["results"]


@pytest.mark.slow
def test_ctrl_c_in_the_last_step_of_a_part(headwise, words, with_iat, tmp_path):
    """The next part has not begun."""
    code, out, err = Process(tmp_path / "p", *words, at=(STEP, 19, signal.SIGINT)).result()
    assert (code, out) == (130, ""), err
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert "stopped after step 19 of 24, saved; resume with: " in last
    _, err = assert_done(headwise(*shlex.split(last.partition("resume with: ")[2])[1:]))
    assert "resuming from step 19 of 24" in err
    assert outcome(tmp_path / "run") == outcome(with_iat)


def test_another_run_is_not_resumed(headwise, words, with_iat, several, tmp_path):
    shutil.copytree(with_iat, tmp_path / "run")
    content = record(with_iat)
    (tmp_path / "run" / "headwise.json").write_text(json.dumps(content | {"results": None}))
    assert_one_sentence(headwise(*words), "an unfinished run", "--resume")
    assert_one_sentence(headwise(*words, "--resume", "--set", "iat.heads=0.5"), "holds another run", "--output")
    data = tmp_path / "data"
    shutil.copytree(several, data)
    write_table(data / "type" / "train.tsv", rows(26, 0, "sentences"))
    assert_one_sentence(headwise(*words, "--resume", "--data", data), "other examples", "--data")


# -- evaluated ---------------------------------------------------------------------------------------------------------


def test_the_table_after_training(headwise, words, with_iat, tmp_path):
    shutil.copytree(with_iat, tmp_path / "run")
    out, _ = assert_done(headwise(*words, "--resume"))
    lines = [line.split() for line in out.splitlines()]
    happened = record(with_iat)["results"]
    four = [happened["metrics"], happened["last"], happened["control"]["metrics"], happened["control"]["last"]]
    assert ["test", "mean", *(f"{each['test']['mean']:.4f}" for each in four)] in lines
    assert ["validation", "score/pearson", *(f"{each['validation']['score/pearson']:.4f}" for each in four)] in lines


def test_evaluate_gives_the_recorded_metrics(headwise, with_iat):
    for folder in (with_iat, with_iat / "control"):
        out, _ = assert_done(headwise("evaluate", folder, "--split", "validation", "--json"))
        answer, happened = json.loads(out), record(folder)["results"]
        assert list(answer["tasks"]) == list(JOINT)
        for task, each in answer["tasks"].items():
            assert each["metrics"] == happened["tasks"][task]["metrics"]["validation"]
    assert list(json_of(headwise("evaluate", with_iat, "--task", "type", "--json"))["tasks"]) == ["type"]
    assert headwise("evaluate", with_iat)[1].count("test (") == 3
    assert_one_sentence(headwise("evaluate", with_iat, "--task", "typ"), "--task typ: did you mean 'type'?")


def test_predict_and_export_one_task(headwise, with_iat, several, tmp_path):
    source = f"{several}/agree/test.tsv"
    words = ["predict", with_iat, "--input", source, "--output", tmp_path / "out.jsonl"]
    assert_one_sentence(headwise(*words), "several tasks (agree, type, score)", "--task")
    assert_one_sentence(headwise(*words, "--task", "agre"), "--task agre: did you mean 'agree'?")
    assert_done(headwise(*words, "--task", "agree"))
    predicted = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert_done(headwise("export", with_iat, "--task", "agree", "--output", tmp_path / "agree"))
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "agree").eval()
    texts = [row[:2] for row in rows(JOINT["agree"][1][2], 2, "pairs")[1:]]
    inputs = build_tokenizer()(*map(list, zip(*texts, strict=True)), padding=True, return_tensors="pt")
    logits = model(**inputs).logits
    assert [model.config.id2label[each] for each in logits.argmax(1).tolist()] == [
        row["prediction"] for row in predicted
    ]
    assert torch.allclose(logits, hw.load(with_iat, task="agree")(**inputs).logits, atol=1e-6)
    assert_one_sentence(headwise("export", with_iat, "--output", tmp_path / "x"), "several tasks", "--task")
    assert not (tmp_path / "x").exists()


def test_dry_run_and_list(headwise, words):
    out, _ = assert_done(
        headwise(*words, "--dry-run", "--set", "tasks.type.data.limit.train=5", "--set", "sampling=annealed")
    )
    recipe = yaml.safe_load(out)
    assert recipe["tasks"]["type"]["data"] == {"limit": {"train": 5}}
    assert (recipe["iat"], recipe["sampling"]) == (IAT, "annealed")
    assert json.loads(headwise(*words, "--dry-run", "--json")[1])["tasks"]["score"]["name"] == "pairs-regression"
    listed = {each["name"]: each for each in json.loads(headwise("list", "recipes", "--json")[1])["recipes"]}
    assert listed["heads/check"]["task"] == "sst2, rte, sick"


# -- refused -----------------------------------------------------------------------------------------------------------


def test_commands_for_one_task_refuse_several(headwise, with_iat, words, tmp_path):
    recipe, candidates = words[1], tmp_path / "candidates.trec"
    candidates.write_text("1 Q0 2 1 1.0 x\n")
    for command in (
        ["tokens", with_iat, "--text", "a cat"],
        ["heads", "patterns", with_iat],
        ["rerank", with_iat, "--candidates", candidates],
        ["search", with_iat, "a claim"],
    ):
        assert_one_sentence(headwise(*command), "several tasks (agree, type, score)")
    with pytest.raises(InputError, match=r"several tasks \(agree, type, score\): expected a run on one"):
        Reranker.load(with_iat)
    for command in (["knowledge", "build", recipe], ["knowledge", "show", recipe, "--example", 0]):
        assert_one_sentence(headwise(*command), "several tasks (agree, type, score)", "`task:`")


def test_mistakes_in_a_recipe_leave_nothing_behind(headwise, words, tmp_path):
    for change, parts in {
        "guides.mdg=": ("guides is for one task",),
        "task=sick": ("both task and tasks",),
        "tasks.other.files=": ("tasks.other", "unknown task 'other'"),
        "iat.start=1": ("iat.start is 1",),
        "tasks.score.files.train=none.tsv": ("tasks.score: ", "files.train does not exist"),
        "start_from=nowhere": ("start_from: nowhere holds no model",),
    }.items():
        assert_one_sentence(headwise(*words, "--set", change), *parts)
    assert not (tmp_path / "run").exists()

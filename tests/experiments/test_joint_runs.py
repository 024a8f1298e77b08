"""What the choices of a recipe for several tasks do to a run."""

import hashlib
import re
import shutil
from pathlib import Path

import numpy
import pytest
import torch
from conftest import build_model
from safetensors.torch import load_file
from tiny_runs import IAT, JOINT, build_tokenizer, digest, log, ran_jointly, record, small, small_joint, write_data
from transformers import AutoModel, AutoModelForSequenceClassification

import headwise as hw
from headwise.errors import InputError, UnsupportedModelError
from headwise.experiments import check_recipe
from headwise.experiments.apply import evaluate, export, load_run, load_tasks, loaded
from headwise.experiments.prepare import RunPaths, prepare
from headwise.experiments.run import train
from headwise.training import MultiTask, Silence
from headwise.training.saving import HEADS_FILE, load_multitask

START, TOTAL = 19, 24


@pytest.fixture(scope="module")
def plain(tmp_path_factory, encoder, several):
    """The recipe of `with_iat`, but without IAT."""
    return ran_jointly(tmp_path_factory.mktemp("plain") / "run", encoder, several)


@pytest.fixture
def ran(tmp_path, encoder, several):
    def run(output="run", data=several, **changes):
        return ran_jointly(tmp_path / output, encoder, data, **changes)

    return run


@pytest.fixture
def refused(tmp_path, encoder, several):
    """The recipe is refused with these words, and nothing is written."""

    def refuse(expected, data=several, error=InputError, encoder=encoder, **changes):
        with pytest.raises(error, match=expected):
            train(check_recipe(small_joint(encoder, **changes), "test"), RunPaths(tmp_path / "refused", Path(data)))
        assert not (tmp_path / "refused").exists()

    return refuse


def bits(folder):
    return [digest(Path(folder) / name) for name in ("model.safetensors", HEADS_FILE)]


def steps(run):
    return [entry for entry in log(run) if "loss" in entry]


# -- IAT and its control -----------------------------------------------------------------------------------------------


def test_the_control_is_the_run_without_iat_and_iat_changes_only_what_comes_after_its_start(with_iat, plain):
    assert bits(with_iat / "control" / "last") == bits(plain / "last") != bits(with_iat / "last")
    assert steps(with_iat / "control") == steps(plain)
    assert [entry["step"] for entry in steps(plain)] == list(range(1, TOTAL + 1))
    mine, theirs = steps(with_iat), steps(plain)
    assert mine[:START] == theirs[:START]
    # The first step of IAT still has the same loss, as it begins with the same weights, data and dropout.
    assert mine[START]["loss"] == theirs[START]["loss"]
    assert mine[START]["grad_norm"] < theirs[START]["grad_norm"]
    assert all(one["loss"] != other["loss"] for one, other in zip(mine[START + 1 :], theirs[START + 1 :], strict=True))


def test_the_record_has_the_heads_and_the_control(with_iat):
    happened = record(with_iat)["results"]
    assert happened["iat"]["step"] == START
    for name, chosen in happened["iat"]["tasks"].items():
        scores, heads = numpy.array(chosen["importance"]["scores"]), numpy.array(chosen["heads"], dtype=bool)
        assert heads.sum() == 2  # 0.3 of 8
        assert scores[heads].min() > scores[~heads].max()
        assert chosen["importance"]["examples"] == JOINT[name][1][0]
    control = record(with_iat / "control")
    assert "iat" not in control["recipe"]
    assert happened["control"] == {key: control["results"][key] for key in ("metrics", "last", "best_step")}
    # An arm keeps the best model of its own; the evaluation where it began belongs to both.
    for each in (happened, control["results"]):
        assert each["best_step"] > START
        assert [entry["step"] for entry in each["evaluations"]] == [7, 14, START, 21, TOTAL]
        assert max(each["evaluations"], key=lambda entry: entry["eval_mean"])["step"] < START


def test_both_arms_see_the_same_batches_and_dropout_which_is_always_on(ran, monkeypatch):
    seen = []  # of every training step: the task, a hash of the batch and of the random state, and the modes
    forward = MultiTask.forward

    def watch(self, task, **inputs):
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            state = (inputs["input_ids"], inputs["labels"], torch.get_rng_state())
            modes = {module.training for part in (self, self.classifier(task)) for module in part.modules()}
            seen.append((task, hashlib.sha256(b"|".join(each.numpy().tobytes() for each in state)).digest(), modes))
        return forward(self, task, **inputs)

    monkeypatch.setattr(MultiTask, "forward", watch)
    ran(iat=IAT, training__evaluate_every=1)
    assert len(seen) == TOTAL + TOTAL - START
    assert all(modes == {True} for *_, modes in seen)
    assert seen[START:TOTAL] == seen[TOTAL:]
    assert len({state for _, state, _ in seen[:TOTAL]}) == TOTAL  # random states and batches move on


def test_where_the_arms_begin_does_not_matter_to_the_control(ran, plain):
    """Between two epochs, away from checkpoints, with the head sets of other options."""
    options = {"start": 0.5, "rewarm": False, "heads": 0.5, "mode": "grad_mask", "others": False, "protect": "qkvo"}
    run = ran("run", iat=options, training__checkpoint_every=7)
    assert record(run)["results"]["iat"]["step"] == 12
    assert bits(run / "control" / "last") == bits(plain / "last")
    alone = ran("alone", iat=IAT | {"control": False}, training__steps=4)
    assert record(alone)["results"]["iat"]["step"] == 3
    assert not (alone / "control").exists()
    assert "control" not in record(alone)["results"]


def test_both_arms_warm_up_again(ran):
    """Linear schedules with a warm-up of 2 steps: one over 12 steps, then one over the remaining 6."""
    run = ran(iat={"start": 0.5}, training__steps=12, training__warmup_steps=2, training__learning_rate=0.01)
    rates = [entry["learning_rate"] for entry in steps(run)]
    first = [0.01 * min(step / 2, (12 - step) / 10) for step in range(6)]
    second = [0.01 * min(step / 2, (6 - step) / 4) for step in range(6)]
    assert rates == pytest.approx([*first, *second])
    assert [entry["learning_rate"] for entry in steps(run / "control")] == rates


def test_the_control_is_fair_in_lower_precision_too(ran, plain):
    """Where accelerate changes the model's forward, for the trunk and for each of the arms."""
    lower = {"training__bf16": True, "training__steps": 6}
    run, alone = ran("iat", iat={"start": 0.5, "rewarm": False}, **lower), ran("alone", **lower)
    assert bits(run / "control" / "last") == bits(alone / "last")
    assert steps(run)[3]["loss"] == steps(alone)[3]["loss"]
    assert steps(alone)[3]["loss"] != steps(plain)[3]["loss"]


# -- what is left ------------------------------------------------------------------------------------------------------


def test_the_recorded_metrics_come_back(with_iat, plain):
    for folder in (with_iat, with_iat / "control", plain):
        content, last = record(folder), load_multitask(folder / "last")
        happened, recipe, tasks = content["results"], check_recipe(content["recipe"], "test"), load_tasks(folder)
        assert tasks.joint
        assert list(tasks.runs) == list(JOINT)
        assert len({id(run.model.base_model) for run in tasks.runs.values()}) == 1
        for split, examples in (("validation", 1), ("test", 2)):
            main = []
            for name, run in tasks.runs.items():
                answer = evaluate(run, split)
                assert answer["examples"] == JOINT[name][1][examples]
                assert answer["metrics"] == happened["tasks"][name]["metrics"][split]
                named = {f"{name}/{metric}": value for metric, value in answer["metrics"].items()}
                assert named.items() <= happened["metrics"][split].items()
                main.append(answer["metrics"][run.task.primary])
                run = loaded(recipe.single(name), content, last.classifier(name), run.tokenizer, name)
                named = {f"{name}/{metric}": value for metric, value in evaluate(run, split)["metrics"].items()}
                assert named.items() <= happened["last"][split].items()
            assert happened["metrics"][split]["mean"] == pytest.approx(numpy.mean(main))
        alone = evaluate(load_run(folder, "score"), "test")["metrics"]
        assert alone == happened["tasks"]["score"]["metrics"]["test"]


def test_the_best_model_has_the_best_mean_and_is_not_the_last(plain):
    happened = record(plain)["results"]
    best = max(happened["evaluations"], key=lambda entry: entry["eval_mean"])
    assert happened["best_step"] == best.pop("step") < TOTAL
    scores = {name.removeprefix("eval_"): value for name, value in best.items()}
    assert scores == pytest.approx(happened["metrics"]["validation"])
    assert bits(plain) != bits(plain / "last")


def test_plain_transformers_loads_the_encoder_and_an_exported_task(with_iat, tmp_path):
    inputs = build_tokenizer()(["a cat surely", "the dog"], ["never a bird", "old"], padding=True, return_tensors="pt")
    encoder = AutoModel.from_pretrained(with_iat).eval()
    model = hw.load(with_iat)
    assert model.tasks == tuple(JOINT)
    assert torch.equal(encoder(**inputs).pooler_output, model.encoder(**inputs).pooler_output)
    for task in ("agree", "score"):
        export(with_iat, tmp_path / task, task)
        exported = AutoModelForSequenceClassification.from_pretrained(tmp_path / task).eval()
        for parameter in exported.parameters():  # a file in memory is not aligned, which may change the last bit
            parameter.data = parameter.data.clone()
        for other in (hw.load(with_iat, task=task), model.classifier(task)):
            assert torch.equal(exported(**inputs).logits, other(**inputs).logits)
    assert exported.config.problem_type == "regression"
    with pytest.raises(InputError, match=r"several tasks \(agree, type, score\), and one is needed: give task=NAME"):
        export(with_iat, tmp_path / "none")


def test_the_folder_and_the_model_cards(with_iat, plain):
    names = {str(path.relative_to(with_iat)) for path in with_iat.rglob("*") if path.is_file()}
    model = {"config.json", "model.safetensors", HEADS_FILE, "tokenizer.json", "tokenizer_config.json"}
    whole = model | {"headwise.json", "log.jsonl", "outputs.json", "README.md"} | {f"last/{name}" for name in model}
    assert names == whole | {f"control/{name}" for name in whole}
    card = (with_iat / "README.md").read_text()
    assert f"From step {START} on, each task changed only the heads" in card
    assert "the folder `control` holds" in card
    best, last = (record(with_iat)["results"][key]["test"]["score/pearson"] for key in ("metrics", "last"))
    (row,) = [line for line in card.splitlines() if line.startswith("| score | test | 9 | pearson |")]
    assert re.fullmatch(rf".* {best:.4f} \(-?[\d.]+ to [\d.]+\) \| {last:.4f} \|", row)
    for folder in (plain, with_iat / "control"):
        card = (folder / "README.md").read_text()
        assert "fine-tuned on agree, type, score together" in card
        assert "IAT" not in card


# -- where it starts, what stays ---------------------------------------------------------------------------------------


def test_a_run_starts_from_another(ran, refused, with_iat, encoder, several, tmp_path):
    run = ran(among=("score", "agree"), start_from=str(with_iat), training__steps=1, training__learning_rate=1e-9)
    before, after = hw.load(with_iat), hw.load(run)
    assert after.tasks == ("score", "agree")
    assert record(run)["results"]["heads_taken"] == ["score", "agree"]
    for task in after.tasks:
        weights = [model.classifier(task).state_dict() for model in (before, after)]
        assert all(torch.allclose(each, weights[1][name], atol=1e-6) for name, each in weights[0].items())
    for wrong, words in ((tmp_path / "nothing", "holds no model"), (encoder, "without a trained classifier")):
        refused(f"start_from: .*{words}", start_from=str(wrong))
    lines = []

    class Listening(Silence):
        def log(self, message):
            lines.append(message)

    data = small_joint(encoder, start_from=str(with_iat))
    data["tasks"]["other"] = data["tasks"].pop("type")
    prepared = prepare(check_recipe(data, "test"), RunPaths(tmp_path, Path(several)), Listening())
    assert prepared.heads_taken == ("agree", "score")
    assert lines[-1] == f"the encoder is that of {with_iat}; heads taken: agree, score; heads that start fresh: other"


@pytest.mark.parametrize("changes", [{"head": "relu"}, {"ssa": {"model": "hybrid"}}, {}], ids=str)
def test_a_run_on_one_task_starts_from_the_encoder_of_several(with_iat, several, tmp_path, changes):
    recipe = small(str(with_iat), guides={}, training__steps=1, training__learning_rate=1e-9, **changes)
    train(check_recipe(recipe, "test"), RunPaths(tmp_path / "run", Path(several) / "agree"))
    assert "headwise_tasks" not in (tmp_path / "run" / "config.json").read_text()
    model = hw.load(tmp_path / "run")
    assert model.config.num_labels == 3
    before, after = load_file(with_iat / "model.safetensors"), model.base_model.state_dict()
    assert all(name in after or name.startswith("pooler.") for name in before)  # the ReLU head has no pooler
    assert all(torch.allclose(after[name], each, atol=1e-6) for name, each in before.items() if name in after)


def test_a_linear_run_fits_the_tasks_and_a_test_set_without_labels_is_not_part_of_a_mean(
    ran, encoder, several, tmp_path
):
    data = shutil.copytree(several, tmp_path / "data")
    lines = (data / "type" / "test.tsv").read_text().splitlines()
    (data / "type" / "test.tsv").write_text("".join(f"{line.split(chr(9))[0]}\n" for line in lines))
    run = ran(data=data, linear=True)
    before, after = AutoModel.from_pretrained(encoder).state_dict(), AutoModel.from_pretrained(run).state_dict()
    # The encoder is left alone; its pooler is fresh: the encoder on disk has none.
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items() if "pooler" not in name)
    happened = record(run)["results"]
    assert happened["steps"] == 0
    assert happened["metrics"] == happened["last"]
    assert set(hw.load(run).tasks) == set(happened["tasks"])
    assert happened["tasks"]["type"]["metrics"]["test"] is None
    assert "mean" in happened["metrics"]["validation"]
    assert set(happened["metrics"]["test"]) == {
        *(f"agree/{name}" for name in ("accuracy", "macro_f1", "macro_precision", "macro_recall")),
        *(f"score/{name}" for name in ("pearson", "spearman")),
    }


# -- what is refused before anything is written ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"iat": {"start": 0.01}}, "iat.start is 0.01 of 24 steps: expected at least one step before and one after"),
        ({"iat": {"heads": 0.1}}, "^iat.heads: a share of 0.1 of 8 heads is none"),
        ({"iat": {}, "training__freeze": ["encoder"]}, "iat trains heads, and training.freeze keeps them all"),
        ({"data__max_length": 100}, "data.max_length is 100, but .* takes at most 40"),
        ({"training__freeze": [7]}, "training.freeze names 7: expected .* layers from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused_at_once(refused, changes, expected):
    refused(expected, **changes)


def test_shared_layers_and_mistakes_in_the_data_are_refused_at_once(refused, several, tmp_path):
    tokenizer, albert = build_tokenizer(), str(tmp_path / "albert")
    build_model("albert", vocab_size=len(tokenizer), pad_token_id=0).save_pretrained(albert)
    tokenizer.save_pretrained(albert)
    refused("albert shares its weights between layers", error=UnsupportedModelError, encoder=albert, iat={})
    data = shutil.copytree(several, tmp_path / "data")
    (data / "type" / "validation.tsv").unlink()
    refused(r"^tasks\.type: .*validation", data)
    write_data(data / "type", "pairs")
    refused(r"^tasks\.type: ", data)

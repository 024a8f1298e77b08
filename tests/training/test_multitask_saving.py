"""Several tasks on disk: an ordinary encoder, the heads beside it, and one task as plain transformers has it."""

import json
import shutil

import pytest
import torch
from conftest import build_batch, build_model
from safetensors.torch import load_file, save_file
from tiny_encoder import build_tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import headwise as hw
from headwise.errors import InputError
from headwise.training import MultiTask, save_classifier
from headwise.training.fit import start_tasks_from
from headwise.training.saving import HEADS_FILE, load_task, save_multitask, tasks_in

# Not in the order of the alphabet; the labels of the regression are none.
LABELS = {"zeta": ("no", "maybe", "yes"), "alpha": (), "items": ("b", "a")}


def classifier_of(labels, family="bert", *, shift=0.0, **changes):
    names = dict(enumerate(labels)) or {0: "LABEL_0"}
    problem = "single_label_classification" if labels else "regression"
    model = build_model(
        family, id2label=names, label2id={name: n for n, name in names.items()}, problem_type=problem, **changes
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(shift)
    return model


def build(family="bert", labels=LABELS, **changes):
    changes.setdefault("num_labels", None)
    options = {key: value for key, value in changes.items() if value is not None}
    return MultiTask(
        {
            task: classifier_of(names, family, shift=0.01 * n, num_labels=max(len(names), 1), **options)
            for n, (task, names) in enumerate(labels.items())
        }
    ).eval()


def saved(folder, model):
    folder.mkdir()
    save_multitask(model, build_tokenizer(), folder)
    return folder


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture
def folder(tmp_path, model):
    return saved(tmp_path / "model", model)


def inputs():
    return {name: tensor for name, tensor in build_batch().items() if name != "labels"}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert"])
def test_every_family_comes_back_bit_by_bit(family, tmp_path):
    model = build(family, {"zeta": LABELS["zeta"], "alpha": ()})
    folder = saved(tmp_path / "model", model)
    for task in model.tasks:
        loaded = hw.load(folder, task=task)
        assert type(loaded) is type(model.classifier(task))
        assert not any(module.training for module in loaded.modules())
        assert torch.equal(loaded(**inputs()).logits, model(task=task, **inputs()).logits)
    encoder = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    assert type(encoder) is type(model.encoder)
    states = [each(**inputs()).last_hidden_state for each in (encoder, model.encoder)]
    assert torch.equal(*states)


def test_all_tasks_come_back_on_one_encoder_in_their_order(folder, model):
    loaded = hw.load(folder)
    assert isinstance(loaded, MultiTask)
    assert loaded.tasks == ("zeta", "alpha", "items")
    assert not any(module.training for module in loaded.modules())
    assert len({id(loaded.classifier(task).base_model) for task in loaded.tasks}) == 1
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(loaded.parameters(), model.parameters(), strict=True))
    for task in loaded.tasks:
        assert torch.equal(loaded(task=task, **inputs()).logits, model(task=task, **inputs()).logits)


def test_the_files_are_ordinary_and_hold_nothing_twice(folder, model):
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", HEADS_FILE} <= names
    assert set(load_file(folder / "model.safetensors")) == set(model.encoder.state_dict())
    heads = load_file(folder / HEADS_FILE)
    assert set(heads) == {f"{task}/classifier.{part}" for task in LABELS for part in ("weight", "bias")}
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]
    assert not {"id2label", "label2id", "problem_type"} & set(config)
    assert [each["name"] for each in config["headwise_tasks"]] == list(LABELS)
    assert model.classifier("items").config.id2label == {0: "b", 1: "a"}  # saving changed nothing


def test_a_task_knows_its_labels_and_kind_and_nothing_of_headwise(folder, tmp_path, model):
    configs = {task: hw.load(folder, task=task).config for task in LABELS}
    assert configs["zeta"].id2label == {0: "no", 1: "maybe", 2: "yes"}
    assert configs["items"].label2id == {"b": 0, "a": 1}
    assert [config.num_labels for config in configs.values()] == [3, 1, 2]
    assert [configs[task].problem_type for task in ("zeta", "alpha")] == ["single_label_classification", "regression"]
    assert hw.load(folder, task="alpha")(**inputs(), labels=torch.rand(3)).loss > 0
    loaded, tokenizer = hw.load(folder, task="items"), AutoTokenizer.from_pretrained(folder)
    save_classifier(loaded, tokenizer, tmp_path / "plain", "pooler")
    assert "headwise" not in (tmp_path / "plain" / "config.json").read_text()
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain").eval()
    assert torch.equal(plain(**inputs()).logits, model(task="items", **inputs()).logits)


def test_a_classifier_that_began_as_such_a_folder_is_one_classifier(folder, tmp_path):
    """`model: RUN` in a recipe for one task: the config of the encoder goes along."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3).eval()
    save_classifier(model, build_tokenizer(), tmp_path / "single", "pooler")
    assert tasks_in(tmp_path / "single") == {}
    assert torch.equal(hw.load(tmp_path / "single")(**inputs()).logits, model(**inputs()).logits)


@pytest.mark.parametrize("through", [None, "zeta"])
def test_a_pruned_model_is_saved_whole_and_task_by_task(folder, tmp_path, through):
    model = hw.load(folder)
    kept = model.classifier("alpha")
    hw.prune(model if through is None else model.classifier(through), {0: [1, 2]})
    model.save_pretrained(str(tmp_path / "whole"))
    whole = hw.load(tmp_path / "whole")
    assert whole.tasks == model.tasks
    for task in model.tasks:
        expected = model(task=task, **inputs()).logits
        assert torch.equal(whole(task=task, **inputs()).logits, expected)
        for number, classifier in enumerate((model.classifier(task), whole.classifier(task))):
            classifier.save_pretrained(tmp_path / f"{task}{number}")
            assert torch.equal(hw.load(tmp_path / f"{task}{number}")(**inputs()).logits, expected)
    kept.save_pretrained(tmp_path / "kept")
    assert torch.equal(hw.load(tmp_path / "kept")(**inputs()).logits, kept(**inputs()).logits)


# -- what cannot be loaded ---------------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence(folder, tmp_path):
    with pytest.raises(InputError, match=r"has no task 'zet': did you mean 'zeta'\? known: alpha, items, zeta\.$"):
        hw.load(folder, task="zet")
    single = tmp_path / "single"
    save_classifier(build_model("bert"), build_tokenizer(), single, "pooler")
    with pytest.raises(InputError, match="holds one classifier, not several tasks: leave task='zeta' out"):
        hw.load(single, task="zeta")
    with pytest.raises(InputError, match="holds no model: expected a folder with a config.json"):
        hw.load(tmp_path / "nothing", task="zeta")
    with pytest.raises(InputError, match="single has no task 'zeta'"):
        load_task(single, "zeta")


def test_files_that_do_not_fit_are_one_sentence(folder, tmp_path):
    heads = load_file(folder / HEADS_FILE)
    save_file({name: each for name, each in heads.items() if name != "zeta/classifier.bias"}, folder / HEADS_FILE)
    for task in (None, "zeta"):
        with pytest.raises(InputError, match="1 of its weights are missing or of another size, classifier.bias first"):
            hw.load(folder, task=task)
    assert hw.load(folder, task="alpha") is not None
    (folder / HEADS_FILE).write_bytes(b"no")
    with pytest.raises(InputError, match="the model in .* cannot be loaded"):
        hw.load(folder, task="alpha")
    (folder / HEADS_FILE).unlink()
    with pytest.raises(InputError, match="the model in .* cannot be loaded"):
        hw.load(folder)
    shutil.copytree(folder, tmp_path / "lost")
    (tmp_path / "lost" / "model.safetensors").unlink()
    with pytest.raises(InputError, match="lost cannot be loaded"):
        hw.load(tmp_path / "lost", task="alpha")


GOOD = {"name": "zeta", "labels": ["no", "yes"], "problem": None}


@pytest.mark.parametrize("damage", ["zeta", ["zeta"], [GOOD, {"name": "a", "problem": None}]])
def test_damaged_tasks_in_a_config_are_one_sentence(folder, damage):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "headwise_tasks": damage}))
    for task in (None, "zeta"):
        with pytest.raises(InputError, match=r"has a damaged headwise_tasks \(.*\): save the model again\.$"):
            hw.load(folder, task=task)


# -- starting from a saved run -----------------------------------------------------------------------------------------


def test_a_run_starts_from_the_encoder_and_the_heads_of_the_same_names_and_labels(folder, model):
    fresh = build(labels={"items": ("b", "a"), "zeta": ("yes", "no"), "new": ("x", "y")})
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.mul_(-1)
    before = {task: fresh.heads[n]["classifier"].weight.clone() for n, task in enumerate(fresh.tasks)}
    assert start_tasks_from(fresh, folder) == ["items"]
    for mine, theirs in zip(fresh.encoder.parameters(), model.encoder.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(fresh(task="items", **inputs()).logits, model(task="items", **inputs()).logits)
    for number, task in enumerate(fresh.tasks):
        kept = torch.equal(fresh.heads[number]["classifier"].weight, before[task])
        assert kept == (task != "items")


def test_a_run_that_does_not_fit_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match=r"start_from .*: \d+ weights of its encoder .* name a run of the same model"):
        start_tasks_from(build(num_hidden_layers=2), folder)
    with pytest.raises(InputError, match="start_from: .* holds no model"):
        start_tasks_from(build(), tmp_path / "nothing")
    save_classifier(build_model("bert"), build_tokenizer(), tmp_path / "single", "pooler")
    with pytest.raises(InputError, match="holds one classifier: name a run on several tasks, or give it as `model`"):
        start_tasks_from(build(), tmp_path / "single")

"""Several tasks on one encoder: what is shared, what is a task's own, and both on disk."""

import copy
import json
import shutil

import pytest
import torch
from conftest import build_batch, build_model
from safetensors.torch import load_file, save_file
from torch import nn
from training.tiny_encoder import build_tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import headwise as hw
from headwise.errors import InputError
from headwise.training import MultiTask, save_classifier
from headwise.training.fit import start_tasks_from
from headwise.training.saving import HEAD_FILE, HEADS_FILE, load_task, save_multitask, tasks_in

# Names that attributes of modules and dictionaries have too, not in the order of the alphabet; one is a regression.
LABELS = {"type": ("no", "maybe", "yes"), "alpha": (), "items": ("b", "a")}
FAMILIES = ["bert", "roberta", "distilbert", "albert"]


def build(family="bert", labels=LABELS, **changes):
    """Classifiers of different kinds that began with encoders of their own."""
    parts = {}
    for number, (task, names) in enumerate(labels.items()):
        named = dict(enumerate(names)) or {0: "LABEL_0"}
        parts[task] = build_model(
            family,
            id2label=named,
            label2id={name: label for label, name in named.items()},
            problem_type="single_label_classification" if names else "regression",
            num_labels=len(named),
            **changes,
        )
        with torch.no_grad():  # build_model makes the same encoder each time
            for parameter in parts[task].parameters():
                parameter.add_(0.01 * number)
    return MultiTask(parts).eval()


def inputs(labels=None):
    batch = {name: tensor for name, tensor in build_batch().items() if name != "labels"}
    return batch if labels is None else batch | {"labels": labels}


LABELLED = {"type": torch.tensor([0, 1, 2]), "alpha": torch.tensor([0.5, 1.0, 2.0]), "items": torch.tensor([0, 1, 0])}


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


def logits(model, task):
    return model(task=task, **inputs()).logits


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_task_is_a_plain_classifier_on_the_shared_encoder(family):
    model, plain = build(family), build_model(family)
    for name, labels in LABELLED.items():
        classifier = model.classifier(name)
        assert type(classifier) is type(plain)
        assert classifier.base_model is model.encoder
        assert set(classifier.state_dict()) == set(plain.state_dict())
        alone, through = classifier(**inputs(labels)), model(task=name, **inputs(labels))
        assert torch.equal(alone.logits, through.logits)
        assert torch.equal(alone.loss, through.loss)
    # Nothing is registered twice, and heads are those of the tasks at hand only.
    weights, parameters = model.state_dict(), list(model.parameters())
    assert len({tensor.data_ptr() for tensor in weights.values() if tensor.numel()}) == len(weights)
    every = {id(each) for name in LABELS for each in model.classifier(name).parameters()}
    assert {id(each) for each in parameters} == every
    assert len(parameters) == len(every)
    own = {id(each) for each in model.own_parameters()}
    assert own == every - {id(each) for each in model.encoder.parameters()}


def test_modes_reach_the_classifiers_and_gradients_their_own_head_only():
    model = build()
    for mode in (True, False, True):
        model.train(mode)
        parts = [model, model.encoder, *(model.classifier(name) for name in LABELS)]
        assert all(module.training == mode for part in parts for module in part.modules())
    model(task="items", **inputs(LABELLED["items"])).loss.backward()
    assert model.last_task == "items"
    assert all(each.grad is not None for each in model.encoder.parameters())
    reached = [any(each.grad is not None for each in head.parameters()) for head in model.heads]
    assert reached == [False, False, True]
    logits(model.eval(), "type")
    assert model.last_task == "items"  # only training counts


def test_a_copy_shares_nothing_with_the_model_and_all_within_itself():
    model = build()
    before = logits(model, "type")
    twin = copy.deepcopy(model)
    assert twin.classifier("type").base_model is twin.encoder is not model.encoder
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(0.3)
    assert torch.equal(logits(model, "type"), before)
    assert torch.equal(twin.classifier("type")(**inputs()).logits, logits(twin, "type"))
    assert not torch.allclose(logits(twin, "type"), before)
    assert twin.double().classifier("items").classifier.weight.dtype == torch.float64


def test_what_does_not_fit_together_is_refused_in_one_sentence():
    bert, kind = build_model("bert"), "expected a sequence classifier of transformers"
    for parts, message in [
        ({}, "no tasks: give at least one"),
        ({"a": nn.Linear(2, 2)}, f"^task 'a' has a Linear: {kind}"),
        ({"a": bert.base_model}, f"^task 'a' has a BertModel: {kind}"),
        (
            {"a": bert, "b": build_model("roberta")},
            "'b' has a RobertaForSequenceClassification and 'a' a BertFor.*architecture",
        ),
        (
            {"a": bert, "b": build_model("bert", num_hidden_layers=2)},
            "the encoder of task 'b' is of another size than that of 'a'",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            MultiTask(parts)
    with pytest.raises(InputError, match=r"^unknown task 'typ': did you mean 'type'\? known: alpha, items, type\.$"):
        build().classifier("typ")
    with pytest.raises(InputError, match="call the model with task=NAME, of type, alpha, items"):
        build()(**inputs())


@pytest.mark.parametrize("through", ["model", "task", "copy"])
def test_pruned_heads_are_noted_in_the_config_of_every_task(through):
    untouched = model = build()
    if through == "copy":
        model = copy.deepcopy(model)
    hw.prune(model.classifier("items") if through == "task" else model, {0: [1, 2]})
    assert [model.classifier(name).config.headwise_pruned for name in LABELS] == [{"0": [1, 2]}] * 3
    if through == "copy":
        assert not any(hasattr(untouched.classifier(name).config, "headwise_pruned") for name in LABELS)
    first, second = (hw.prune(build_model("bert"), {0: [head]}) for head in (1, 2))
    assert MultiTask({"a": first, "b": second}).classifier("b").config.headwise_pruned == {"0": [1]}


# -- on disk -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_comes_back_bit_by_bit(family, tmp_path):
    model = build(family)
    folder = saved(tmp_path / "model", model)
    whole = hw.load(folder)
    assert isinstance(whole, MultiTask)
    assert whole.tasks == model.tasks == tuple(LABELS)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(whole.parameters(), model.parameters(), strict=True))
    for task in model.tasks:
        loaded = hw.load(folder, task=task)
        assert type(loaded) is type(model.classifier(task))
        assert not any(module.training for module in (*loaded.modules(), *whole.modules()))
        assert torch.equal(loaded(**inputs()).logits, logits(model, task))
        assert torch.equal(logits(whole, task), logits(model, task))
    encoder = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    assert type(encoder) is type(model.encoder)
    assert torch.equal(*(each(**inputs()).last_hidden_state for each in (encoder, model.encoder)))


def test_the_files_are_ordinary_and_hold_nothing_twice(folder, model):
    names = {each.name for each in folder.iterdir()}
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
    assert configs["type"].id2label == {0: "no", 1: "maybe", 2: "yes"}
    assert configs["items"].label2id == {"b": 0, "a": 1}
    assert [configs[task].problem_type for task in ("type", "alpha")] == ["single_label_classification", "regression"]
    loaded, tokenizer = hw.load(folder, task="items"), AutoTokenizer.from_pretrained(folder)
    save_classifier(loaded, tokenizer, tmp_path / "plain", "cls")
    assert "headwise" not in (tmp_path / "plain" / "config.json").read_text()
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain").eval()
    assert torch.equal(plain(**inputs()).logits, logits(model, "items"))


def test_a_classifier_that_began_as_such_a_folder_is_one_classifier(folder, tmp_path):
    """`model: RUN` in a recipe for one task: the config of the encoder is saved with it."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3).eval()
    save_classifier(model, build_tokenizer(), tmp_path / "single", "cls")
    assert tasks_in(tmp_path / "single") == {}
    assert torch.equal(hw.load(tmp_path / "single")(**inputs()).logits, model(**inputs()).logits)
    (folder / HEADS_FILE).rename(folder / HEAD_FILE)  # whatever its config says
    assert tasks_in(folder) == {}


def test_a_pruned_model_is_saved_whole_and_task_by_task(folder, tmp_path):
    model = hw.load(folder)
    hw.prune(model.classifier("type"), {0: [1, 2]})
    model.save_pretrained(str(tmp_path / "whole"))
    whole = hw.load(tmp_path / "whole")
    for task in model.tasks:
        assert torch.equal(logits(whole, task), logits(model, task))
        whole.classifier(task).save_pretrained(tmp_path / task)
        assert torch.equal(hw.load(tmp_path / task)(**inputs()).logits, logits(model, task))


def test_mistakes_are_one_sentence(folder, tmp_path):
    with pytest.raises(InputError, match=r"has no task 'typ': did you mean 'type'\? known: alpha, items, type\.$"):
        hw.load(folder, task="typ")
    single = tmp_path / "single"
    save_classifier(build_model("bert"), build_tokenizer(), single, "cls")
    with pytest.raises(InputError, match="holds one classifier, not several tasks: leave task='type' out"):
        hw.load(single, task="type")
    with pytest.raises(InputError, match="single has no task 'type'"):
        load_task(single, "type")
    config = json.loads((folder / "config.json").read_text())
    good = {"name": "type", "labels": ["no", "yes"], "problem": None}
    for damage in ("type", ["type"], [good, {"name": "a", "problem": None}]):
        (folder / "config.json").write_text(json.dumps({**config, "headwise_tasks": damage}))
        with pytest.raises(InputError, match=r"has a damaged headwise_tasks \(.*\): save the model again\.$"):
            hw.load(folder)


def test_files_that_do_not_fit_are_one_sentence(folder, tmp_path):
    heads = load_file(folder / HEADS_FILE)
    save_file({name: each for name, each in heads.items() if name != "type/classifier.bias"}, folder / HEADS_FILE)
    for task in (None, "type"):
        with pytest.raises(InputError, match="1 of its weights are missing or of another size, classifier.bias first"):
            hw.load(folder, task=task)
    assert hw.load(folder, task="alpha") is not None
    shutil.copytree(folder, tmp_path / "lost")
    (tmp_path / "lost" / "model.safetensors").unlink()
    with pytest.raises(InputError, match="lost cannot be loaded"):
        hw.load(tmp_path / "lost", task="alpha")
    (folder / HEADS_FILE).write_bytes(b"no")
    with pytest.raises(InputError, match="the model in .* cannot be loaded"):
        hw.load(folder)


# -- starting from a saved run -----------------------------------------------------------------------------------------


def test_a_run_starts_from_the_encoder_and_the_heads_of_the_same_names_and_labels(folder, model):
    fresh = build(labels={"items": ("b", "a"), "type": ("yes", "no"), "new": ("x", "y")})
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.mul_(-1)
    before = [head["classifier"].weight.clone() for head in fresh.heads]
    assert start_tasks_from(fresh, folder) == ["items"]
    for mine, theirs in zip(fresh.encoder.parameters(), model.encoder.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(logits(fresh, "items"), logits(model, "items"))
    kept = [torch.equal(head["classifier"].weight, old) for head, old in zip(fresh.heads, before, strict=True)]
    assert kept == [False, True, True]


def test_a_run_that_does_not_fit_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match=r"start_from .*: \d+ weights of its encoder .* name a run of the same model"):
        start_tasks_from(build(num_hidden_layers=2), folder)
    with pytest.raises(InputError, match="start_from: .* holds no model"):
        start_tasks_from(build(), tmp_path / "nothing")
    save_classifier(build_model("bert"), build_tokenizer(), tmp_path / "single", "cls")
    with pytest.raises(InputError, match="holds one classifier: name a run on several tasks, or give it as `model`"):
        start_tasks_from(build(), tmp_path / "single")

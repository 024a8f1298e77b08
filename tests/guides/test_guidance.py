"""A guided model: its loss, its parts, and the untouched model back."""

import copy
import gc
import inspect
import json
import weakref
from types import SimpleNamespace

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import assert_same_gradients, gradients
from transformers import AutoModelForSequenceClassification
from two_processes import leave

import headwise as hw
from headwise.errors import StateError

BOTH = hw.MDG(weight=0.1) + hw.PDG(weight=0.01)
QUERY = "bert.encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def calls(monkeypatch):
    """The calls of the kernel that watches."""
    from headwise.attention import backend as watch

    made, original = [], watch.attention_with_received
    monkeypatch.setattr(
        watch, "attention_with_received", lambda *args, **options: made.append(args) or original(*args, **options)
    )
    return made


def exact(**changes):
    return build_model("bert", dtype=torch.float64, **changes).train()


def footprint(model):
    """Everything that hangs on a model and its parts."""
    return {
        name: {key: id(value) for key, value in module.__dict__.items() if key != "training"}
        for name, module in model.named_modules()
    }


# -- the loss ----------------------------------------------------------------------------------------------------------


def test_the_training_loss_is_task_plus_weighted_guides(batch):
    plain = gradients(twin := exact(), task := twin(**batch).loss)
    model = hw.guide(exact(), BOTH)
    loss, guidance = model(**batch).loss, hw.guides.guidance(model)
    raw = guidance._raw
    assert torch.equal(loss, guidance.losses.task + 0.1 * raw["mdg"] + 0.01 * raw["pdg"])
    torch.testing.assert_close(guidance.losses.task, task.detach())
    assert loss > task + 0.1
    # and so is its gradient
    pieces = [gradients(model, 0.1 * raw["mdg"]), gradients(model, 0.01 * raw["pdg"]), plain]
    summed = {name: sum(piece[name] for piece in pieces) for name in plain}
    assert_same_gradients(gradients(model, loss), summed)
    assert (pieces[0][QUERY] + pieces[1][QUERY]).norm() > 1e-4
    # and the parts are readable
    parts = hw.guides.last_losses(model)
    assert list(parts) == ["task", "mdg", "mdg_weighted", "mdg_weight", "pdg", "pdg_weighted", "pdg_weight"]
    assert all(type(value) is float for value in parts.values())
    assert (parts["mdg_weight"], parts["pdg_weight"]) == (0.1, 0.01)
    assert parts["mdg_weighted"] == pytest.approx(0.1 * parts["mdg"])
    assert parts["task"] + parts["mdg_weighted"] + parts["pdg_weighted"] == pytest.approx(loss.item())
    with torch.no_grad():  # training mode without gradients still reports the loss
        torch.testing.assert_close(model(**batch).loss, loss.detach(), rtol=1e-12, atol=0)


def test_without_labels_there_is_no_loss_to_add_to(model, batch):
    hw.guide(model, BOTH)
    del batch["labels"]
    assert model(**batch).loss is None
    assert hw.guides.last_losses(model) == {}


def test_a_custom_loss_gets_the_guides_from_total(batch):
    labels = batch.pop("labels")
    model = hw.guide(exact(), BOTH)
    task = torch.nn.functional.cross_entropy(model(**batch).logits, labels, label_smoothing=0.2)
    total = hw.guides.guidance(model).total(task)
    parts = hw.guides.last_losses(model)
    assert total.item() == pytest.approx(task.item() + 0.1 * parts["mdg"] + 0.01 * parts["pdg"], rel=1e-12)
    assert parts["task"] == task.item()
    bare = hw.guide(exact(), hw.MDG(weight=0.0))
    assert torch.equal(hw.guides.guidance(bare).total(task), task)


def test_only_guided_layers_of_a_model_in_training_are_watched(batch, calls):
    plain, model = build_model("bert").eval(), hw.guide(build_model("bert"), BOTH).eval()
    expected, actual = plain(**batch), model(**batch)
    assert torch.equal(actual.loss, expected.loss)
    assert torch.equal(actual.logits, expected.logits)
    assert calls == []
    model.train()(**batch)
    assert len(calls) == 3
    hw.guide(hw.unguide(model), hw.MDG(layers=1) + hw.PDG(layers=1))(**batch)
    assert len(calls) == 4


def test_a_tuple_stays_a_tuple_and_forward_keeps_its_signature(model, batch):
    before = inspect.signature(model.forward)
    expected = copy.deepcopy(hw.guide(model, BOTH))(**batch)
    assert inspect.signature(model.forward) == before
    loss, logits = model(**batch, return_dict=False)
    assert torch.equal(loss, expected.loss)
    assert torch.equal(logits, expected.logits)
    without = {name: value for name, value in batch.items() if name != "labels"}
    (logits,) = model(**without, return_dict=False)
    assert torch.equal(logits, expected.logits)


@pytest.mark.parametrize(
    "guides",
    [
        hw.MDG(weight=0.1) + hw.PDG(weight=0.01),
        [hw.MDG(weight=0.1), hw.PDG(weight=0.01)],
        {"mdg": {"weight": 0.1}, "pdg": {"weight": 0.01}},
    ],
    ids=["added", "list", "recipe"],
)
def test_guides_can_be_given_in_several_ways(model, batch, guides):
    hw.guide(model, guides)(**batch)
    assert {name: part.weight for name, part in hw.guides.guidance(model).losses.guides.items()} == {
        "mdg": 0.1,
        "pdg": 0.01,
    }


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.filterwarnings("ignore:.*does not call custom attention")
def test_a_copy_of_a_guided_model_trains_alone(batch, family):
    model = hw.guide(build_model(family).train(), hw.MDG(weight=hw.guides.warm_up(1.0, steps=4)) + hw.PDG(weight=0.01))
    model(**batch)  # a copy must not stumble over the graph of this pass
    before = [parameter.clone() for parameter in model.parameters()]
    twin = copy.deepcopy(model)
    optimiser = torch.optim.AdamW(twin.parameters(), lr=1e-2)
    for _ in range(2):
        twin(**batch).loss.backward()
        optimiser.step()
    twin(**batch)
    assert (hw.guides.guidance(twin).step, hw.guides.guidance(model).step) == (2, 0)
    assert hw.guides.last_losses(twin)["mdg_weight"] == 0.5
    assert "mdg" not in hw.guides.last_losses(model)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    hw.unguide(twin)
    hw.guides.guidance(model)  # still guided
    left, untouched = footprint(twin), footprint(build_model(family))
    assert {name: set(each) for name, each in left.items()} == {name: set(each) for name, each in untouched.items()}
    loss = model(**batch).loss
    assert loss > hw.guides.guidance(model).losses.task
    hw.unguide(model)


def test_gradient_accumulation_equals_the_whole_batch():
    batch = build_batch(size=4)
    whole, parts = (hw.guide(exact(), BOTH) for _ in range(2))
    whole(**batch).loss.backward()
    for piece in range(4):
        (parts(**{name: value[[piece]] for name, value in batch.items()}).loss / 4).backward()
    found, expected = ({name: each.grad for name, each in model.named_parameters()} for model in (parts, whole))
    assert_same_gradients(found, expected)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("cause", ["frozen", "reentrant"])
def test_a_guide_that_reaches_no_parameter_is_refused_with_the_way_out(model, batch, cause):
    if cause == "frozen":
        model.bert.requires_grad_(False)
    else:
        model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(StateError) as caught:
        hw.guide(model, BOTH)(**batch)
    text = str(caught.value)
    assert "\n" not in text
    assert "guide mdg reaches no trainable parameter" in text
    assert "its layers are frozen (unfreeze them or guide others)" in text
    assert "gradient_checkpointing_kwargs={'use_reentrant': False}" in text


@pytest.mark.slow
def test_torch_compile(batch):
    torch.compiler.reset()
    plain, model = (build_model("bert", num_hidden_layers=2).train() for _ in range(2))
    compiled = hw.guide(torch.compile(model, backend="aot_eager"), BOTH)
    hw.guide(plain, BOTH)
    for each in (plain, compiled):
        optimiser = torch.optim.SGD(each.parameters(), lr=0.1)
        for _ in range(2):
            optimiser.zero_grad()
            loss = each(**batch).loss
            loss.backward()
            optimiser.step()
    assert hw.guides.last_losses(model) == pytest.approx(hw.guides.last_losses(plain), rel=1e-5)
    for actual, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


# -- coming and going --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
@pytest.mark.filterwarnings("ignore:.*does not call custom attention")
def test_unguide_gives_the_untouched_model_back(batch, family):
    model = build_model(family)
    config, before, settings = model.config, footprint(model), copy.deepcopy(model.config.__dict__)
    expected = model.eval()(**batch)
    settings.update(problem_type=model.config.problem_type)  # noted by the model itself
    hw.guide(model, BOTH)
    assert "forward" in model.__dict__
    model.train()(**batch).loss.backward()
    assert hw.unguide(model) is model
    assert model.config is config
    assert model.config.__dict__ == settings
    assert footprint(model) == before
    assert model.forward.__func__ is type(model).forward
    after = model.eval()(**batch)
    assert torch.equal(after.logits, expected.logits)
    assert torch.equal(after.loss, expected.loss)


def test_an_unused_guided_model_leaves_memory(batch):
    model = hw.guide(build_model("bert").train(), BOTH)
    model(**batch).loss.backward()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    other = torch.nn.Linear(2, 2)
    other(torch.ones(2)).sum().backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()  # the counter of the dead model must not mind


def test_capture_on_a_guided_model_leaves_it_guided(model, batch):
    hw.guide(model, BOTH)
    with hw.capture(model, what="map") as record:
        loss = model(**batch).loss
    assert record[0].shape == (3, 4, 12, 12)
    torch.testing.assert_close(model(**batch).loss, loss)
    assert "mdg" in hw.guides.last_losses(model)


def test_a_saved_model_shows_no_trace(model, batch, tmp_path):
    hw.guide(model, BOTH)
    model(**batch).loss.backward()
    model.save_pretrained(tmp_path / "guided")
    hw.unguide(model).save_pretrained(tmp_path / "plain")
    saved = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("guided", "plain")]
    assert saved[0] == saved[1]
    assert "headwise" not in json.dumps(saved[0])
    assert {path.name for path in (tmp_path / "guided").iterdir()} == {"config.json", "model.safetensors"}
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "guided").eval()
    assert "forward" not in loaded.__dict__
    assert torch.equal(loaded(**batch).logits, model.eval()(**batch).logits)


# -- with others -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["guide first", "adapters first"])
def test_adapters(batch, order):
    from peft import LoraConfig, TaskType, get_peft_model

    config = LoraConfig(task_type=TaskType.SEQ_CLS, r=2, target_modules=["query", "key"], init_lora_weights=False)
    model = exact()
    if order == "guide first":
        wrapped = get_peft_model(hw.guide(model, BOTH), config)
    else:
        wrapped = hw.guide(get_peft_model(model, config), BOTH)
    loss = wrapped.train()(**batch).loss
    assert set(hw.guides.last_losses(wrapped)) >= {"task", "mdg", "pdg"}
    (loss - hw.guides.guidance(wrapped)._task).backward()  # the guides alone
    adapters = {name: parameter for name, parameter in wrapped.named_parameters() if "lora_" in name}
    assert len(adapters) == 12
    assert all(parameter.grad.norm() > 1e-6 for parameter in adapters.values())
    frozen = [parameter for name, parameter in wrapped.named_parameters() if name.endswith("base_layer.weight")]
    assert frozen
    assert all(parameter.grad is None for parameter in frozen)


KNOWN = hw.Match("pmi", weight=0.5)
SHARED = hw.MDG(weight=hw.auto(0.3, every=1, window=1)) + hw.PDG(weight=0.01) + KNOWN + hw.Match("next", weight=0.2)
# What guides ask of a tokenizer; 3 is a full stop.
TOKENIZER = SimpleNamespace(all_special_ids=[1], sep_token_id=None, eos_token_id=None, get_vocab=lambda: {".": 3})


def known_batch():
    """Four sentences with knowledge about their tokens."""
    batch = build_batch(size=4)
    known = (batch["input_ids"] % 7) * batch["attention_mask"].double()  # [B,K]
    return {**batch, "knowledge": {KNOWN.pattern.entry("received"): known}}


def half_of(batch, rank):
    part = slice(2 * rank, 2 * rank + 2)
    return {name: half_of(value, rank) if isinstance(value, dict) else value[part] for name, value in batch.items()}


def stops_in_one_half():
    """Only the first two of four sentences have a full stop."""
    batch = build_batch(size=4)
    batch["input_ids"][:2, 1] = 3
    return batch


def steps(model, batch):
    """Two optimiser steps; the gradients and parts of each."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = []
    for _ in range(2):
        optimiser.zero_grad()
        model(**batch).loss.backward()
        inner = getattr(model, "module", model)
        seen.append(
            ({name: each.grad.clone() for name, each in inner.named_parameters()}, hw.guides.last_losses(model))
        )
        optimiser.step()
    return seen


def in_one_of_two_processes(rank, folder):
    """What each process of `test_data_parallel_training` does."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(exact())
    common = steps(hw.guide(model, SHARED), half_of(known_batch(), rank))
    model = torch.nn.parallel.DistributedDataParallel(exact())
    rare = hw.guide(model, hw.Match("period", weight=hw.auto(0.3, every=1, window=1)), tokenizer=TOKENIZER)
    torch.save(steps(rare, half_of(stops_in_one_half(), rank))[-1][1], f"{folder}/rare-{rank}.pt")
    torch.save(common, f"{folder}/{rank}.pt")
    leave(folder)


@pytest.mark.slow
def test_data_parallel_training_equals_one_process_with_the_whole_batch(tmp_path):
    torch.multiprocessing.spawn(in_one_of_two_processes, args=(str(tmp_path),), nprocs=2)
    left, right = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    alone = steps(hw.guide(exact(), SHARED), known_batch())
    for (left_gradients, left_parts), (right_gradients, right_parts), (expected, parts) in zip(
        left, right, alone, strict=True
    ):
        assert left_parts["mdg_weight"] == right_parts["mdg_weight"]
        assert left_parts["mdg_weight"] == pytest.approx(parts["mdg_weight"], rel=1e-9)
        assert left_parts["mdg"] != right_parts["mdg"]
        assert_same_gradients(left_gradients, expected)
        assert_same_gradients(right_gradients, left_gradients, tolerance=1e-15)
        assert parts["match"] > 0 < parts["match-2"]
    assert alone[0][1]["mdg_weight"] != pytest.approx(alone[1][1]["mdg_weight"], rel=1e-6)
    # A target in one process only: both measure, or one would wait for the other.
    some, none = (torch.load(tmp_path / f"rare-{rank}.pt") for rank in (0, 1))
    assert some["match"] > 0 == none["match"]
    assert some["match_weight"] == none["match_weight"] > 0

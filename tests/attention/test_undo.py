"""The model is as it was: after success, after misuse, after a crash."""

import contextlib
import copy
import json
import warnings

import pytest
import torch
from conftest import ROUTES, build_batch, build_model
from transformers import BertForSequenceClassification

import headwise as hw
from headwise.errors import HeadwiseWarning, InputError, StateError

pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")

ONES = torch.ones(3, 4)


def build(family):
    """A model that has nothing more to note in its config in the first training pass."""
    return build_model(family, problem_type="single_label_classification")


@pytest.fixture
def model():
    return build("bert")


class Trace:
    """Everything of a model that a visitor could leave changed."""

    def __init__(self, model):
        self.model = model
        self.modules = {name: self.of(module) for name, module in model.named_modules()}
        self.config = json.dumps(model.config.to_dict(), sort_keys=True, default=str)
        self.implementation = model.config._attn_implementation
        self.forward = model.forward

    @staticmethod
    def of(module):
        attributes = {name: id(value) for name, value in vars(module).items() if name != "training"}
        hooks = {name: tuple(value) for name, value in vars(module).items() if name.endswith("_hooks")}
        return attributes, hooks, type(module)

    def assert_same(self):
        for name, module in self.model.named_modules():
            assert self.of(module) == self.modules[name], name
        assert json.dumps(self.model.config.to_dict(), sort_keys=True, default=str) == self.config
        assert self.model.config._attn_implementation == self.implementation
        assert self.model.forward == self.forward


@pytest.fixture(params=ROUTES)
def family(request):
    """One family for each route; tests over all of them name FAMILIES."""
    return request.param


@contextlib.contextmanager
def watched(model):
    """By customers of every kind."""
    with hw.capture(model), hw.capture(model, what="map", layers=1), hw.gate(model, ONES):
        yield


def test_after_success(family, batch):
    model = build(family)
    before = Trace(model)
    with watched(model):
        model(**batch).loss.backward()
        with pytest.raises(AssertionError):
            before.assert_same()
    before.assert_same()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_the_chosen_implementation_comes_back(implementation, batch):
    model = build("bert")
    model.set_attn_implementation(implementation)
    before = Trace(model)
    assert before.implementation == implementation
    with hw.capture(model), hw.gate(model, ONES):
        model(**batch)
    before.assert_same()


def fully_masked():
    batch = build_batch()
    batch["attention_mask"][1] = 0
    return batch


MISUSE = {
    "a fully masked example": (fully_masked(), "example 1 of the batch is fully masked"),
    "too long": (build_batch(length=41), "the batch is 41 tokens long; .* takes at most (40|38)"),
}


# Relative positions (deberta-v2, modernbert) have no longest sequence.
@pytest.mark.parametrize(
    ("family", "misuse"), [*((family, "a fully masked example") for family in ROUTES), ("bert", "too long")]
)
def test_after_a_batch_that_is_refused(family, misuse, batch):
    model = build(family).eval()
    wrong, message = MISUSE[misuse]
    before, logits = Trace(model), model(**batch).logits
    with watched(model):
        with pytest.raises(InputError, match=message):
            model(**wrong)
        torch.testing.assert_close(model(**batch).logits, logits)  # inside, too
    before.assert_same()


def test_after_a_warning_that_is_an_error(batch):
    """As in a test suite like this one, where warnings are errors."""
    model = build("mpnet")
    before = Trace(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HeadwiseWarning), hw.capture(model):
            pytest.fail("the with block was entered")
    before.assert_same()
    with hw.capture(model) as record:
        model(**batch)
    assert len(record) == 3
    before.assert_same()


class Crash(Exception):
    pass


def test_after_a_crash_in_the_model(family, batch):
    model = build(family).eval()
    before, logits = Trace(model), model(**batch).logits

    def crash(*args):
        raise Crash

    last = [module for name, module in model.named_modules() if name.endswith("2") or "albert_layers.0" in name][0]
    with watched(model):
        handle = last.register_forward_hook(crash)
        with pytest.raises(Crash):
            model(**batch)
        handle.remove()
        torch.testing.assert_close(model(**batch).logits, logits)
    before.assert_same()


def test_a_wrong_call_is_reported_by_the_model_itself(model, batch):
    before = Trace(model)
    with watched(model), pytest.raises(TypeError, match="multiple values for argument 'input_ids'"):
        model(batch["input_ids"], **batch)
    with watched(model), pytest.raises(ValueError, match="input_ids"):
        model()
    before.assert_same()


@pytest.mark.parametrize("first", ["whole", "part"])
def test_a_model_and_its_part_are_not_watched_together(model, batch, first):
    """The second is refused: the first must not go blind."""
    before, pair = Trace(model), [model, model.bert] if first == "whole" else [model.bert, model]
    with hw.capture(pair[0]) as record:
        with pytest.raises(StateError, match="already"), hw.capture(pair[1]):
            pytest.fail("the with block was entered")
        model(**batch)
        assert len(record) == 3
    before.assert_same()


@pytest.mark.parametrize("first_out", [0, 1])
def test_two_models_of_one_config_object(batch, first_out):
    config = build("bert").config
    models = [BertForSequenceClassification(config) for _ in range(2)]
    assert models[0].config is models[1].config
    traces = [Trace(model) for model in models]
    expected = []
    for model in models:
        with hw.capture(model) as record:
            model(**batch)
        expected.append(record.stacked())
    stacks = [contextlib.ExitStack() for _ in models]
    records = [stack.enter_context(hw.capture(model)) for stack, model in zip(stacks, models, strict=True)]
    for model in models:
        model(**batch)
    stacks[first_out].close()
    traces[first_out].assert_same()
    models[1 - first_out](**batch)
    stacks[1 - first_out].close()
    for trace, record, seen in zip(traces, records, expected, strict=True):
        trace.assert_same()
        assert torch.equal(record.stacked(), seen)


def test_what_the_model_notes_in_its_config_stays(batch):
    """A classifier decides its problem type in the first training pass, and keeps it in the config."""
    model = build_model("bert")
    assert model.config.problem_type is None
    with hw.capture(model):
        model(**batch)
    assert model.config.problem_type == "single_label_classification"


def test_a_forward_that_somebody_replaced_comes_back(model, batch):
    calls = []
    inner = model.forward

    def replaced(*args, **kwargs):
        calls.append(1)
        return inner(*args, **kwargs)

    model.forward = replaced
    with hw.capture(model) as record:
        model(**batch)
    assert model.forward is replaced
    assert calls == [1]
    assert len(record) == 3


def test_a_forward_that_wraps_ours_keeps_working(model, batch):
    """accelerate does that when a model is prepared inside a with block."""
    logits = model(**batch).logits
    with hw.capture(model):
        inner = model.forward
        model.forward = lambda *args, **kwargs: inner(*args, **kwargs)
    assert torch.equal(model(**batch).logits, logits)


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", "mpnet"])
def test_a_copy_of_a_watched_model_is_independent(family, batch):
    """Also after a training pass, whose graph is part of the record."""
    model = build(family)
    before, logits = Trace(model), model(**batch).logits
    with hw.capture(model) as record:
        model(**batch)
        twin = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.mul_(0.5)
        model(**batch)
        mine = record.stacked()
        other = twin(**batch).logits
        assert torch.equal(record.stacked(), mine)
        assert not torch.allclose(other, logits)
    before.assert_same()
    torch.testing.assert_close(twin(**batch).logits, other)


def test_the_state_dict_is_the_same(model):
    keys = list(model.state_dict())
    with hw.capture(model), hw.gate(model, torch.nn.Parameter(torch.ones(3, 4))):
        assert list(model.state_dict()) == keys
        assert len(list(model.parameters())) == len(list(build("bert").parameters()))

"""Bad input is answered with one sentence: what, where, what was expected, and the way out."""

from contextlib import contextmanager

import pytest
import torch
import transformers

import headwise as hw
from headwise.errors import HeadwiseError, HeadwiseWarning, InputError, StateError, UnsupportedModelError
from headwise.guides import build


@contextmanager
def answered(kind, *facts):
    """A with block that must fail with one sentence that holds these facts."""
    with pytest.raises(kind) as caught:
        yield
    text = str(caught.value)
    assert isinstance(caught.value, HeadwiseError)
    assert "\n" not in text
    assert text.endswith(".")
    for fact in facts:
        assert fact in text


# -- guides and options ------------------------------------------------------------------------------------------------


def test_an_unknown_guide(model):
    with answered(InputError, "unknown guide 'mgd'", "did you mean 'mdg'?", "known: ", "pdg"):
        hw.guide(model, {"mgd": {}})


def test_an_unknown_option(model):
    with answered(InputError, "mdg has no option 'wieght'", "did you mean 'weight'?", "tau", "layers"):
        hw.MDG(wieght=1.0)
    with answered(InputError, "pdg has no option 'tau'", "normalise"):
        build("pdg", tau=1.0)
    with answered(InputError, "pdg has no option 'tau'"):
        hw.guide(model, {"pdg": {"tau": 1.0}})


def test_an_option_without_a_name():
    with answered(InputError, "mdg(0.1,)", "name the options", "weight=0.1"):
        hw.MDG(0.1)


@pytest.mark.parametrize(
    ("kind", "option", "value", "allowed"),
    [
        (hw.MDG, "reduction", "median", "'mean', 'sum'"),
        (hw.MDG, "contrast", "head", "'model', 'layer'"),
        (hw.MDG, "dropout", "during", "'before', 'after'"),
        (hw.PDG, "preset", "mine", "'paper', 'released'"),
        (hw.PDG, "normalise", 1, "True, False"),
        (hw.PDG, "special_tokens", "no", "True, False"),
    ],
)
def test_an_option_out_of_its_choices(kind, option, value, allowed):
    with answered(InputError, f"{kind.name}({option}={value!r})", f"expected one of {allowed}"):
        kind(**{option: value})


@pytest.mark.parametrize("tau", [0, float("nan"), "1"], ids=repr)
def test_a_tau_that_is_not_above_zero(tau):
    with answered(InputError, f"mdg(tau={tau!r})", "a number above 0"):
        hw.MDG(tau=tau)


@pytest.mark.parametrize("weight", [-0.1, float("nan"), True, "0.1"], ids=repr)
def test_a_weight_that_is_no_number_of_zero_or_more(weight):
    with answered(InputError, f"weight of pdg is {weight!r}", "a number of 0 or more", "auto(share)"):
        hw.PDG(weight=weight)


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: hw.guides.warm_up(1.0, steps=0), ["steps=0", "1 or more"]),
        (lambda: hw.guides.piecewise((2, 1.0), (1, 0.0)), ["(2, 1.0), (1, 0.0)", "steps that rise"]),
        (lambda: hw.guides.piecewise(0.5), ["0.5", "points (step, weight)"]),
        (lambda: hw.auto(-0.1), ["share", "-0.1", "0 or more"]),
        (lambda: hw.auto(0.1, window=True), ["auto(window=True)", "1 or more"]),
    ],
)
def test_schedules_that_make_no_sense(make, facts):
    with answered(InputError, *facts):
        make()


@pytest.mark.parametrize("weight", [{"points": 5}, {"points": [[0, 1, 2]]}, {"share": 0.1, "evry": 3}], ids=repr)
def test_a_written_weight_that_makes_no_sense(weight):
    with answered(InputError, "weight", "points"):
        hw.MDG(weight=weight)


@pytest.mark.parametrize("guides", [{}, [hw.MDG(), None]], ids=repr)
def test_something_that_is_no_guide(model, guides):
    with answered(InputError, "guides=", "hw.MDG(weight=1e-3)"):
        hw.guide(model, guides)


def test_a_recipe_whose_options_are_no_mapping(model):
    with answered(InputError, "mdg", "0.1"):
        hw.guide(model, {"mdg": 0.1})


@pytest.mark.parametrize("share_every", [-1, True], ids=repr)
def test_share_every_is_a_number_of_steps(model, share_every):
    with answered(InputError, f"share_every={share_every!r}", "0 or more"):
        hw.guide(model, hw.MDG(), share_every=share_every)


# -- models ------------------------------------------------------------------------------------------------------------


def test_a_model_that_cannot_be_guided():
    config = transformers.T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    model = transformers.T5Model(config)
    before = set(model.__dict__)
    with answered(UnsupportedModelError, "t5 is an encoder-decoder", "BERT-like"):
        hw.guide(model, hw.MDG())
    assert set(model.__dict__) == before


# -- the wrong time ----------------------------------------------------------------------------------------------------


def test_a_model_that_is_already_guided(model, batch):
    hw.guide(model, hw.MDG(weight=0.1))
    with answered(StateError, "already guided", "unguide(model) first"):
        hw.guide(model, hw.PDG())
    model(**batch)
    assert "mdg" in hw.guides.last_losses(model)
    assert "pdg" not in hw.guides.last_losses(model)


@pytest.mark.parametrize("ask", [hw.guides.guidance, hw.guides.last_losses])
def test_a_model_that_is_not_guided(model, ask):
    with answered(StateError, "this model is not guided"):
        ask(model)


def test_unguide_twice_is_no_mistake(model, batch):
    plain = model(**batch).loss
    assert hw.unguide(model) is model
    hw.unguide(hw.guide(model, hw.MDG(weight=0.5)))
    assert hw.unguide(model) is model
    assert torch.equal(model(**batch).loss, plain)


def test_maps_that_a_guided_model_does_not_return_are_warned_of_once(model, batch):
    hw.guide(model, hw.MDG(weight=0.1))
    with pytest.warns(HeadwiseWarning, match=r"returns no maps.*hw\.capture\(model, what='map'\)") as caught:
        answer = model(**batch, output_attentions=True)
    assert not answer.attentions
    assert [each.filename for each in caught] == [__file__]
    model(**batch, output_attentions=True)  # a second warning would be an error
    with hw.capture(model, what="map") as record:  # what the warning says to use
        model(**batch)
    assert record.stacked().shape[:2] == (len(batch["labels"]), 12)
    hw.unguide(model).set_attn_implementation("eager")
    assert len(model(**batch, output_attentions=True).attentions) == 3


def test_a_refused_guide_leaves_the_model_alone(model):
    before, config = set(model.__dict__), model.config
    with answered(InputError, "layer 7 is out of range", "layers 0 to 2"):
        hw.guide(model, hw.MDG(layers=7))
    assert set(model.__dict__) == before
    assert model.config is config
    hw.guide(model, hw.MDG())


def test_the_state_of_other_guides(model):
    hw.guide(model, hw.MDG(weight=hw.auto(0.1)))
    with answered(InputError, "of other guides", "['mdg']", "['pdg']", "attach the guides that were saved"):
        hw.guides.guidance(model).load_state_dict({"step": 3, "auto": {"pdg": {}}})
    with answered(InputError, "of other guides"):
        hw.guides.guidance(model).load_state_dict({})
    assert hw.guides.guidance(model).step == 0

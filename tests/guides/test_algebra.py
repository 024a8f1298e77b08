"""Guides add, scale, describe themselves, and can be written by anybody."""

import dataclasses
import json

import pytest
import torch
from conftest import build_batch, build_model

import headwise as hw
from headwise.errors import InputError
from headwise.guides import GUIDES, Guides, build, constant, mean_over_examples
from headwise.guides.weights import weight_at


@pytest.fixture
def names():
    """Names for guides of a test, which are taken out again."""
    before = set(GUIDES)
    yield GUIDES
    for name in set(GUIDES) - before:
        GUIDES.remove(name)


def at(guide, step=0):
    return weight_at(guide.weight, step)


# -- algebra -----------------------------------------------------------------------------------------------------------


def test_guides_add_in_order_and_equal_names_get_numbers():
    mdg, pdg = hw.MDG(), hw.PDG()
    assert mdg + pdg == Guides((mdg, pdg))
    assert (mdg + pdg) + mdg == mdg + (pdg + mdg) == Guides((mdg, pdg, mdg))
    assert (mdg + pdg) + (pdg + mdg) == Guides((mdg, pdg, pdg, mdg))
    assert isinstance(mdg + pdg + mdg, Guides)
    for some in (mdg, mdg + pdg):
        with pytest.raises(TypeError):
            some + 1
    guides = hw.MDG(layers=0) + pdg + hw.MDG(layers=1) + hw.MDG(layers=2)
    assert {name: guide.layers for name, guide in guides.named()} == {"mdg": 0, "pdg": "all", "mdg-2": 1, "mdg-3": 2}


def test_guides_scale():
    for scale in (lambda guide, by: guide * by, lambda guide, by: by * guide):
        assert at(scale(hw.MDG(weight=0.1), 3)) == pytest.approx(0.3)
        both = scale(hw.MDG(weight=0.1) + hw.PDG(weight=0.2), 0.5)
        assert isinstance(both, Guides)
        assert [at(guide) for guide in both] == pytest.approx([0.05, 0.1])
    warm = hw.MDG(weight=hw.guides.warm_up(1.0, steps=4)) * 3
    assert [at(warm, step) for step in (0, 2, 4, 9)] == [0.0, 1.5, 3.0, 3.0]
    assert (hw.MDG(weight=constant(0.5)) * 2).weight == constant(1.0)
    assert (hw.MDG(weight=hw.auto(0.1, every=7, window=3)) * 2).weight == hw.auto(0.2, every=7, window=3)


@pytest.mark.parametrize(
    "guide",
    [
        hw.MDG(weight=0.1, tau=0.5, layers=[0, 2], special_tokens=False),
        hw.PDG(reduction="sum", heads="first:2", preset="released"),
        hw.PDG(weight=hw.guides.warm_up(0.1, steps=3)),
        hw.MDG(weight=hw.auto(0.1, every=5)),
    ],
    ids=["number", "default", "schedule", "auto"],
)
def test_a_guide_is_its_own_configuration(guide):
    written = json.loads(json.dumps(dataclasses.asdict(guide)))
    assert set(written) == {field.name for field in dataclasses.fields(guide)}
    assert build(guide.name, **written) == guide


# -- the registry ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_guide", r"^guide name .*: expected lower-case letters, digits and hyphens[^\n]*\.$"),
        ("mdg", r"^guide name 'mdg' is taken by MapDiscrimination: choose another\.$"),
    ],
)
def test_a_bad_name_is_refused(names, name, message):
    before = list(names)
    with pytest.raises(InputError, match=message):
        hw.guides.register_guide(name)(type("Mine", (hw.Guide,), {}))
    assert list(names) == before
    assert GUIDES["mdg"] is hw.MDG


# -- a custom guide ----------------------------------------------------------------------------------------------


def test_a_guide_written_by_a_user_is_a_frozen_dataclass_with_manners_and_trains(names):
    @hw.guides.register_guide("flatness")
    class Flatness(hw.Guide):
        """Attention received should be spread evenly over the tokens."""

        power: float = 2.0

        def __call__(self, maps, inputs):
            counted = self.positions(maps)  # [B,K]
            shares = maps.stacked() * counted[:, None]  # [B,M,K]
            uneven = (shares - counted[:, None].double()).abs().pow(self.power).sum(-1).mean(1)  # [B]
            return mean_over_examples(uneven / counted.sum(1), counted.sum(1))

    guide = Flatness(power=3.0, layers=1)
    assert (guide.name, guide.power, guide.layers) == ("flatness", 3.0, 1)
    assert build("flatness", power=3.0, layers=1) == guide
    with pytest.raises(dataclasses.FrozenInstanceError):
        guide.power = 1.0
    with pytest.raises(InputError, match=r"^flatness has no option 'pwoer': did you mean 'power'\? known: .*\.$"):
        Flatness(pwoer=1.0)
    with pytest.raises(InputError, match="weight of flatness is -1"):
        Flatness(weight=-1)
    model = hw.guide(build_model("bert").train(), {"flatness": {"weight": 1.0}, "mdg": {}})
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    values = []
    for _ in range(8):
        optimiser.zero_grad()
        model(**build_batch()).loss.backward()
        optimiser.step()
        values.append(hw.guides.last_losses(model)["flatness"])
    assert values[-1] < 0.8 * values[0]


def test_a_guide_may_ask_for_maps(names):
    @hw.guides.register_guide("diagonal")
    class Diagonal(hw.Guide):
        what = "map"

        def __call__(self, maps, inputs):
            assert inputs.input_ids.shape == (3, 12)
            return maps.stacked().diagonal(dim1=2, dim2=3).mean()

    model = hw.guide(build_model("bert").train(), Diagonal(weight=1.0, heads=[1]))
    loss = model(**build_batch()).loss
    parts = hw.guides.last_losses(model)
    assert loss.item() == pytest.approx(parts["task"] + parts["diagonal"], rel=1e-6)
    with hw.capture(model.eval(), heads=[1], what="map") as record:
        model(**build_batch())
    assert parts["diagonal"] == pytest.approx(record.stacked().diagonal(dim1=2, dim2=3).mean().item(), rel=1e-5)


@pytest.mark.parametrize("returned", [3.0, torch.ones(1)], ids=str)
def test_a_guide_that_returns_no_scalar_is_refused(names, returned):
    @hw.guides.register_guide("broken")
    class Broken(hw.Guide):
        def __call__(self, maps, inputs):
            return returned

    model = hw.guide(build_model("bert").train(), Broken())
    with pytest.raises(InputError, match="^guide broken returned .*: expected a scalar tensor"):
        model(**build_batch())

"""Weights: numbers, schedules over optimiser steps, and shares of the task's gradient."""

import copy
import dataclasses
import json
import math
import warnings

import pytest
import torch
from conftest import build_batch, build_model
from hypothesis import given, settings
from hypothesis import strategies as st

import headwise as hw
from headwise.errors import StateError
from headwise.guides import constant, gradient_share


def guided(guides, *, dtype=torch.float64, dropout=0.0, **options):
    return hw.guide(build_model("bert", dtype=dtype, dropout=dropout).train(), guides, **options)


def forward(model, step=0):
    """A batch that differs from step to step."""
    batch = build_batch()
    batch["input_ids"] = torch.where(batch["attention_mask"] == 1, (batch["input_ids"] + 7 * step) % 55 + 5, 1)
    return model(**batch).loss


def pull(model, loss):
    """The gradient norm of a loss on the query/key weights, the long way."""
    named = dict(model.named_parameters())
    wanted = [named[name] for name in named if name.endswith(("query.weight", "key.weight"))]
    assert len(wanted) == 6
    found = torch.autograd.grad(loss, wanted, retain_graph=True)
    return math.sqrt(sum(gradient.square().sum().item() for gradient in found))


def weight_of(model, name="mdg"):
    return hw.guides.last_losses(model).get(f"{name}_weight", 0.0)


# -- schedules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (constant(0.5), {0: 0.5, 1: 0.5, 1000: 0.5}),
        (hw.guides.warm_up(0.8, steps=4), {0: 0.0, 1: 0.2, 2: 0.4, 3: 0.6, 4: 0.8, 5: 0.8, 1000: 0.8}),
        (hw.guides.decay(0.8, steps=4), {0: 0.8, 1: 0.6, 2: 0.4, 3: 0.2, 4: 0.0, 5: 0.0}),
        (hw.guides.decay(0.8, steps=2, start=3, to=0.4), {0: 0.8, 3: 0.8, 4: 0.6, 5: 0.4, 99: 0.4}),
        (hw.guides.piecewise((2, 1.0), (4, 3.0), (5, 0.0)), {0: 1.0, 2: 1.0, 3: 2.0, 4: 3.0, 5: 0.0, 6: 0.0}),
    ],
    ids=str,
)
def test_schedules_by_hand(schedule, values):
    assert {step: schedule.at(step) for step in values} == pytest.approx(values, abs=1e-15)


points = st.dictionaries(st.integers(0, 10**6), st.floats(0, 1e6), min_size=1, max_size=6).map(
    lambda chosen: tuple(sorted(chosen.items()))
)


@settings(deadline=None, max_examples=100)
@given(points, st.integers(0, 2 * 10**6))
def test_piecewise_meets_its_points_and_stays_between_them(points, step):
    schedule = hw.guides.piecewise(*points)
    assert all(schedule.at(at) == value for at, value in points)
    before = [value for at, value in points if at <= step][-1:]
    after = [value for at, value in points if at >= step][:1]
    around = before + after
    assert min(around) * (1 - 1e-12) <= schedule.at(step) <= max(around) * (1 + 1e-12)


def test_schedules_count_optimiser_steps():
    model = guided(hw.MDG(weight=hw.guides.warm_up(1.0, steps=2)), dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    seen = []
    for number in range(12):
        (forward(model) / 4).backward()
        seen.append(weight_of(model))
        if number % 4 == 3:
            optimiser.step()
            optimiser.zero_grad()
    assert seen == [0.0] * 4 + [0.5] * 4 + [1.0] * 4
    assert hw.guides.guidance(model).step == 3


def test_the_optimiser_of_another_model_does_not_count_and_unguide_stops_the_count():
    model, other = guided(hw.MDG(weight=hw.guides.decay(1.0, steps=2))), torch.nn.Linear(2, 2)
    guidance = hw.guides.guidance(model)
    stranger, own = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (other, model))
    for _ in range(3):
        other(torch.ones(2)).sum().backward()
        stranger.step()
    assert guidance.step == 0
    for _ in range(2):
        forward(model).backward()
        own.step()
        assert guidance.step == 1
        hw.unguide(model)


def test_of_several_optimisers_one_is_counted():
    model = guided(hw.MDG(weight=hw.guides.decay(1.0, steps=2)))
    both = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model.bert, model.classifier)]
    for _ in range(2):
        forward(model).backward()
        for optimiser in both:
            optimiser.step()
    assert hw.guides.guidance(model).step == 2
    # A second run counts its own optimiser, in a notebook, where the optimiser of the first is still alive.
    model = guided(hw.MDG(weight=hw.guides.decay(1.0, steps=9)))
    first, second = (torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(2))
    for optimiser, count in ((first, 1), (second, 1), (second, 3), (second, 4), (first, 4), (second, 5)):
        forward(model).backward()
        optimiser.step()
        assert hw.guides.guidance(model).step == count


# -- auto --------------------------------------------------------------------------------------------------------------


def step_with(model, optimiser=None, step=0, factor=1.0):
    """Forward and backward: the norms of the task, of the guides and of all together, the long way."""
    loss = forward(model, step)
    guidance = hw.guides.guidance(model)
    raw = {name: pull(model, value) for name, value in guidance._raw.items()}
    norms = pull(model, guidance._task), raw, pull(model, loss)
    (loss * factor).backward()
    if optimiser is not None:
        optimiser.step()
        optimiser.zero_grad()
    return norms


def through_own_layers(model):
    """The gradient norms of guides where no layer sees what the layers below it do, the long way."""
    model = copy.deepcopy(model)
    for layer in model.bert.encoder.layer:
        layer.register_forward_pre_hook(lambda _, inputs: (inputs[0].detach(), *inputs[1:]))
    forward(model)
    return {name: pull(model, value) for name, value in hw.guides.guidance(model)._raw.items()}


@pytest.mark.parametrize("other", [hw.Match("next"), hw.PDG()], ids=["other attention", "the same attention"])
def test_the_first_measurement_goes_through_the_layer_of_each_map(other):
    share = 0.05
    model = guided(hw.MDG(weight=hw.auto(share)) + dataclasses.replace(other, weight=hw.auto(share)))
    norms = through_own_layers(model)
    task, exact, _ = step_with(model, torch.optim.SGD(model.parameters(), lr=0.0))
    forward(model)
    assert weight_of(model) * norms["mdg"] == pytest.approx(share * task, rel=1e-6)
    assert norms["mdg"] == pytest.approx(exact["mdg"], rel=0.01)
    if other.name == "match":
        assert weight_of(model, "match") * norms["match"] == pytest.approx(share * task, rel=1e-6)
        assert norms["match"] == pytest.approx(exact["match"], rel=0.01)


def test_auto_sets_the_share_of_the_gradient():
    share = 0.05
    model = guided(hw.MDG(weight=hw.auto(share, every=1)) + hw.Match("next", weight=hw.auto(share / 2, every=1)))
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    step_with(model, still)
    assert (weight_of(model), weight_of(model, "match")) == (0.0, 0.0)  # nothing is known of the task's gradient yet
    loss = forward(model)
    guidance = hw.guides.guidance(model)
    assert guidance.gradient_share() == pytest.approx({"mdg": share, "match": share / 2}, rel=1e-6)
    task, mdg = pull(model, guidance._task), pull(model, weight_of(model) * guidance._raw["mdg"])
    assert mdg / task == pytest.approx(share, rel=1e-6)
    assert loss.item() == pytest.approx(
        guidance.losses.task + sum(part.weighted.item() for part in guidance.losses.guides.values())
    )


def test_the_share_of_auto_may_fall_to_zero():
    rule = hw.auto(0.2, decay=10)
    assert [rule.share_at(step) for step in (0, 5, 10, 11)] == [0.2, 0.1, 0.0, 0.0]
    assert hw.MDG(weight={"share": 0.2, "decay": 10}).weight == rule
    model, plain = (guided(hw.MDG(weight=each)) for each in (rule, hw.auto(0.2)))
    for step in range(12):
        for each in (model, plain):
            forward(each, step).backward()
            torch.optim.SGD(each.parameters(), lr=0).step()
        if 1 < step < 10:
            assert weight_of(model) == pytest.approx(weight_of(plain) * (1 - step / 10), rel=0.05)
    assert hw.guides.guidance(model).losses.guides == {}


def test_guides_of_the_same_attention_are_measured_one_by_one_after_an_estimate(monkeypatch):
    """In the first step none of them costs a backward pass of the model."""
    passes = []
    real = gradient_share.gradient_norms
    monkeypatch.setattr(
        gradient_share, "gradient_norms", lambda model, losses: passes.append(len(losses)) or real(model, losses)
    )
    share = 0.01
    model = guided(hw.MDG(weight=hw.auto(share)) + hw.PDG(weight=hw.auto(share)))
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    guidance = hw.guides.guidance(model)
    for step in range(13):
        step_with(model, still)
        if step == 1:
            forward(model)
            first = guidance.gradient_share()
    assert passes == [0, 2]  # without the task's: these shares are small
    assert first["mdg"] == pytest.approx(share, rel=2 * share)  # by which the task's norm is known
    assert first["pdg"] == pytest.approx(share, rel=0.25)
    forward(model)
    assert guidance.gradient_share() == pytest.approx({"mdg": share, "pdg": share}, rel=2 * share)


@pytest.mark.parametrize(("share_every", "ends"), [(0, (3, 6)), (2, (1, 3, 5)), (1, (1, 2, 3, 4, 5, 6))])
def test_the_realised_share_is_reported_after_measurements_and_as_often_as_asked(share_every, ends):
    """The norm is measured in the steps 0, 3 and 6; between two reports, each part has the mean of its two norms."""
    model = guided(hw.MDG(weight=hw.auto(0.05, every=3)), share_every=share_every)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    tasks, weights, norms, realised = [], [], [], []
    for step in range(7):
        task, guides, _ = step_with(model, optimiser, step)
        tasks.append(task)
        norms.append(guides["mdg"])
        weights.append(weight_of(model))
        realised.append(hw.guides.guidance(model).losses.guides["mdg"].share)
    assert [step for step, share in enumerate(realised) if share is not None] == list(ends)
    first = 1 if share_every == 1 else 0  # a report on the first step alone, whose weight is 0, says nothing
    for end in ends:
        pull = total = 0.0
        # A measurement ends what came before its step; a report in between ends with its own step.
        last = end if share_every == 0 else end + 1
        while first < last:
            measured = first - first % 3
            stop = min(last, measured + 3)
            closing = measured + 3 if stop == measured + 3 and (share_every == 0 or stop < last) else measured
            pull += sum(weights[first:stop]) * (norms[measured] + norms[closing]) / 2
            total += sum(tasks[first:stop])
            first = stop
        assert realised[end] == pytest.approx(pull / total, rel=0.01)


class Smoothing:
    """Holt's exponential smoothing of logarithms, written out."""

    def __init__(self, first):
        self.level, self.trend = math.log(first), 0.0

    def add(self, norm):
        before = self.level + self.trend
        self.level = 0.4 * math.log(norm) + 0.6 * before
        self.trend = self.trend + 0.1 * (self.level - before)

    def __call__(self):
        return math.exp(self.level + self.trend)


@pytest.mark.parametrize("pieces", [1, 4], ids=["whole batches", "accumulated ones"])
def test_the_norm_of_the_task_is_followed_at_every_step(pieces):
    """By the part of the whole gradient that is the task's, which is as good as orthogonal to the guide's."""
    share, part = 0.5, 1 / math.sqrt(1 + 0.5**2)
    model = guided(hw.MDG(weight=hw.auto(share)))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    guide = through_own_layers(model)["mdg"]
    task = [step_with(model, factor=1 / pieces) for _ in range(pieces)][0][0]
    assert weight_of(model) == 0.0
    optimiser.step()
    mean = Smoothing(task)
    for step in range(1, 5):
        wholes = []
        for piece in range(pieces):
            wholes.append(step_with(model, step=pieces * step + piece, factor=1 / pieces)[2])
            assert weight_of(model) == pytest.approx(share * mean() / guide, rel=1e-6)
        optimiser.step()
        mean.add(part * math.prod(wholes) ** (1 / pieces))


def test_a_measurement_says_which_part_is_the_tasks():
    model = guided(hw.MDG(weight=hw.auto(0.5, every=2, window=4)))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    first = through_own_layers(model)["mdg"]
    norms = [step_with(model, optimiser, step) for step in range(5)]
    mean = Smoothing(norms[0][0])
    mean.add(norms[1][2] / math.sqrt(1.25))
    mean.add(norms[2][0])
    mean.add(norms[3][2] * norms[2][0] / norms[2][2])
    guide = (first + norms[2][1]["mdg"] + norms[4][1]["mdg"]) / 3
    assert weight_of(model) == pytest.approx(0.5 * mean() / guide, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 12, 36, 84, 134]),
        ({"every": 20}, [0, 12, 32, 52, 72, 92, 112, 132, 152]),
        ({"every": 1, "window": 2}, list(range(160))),
    ],
    ids=["default", "more often", "always"],
)
def test_guides_are_measured_rarely(options, expected):
    balance = gradient_share.Balance({"mdg": hw.auto(0.1, **options)})
    weight = torch.nn.Linear(2, 2)
    weight.attention = torch.nn.ModuleDict({"query": torch.nn.Linear(2, 2)})
    measured = []
    for step in range(160):
        before = balance.state()["auto"]["mdg"]["measured"]
        out = weight.attention["query"](torch.ones(2)).sum()
        balance.weights(weight, out, {"mdg": out * 2}, step)
        measured += [step] * (balance.state()["auto"]["mdg"]["measured"] != before)
    assert measured == expected
    assert len(balance.state()["auto"]["mdg"]["norms"]) == min(len(expected), options.get("window", 1))


def test_hooks_are_gone_after_the_step():
    model = guided(hw.MDG(weight=hw.auto(0.5)))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    step_with(model, optimiser)
    assert not any(parameter._backward_hooks for parameter in model.parameters())
    forward(model)
    assert any(parameter._backward_hooks for parameter in model.parameters())
    forward(copy.deepcopy(model)).backward()


def train_step(model, optimiser, step):
    torch.manual_seed(step)
    loss = forward(model, step)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item(), weight_of(model)


@pytest.mark.parametrize(
    ("guide", "stop"),
    [
        (hw.MDG(weight=hw.auto(0.2, every=4, window=1)), 3),
        (hw.MDG(weight=hw.guides.decay(0.5, steps=5)) + hw.PDG(weight=hw.auto(0.1)), 3),
    ],
    ids=["auto", "decay and auto"],
)
def test_a_resumed_run_continues_bit_for_bit(guide, stop):
    whole = guided(guide, dtype=torch.float32, dropout=0.1)
    optimiser = torch.optim.AdamW(whole.parameters(), lr=1e-2)
    expected = []
    for step in range(6):
        if step == stop:
            saved = copy.deepcopy((hw.guides.guidance(whole).state_dict(), whole.state_dict(), optimiser.state_dict()))
        expected.append(train_step(whole, optimiser, step))
    resumed = guided(guide, dtype=torch.float32, dropout=0.1)
    optimiser = torch.optim.AdamW(resumed.parameters(), lr=1e-2)
    state, weights, moments = saved
    assert json.loads(json.dumps(state)) == state
    hw.guides.guidance(resumed).load_state_dict(json.loads(json.dumps(state)))
    resumed.load_state_dict(weights)
    optimiser.load_state_dict(moments)
    assert [train_step(resumed, optimiser, step) for step in range(stop, 6)] == expected[stop:]


@pytest.mark.parametrize(
    "guide",
    [hw.MDG(preset="released"), hw.MDG(layers=0, heads=0)],
    ids=["released", "one map against nothing"],
)
def test_a_guide_without_a_gradient_gets_weight_zero(guide):
    # The gradient of the released code is rounding noise: nothing that may be scaled up to a share of the task's.
    model = guided(dataclasses.replace(guide, weight=hw.auto(0.5, window=1)), dtype=torch.float32)
    forward(model).backward()
    torch.optim.SGD(model.parameters(), lr=0.0).step()
    loss = forward(model)
    assert hw.guides.last_losses(model)[f"{guide.name}_weight"] == 0.0
    assert torch.equal(loss, hw.guides.guidance(model).losses.task)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_auto_measures_nothing_where_no_gradient_is_wanted_and_works_under_checkpointing():
    plain, checkpointed = (guided(hw.MDG(weight=hw.auto(0.2, every=1, window=1))) for _ in range(2))
    with torch.no_grad():
        forward(plain)
    step_with(plain, torch.optim.SGD(plain.parameters(), lr=0.0))
    loss = forward(plain)
    assert hw.guides.guidance(plain).gradient_share()["mdg"] == pytest.approx(0.2, rel=1e-6)
    checkpointed.gradient_checkpointing_enable({"use_reentrant": False})
    step_with(checkpointed, torch.optim.SGD(checkpointed.parameters(), lr=0.0))
    torch.testing.assert_close(forward(checkpointed), loss, rtol=1e-10, atol=0)


def test_auto_needs_a_query_or_key_to_train():
    model = guided(hw.MDG(weight=hw.auto(0.2)))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("query" not in name and "key" not in name)
    with pytest.raises(StateError, match=r"^no query or key projection is trainable[^\n]*use a number as weight\.$"):
        forward(model)


# -- gradient shares ---------------------------------------------------------------------------------------------------


def test_the_share_is_the_ratio_of_gradient_norms():
    model = guided(hw.MDG(weight=0.01) + hw.PDG(weight=1e-5))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        loss = forward(model, step)
        shares = hw.guides.guidance(model).gradient_share()
        guidance = hw.guides.guidance(model)
        task = pull(model, guidance._task)
        expected = {"mdg": 0.01 * pull(model, guidance._raw["mdg"]), "pdg": 1e-5 * pull(model, guidance._raw["pdg"])}
        assert shares == pytest.approx({name: norm / task for name, norm in expected.items()}, rel=1e-9)
        assert hw.guides.last_losses(model)["mdg_share"] == shares["mdg"]
        loss.backward()
        optimiser.step()


def test_the_share_leaves_the_value_projection_out():
    model = hw.guide(build_model("modernbert", dtype=torch.float64).train(), hw.MDG(weight=0.01))
    forward(model)
    guidance = hw.guides.guidance(model)

    def pull_on_query_and_key(loss):
        weights = [layer.attn.Wqkv.weight for layer in model.model.layers]  # query, key and value below each other
        found = torch.autograd.grad(loss, weights, retain_graph=True)
        return math.sqrt(sum(gradient[:64].square().sum().item() for gradient in found))

    expected = 0.01 * pull_on_query_and_key(guidance._raw["mdg"]) / pull_on_query_and_key(guidance._task)
    assert guidance.gradient_share() == pytest.approx({"mdg": expected}, rel=1e-9)


def test_asking_for_the_share_leaves_no_trace():
    silent, asked = (guided(hw.MDG(weight=0.01)) for _ in range(2))
    for model in (silent, asked):
        forward(model).backward()  # what is already there must stay as well
        loss = forward(model, 1)
        if model is asked:
            before = [parameter.grad.clone() for parameter in model.parameters()]
            hw.guides.guidance(model).gradient_share()
            hw.guides.guidance(model).gradient_share()
            assert all(torch.equal(a, b.grad) for a, b in zip(before, model.parameters(), strict=True))
        loss.backward()
    for one, other in zip(silent.parameters(), asked.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_without_a_training_step_or_after_its_backward_pass_there_is_nothing_to_measure():
    model = guided(hw.MDG(weight=0.01))
    share = hw.guides.guidance(model).gradient_share
    forward(model).backward()
    with pytest.raises(StateError, match=r"^the graph of the last forward pass is gone: ask[^\n]*backward\.$"):
        share()
    for labels in (False, True):
        if labels:
            forward(model.eval())
        else:
            model(input_ids=build_batch()["input_ids"])
        with pytest.raises(StateError, match=r"^there is no guided training step to measure: call[^\n]*\.$"):
            share()


def test_a_share_above_one_warns_once():
    model = guided(hw.MDG(weight=1e3) + hw.PDG(weight=1e-9))
    forward(model)
    with pytest.warns(
        hw.errors.HeadwiseWarning, match=r"guide mdg is [\d.e+]+ times the task's.*step 0.*auto\(0\.1\)"
    ) as seen:
        shares = hw.guides.guidance(model).gradient_share()
    assert shares["mdg"] > 1 > shares["pdg"]
    assert len(seen) == 1
    assert "\n" not in str(seen[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forward(model, 1)
        assert hw.guides.guidance(model).gradient_share()["mdg"] > 1


def test_shares_are_measured_every_so_many_steps():
    model = guided(hw.MDG(weight=1e-3), share_every=2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = []
    for step in range(5):
        for piece in range(2):
            forward(model, 2 * step + piece).backward()
            seen.append("mdg_share" in hw.guides.last_losses(model))
        optimiser.step()
    assert seen == [step % 2 == 0 and piece == 0 for step in range(5) for piece in range(2)]

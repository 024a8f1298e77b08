"""One watched layer: explicit maps against plain autograd, and requests of different kinds side by side."""

import contextlib

import pytest
import torch
from conftest import ROUTES, build_batch, build_model
from slow_attention import slow_maps
from transformers import BertForSequenceClassification

import headwise as hw
from headwise.attention import backend as watch
from headwise.attention.backend import Call
from headwise.attention.dropout import drop
from headwise.attention.maps import attention_with_maps, narrow, pick, valid_positions
from headwise.attention.passes import LayerPlan, Request

pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")

B, H, S, D = 2, 4, 6, 5
SCALE = 0.7


# -- explicit maps -----------------------------------------------------------------------------------------------------


def tensors(dtype=torch.float64):
    return [torch.randn(B, H, S, D, dtype=dtype, requires_grad=True) for _ in range(3)]


def padding(*lengths, left=False):
    """[B,1,1,S]"""
    mask = torch.arange(S) < torch.tensor(lengths)[:, None]
    return (mask.flip(1) if left else mask)[:, None, None]


def window():
    """[B,1,S,S]: two tokens to each side; the last positions of the second example are padding and see nothing."""
    near = (torch.arange(S)[:, None] - torch.arange(S)).abs() <= 2
    return near & padding(6, 2)


def added():
    """[B,H,S,S] another bias for every head; the first key of the second example is hidden by a number."""
    bias = torch.randn(B, H, S, S, dtype=torch.float64)
    bias[1, :, :, 0] = torch.finfo(torch.float32).min
    return bias


MASKS = {
    "none": lambda: None,
    "right": lambda: padding(6, 3),
    "left": lambda: padding(6, 3, left=True),
    "window": window,
    "of each head": added,
    "boolean of each head": lambda: (torch.rand(B, H, S, S) < 0.6) | torch.eye(S, dtype=torch.bool),
}


def slow_rest(query, key, value, mask, dropout=None):
    """The other heads, without dropout: [B,Q,m,D]."""
    return (slow_maps(query, key, mask, SCALE) @ value).transpose(1, 2)


def written_out(query, key, value, heads, mask, kept=None, rate=0.0):
    """The same by plain autograd; `kept` is what dropout leaves of the maps of `heads`."""
    before = slow_maps(query, key, mask, SCALE)
    after = before[:, heads] if kept is None else before[:, heads] * kept / (1 - rate)
    out = (before @ value).clone()
    out[:, heads] = after @ value[:, heads]
    return out.transpose(1, 2), before[:, heads], after


def compare(ours, theirs, inputs):
    """Values, and gradients of every output by itself and of all together."""
    weights = [torch.randn_like(each) for each in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)
    for chosen in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]):
        found = [
            torch.autograd.grad(
                sum((outputs[each] * weights[each]).sum() for each in chosen),
                inputs,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            for outputs in (ours, theirs)
        ]
        assert found[1][0].abs().max() > 1e-6
        torch.testing.assert_close(*found, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("heads", "mask"), [*(([0, 2, 3], mask) for mask in MASKS), ([0, 1, 2, 3], "right"), ([1, 2], "of each head")]
)
def test_maps_equal_those_written_out(heads, mask):
    mask = MASKS[mask]()
    query, key, value = inputs = tensors()
    ours = attention_with_maps(*inputs, heads, mask=mask, scale=SCALE, dropout=None, rest=slow_rest)
    assert ours[0].shape == (B, S, H, D)
    assert ours[1].shape == (B, len(heads), S, S)
    assert ours[1] is ours[2]
    compare(ours, written_out(query, key, value, heads, mask), inputs)


@pytest.mark.parametrize("mask", ["window", "of each head"])
def test_dropout_equals_that_written_out(mask):
    heads, mask = [0, 2, 3], MASKS[mask]()
    query, key, value = inputs = tensors()
    dropout = drop(0.3, (B, H, S, S))
    left = dropout.kept()[:, heads]
    ours = attention_with_maps(*inputs, heads, mask=mask, scale=SCALE, dropout=dropout, rest=slow_rest)
    compare(ours, written_out(query, key, value, heads, mask, left, 0.3), inputs)


def test_a_bias_that_is_learned_gets_its_gradient():
    query, key, value = inputs = tensors()
    bias = torch.randn(B, H, S, S, dtype=torch.float64, requires_grad=True)
    ours = attention_with_maps(*inputs, [0, 2], mask=bias, scale=SCALE, dropout=None, rest=slow_rest)
    compare(ours, written_out(query, key, value, [0, 2], bias), [*inputs, bias])


def test_half_precision_keeps_its_maps_in_float32():
    heads, mask = [0, 2, 3], padding(6, 3)
    exact = tensors(torch.float32)
    halves = [each.detach().bfloat16().requires_grad_() for each in exact]
    ours = attention_with_maps(*halves, heads, mask=mask, scale=SCALE, dropout=None, rest=slow_rest)
    theirs = written_out(*exact, heads, mask)
    assert [each.dtype for each in ours] == [torch.bfloat16, torch.float32, torch.float32]
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.float(), other, rtol=0.1, atol=0.05)
    for outputs, inputs in ((ours, halves), (theirs, exact)):
        (outputs[0].float().square().sum() + outputs[1].square().sum()).backward()
        assert all(each.grad.isfinite().all() for each in inputs)
    for mine, other in zip(halves, exact, strict=True):
        assert mine.grad.dtype == torch.bfloat16
        torch.testing.assert_close(mine.grad.float(), other.grad, rtol=0.2, atol=0.2)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_neither_maps_nor_dropout_masks_are_kept(rate):
    inputs, dropout = tensors(), drop(rate, (B, H, S, S)) if rate else None
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: saved.append(each) or each, lambda each: each):
        attention_with_maps(*inputs, range(H), mask=padding(6, 3), scale=SCALE, dropout=dropout, rest=slow_rest)
    assert saved
    assert not [each.dtype for each in saved if each.shape == (B, H, S, S)]


def test_the_rest_goes_without_a_copy_where_heads_are_neighbours():
    whole = torch.randn(B, H, S, D)
    assert pick(whole, [0, 1, 2, 3]) is whole
    assert pick(whole, [1, 2]).data_ptr() == whole[:, 1].data_ptr()
    for heads in ([1, 2], [0, 3], [3], [3, 0], [1, 0]):
        assert torch.equal(pick(whole, heads), whole[:, heads])


# -- each head the cheapest way ----------------------------------------------------------------------------------------


def plan(*requests):
    return LayerPlan(1, [Request.of(what, {1: heads}, after_dropout=after) for what, heads, after in requests], ())


@pytest.mark.parametrize(
    ("requests", "mapped", "counted", "seen", "after"),
    [
        ([], (), False, False, False),
        ([("received", (0, 1), False)], (), True, True, False),
        ([("map", (0, 2), True), ("map", (1,), False)], (0, 1, 2), False, True, False),
        ([("map", (0, 1), False), ("received", (0, 1), False)], (0, 1), False, True, False),
        ([("map", (0, 1), False), ("received", (1, 2), True)], (0, 1), True, True, True),
        ([("received", (0,), False), ("received", (3,), True)], (0, 3), False, True, False),
        ([("value", (0,), False), ("output", (1,), False)], (), False, False, False),
    ],
)
def test_a_plan_makes_no_more_maps_than_it_must(requests, mapped, counted, seen, after):
    made = plan(*requests)
    assert (made.mapped, made.counted, made.seen, made.after_dropout) == (mapped, counted, seen, after)
    assert made.watched is bool(requests)
    assert not LayerPlan(0, [Request.of("map", {1: (0,)})], ()).watched


def call(mask=None, dropout=None):
    query, key, value = (each.detach() for each in tensors())
    mask = narrow(mask)
    return Call(query, key, value, mask, valid_positions(mask, len(query)), SCALE, dropout)


@pytest.mark.parametrize("mask", ["none", "window", "of each head"])
def test_the_other_heads_run_sdpa(mask, monkeypatch):
    calls, heads, mask = [], [0, 2, 3], MASKS[mask]()
    sdpa = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *args, **options: calls.append(args[0].shape[1]) or sdpa(*args, **options),
    )
    given = call(mask)
    out, seen = watch.watch(given, plan(("map", tuple(heads), False)))
    expected, maps, _ = written_out(given.query, given.key, given.value, heads, mask)
    assert calls == [H - len(heads)]
    # The output of a blind query does not count: it is that of SDPA here.
    sees = (
        torch.ones(B, S, H, 1) if mask is None else slow_maps(given.query, given.key, mask, 1.0).sum(-1).mT[..., None]
    )
    torch.testing.assert_close(out * (sees > 0), expected * (sees > 0), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(seen.before, maps, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("heads", "asked"), [((1, 3), (0, 1, 2, 3)), ((0, 1, 2, 3), (1, 2))], ids=str)
def test_received_is_the_same_whether_by_maps_or_counted(heads, asked):
    given = call(padding(6, 3))
    requests = [Request.of("map", {1: heads}), Request.of("received", {1: asked})]
    _, seen = watch.watch(given, LayerPlan(1, requests, ()))
    maps = slow_maps(given.query, given.key, given.mask, SCALE) * padding(6, 3).mT
    torch.testing.assert_close(seen.received(requests[1], asked), maps.sum(2)[:, asked], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(seen.map(requests[0], heads), maps[:, heads], rtol=1e-9, atol=1e-11)


def test_rows_of_padding_are_left_only_to_those_who_take_them():
    given = call(padding(6, 3))
    requests = [Request.of("map", {1: (0, 1)}), Request.of("map", {1: (0, 1)}, padding_rows=True)]
    _, seen = watch.watch(given, LayerPlan(1, requests, ()))
    blank, whole = (seen.map(request, (0, 1)) for request in requests)
    assert not blank[1, :, 3:].any()
    torch.testing.assert_close(whole.sum(-1), torch.ones(B, 2, S, dtype=torch.float64))
    assert whole.data_ptr() == seen.before.data_ptr()  # no copy


# -- side by side in a model -------------------------------------------------------------------------------------------

# (what, heads, after dropout)
TOGETHER = {
    "maps and received": [("map", [0, 1], False), ("received", "all", False)],
    "maps of others": [("map", [1, 3], False), ("received", [0, 2], False)],
    "maps that overlap": [("map", [0, 2], False), ("map", [1, 2], True), ("received", [2, 3], False)],
    "before and after": [("map", [0, 1], False), ("received", "all", False), ("received", [2, 3], True)],
    "all kinds": [("value", [3], False), ("map", [2], False), ("output", [0, 2], False), ("received", "all", True)],
}


@pytest.mark.parametrize(
    ("family", "together"),
    [*(("bert", name) for name in TOGETHER), ("modernbert", "all kinds"), ("deberta-v2", "all kinds")],
)
def test_requests_side_by_side_are_those_apart(family, together):
    model, batch = build_model(family, dtype=torch.float64).train(), build_batch()
    requests = TOGETHER[together]
    weights, sums, apart = [], 0, []
    for what, heads, after in requests:
        with hw.capture(model, what=what, heads=heads, after_dropout=after) as record:
            model(**batch)
        apart.append(record.stacked())
        weights.append(torch.randn_like(apart[-1]) * (record.valid[:, None, :, None] if apart[-1].dim() == 4 else 1))
        sums = sums + (apart[-1] * weights[-1]).sum()
    with contextlib.ExitStack() as stack:
        records = [
            stack.enter_context(hw.capture(model, what=what, heads=heads, after_dropout=after))
            for what, heads, after in requests
        ]
        model(**batch)
    together = [record.stacked() for record in records]
    tokens = batch["attention_mask"].bool()[:, None, :, None]
    for (what, _, _), mine, other in zip(requests, together, apart, strict=True):
        counts = tokens if what in ("value", "output") else 1
        torch.testing.assert_close(mine * counts, other * counts, rtol=1e-8, atol=1e-8)
    total = sum((each * weight).sum() for each, weight in zip(together, weights, strict=True))
    ours, theirs = (
        torch.autograd.grad(each, list(model.parameters()), allow_unused=True, materialize_grads=True)
        for each in (total, sums)
    )
    assert max(each.abs().max() for each in theirs) > 1e-3
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_under_dropout_all_look_at_the_same_pass(batch):
    model = build_model("bert", dropout=0.4, dtype=torch.float64).train()
    with (
        hw.capture(model, what="map", heads=[0, 1]) as before,
        hw.capture(model, what="map", heads=[1, 2], after_dropout=True) as after,
        hw.capture(model) as received,
        hw.capture(model, after_dropout=True, heads=[1, 2, 3]) as left,
    ):
        model(**batch)
    votes = batch["attention_mask"].sum(1, keepdim=True).double()
    for layer in range(3):
        torch.testing.assert_close(before[layer].sum(2), received[layer][:, [0, 1]])
        torch.testing.assert_close(after[layer].sum(2), left[layer][:, [0, 1]])
        torch.testing.assert_close(received[layer].sum(-1), votes.expand(-1, 4))
        assert (left[layer].sum(-1) - votes).abs().min() > 1e-4
        both = (before[layer][:, 1], after[layer][:, 0])  # head 1
        kept = both[1] != 0
        torch.testing.assert_close(both[1][kept], both[0][kept] / 0.6)


@pytest.mark.parametrize("family", ROUTES)
def test_gradient_checkpointing_gives_the_same_gradients(family, batch):
    found = []
    for checkpointing in (False, True):
        model = build_model(family, dtype=torch.float64).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        with hw.capture(model, what="map", heads=[0, 2]) as maps, hw.capture(model, heads=[2, 3]) as received:
            output = model(**batch)
            (maps.stacked().square().sum() + received.stacked().square().sum() + output.loss).backward()
        found.append([each.grad for each in model.parameters() if each.grad is not None])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_a_guided_step_under_autocast_and_in_bfloat16(batch):
    heads = [0, 2]
    expected = step(build_model("bert"), heads, batch)
    assert step(build_model("bert", dtype=torch.bfloat16), heads, batch) == pytest.approx(expected, rel=0.05)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert step(build_model("bert"), heads, batch) == pytest.approx(expected, rel=0.05)


def step(model, heads, batch):
    hw.guide(model.train(), hw.Match("next", heads=heads, weight=1.0))
    model(**batch).loss.backward()
    assert all(each.grad.isfinite().all() for each in model.parameters() if each.grad is not None)
    return hw.guides.last_losses(model)["match"]


# -- what the model never sees -----------------------------------------------------------------------------------------


class Plain(BertForSequenceClassification):
    """Refuses what a model does not know."""

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        return super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels)


VISITORS = {
    "capture": lambda model: hw.capture(model),
    "parts": lambda model: hw.capture(model, what="value"),
    "gate": lambda model: hw.gate(model, torch.ones(3, 4)),
    "guide": lambda model: contextlib.nullcontext(hw.guide(model, hw.Match("next"))),
}


@pytest.mark.parametrize(("visitor", "training"), [*((each, True) for each in VISITORS), ("guide", False)])
def test_knowledge_and_special_tokens_never_reach_the_model(visitor, training, batch):
    model = Plain(build_model("bert").config).train(training)
    ours = {"knowledge": {"own:map": torch.ones(3, 12, 12)}, "special_tokens_mask": torch.zeros(3, 12)}
    expected = model(**batch).logits
    with pytest.raises(TypeError, match="knowledge|special_tokens_mask"):
        model(**batch, **ours)
    with VISITORS[visitor](model):
        given = {**batch, **ours}
        torch.testing.assert_close(model(**given).logits, expected)
        assert set(given) == {*batch, *ours}  # the caller keeps them
        torch.testing.assert_close(model(**batch, knowledge=None, special_tokens_mask=None).logits, expected)

"""Disagreement: an explicit loop over pairs of heads, on values and outputs that are got by another way."""

import pytest
import torch
from conftest import EAGER, build_batch, build_model
from guides.reference import NO_INPUTS, assert_same_gradients, gradients, slow_maps

import headwise as hw
from headwise.attention import AttentionRecord, Request, backend
from headwise.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:.* does not call custom attention:headwise.errors.HeadwiseWarning")

HEADS = 4
ON = ("subspace", "position", "output")
REDUCTIONS = ("pairs", "paper")
# Where a family makes its values.
VALUES = {"bert": "attention.self.value", "deberta-v2": "value_proj"}


# -- the slow reference ------------------------------------------------------------------------------------------------


def seen_apart(model, family, batch):
    """Of a model that headwise does not touch, by `on`: [N][B,H,S,D or K] with its graph."""
    values = []

    def note(module, args, output):
        values.append(output.unflatten(-1, (HEADS, -1)).transpose(1, 2))

    handles = [
        module.register_forward_hook(note) for name, module in model.named_modules() if name.endswith(VALUES[family])
    ]
    maps = slow_maps(model, batch, eager=family in EAGER).split(HEADS, 1)
    for handle in handles:
        handle.remove()
    assert len(values) == len(maps) == 3
    outputs = [each @ value for each, value in zip(maps, values, strict=True)]
    return {"subspace": values, "position": list(maps), "output": outputs}


def slow_disagreement(layers, counted, on, reduction):
    """A mean over examples of a mean over layers of a mean over tokens of a mean over pairs."""
    examples = []
    for example, positions in enumerate(counted.tolist()):
        each = [
            slow_agreement([head[token] for head in parts[example]], on, reduction)
            for parts in layers
            for token, counts in enumerate(positions)
            if counts
        ]
        if each:
            examples.append(torch.stack(each).mean())
    return torch.stack(examples).mean()


def slow_agreement(vectors, on, reduction):
    """Of one token."""
    pairs = []
    for i, one in enumerate(vectors):
        for j, other in enumerate(vectors):
            if i != j or reduction == "paper":
                scale = 1 if on == "position" else one.norm() * other.norm()
                pairs.append(one @ other / scale)
    return torch.stack(pairs).mean()


def with_special_tokens():
    """The first token and the fourth are special."""
    batch = build_batch()
    special = torch.zeros_like(batch["input_ids"])
    special[:, [0, 3]] = 1
    return batch, special


def guided(model, guide, batch):
    """(the raw value, the same in the graph) of one training pass."""
    hw.guide(model.train(), guide)
    model(**{name: each for name, each in batch.items() if name != "labels"})
    guidance = hw.guides.guidance(model)
    added = guidance.total(torch.zeros((), dtype=model.dtype))
    hw.unguide(model)
    return guidance.losses.guides["disagreement"].raw, added


def same(actual, expected):
    """The weights of tokens are float32: 1/3 has seven places."""
    torch.testing.assert_close(actual, expected.detach(), rtol=0, atol=1e-8)


@pytest.mark.parametrize(("family", "special_tokens"), [("bert", True), ("bert", False), ("deberta-v2", False)])
def test_equals_the_slow_reference_in_value_and_gradient(family, special_tokens):
    batch, special = with_special_tokens()
    model, twin = (build_model(family, dtype=torch.float64) for _ in range(2))
    apart = seen_apart(twin.eval(), family, batch)
    counted = batch["attention_mask"].bool()
    if not special_tokens:
        counted = counted & (special == 0)
    for on in ON:
        for reduction in REDUCTIONS:
            guide = hw.guides.Disagreement(on=on, reduction=reduction, special_tokens=special_tokens, weight=1.0)
            value, added = guided(model, guide, {**batch, "special_tokens_mask": special})
            expected = slow_disagreement(apart[on], counted, on, reduction)
            same(value, expected)
            assert_same_gradients(gradients(model, added), gradients(twin, expected), 1e-6)


def test_some_heads_of_some_layers():
    on = "output"
    batch = build_batch()
    model, twin = (build_model("bert", dtype=torch.float64) for _ in range(2))
    parts = seen_apart(twin.eval(), "bert", batch)[on]
    value, _ = guided(model, hw.guides.Disagreement(on=on, heads={0: [0, 3], 2: [1, 2, 3]}), batch)
    chosen = [parts[0][:, [0, 3]], parts[2][:, [1, 2, 3]]]
    expected = torch.stack(
        [slow_disagreement([each], batch["attention_mask"].bool(), on, "pairs") for each in chosen]
    ).mean()
    same(value, expected)


# -- worked by hand ----------------------------------------------------------------------------------------------------


def by_hand(parts, valid=None, *, layers=1, **options):
    """Of values or outputs [B,n,S,D] that are given."""
    guide = hw.guides.Disagreement(**options)
    chunks = parts.chunk(layers, 1)
    request = Request.of(guide.what, {layer: tuple(range(each.shape[1])) for layer, each in enumerate(chunks)})
    valid = torch.ones(parts.shape[0], parts.shape[2], dtype=torch.bool) if valid is None else valid
    return guide(AttentionRecord(request).fill(dict(enumerate(chunks)), valid, None), NO_INPUTS).item()


# Two heads of two dimensions, at two tokens: at the first (3, 4) and (5, 0), whose cosine is 3/5; at the second (0, 2)
# and (0, -1), whose cosine is -1.
TWO = torch.tensor([[[[3.0, 4.0], [0.0, 2.0]], [[5.0, 0.0], [0.0, -1.0]]]], dtype=torch.float64)


@pytest.mark.parametrize("on", ["subspace", "output"])
def test_by_hand(on):
    assert by_hand(TWO, on=on) == pytest.approx((3 / 5 - 1) / 2, rel=1e-12)
    # with the pairs of a head and itself: (1 + 1 + 2 * 3/5) / 4 and (1 + 1 - 2) / 4
    assert by_hand(TWO, on=on, reduction="paper") == pytest.approx((16 / 5 / 4 + 0) / 2, rel=1e-12)


def test_by_hand_of_maps():
    """At the first token (1/2, 1/2) and (1/4, 3/4): together 1/2; at the second (1, 0) and (0, 1): nothing."""
    maps = torch.tensor([[[[0.5, 0.5], [1.0, 0.0]], [[0.25, 0.75], [0.0, 1.0]]]], dtype=torch.float64)
    assert by_hand(maps, on="position") == pytest.approx((1 / 2 + 0) / 2, rel=1e-12)
    # the heads with themselves: 1/2 and 10/16, then 1 and 1
    paper = ((1 / 2 + 10 / 16 + 2 / 2) / 4 + (1 + 1 + 0) / 4) / 2
    assert by_hand(maps, on="position", reduction="paper") == pytest.approx(paper, rel=1e-12)


def test_a_head_that_says_nothing_agrees_with_none():
    """Dropout may take all that a token looked at: its cosine with others is 0, its gradient finite."""
    vectors = torch.tensor([[3.0, 4.0], [5.0, 0.0], [0.0, 0.0]], dtype=torch.float64).view(1, 3, 1, 2)
    for reduction, expected in {"pairs": 2 * 3 / 5 / 6, "paper": (2 + 2 * 3 / 5) / 9}.items():
        assert by_hand(vectors, reduction=reduction) == pytest.approx(expected, rel=1e-12)
    parts = torch.zeros(1, 3, 1, 2, requires_grad=True)
    record = AttentionRecord(Request.of("output", {0: (0, 1, 2)}))
    record.fill({0: parts}, torch.ones(1, 1, dtype=torch.bool), None)
    hw.guides.Disagreement()(record, NO_INPUTS).backward()
    assert parts.grad.isfinite().all()


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_only_positions_need_maps_and_only_those_of_the_chosen_heads(batch, monkeypatch):
    plain, explicit, calls = backend.sdpa_attention_forward, backend.attention_with_maps, []
    monkeypatch.setattr(
        backend, "sdpa_attention_forward", lambda *args, **more: calls.append("plain") or plain(*args, **more)
    )
    monkeypatch.setattr(
        backend, "attention_with_maps", lambda *args, **more: calls.append(list(args[3])) or explicit(*args, **more)
    )
    guided(build_model("bert"), hw.guides.Disagreement(on="position", heads=[1, 2]), batch)
    assert calls == [[1, 2]] * 3
    calls.clear()
    monkeypatch.setattr(backend, "watch", lambda *args, **more: pytest.fail("attention was watched"))
    for on in ("subspace", "output"):
        guided(build_model("bert"), hw.guides.Disagreement(on=on), batch)
    assert calls == ["plain"] * 6


def test_one_head_has_nobody_to_disagree_with(batch):
    model = hw.guide(build_model("bert").train(), hw.guides.Disagreement(heads={0: [1, 2], 2: [3]}))
    with pytest.raises(InputError, match="disagreement on one head of layer 2: choose two or more with heads"):
        model(**batch)

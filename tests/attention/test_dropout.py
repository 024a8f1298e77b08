"""Attention dropout is the same whichever way attention is computed, and however a batch is split."""

import contextlib
import copy

import pytest
import torch
from conftest import FUSED, build_batch, build_model
from contracts.test_guides import TOKENIZER, by_name, pick, with_special_tokens
from guides.reference import inputs_of

import headwise as hw
from headwise.attention import SeededDropout, received
from headwise.attention.dropout import drop, lowest_kept
from headwise.guides import GUIDES, Guide

RATE = 0.1


def wrapped(number):
    """The number as a signed integer of 32 bits."""
    return (number + 2**31) % 2**32 - 2**31


def slow_kept(row, column, rate):
    """The hash of two keys, by Python's integers."""
    bits = wrapped((row ^ column) * -1640531527)
    bits = wrapped((bits ^ (bits >> 15)) * 739982445)
    return bits >= rate * 2**32 - 2**31


def test_what_is_kept_equals_the_hash_written_out():
    dropout = drop(0.3, (3, 2, 4, 5))
    kept = dropout.kept()
    for example in range(3):
        for head in range(2):
            for query in range(4):
                row = int(dropout.rows[example, head, query])
                expected = [slow_kept(row, int(column), 0.3) for column in dropout.columns[example]]
                assert kept[example, head, query].tolist() == expected


def test_parts_of_a_batch_and_of_its_heads_lose_the_same_weights(monkeypatch):
    dropout = drop(0.5, (4, 3, 6, 6))
    kept = dropout.kept()
    assert torch.equal(dropout.examples(slice(1, 3)).kept(), kept[1:3])
    assert torch.equal(dropout.heads([0, 2]).kept(), kept[:, [0, 2]])
    monkeypatch.setattr("headwise.attention.dropout.PART_BYTES", 1)
    assert torch.equal(dropout.kept(), kept)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_masks_look_independent(rate):
    shape = (6, 4, 64, 64)
    masks = [drop(rate, shape, seed=torch.tensor(seed)).kept(torch.float64) for seed in (1, 2)]
    first, second = ((mask - (1 - rate)) / (rate * (1 - rate)) ** 0.5 for mask in masks)
    pairs = {
        "the mean": first,
        "two seeds": first * second,
        "two examples": first[1:] * first[:-1],
        "two heads": first[:, 1:] * first[:, :-1],
        "two queries": first[:, :, 1:] * first[:, :, :-1],
        "two keys": first[..., 1:] * first[..., :-1],
        "squares, which a sum of two keys would show": (
            first[..., 1:, 1:] * first[..., 1:, :-1] * first[..., :-1, 1:] * first[..., :-1, :-1]
        ),
    }
    for name, product in pairs.items():
        assert abs(product.mean()) < 5 * product.std() / product.numel() ** 0.5, name


def test_extreme_rates():
    assert (lowest_kept(0.0), lowest_kept(1.0)) == (-(2**31), 2**31 - 1)
    assert drop(0.0, (1, 1, 8, 8)).kept().all()


# -- every way to compute attention ------------------------------------------------------------------------------------


def outcome(model, batch):
    """Logits and gradients of one step, and the state of torch's generator after it."""
    torch.manual_seed(3)
    output = model(**batch)
    output.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return output.logits.detach(), gradients, torch.get_rng_state()


def assert_same_outcome(ours, plain, name):
    torch.testing.assert_close(ours[0], plain[0], rtol=1e-5, atol=1e-5, msg=lambda text: f"{name}: {text}")
    assert ours[1].keys() == plain[1].keys()
    for parameter, gradient in ours[1].items():
        message = f"{name}, {parameter}"
        torch.testing.assert_close(gradient, plain[1][parameter], rtol=1e-5, atol=1e-5, msg=message)
    assert torch.equal(ours[2], plain[2]), name


WAYS = {
    "received": lambda model: hw.capture(model),
    "received of some heads": lambda model: hw.capture(model, heads=[0, 2]),
    "received, after dropout": lambda model: hw.capture(model, after_dropout=True),
    "all maps": lambda model: hw.capture(model, what="map"),
    "some maps": lambda model: hw.capture(model, what="map", layers=[1], heads=[1, 3]),
    "maps and received": lambda model: both(model),
    "values": lambda model: hw.capture(model, what="value"),
    "gates of one": lambda model: hw.gate(model, torch.ones(3, 4)),
}


@contextlib.contextmanager
def both(model):
    with hw.capture(model, what="map", heads=[1]), hw.capture(model):
        yield


# Small batches keep their maps; one family with key masks and one with windows is computed in tiles, too.
@pytest.mark.parametrize(
    ("family", "tiled"), [*((family, False) for family in FUSED), ("bert", True), ("modernbert", True)]
)
def test_all_ways_and_all_guides_lose_the_same_weights(family, tiled, monkeypatch):
    monkeypatch.setattr(received, "SMALL_BYTES", 0 if tiled else received.SMALL_BYTES)
    batch = with_special_tokens(build_batch(padding=2))
    plain = build_model(family, dropout=RATE, hidden_dropout_prob=RATE).train()
    guides = [name for name in GUIDES if issubclass(GUIDES[name], Guide)]  # the others change what the model computes
    twins = {name: copy.deepcopy(plain) for name in [*WAYS, *guides]}
    plain.set_attn_implementation("headwise")
    expected = outcome(plain, {name: value for name, value in batch.items() if name != "special_tokens_mask"})
    for name, way in WAYS.items():
        with way(twins[name]):
            assert_same_outcome(outcome(twins[name], batch), expected, name)
    for name in guides:
        guide = by_name(name, weight=1e-30)
        hw.guide(twins[name], guide, tokenizer=TOKENIZER)
        carried = {**batch, "knowledge": dict(inputs_of(guide, batch).knowledge)}
        assert_same_outcome(outcome(twins[name], carried), expected, name)


def test_the_kernels_drop_the_same_weights(monkeypatch):
    """Autograd, tiles and slabs, which the size of a batch and the device choose."""
    results = []
    for small, tiled in ((1 << 30, False), (0, True), (0, False)):
        monkeypatch.setattr(received, "SMALL_BYTES", small)
        monkeypatch.setattr(received, "_in_tiles", lambda query, tiled=tiled: tiled)
        model = build_model("bert", dropout=0.4, dtype=torch.float64).train()
        model.set_attn_implementation("headwise")
        results.append(outcome(model, build_batch()))
    assert_same_outcome(results[1], results[0], "tiles")
    assert_same_outcome(results[2], results[0], "slabs")


def test_without_dropout_plain_models_run_sdpa():
    model, batch = build_model("bert", dropout=RATE).eval(), build_batch()
    expected = model(**batch).logits
    model.set_attn_implementation("headwise")
    assert torch.equal(model(**batch).logits, expected)


def test_the_mean_over_masks_is_attention_without_dropout():
    """Kept weights are enlarged as in any dropout."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 6, 4)
    dropped = [drop(0.3, (1, 2, 6, 6), seed=torch.tensor(seed)) for seed in range(3000)]
    outs = torch.stack([received.attention_with_received(query, key, value, dropout=each)[0] for each in dropped])
    exact = received.attention_with_received(query, key, value)[0]
    errors = outs.std(0) / len(outs) ** 0.5
    assert ((outs.mean(0) - exact).abs() < 5 * errors).all()


# -- a seed from outside -----------------------------------------------------------------------------------------------


def masks_seen(model, batch, step=0, seed=1):
    """By layer, which weights [B,H,S,S] are dropped."""
    dropout = SeededDropout(model, seed)
    dropout.step = step
    with hw.capture(model, what="map", after_dropout=True) as record, torch.no_grad():
        model(**batch)
    dropout.remove()
    return [record[layer] == 0 for layer in range(3)]


@pytest.fixture
def dropping():
    return build_model("bert", dropout=0.5).train()


def test_an_example_loses_the_same_weights_in_any_batch(dropping):
    batch = build_batch(size=3, length=12)
    together = masks_seen(dropping, batch)
    for example in range(3):
        length = int(batch["attention_mask"][example].sum())
        alone = {name: value[..., :length] for name, value in pick(batch, [example]).items() if name != "labels"}
        torch.manual_seed(example)  # decides nothing here
        for whole, single in zip(together, masks_seen(dropping, alone), strict=True):
            assert single.any()
            assert torch.equal(whole[example, :, :length, :length], single[0])


def test_padding_on_the_left_shifts_what_is_lost(dropping):
    batch = build_batch(size=1, length=8)
    padded = {name: torch.nn.functional.pad(batch[name], (3, 0), value=0) for name in ("input_ids", "attention_mask")}
    padded["position_ids"] = (padded["attention_mask"].cumsum(1) - 1).clamp_min(0)
    for plain, shifted in zip(masks_seen(dropping, batch), masks_seen(dropping, padded), strict=True):
        assert torch.equal(shifted[:, :, 3:, 3:], plain)


@pytest.mark.parametrize("change", [{"step": 1}, {"seed": 2}])
def test_steps_seeds_layers_and_examples_lose_different_weights(dropping, change):
    batch = build_batch(size=2, length=12)
    first, other = masks_seen(dropping, batch), masks_seen(dropping, batch, **change)
    assert all(not torch.equal(mine, theirs) for mine, theirs in zip(first, other, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0][0, :, :9, :9], first[0][1, :, :9, :9])


def test_removed_dropout_leaves_the_model_as_it_was(dropping):
    before = dict(dropping.__dict__)
    SeededDropout(dropping, 1).remove()
    assert dropping.__dict__.keys() == before.keys()
    assert dropping.config._attn_implementation == "sdpa"


def test_gradient_checkpointing_drops_the_same_weights_again(dropping):
    plain, checkpointed = dropping, copy.deepcopy(dropping)
    checkpointed.gradient_checkpointing_enable({"use_reentrant": False})
    results = []
    for model in (plain, checkpointed):
        dropout = SeededDropout(model, 1)
        results.append(outcome(model, build_batch()))
        dropout.remove()
    assert_same_outcome(*results, "checkpointing")

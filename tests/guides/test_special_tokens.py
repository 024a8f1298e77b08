"""With special_tokens=False only content counts; a tokenizer or a mask says what is special."""

from types import SimpleNamespace

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import NO_INPUTS, random_maps, record_of, slow_maps, slow_mdg, slow_pdg

import headwise as hw
from headwise.errors import InputError

KINDS = pytest.mark.parametrize(("kind", "slow"), [(hw.MDG, slow_mdg), (hw.PDG, slow_pdg)])


def batch_with_special():
    """Tokens 2 and 3 as [CLS] and [SEP], around and between the words."""
    batch = build_batch()
    batch["input_ids"][:, 0] = 2
    batch["input_ids"][:, 4] = 3
    return batch, torch.isin(batch["input_ids"], torch.tensor([1, 2, 3]))


@pytest.mark.parametrize("source", ["tokenizer", "mask"])
@KINDS
def test_special_tokens_can_be_left_out(kind, slow, source):
    batch, special = batch_with_special()
    model, twin = (build_model("bert", dtype=torch.float64).train() for _ in range(2))
    tokenizer = SimpleNamespace(all_special_ids=[1, 2, 3, 2]) if source == "tokenizer" else None
    hw.guide(model, kind(special_tokens=False), tokenizer=tokenizer)
    model(**batch, **({} if tokenizer else {"special_tokens_mask": special.long()}))
    valid = batch["attention_mask"] != 0
    maps = slow_maps(twin, batch, eager=False)
    actual = hw.guides.guidance(model).losses.guides[kind.name].raw
    torch.testing.assert_close(actual, slow(maps, valid, valid & ~special), rtol=1e-10, atol=0)
    assert not torch.isclose(actual, slow(maps, valid), rtol=1e-3)


def test_the_mask_of_the_batch_comes_before_the_tokenizer():
    kind = hw.MDG
    batch, special = batch_with_special()
    model = hw.guide(
        build_model("bert").train(), kind(special_tokens=False), tokenizer=SimpleNamespace(all_special_ids=[])
    )
    model(**batch)
    none_special = hw.guides.last_losses(model)[kind.name]
    model(**batch, special_tokens_mask=special)
    assert hw.guides.last_losses(model)[kind.name] != pytest.approx(none_special, rel=1e-4)


@KINDS
def test_an_example_of_special_tokens_only_does_not_count(kind, slow):
    valid = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    special = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0]]).bool()
    maps = random_maps(valid)
    guide = kind(special_tokens=False)
    both = guide(record_of(maps, valid, special=special), NO_INPUTS)
    first = guide(record_of(maps[:1], valid[:1], special=special[:1]), NO_INPUTS)
    torch.testing.assert_close(both, first, rtol=1e-12, atol=0)
    (gradient,) = torch.autograd.grad(both, maps)
    assert gradient.isfinite().all()
    assert not gradient[1].any()
    assert gradient[0].any()


@pytest.mark.parametrize("training", [True, False])
def test_the_mask_does_not_reach_the_model(training):
    batch, special = batch_with_special()
    plain = build_model("bert").train(training)
    expected = plain(**batch).logits
    guided = hw.guide(build_model("bert").train(training), hw.MDG())
    torch.testing.assert_close(guided(**batch, special_tokens_mask=special).logits, expected)


def test_without_a_tokenizer_or_a_mask_special_tokens_are_unknown():
    model = hw.guide(build_model("bert").train(), hw.PDG(special_tokens=False))
    with pytest.raises(InputError, match=r"^pdg\(special_tokens=False\) .*tokenizer=.*special_tokens_mask=.*\.$"):
        model(**build_batch())

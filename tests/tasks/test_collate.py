"""Padded batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.data import Collator
from headwise.errors import InputError

EXAMPLES = st.lists(st.lists(st.integers(5, 99), min_size=1, max_size=12), min_size=1, max_size=6)


def items(examples, **more):
    return [{"input_ids": np.array(ids, np.int32), **{name: f(ids) for name, f in more.items()}} for ids in examples]


@given(EXAMPLES, st.sampled_from(["right", "left"]), st.sampled_from(["dynamic", "fixed"]), st.integers(1, 8))
def test_round_trip(examples, side, padding, multiple):
    batch = Collator(0, "classification", padding, 12, side, multiple)(items(examples))
    ids, mask = batch["input_ids"], batch["attention_mask"]
    assert [row[real.bool()].tolist() for row, real in zip(ids, mask, strict=True)] == examples  # content and order
    assert (ids[mask == 0] == 0).all()
    assert ids.dtype == mask.dtype == torch.int64
    longest = max(map(len, examples))
    assert ids.shape[1] == (12 if padding == "fixed" else min(-(-longest // multiple) * multiple, 12))
    inner = mask if side == "right" else mask.flip(1)
    assert (inner.diff(dim=1) <= 0).all()  # all padding on one side


def test_token_types_and_labels():
    made = items([[5, 6], [7]], token_type_ids=lambda ids: np.ones(len(ids), np.int8), labels=len)
    batch = Collator(1, pad_type_id=3)(made)
    assert batch["input_ids"].tolist() == [[5, 6], [7, 1]]
    assert batch["token_type_ids"].tolist() == [[1, 1], [1, 3]]
    assert batch["labels"].tolist() == [2, 1]
    assert batch["labels"].dtype == torch.int64


def test_numbers_are_floats():
    batch = Collator(0, "regression")(items([[5], [6]], labels=lambda ids: ids[0] / 2))
    assert batch["labels"].dtype == torch.float32
    assert batch["labels"].tolist() == [2.5, 3.0]


def test_labels_of_rankings_have_the_shape_of_one_logit():
    batch = Collator(0, "ranking")(items([[5], [6]], labels=lambda ids: float(ids[0] == 5)))
    assert batch["labels"].dtype == torch.float32
    assert batch["labels"].tolist() == [[1.0], [0.0]]


def test_lists_do_as_well_and_nothing_else_is_made():
    assert set(Collator(0)([{"input_ids": [5, 6], "other": 1}])) == {"input_ids", "attention_mask"}


def test_of_a_tokenizer():
    class Tokenizer:
        pad_token_id, pad_token_type_id, padding_side = 7, 2, "left"

    made = Collator.of(Tokenizer(), "regression", padding="fixed", max_length=4)
    assert made == Collator(7, "regression", "fixed", 4, "left", pad_type_id=2)
    Tokenizer.pad_token_id = None
    with pytest.raises(InputError, match="padding token"):
        Collator.of(Tokenizer(), "regression")


def test_bad_input():
    for settings, words in [
        ({"kind": "listing"}, "kind"),
        ({"padding": "longest"}, "padding"),
        ({"side": "both"}, "side"),
        ({"multiple_of": 0}, "multiple_of"),
        ({"padding": "fixed"}, "max_length"),
    ]:
        with pytest.raises(InputError, match=words):
            Collator(0, **settings)
    with pytest.raises(InputError, match="empty batch"):
        Collator(0)([])
    with pytest.raises(InputError, match="3 tokens.*2"):
        Collator(0, max_length=2)(items([[1, 2, 3]]))

"""The attention and mask functions that transformers calls."""

from __future__ import annotations

import pytest
import torch
from conftest import build_batch, build_model
from transformers.masking_utils import (
    bidirectional_mask_function,
    sdpa_mask,
    sliding_window_bidirectional_mask_function,
)

import headwise as hw
from headwise.attention import backend
from headwise.attention import backend as watch


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_padding_alone_reaches_the_kernel_as_one_row(family, monkeypatch):
    """Expanded over the queries, it would cost a pass over every tile and the shortcut for padded keys."""
    rows, kernel = [], watch.attention_with_received

    def spy(*tensors, **options):
        rows.append(options["mask"].shape[2])
        return kernel(*tensors, **options)

    monkeypatch.setattr(watch, "attention_with_received", spy)
    batch = build_batch()
    model = build_model(family).eval()
    with hw.capture(model):
        model(**batch)
    window = batch["input_ids"].shape[1]
    assert rows == ([1, window, 1] if family == "modernbert" else [1, 1, 1])


@pytest.mark.parametrize("function", [bidirectional_mask_function, sliding_window_bidirectional_mask_function(2)])
def test_the_mask_is_that_of_sdpa(function):
    padding = build_batch()["attention_mask"].bool()
    options = {"mask_function": function, "attention_mask": padding, "allow_is_causal_skip": False}
    expected = sdpa_mask(3, 12, 12, **options)
    assert torch.equal(backend.mask_of(3, 12, 12, **options), expected)


def test_without_padding_there_is_no_mask():
    options = {"mask_function": bidirectional_mask_function, "allow_is_causal_skip": False}
    everything = torch.ones(2, 5, dtype=torch.bool)
    assert backend.mask_of(2, 5, 5, attention_mask=everything, allow_is_bidirectional_skip=True, **options) is None

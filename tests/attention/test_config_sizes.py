"""Sizes in a config.json that no model with these weights can have are refused before a model is built."""

from pathlib import Path

import pytest
from transformers import AutoConfig

from headwise.attention.pretrained import MOST_LAYERS, check_sizes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_hidden_layers", 0),
        ("num_hidden_layers", MOST_LAYERS + 1),
        ("hidden_size", 49),
        ("vocab_size", 100_000),
        ("max_position_embeddings", 0),
    ],
)
def test_sizes_that_cannot_be(encoder, tmp_path, name, value):
    config = AutoConfig.from_pretrained(encoder)
    check_sizes(config, Path(encoder))
    setattr(config, name, value)
    with pytest.raises(
        ValueError, match=f"config.json says {name} {str(value)[:20]}.*, expected a whole number from 1"
    ):
        check_sizes(config, Path(encoder))
    if value == 49:  # as wide as this is a matter of the weights
        check_sizes(config, tmp_path)


@pytest.mark.parametrize("value", [float("nan")])
def test_numbers_that_are_not_finite(encoder, value):
    config = AutoConfig.from_pretrained(encoder)
    config.hidden_dropout_prob = value
    with pytest.raises(ValueError, match=f"config.json says hidden_dropout_prob {value}, expected a finite number"):
        check_sizes(config, Path(encoder))

"""Token labels on their way into batches: each stands at its token, whatever is padded and by whom."""

import numpy as np
import pytest
import torch
from tiny_runs import build_tokenizer
from torch import nn
from transformers import DataCollatorWithPadding, default_data_collator

from headwise.data import Collator
from headwise.errors import InputError
from headwise.ssa.dataset import TokenLabels
from headwise.training.relabelling import Probeable, TokenLabelCollator, WithTokenLabels

NONE = float("nan")
# Of two examples of five and three tokens; frames have none.
LABELS = TokenLabels(np.array([NONE, 1, 0.25, 0, NONE, NONE, 1, NONE], np.float32), np.array([0, 5, 8]))
ROWS = [{"input_ids": [2, 7, 8, 9, 3], "labels": 1}, {"input_ids": [2, 10, 3], "labels": 0}]
IGNORED = -100.0


@pytest.fixture
def data():
    labelled = WithTokenLabels([{**row, "word_ids": [0] * len(row["input_ids"])} for row in ROWS])
    labelled.labels = LABELS
    return labelled


def batch_of(data, collate):
    return TokenLabelCollator(collate)([data[0], data[1]])


def test_examples_carry_their_labels_and_no_words(data):
    assert set(data[1]) == {"input_ids", "labels", "ssa_labels"}
    np.testing.assert_array_equal(data[1]["ssa_labels"], [NONE, 1, NONE])
    np.testing.assert_array_equal(data[-2]["ssa_labels"], [NONE, 1, 0.25, 0, NONE])
    assert len(data) == 2
    assert "word_ids" in data.data[0]  # the data set of the user stays as it was


def left_padding():
    tokenizer = build_tokenizer()
    tokenizer.padding_side = "left"
    return DataCollatorWithPadding(tokenizer)


def without_a_mask(rows):
    return {"input_ids": nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], True)}


def test_labels_stand_at_their_tokens(data):
    left, right = [IGNORED] * 3 + [1, IGNORED], [IGNORED, 1] + [IGNORED] * 3
    for collate, second in (
        (Collator(0, side="left"), left),
        (Collator(0, padding="fixed", max_length=6), [*right, IGNORED]),
        (left_padding(), left),
        (without_a_mask, right),
    ):
        batch = batch_of(data, collate)
        assert batch["ssa_labels"].shape == batch["input_ids"].shape
        assert batch["ssa_labels"].dtype == torch.float32
        assert batch["ssa_labels"][1].tolist() == second
        known = batch["ssa_labels"] != IGNORED
        assert batch["input_ids"][known].tolist() == [7, 8, 9, 10]
        assert batch["ssa_labels"][known].tolist() == [1, 0.25, 0, 1]


@pytest.mark.parametrize("left", [False, True])
def test_examples_may_be_padded_already(left):
    """Their labels have the positions of the padding, too."""
    ids, mask, values = [2, 10, 3, 0, 0], [1, 1, 1, 0, 0], [NONE, 1, NONE, NONE, NONE]
    order = slice(None, None, -1) if left else slice(None)
    padded = {"input_ids": ids[order], "attention_mask": mask[order], "labels": 0}
    data = WithTokenLabels([{**ROWS[0], "attention_mask": [1] * 5}, padded])
    flat = [NONE, 1, 0.25, 0, NONE, *values[order]]
    data.labels = TokenLabels(np.array(flat, np.float32), np.array([0, 5, 10]))
    batch = batch_of(data, default_data_collator)
    assert batch["input_ids"][batch["ssa_labels"] != IGNORED].tolist() == [7, 8, 9, 10]


def test_a_collator_that_cuts_is_refused(data):
    def cutting(rows):
        return Collator(0)([{**row, "input_ids": row["input_ids"][:4]} for row in rows])

    with pytest.raises(InputError, match=r"5 token labels .* 4 tokens.*when tokenising"):
        batch_of(data, cutting)


def test_the_labeller_sees_words_and_labels_but_no_knowledge():
    row = {"input_ids": [2, 7, 3], "word_ids": [-1, 0, -1], "knowledge": {}, "mine": 4, "label": 1}
    found = Probeable([row], {"input_ids", "labels"})[0]
    assert found == {"input_ids": [2, 7, 3], "word_ids": [-1, 0, -1], "labels": 1}
    assert set(Probeable([row], None)[0]) == {"input_ids", "word_ids", "labels", "mine"}
    assert "knowledge" in row

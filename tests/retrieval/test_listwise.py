"""Candidates that compete for a claim."""

import math
from types import SimpleNamespace

import numpy
import pytest
import torch

from headwise.retrieval.reranker import Groups, collate_groups, listwise_loss


def loss_of(scores, labels, items=None):
    outputs = SimpleNamespace(logits=torch.tensor(scores, dtype=torch.float32)[:, None])
    return listwise_loss(outputs, torch.tensor(labels, dtype=torch.float32)[:, None], items)


def by_hand(claims):
    """Claims as (scores of positives, scores of negatives)."""
    losses = []
    for positives, negatives in claims:
        rivals = sum(math.exp(score) for score in negatives)
        losses.append(
            sum(-math.log(math.exp(score) / (math.exp(score) + rivals)) for score in positives) / len(positives)
        )
    return sum(losses) / len(losses)


def test_claims_of_different_sizes_with_several_positives():
    claims = [([0.3, -1.0], [0.5, 2.0, -0.7]), ([1.5], [0.1]), ([-2.0, 0.0, 1.0], [0.4, 0.4])]
    scores = [score for positives, negatives in claims for score in (*positives, *negatives)]
    labels = [label for positives, negatives in claims for label in [1] * len(positives) + [0] * len(negatives)]
    assert float(loss_of(scores, labels)) == pytest.approx(by_hand(claims), rel=1e-6)


def test_huge_scores_stay_finite():
    assert float(loss_of([1000.0, -1000.0, 500.0], [1, 0, 0])) == 0.0
    assert float(loss_of([-1000.0, 1000.0], [1, 0])) == 2000.0


def test_parts_of_an_accumulated_batch_sum_to_the_whole():
    scores, labels = [0.3, 0.5, 2.0, 1.0, 0.2, -1.0], [1, 0, 0, 1, 0, 0]
    parts = [loss_of(scores[:3], labels[:3], 6), loss_of(scores[3:], labels[3:], torch.tensor(6))]
    assert float(sum(parts)) == pytest.approx(float(loss_of(scores, labels)), rel=1e-6)


class Pairs:
    lengths = numpy.array([5, 9, 2, 4, 4, 7])

    def __getitem__(self, index):
        return {"input_ids": [index]}


def test_the_pairs_of_a_claim_stay_together():
    groups = Groups(Pairs(), ("a", "a", "b", "b", "b", "c"))
    assert len(groups) == 3
    assert groups.lengths.tolist() == [9, 4, 7]
    assert [item["input_ids"][0] for item in groups[1]] == [2, 3, 4]
    flat = collate_groups(lambda items: [item["input_ids"][0] for item in items], [groups[2], groups[0]])
    assert flat == [5, 0, 1]

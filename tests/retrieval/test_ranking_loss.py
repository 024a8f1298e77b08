"""The losses of a re-ranker, and the data sets that they need."""

import math
from types import SimpleNamespace

import numpy
import pytest
import torch

from headwise.retrieval.ranking_loss import (
    Groups,
    WithOffsets,
    collate_groups,
    listwise_loss,
    offset_scale,
    pairwise_loss,
)


def loss_of(scores, labels, items=None):
    outputs = SimpleNamespace(logits=torch.tensor(scores, dtype=torch.float32)[:, None])
    return float(listwise_loss(outputs, torch.tensor(labels, dtype=torch.float32)[:, None], items))


def test_the_listwise_loss_by_hand():
    # Claims as (scores of positives, scores of negatives).
    claims = [([0.3, -1.0], [0.5, 2.0, -0.7]), ([1.5], [0.1]), ([-2.0, 0.0, 1.0], [0.4, 0.4])]
    losses = []
    for positives, negatives in claims:
        rivals = sum(map(math.exp, negatives))
        losses.append(numpy.mean([-math.log(math.exp(score) / (math.exp(score) + rivals)) for score in positives]))
    scores = [score for positives, negatives in claims for score in (*positives, *negatives)]
    labels = [label for positives, negatives in claims for label in [1] * len(positives) + [0] * len(negatives)]
    assert loss_of(scores, labels) == pytest.approx(numpy.mean(losses), rel=1e-6)
    parts = loss_of(scores[:5], labels[:5], 10), loss_of(scores[7:], labels[7:], torch.tensor(10))
    assert sum(parts) == pytest.approx((losses[0] + losses[2]) / 2, rel=1e-6)  # of an accumulated batch
    assert loss_of([1000.0, -1000.0, 500.0], [1, 0, 0]) == 0.0
    assert loss_of([-1000.0, 1000.0], [1, 0]) == 2000.0


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


def test_an_offset_is_added_to_its_logit():
    chance = numpy.random.default_rng(0)
    scores, offsets = torch.tensor(chance.normal(size=(2, 7)), dtype=torch.float32)
    labels = torch.tensor([1.0, 0, 0, 1, 1, 0, 0])
    both = torch.stack([labels, offsets], 1)
    for loss in (listwise_loss, pairwise_loss):
        alone, summed = SimpleNamespace(logits=scores[:, None]), SimpleNamespace(logits=(scores + offsets)[:, None])
        torch.testing.assert_close(loss(alone, both), loss(summed, labels[:, None]))
        # Accumulated, the numbers of a label are counted twice, and parts add up to the whole.
        parts = [
            loss(SimpleNamespace(logits=scores[part, None]), both[part], 14) for part in (slice(0, 3), slice(3, 7))
        ]
        mean = 0.5 * (parts[0] * 14 / 6 + parts[1] * 14 / 8) if loss is listwise_loss else sum(parts)
        torch.testing.assert_close(mean, loss(alone, both))
    torch.testing.assert_close(
        pairwise_loss(alone, labels), torch.nn.functional.binary_cross_entropy_with_logits(scores, labels)
    )


def test_the_factor_of_offsets_is_where_their_loss_is_least():
    chance = numpy.random.default_rng(1)
    labels = [1.0, 0, 0, 0] * 50
    scores = chance.normal(size=200) + 0.7 * numpy.array(labels)
    best = offset_scale(scores, labels)

    def loss(scale):
        logits = torch.tensor(scale * scores)[:, None]
        return float(listwise_loss(SimpleNamespace(logits=logits), torch.tensor(labels)))

    assert 0.3 < best < 1.5
    assert all(loss(best) <= loss(other) + 1e-6 for other in (0, best - 0.1, best + 0.1, 3))
    assert offset_scale(-scores, labels) < 0.05  # a first stage that is worse than chance does not count
    items = WithOffsets([{"labels": 1.0}, {"labels": 0.0}], numpy.array([0.5, 2.0]))
    assert [item["labels"] for item in items] == [(1.0, 0.5), (0.0, 2.0)]

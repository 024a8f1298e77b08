"""How the outputs of a model on a split are scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy

from headwise.metrics.ranking import ranking_scores_of
from headwise.tasks import Split, Task
from headwise.training import score_logits

Scorer = Callable[[numpy.ndarray], dict[str, float]]


def scorer(task: Task, split: Split, gold: Mapping[str, int]) -> Scorer:
    """A function from the logits on a labelled split, [N,C], to the metrics of its task.

    Args:
        task: says which metrics.
        split: the examples, in the order of the logits.
        gold: of ranking, how many papers answer each claim of the split, found or not.
    """
    labels = [float(label or 0) for label in split.labels]
    if task.kind != "ranking":
        return lambda logits: score_logits(logits, labels, task.metrics)
    groups = split.groups or ()
    return lambda logits: ranking_scores_of(logits[:, 0], numpy.asarray(labels), groups, gold=gold)

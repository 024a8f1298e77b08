"""One pass over a data set: what every head does, and what the model answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn

from headwise.attention import capture
from headwise.errors import StateError
from headwise.experiments.analysis.marks import marks_of
from headwise.experiments.analysis.wanted import WantedMaps
from headwise.heads.statistics import HeadStatistic, MapStatistics
from headwise.tasks import Collator, Encoded
from headwise.training.predict import evaluating, stretches, tokens_at_a_time


def watch_data(
    model: nn.Module,
    encoded: Encoded,
    collate: Collator,
    *,
    batch: int,
    wanted: WantedMaps | None = None,
    after_batch: Callable[[int], None] | None = None,
) -> tuple[list[HeadStatistic], numpy.ndarray]:
    """The statistics of all heads, and the logits [N,C] in the order of the data; no map is kept.

    Args:
        model: a classifier; its mode is restored afterwards.
        encoded: the examples, encoded with offsets.
        collate: makes a batch of them.
        batch: examples at a time; fewer where they are long.
        wanted: what a pattern wants of each example, to see how far heads follow it.
        after_batch: told how many examples are done.
    """
    lengths = numpy.asarray(encoded.lengths)
    order = numpy.argsort(-lengths, kind="stable")
    device = next(model.parameters()).device
    statistics = MapStatistics()
    parts = []
    with (
        evaluating(model),
        torch.inference_mode(),
        capture(model, what="map", digest=statistics.digest) as record,
    ):
        for start, end in stretches(lengths[order].tolist(), batch, tokens_at_a_time(model)):
            places = order[start:end].tolist()
            inputs: dict[str, Any] = collate([encoded[place] for place in places])
            inputs.pop("labels", None)
            inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
            statistics.begin(marks_of(encoded, places, inputs["attention_mask"], wanted))
            parts.append(model(**inputs).logits.float().cpu().numpy())
            statistics.add(record)
            if after_batch is not None:
                after_batch(end)
    logits = numpy.concatenate(parts)
    if not numpy.isfinite(logits).all():
        raise StateError("the model's outputs are not finite: has training diverged?")
    restored: numpy.ndarray = numpy.empty_like(logits)
    restored[order] = logits
    return statistics.result(), restored

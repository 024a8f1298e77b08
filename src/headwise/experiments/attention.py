"""What the heads of a trained model do on some examples: numbers for a table, arrays for figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.attention import capture
from headwise.heads import HeadStatistics, HeadSummary, head_vectors, mean_map, principal_components
from headwise.tasks import Collator, Encoded, Split, encode


@dataclass(frozen=True)
class View:
    """One example as the figures show it."""

    tokens: list[str]
    mean_map: list[list[float]]
    """[T][T] mean over all heads and layers."""
    points: list[list[float]]
    """[M][2] principal components of all heads' received attention."""
    explained: list[float]
    layers: list[int]
    """The layer of each point."""


def head_summary(model: nn.Module, tokenizer: Any, split: Split, *, max_length: int, batch: int = 32) -> HeadSummary:
    """Statistics over all examples of a split; deciding tokens count if the split has spans."""
    encoded = encode(split, tokenizer, max_length, spans=split.spans is not None)
    collate = Collator.of(tokenizer, "classification", padding="dynamic", max_length=max_length)
    statistics = HeadStatistics()
    model.eval()
    with torch.inference_mode(), capture(model) as record:
        for start in range(0, len(encoded), batch):
            indices = range(start, min(start + batch, len(encoded)))
            inputs = collate([encoded[index] for index in indices])
            inputs.pop("labels", None)
            model(**inputs)
            statistics.add(record, _deciding(encoded, indices, inputs["input_ids"].shape[1]))
    return statistics.result()


def view(model: nn.Module, tokenizer: Any, split: Split, example: int, *, max_length: int) -> View:
    """One example for the figures."""
    encoded = encode(split.subset([example]), tokenizer, max_length)
    collate = Collator.of(tokenizer, "classification", padding="dynamic", max_length=max_length)
    inputs = collate([encoded[0]])
    inputs.pop("labels", None)
    model.eval()
    with torch.inference_mode():
        with capture(model) as received:
            model(**inputs)
        with capture(model, what="map") as maps:
            model(**inputs)
    points, explained = principal_components(head_vectors(received, 0))
    return View(
        tokens=tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()),
        mean_map=mean_map(maps, 0).tolist(),
        points=points.tolist(),
        explained=explained.tolist(),
        layers=[layer for layer, _ in received.maps],
    )


def _deciding(encoded: Encoded, indices: range, length: int) -> Tensor | None:
    """[B,K] True at tokens that decide the label."""
    if encoded.deciding is None:
        return None
    mask = torch.zeros(len(indices), length, dtype=torch.bool)
    for row, index in enumerate(indices):
        flags = torch.as_tensor(encoded.deciding[index])
        mask[row, : len(flags)] = flags
    return mask

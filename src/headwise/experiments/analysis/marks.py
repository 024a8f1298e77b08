"""Which tokens of a batch are special, and which text the others are of.

Shapes: B batch, K keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch

from headwise.experiments.analysis.tokens import sources_of
from headwise.experiments.analysis.wanted import WantedMaps
from headwise.heads.statistics import Marks
from headwise.tasks import Encoded


def marks_of(
    encoded: Encoded, places: Sequence[int], attention_mask: torch.Tensor, wanted: WantedMaps | None = None
) -> Marks:
    """The marks of a batch that holds the examples at these places, and the cells that a pattern wants of each."""
    valid = attention_mask != 0
    texts = torch.full(valid.shape, -1, dtype=torch.long)
    flat = numpy.concatenate([sources_of(encoded, place) for place in places])
    texts[valid.cpu()] = torch.from_numpy(flat.astype(numpy.int64))  # row by row, as the batch was filled
    texts = texts.to(valid.device)
    cells = None if wanted is None else _cells(valid.cpu(), [wanted.marked(place) for place in places]).to(valid.device)
    return Marks(valid, valid & (texts < 0), texts, cells)


def _cells(valid: torch.Tensor, marked: Sequence[numpy.ndarray]) -> torch.Tensor:
    """[B,K,K] the cells of every example at its tokens, on whatever side the padding is."""
    cells = torch.zeros(*valid.shape, valid.shape[1], dtype=torch.bool)
    for example, (tokens, each) in enumerate(zip(valid, marked, strict=True)):
        cells[example, tokens.unsqueeze(1) & tokens.unsqueeze(0)] = torch.from_numpy(each).flatten()
    return cells

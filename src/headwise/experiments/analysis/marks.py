"""Which tokens of a batch are special, and which text the others are of.

Shapes: B batch, K keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch

from headwise.errors import StateError
from headwise.heads.map_statistics import Marks
from headwise.tasks import Encoded


def sources_of(encoded: Encoded, place: int) -> numpy.ndarray:
    """[T] the text of each token of an example, -1 for special tokens."""
    if encoded.sources is None:
        raise StateError("the examples were encoded without offsets: this is a fault of headwise, please report it.")
    part: numpy.ndarray = encoded.sources[encoded.starts[place] : encoded.starts[place + 1]]
    return part


def marks_of(encoded: Encoded, places: Sequence[int], attention_mask: torch.Tensor) -> Marks:
    """The marks of a batch that holds the examples at these places."""
    valid = attention_mask != 0
    texts = torch.full(valid.shape, -1, dtype=torch.long)
    flat = numpy.concatenate([sources_of(encoded, place) for place in places])
    texts[valid.cpu()] = torch.from_numpy(flat.astype(numpy.int64))  # row by row, as the batch was filled
    texts = texts.to(valid.device)
    return Marks(valid, valid & (texts < 0), texts)

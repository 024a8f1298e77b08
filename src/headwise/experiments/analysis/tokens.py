"""Which text each token of an example is of.

Shapes: T tokens of the example.
"""

from __future__ import annotations

import numpy

from headwise.errors import StateError
from headwise.tasks import Encoded


def sources_of(encoded: Encoded, place: int) -> numpy.ndarray:
    """[T] the text of each token of an example, -1 for special tokens."""
    if encoded.sources is None:
        raise StateError("the examples were encoded without offsets: this is a fault of headwise, please report it.")
    part: numpy.ndarray = encoded.sources[encoded.starts[place] : encoded.starts[place + 1]]
    return part

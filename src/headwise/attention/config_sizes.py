"""The sizes in a config.json, held against the weights beside it.

Transformers builds a model before it looks at the weights: a damaged size would fill the memory first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

LAYERS = "num_hidden_layers"
# None of them can be larger than the largest side of a weight.
WIDTHS = ("hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
MOST_LAYERS = 1000
# Without weights to look at.
WIDEST = 10_000_000
# Image encoders may name a vocabulary that they do not have, so no weight has to have as many rows.
MOST_TOKENS = 2_000_000
# Positions may be computed, so no weight has to have as many rows.
MOST_POSITIONS = 10_000_000


def check_sizes(config: Any, folder: Path) -> None:
    """Refuse, by a ValueError, sizes that no model with these weights can have."""
    widest = _widest(folder) or WIDEST
    limits = {LAYERS: MOST_LAYERS, **dict.fromkeys(WIDTHS, widest)}
    limits |= {"vocab_size": MOST_TOKENS, "max_position_embeddings": MOST_POSITIONS}
    for name, limit in limits.items():
        value = getattr(config, name, None)
        if isinstance(value, int) and not 1 <= value <= limit:
            raise ValueError(f"config.json says {name} {f'{value}':.30}, expected a whole number from 1 to {limit}")


def _widest(folder: Path) -> int:
    """The largest side of any weight; 0 if no weights can be read, which is reported where they are loaded."""
    widest = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(str(path), framework="pt") as weights:
                for name in weights.keys():
                    widest = max([widest, *weights.get_slice(name).get_shape()])
        except (OSError, SafetensorError):
            return 0
    return widest

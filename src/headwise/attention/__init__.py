"""See attention and change heads: the only folder that knows transformers' attention functions."""

from headwise.attention.capture import AttentionRecord, capture
from headwise.attention.families import (
    Family,
    HeadPart,
    LayerHeads,
    Projection,
    encoder_of,
    family_of,
    head_weights,
    query_key_projections,
)
from headwise.attention.passes import Customer, Inputs, Request, What, select
from headwise.attention.received import attention_with_received
from headwise.attention.seam import Seam, SeededDropout
from headwise.attention.surgery import Heads, gate, heads_of, mask, prune, prune_structure, pruned_heads, pruned_in

__all__ = [
    "AttentionRecord",
    "Customer",
    "Family",
    "HeadPart",
    "Heads",
    "Inputs",
    "LayerHeads",
    "Projection",
    "Request",
    "Seam",
    "SeededDropout",
    "What",
    "attention_with_received",
    "capture",
    "encoder_of",
    "family_of",
    "gate",
    "head_weights",
    "heads_of",
    "mask",
    "prune",
    "prune_structure",
    "pruned_heads",
    "pruned_in",
    "query_key_projections",
    "select",
]

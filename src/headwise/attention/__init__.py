"""How attention is seen and heads are touched: the only folder that knows transformers' attention functions."""

from headwise.attention.capture import capture
from headwise.attention.customer import Customer
from headwise.attention.family import Family, encoder_of, family_of
from headwise.attention.gates import gate
from headwise.attention.head_weights import HeadPart, LayerHeads, head_weights
from headwise.attention.masks import Heads, heads_of, mask
from headwise.attention.passes import Inputs, Request, What
from headwise.attention.projections import Projection, query_key_projections
from headwise.attention.received import attention_with_received
from headwise.attention.record import AttentionRecord
from headwise.attention.seam import Seam
from headwise.attention.selection import select
from headwise.attention.surgery import prune, prune_structure, pruned_heads, pruned_in

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

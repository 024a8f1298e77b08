"""How attention is seen and heads are touched: the only folder that knows transformers' attention functions."""

from headwise.attention.capture import capture
from headwise.attention.customer import Customer
from headwise.attention.family import Family, encoder_of, family_of
from headwise.attention.gates import gate
from headwise.attention.passes import Inputs, Request, What
from headwise.attention.projections import Projection, query_key_projections
from headwise.attention.received import attention_with_received
from headwise.attention.record import AttentionRecord
from headwise.attention.seam import Seam
from headwise.attention.selection import select

__all__ = [
    "AttentionRecord",
    "Customer",
    "Family",
    "Inputs",
    "Projection",
    "Request",
    "Seam",
    "What",
    "attention_with_received",
    "capture",
    "encoder_of",
    "family_of",
    "gate",
    "query_key_projections",
    "select",
]

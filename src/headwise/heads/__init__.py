"""Questions about heads: how alike they are, and where their attention goes."""

from headwise.heads.similarity import HeadStatistics, HeadSummary
from headwise.heads.vectors import head_vectors, mean_map, principal_components

__all__ = ["HeadStatistics", "HeadSummary", "head_vectors", "mean_map", "principal_components"]

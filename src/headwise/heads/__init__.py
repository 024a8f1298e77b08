"""Questions about heads: how alike they are, where their attention goes, and which patterns they follow."""

from headwise.heads.patterns import HeadScore, PatternScore, PatternScores, PatternSummary
from headwise.heads.similarity import HeadStatistics, HeadSummary
from headwise.heads.vectors import head_vectors, mean_map, principal_components

__all__ = [
    "HeadScore",
    "HeadStatistics",
    "HeadSummary",
    "PatternScore",
    "PatternScores",
    "PatternSummary",
    "head_vectors",
    "mean_map",
    "principal_components",
]

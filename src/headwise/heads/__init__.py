"""Questions about heads: how alike they are, which patterns they follow, and which of them a task needs."""

from typing import TYPE_CHECKING

from headwise.registry import lazy_names

if TYPE_CHECKING:
    from headwise.heads.iat import IAT, build_iat
    from headwise.heads.importance import HeadImportance, head_importance
    from headwise.heads.pattern_scores import HeadScore, PatternScore, PatternScores, PatternSummary
    from headwise.heads.statistics import HeadStatistics, HeadSummary, head_vectors, mean_map, principal_components

__all__ = [
    "IAT",
    "HeadImportance",
    "HeadScore",
    "HeadStatistics",
    "HeadSummary",
    "PatternScore",
    "PatternScores",
    "PatternSummary",
    "build_iat",
    "head_importance",
    "head_vectors",
    "mean_map",
    "principal_components",
]

__getattr__ = lazy_names(
    __name__,
    {
        "iat": ("IAT", "build_iat"),
        "importance": ("HeadImportance", "head_importance"),
        "pattern_scores": ("HeadScore", "PatternScore", "PatternScores", "PatternSummary"),
        "statistics": ("HeadStatistics", "HeadSummary", "head_vectors", "mean_map", "principal_components"),
    },
)

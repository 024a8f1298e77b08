"""Metrics: predictions and labels to numbers, and whether two rows of numbers differ."""

from typing import TYPE_CHECKING

from headwise.metrics.classification import METRICS, score
from headwise.registry import lazy_names

if TYPE_CHECKING:
    from headwise.metrics.ranking import MEASURES, RankingScores, ranking_scores_of, score_ranking
    from headwise.metrics.significance import (
        BootstrapTest,
        McNemar,
        PairedTest,
        SeedScores,
        SeedTest,
        bootstrap_means,
        bootstrap_scores,
        bootstrap_test,
        holm,
        mcnemar,
        mean_over_seeds,
        paired_by_seed,
        paired_test,
        twice_the_median,
    )

__all__ = [
    "MEASURES",
    "METRICS",
    "BootstrapTest",
    "McNemar",
    "PairedTest",
    "RankingScores",
    "SeedScores",
    "SeedTest",
    "bootstrap_means",
    "bootstrap_scores",
    "bootstrap_test",
    "holm",
    "mcnemar",
    "mean_over_seeds",
    "paired_by_seed",
    "paired_test",
    "ranking_scores_of",
    "score",
    "score_ranking",
    "twice_the_median",
]

__getattr__ = lazy_names(
    __name__,
    {
        "ranking": ("MEASURES", "RankingScores", "ranking_scores_of", "score_ranking"),
        "significance": (
            "BootstrapTest",
            "McNemar",
            "PairedTest",
            "SeedScores",
            "SeedTest",
            "bootstrap_means",
            "bootstrap_scores",
            "bootstrap_test",
            "holm",
            "mcnemar",
            "mean_over_seeds",
            "paired_by_seed",
            "paired_test",
            "twice_the_median",
        ),
    },
)

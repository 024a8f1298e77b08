"""Metrics: predictions and labels to numbers, and whether two rows of numbers differ."""

from headwise.metrics.classification import METRICS, score
from headwise.metrics.ranking import MEASURES, RankingScores, ranking_scores_of, score_ranking
from headwise.metrics.significance import PairedTest, holm, mean_over_seeds, paired_test

__all__ = [
    "MEASURES",
    "METRICS",
    "PairedTest",
    "RankingScores",
    "holm",
    "mean_over_seeds",
    "paired_test",
    "ranking_scores_of",
    "score",
    "score_ranking",
]

"""Metrics: predictions and labels to numbers, rankings, and whether two systems differ."""

from headwise.metrics.classification import METRICS, score

__all__ = ["METRICS", "score"]

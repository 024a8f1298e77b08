"""Metrics: predictions and labels to numbers."""

from headwise.metrics.classification import METRICS, score

__all__ = ["METRICS", "score"]

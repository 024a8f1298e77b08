"""Figures from plain arrays: the only folder that knows matplotlib, and it never loads a model."""

from headwise.reports.heatmap import heatmap
from headwise.reports.projection import projection

__all__ = ["heatmap", "projection"]

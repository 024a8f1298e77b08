"""Reports and figures from plain arrays and saved runs: no model is loaded here.

This is the only folder that imports matplotlib.
"""

from headwise.reports.heatmap import heatmap
from headwise.reports.projection import projection

__all__ = ["heatmap", "projection"]

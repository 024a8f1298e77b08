"""Analysis: what the heads of a trained model do on a data set, as arrays that others draw without the model."""

from headwise.experiments.analysis.analyze import analyze
from headwise.experiments.analysis.examples import ExampleView, view_examples
from headwise.experiments.analysis.settings import AnalysisSettings
from headwise.experiments.analysis.store import Analysis, read_analysis

__all__ = ["Analysis", "AnalysisSettings", "ExampleView", "analyze", "read_analysis", "view_examples"]

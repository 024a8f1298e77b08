"""Analysis: what the heads of a trained model do on a data set, as arrays that others draw without the model."""

from headwise.experiments.analysis.analysis_files import Analysis, read_analysis
from headwise.experiments.analysis.analyze import AnalysisSettings, analyze_tasks
from headwise.experiments.analysis.example_views import ExampleView, view_examples

__all__ = ["Analysis", "AnalysisSettings", "ExampleView", "analyze_tasks", "read_analysis", "view_examples"]

"""What finished runs tell, as plain data: curves, plots and tables, read from files alone; no model is loaded.

A plot is {title, x, y, categories, series: [{name, x, mean, low, high}], notes}; a table {title, columns, rows, notes}.
"""

from headwise.experiments.story.curves import training_curves
from headwise.experiments.story.head_plots import dissociation_matrices, pruning_plots
from headwise.experiments.story.results_plots import layer_plots, size_plots, weight_plots
from headwise.experiments.story.task_matrices import similarity_matrices
from headwise.experiments.story.time_tables import time_tables

__all__ = [
    "dissociation_matrices",
    "layer_plots",
    "pruning_plots",
    "similarity_matrices",
    "size_plots",
    "time_tables",
    "training_curves",
    "weight_plots",
]

"""What finished runs tell, as plain data: curves, plots and tables, read from files alone; no model is loaded.

A plot is {title, x, y, categories, series: [{name, x, mean, low, high}], notes}; a table {title, columns, rows, notes}.
"""

from headwise.experiments.plots.head_plots import dissociation_matrices, pruning_plots, similarity_matrices
from headwise.experiments.plots.sweep_plots import layer_plots, size_plots, time_tables, weight_plots
from headwise.experiments.plots.training_curves import training_curves

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

"""Comparison: finished runs of several systems and seeds as tables with tests, and as the data of plots."""

from headwise.experiments.comparison.comparison import Comparison, Row, Table, Times, compare
from headwise.experiments.comparison.example_tests import ExampleTest
from headwise.experiments.comparison.gather import CompareOptions

__all__ = ["CompareOptions", "Comparison", "ExampleTest", "Row", "Table", "Times", "compare"]

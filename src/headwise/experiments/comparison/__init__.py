"""Comparison: finished runs of several systems and seeds become tables with tests."""

from headwise.experiments.comparison.comparison import Comparison, compare
from headwise.experiments.comparison.comparison_tables import Row, Table, Times
from headwise.experiments.comparison.example_tests import ExampleTest
from headwise.experiments.comparison.gather import Asked

__all__ = ["Asked", "Comparison", "ExampleTest", "Row", "Table", "Times", "compare"]

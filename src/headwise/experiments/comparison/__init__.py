"""Comparison: finished runs of several systems and seeds become tables with tests."""

from headwise.experiments.comparison.asked import Asked
from headwise.experiments.comparison.comparing import Comparison, compare
from headwise.experiments.comparison.examples import ExampleTest
from headwise.experiments.comparison.tables import Row, Table
from headwise.experiments.comparison.times import Times

__all__ = ["Asked", "Comparison", "ExampleTest", "Row", "Table", "Times", "compare"]

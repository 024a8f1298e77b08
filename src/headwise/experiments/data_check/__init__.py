"""What is wrong with a data set before anything is trained on it: balance, duplicates, leaks, lengths, baselines."""

from headwise.experiments.data_check.check import CheckSettings, check_files
from headwise.experiments.data_check.choice import Choice
from headwise.experiments.data_check.report import DataReport, FileReport, Finding

__all__ = ["CheckSettings", "Choice", "DataReport", "FileReport", "Finding", "check_files"]

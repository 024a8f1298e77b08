"""What is wrong with a data set before anything is trained on it: balance, duplicates, leaks, lengths, baselines."""

from headwise.experiments.data_check.check import CheckSettings, DataReport, FileReport, Finding, check_files
from headwise.experiments.data_check.data_files import Choice

__all__ = ["CheckSettings", "Choice", "DataReport", "FileReport", "Finding", "check_files"]

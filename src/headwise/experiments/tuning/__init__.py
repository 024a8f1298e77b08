"""Tuning: look for the values of a recipe's keys that do best on validation, with Optuna."""

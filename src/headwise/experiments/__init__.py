"""Experiments: a recipe and a seed become a record."""

from headwise.experiments.recipe import Recipe, check_recipe

__all__ = ["Recipe", "check_recipe"]

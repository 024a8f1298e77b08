"""Experiments: a recipe and a seed become a record."""

from typing import TYPE_CHECKING

from headwise.registry import lazy_names

if TYPE_CHECKING:
    from headwise.experiments.recipe import Recipe, check_recipe

__all__ = ["Recipe", "check_recipe"]

__getattr__ = lazy_names(__name__, {"recipe": ("Recipe", "check_recipe")})

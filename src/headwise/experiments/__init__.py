"""Experiments: a recipe and a seed become a record."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.experiments.recipe import Recipe, check_recipe

__all__ = ["Recipe", "check_recipe"]


def __getattr__(name: str) -> Any:
    """Recipes are loaded when they are used: those who only read records need no torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headwise.experiments import recipe

    return getattr(recipe, name)

"""The model card that lies beside a trained model."""

from __future__ import annotations

from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from headwise.experiments.recipe import check_recipe
from headwise.experiments.record import NAME


def model_card(content: dict[str, Any]) -> str:
    """The card of a finished run, from its record."""
    happened = content["happened"]
    scored: dict[str, float] = next((scores for scores in happened["metrics"].values() if scores), {})
    template = resources.files(__package__).joinpath("model_card.md.jinja").read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False)
    return environment.from_string(template).render(
        recipe=content["asked"]["recipe"],
        ssa=_supervision(content),
        knowledge=content["asked"].get("knowledge", {}),
        happened=happened,
        world=content["world"],
        names=list(scored),
    )


def _supervision(content: dict[str, Any]) -> dict[str, Any] | None:
    """Of SSA the model, and whether it pools; None without it."""
    options = check_recipe(content["asked"]["recipe"], NAME).supervision
    return None if options is None else {"model": options.model, "pools": options.pools}

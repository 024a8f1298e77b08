"""The model card that lies beside a trained model."""

from __future__ import annotations

from importlib import resources
from typing import Any

from headwise.experiments.markdown import render_markdown
from headwise.experiments.recipe import Recipe


def model_card(content: dict[str, Any]) -> str:
    """The card of a finished run, from its record."""
    happened = content["happened"]
    scored: dict[str, float] = next((scores for scores in happened["metrics"].values() if scores), {})
    template = resources.files(__package__).joinpath("model_card.md.jinja").read_text(encoding="utf-8")
    return render_markdown(
        template,
        recipe=content["asked"]["recipe"],
        ssa=_supervision(content),
        knowledge=content["asked"].get("knowledge", {}),
        happened=happened,
        world=content["world"],
        names=list(scored),
    )


def _supervision(content: dict[str, Any]) -> dict[str, Any] | None:
    """Of SSA the model, and whether it pools; None without it."""
    options = Recipe.model_validate(content["asked"]["recipe"]).supervision
    return None if options is None else {"model": options.model, "pools": options.pools}

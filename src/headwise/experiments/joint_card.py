"""The model card of a run on several tasks."""

from __future__ import annotations

from importlib import resources
from typing import Any

from headwise.experiments.markdown import render_markdown


def joint_card(content: dict[str, Any]) -> str:
    """The card of a finished run, from its record."""
    template = resources.files(__package__).joinpath("joint_card.md.jinja").read_text(encoding="utf-8")
    return render_markdown(
        template, recipe=content["asked"]["recipe"], happened=content["happened"], world=content["world"]
    )

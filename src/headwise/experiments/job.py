"""What a run needs to know of a recipe's kind: one task, or several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from headwise.disk import write_atomically
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.recipe import Recipe
from headwise.training import Listener, Outcome, Settings
from headwise.training.watching import Watch

# Below the folder of a run, until it is finished.
WORK = "unfinished"


class Job(Protocol):
    """Everything read and checked, ready to be trained."""

    @property
    def fingerprint(self) -> str:
        """A short hash of all examples, so that a run goes on with those that it began with."""

    @property
    def knowledge(self) -> dict[str, dict[str, Any]]:
        """For each guide that needs knowledge, what tells it from other knowledge."""

    def fit(self, work: Path, listener: Listener, watch: Watch | None = None) -> Outcome:
        """Train in a folder of its own, going on with what is there; `watch` is told of each evaluation."""

    def finish(self, outcome: Outcome, asked: dict[str, Any], folder: Path, listener: Listener) -> dict[str, Any]:
        """Score the model, write all but the record, and return the record."""


def settings_of(recipe: Recipe | JointRecipe) -> Settings:
    """The recipe's choices for training."""
    training = recipe.training
    names = set(Settings.__dataclass_fields__) & set(type(training).model_fields)
    chosen = {name: getattr(training, name) for name in names}
    return Settings(
        **chosen,
        seed=recipe.seed,
        share_every=recipe.share_every if isinstance(recipe, Recipe) else 0,
        by_length=recipe.data.buckets and recipe.data.padding == "dynamic",
        report_to=recipe.report_to,
    )


def write_log(folder: Path, outcome: Outcome) -> None:
    """Every logged step, one per line."""
    write_atomically(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in outcome.log))

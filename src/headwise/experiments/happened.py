"""What happened in a run: scores of its best model, times, and what the guides did."""

from __future__ import annotations

from typing import Any

from headwise.experiments.outputs import output_of
from headwise.experiments.prepare import Prepared, named_splits
from headwise.experiments.scoring import scorer
from headwise.experiments.splits import Splits
from headwise.guides import guidance_of, unguide
from headwise.training import Listener, Outcome, predict_logits


def summarise(prepared: Prepared, outcome: Outcome, listener: Listener) -> tuple[dict[str, Any], dict[str, Any]]:
    """Take the guides off, score the model on every labelled split but train, and put all numbers together.

    Returns:
        What happened, and what the model answered to every example that was scored.
    """
    if guidance_of(prepared.model) is not None:
        unguide(prepared.model)
    task, batch = prepared.splits.task, prepared.recipe.training.evaluation_batch
    metrics: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for name, split in named_splits(prepared.splits).items():
        if name == "train":
            continue
        if not split.labelled:
            listener.tell(f"the {name} set has no labels: it is not scored")
            metrics[name] = None
            continue
        logits = predict_logits(prepared.model, prepared.encoded[name], prepared.collate, batch=batch)
        gold = prepared.splits.gold.get(name, {})
        metrics[name] = scorer(task, split, gold)(logits)
        outputs[name] = output_of(task, split, logits, gold)
    happened = {
        "metrics": metrics,
        "primary": task.primary,
        "labels": list(task.labels),
        "steps": outcome.steps,
        "best_step": outcome.best_step,
        "seconds_per_epoch": [round(seconds, 3) for seconds in outcome.seconds_per_epoch],
        "seconds_per_step": outcome.seconds_per_step,
        "examples": {name: len(split) for name, split in named_splits(prepared.splits).items()},
        **_claims(prepared.splits),
        "truncated": {name: encoded.truncated for name, encoded in prepared.encoded.items()},
        "guides": _guides(outcome.log),
        "targets": prepared.targets,
        **({"ssa": outcome.relabellings} if outcome.relabellings else {}),
        "evaluations": outcome.evaluations,
    }
    return happened, outputs


def _claims(splits: Splits) -> dict[str, dict[str, int]]:
    """Of ranking: how many claims the pairs belong to."""
    groups = {name: split.groups for name, split in named_splits(splits).items() if split.groups is not None}
    return {"claims": {name: len(set(each)) for name, each in groups.items()}} if groups else {}


def _guides(log: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Per guide: its last weight, and its gradient share as the mean over all measurements."""
    names = sorted(
        {key[6:-7] for entry in log for key in entry if key.startswith("guide/") and key.endswith("_weight")}
    )
    found: dict[str, dict[str, float | None]] = {}
    for name in names:
        shares = [entry[f"guide/{name}_share"] for entry in log if f"guide/{name}_share" in entry]
        weights = [entry[f"guide/{name}_weight"] for entry in log if f"guide/{name}_weight" in entry]
        values = [entry[f"guide/{name}"] for entry in log if f"guide/{name}" in entry]
        found[name] = {
            "weight": weights[-1],
            "share": sum(shares) / len(shares) if shares else None,
            "first": values[0],
            "last": values[-1],
        }
    return found

"""The model card of a run: README.md, with the metadata that the Hugging Face Hub reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy
from huggingface_hub import EvalResult, ModelCardData

from headwise.experiments import record
from headwise.experiments.recipe import Recipe
from headwise.text_formats import render_markdown

# Where the Hub has the encoders that are built in.
HUB_NAMES = {"builtin:minilm-l6": "sentence-transformers/all-MiniLM-L6-v2"}
# Kinds of tasks as the Hub calls them; all others are text classification.
PIPELINES = {"ranking": "text-ranking", "token_labels": "token-classification"}
RESAMPLES = 1_000

# The ends of a 95 % interval by metric, and these by split (of several tasks by TASK/SPLIT).
Intervals = dict[str, dict[str, tuple[float, float]]]


def model_card(
    content: Mapping[str, Any],
    outputs: Mapping[str, Any] | None = None,
    *,
    repo: str | None = None,
    pruned: bool = False,
) -> str:
    """The model card of a finished run.

    Args:
        content: its record.
        outputs: what it answered to every example (outputs.json), for intervals; without them there are none.
        repo: USER/NAME on the Hub; None for a folder.
        pruned: whether its encoder lost heads, which transformers does not know.
    """
    results, recipe = content["results"], content["recipe"]
    template = resources.files(__package__).joinpath("model_card.md.jinja").read_text(encoding="utf-8")
    options = None if recipe.get("ssa") is None else Recipe.model_validate(recipe).supervision
    between = intervals(outputs or {})
    return render_markdown(
        template,
        metadata=_metadata(content, outputs or {}, between),
        recipe=recipe,
        repo=repo,
        pruned=pruned,
        ssa=None if options is None else {"model": options.model, "pools": options.pools},
        knowledge=content.get("knowledge", {}),
        results=results,
        intervals=between,
        environment=content["environment"],
        systems=record.baseline_names(results),
        below=record.below_frozen(content),
        names=list(next((scores for scores in results["metrics"].values() if scores), {})),
    )


def intervals(outputs: Mapping[str, Any]) -> Intervals:
    """95 % intervals of a bootstrap over examples: how far other examples would move a score."""
    from headwise.metrics.classification import METRICS
    from headwise.metrics.resampling import Interval, bootstrap_means, bootstrap_scores

    found: Intervals = {}
    for split, output in outputs.items():
        if "per_query" in output:
            claims = list(output["per_query"].values())
            names = list(claims[0])
            table = numpy.array([[each[name] for each in claims] for name in names])
            ends = Interval.of(bootstrap_means(table, resamples=RESAMPLES))
            found[split] = {name: (float(ends.low[row]), float(ends.high[row])) for row, name in enumerate(names)}
            continue
        gold, predictions = (numpy.asarray(output.get(name, ())) for name in ("gold", "predictions"))
        if output.get("kind") not in ("classification", "regression") or not gold.size:
            continue
        numbers = output["kind"] == "regression"
        found[split] = {}
        for name in METRICS:
            if (name in ("pearson", "spearman")) is numbers:
                scores = bootstrap_scores(name, predictions[None], gold, resamples=RESAMPLES)
                ends = Interval.of(scores)
                found[split][name] = (float(ends.low[0]), float(ends.high[0]))
    return found


def hub_name(model: str) -> str | None:
    """A model's name on the Hub, as far as it can be known; None for a folder."""
    if model in HUB_NAMES:
        return HUB_NAMES[model]
    named = re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", model, re.ASCII) and not Path(model).exists()
    return model if named else None


def _metadata(content: Mapping[str, Any], outputs: Mapping[str, Any], between: Intervals) -> str:
    """YAML with the model index: every score of every split, beside its interval."""
    recipe = content["recipe"]
    named = content["results"].get("kind")  # of what outputs.json does not have
    kinds = {output.get("kind", "") for output in outputs.values()} if named is None else {named}
    pipeline = PIPELINES.get(kinds.pop(), "text-classification") if len(kinds) == 1 else "text-classification"
    scored = [
        EvalResult(
            task_type=pipeline,
            dataset_type=task,
            dataset_name=task,
            dataset_split=split,
            metric_type=metric,
            metric_value=round(value, 4),
            metric_name=metric + (f" (95 % interval {ends[0]:.4f} to {ends[1]:.4f})" if ends else ""),
        )
        for task, split, metric, value, ends in _scores(content["results"], recipe, between)
    ]
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=pipeline,
        tags=["headwise"],
        base_model=hub_name(str(recipe["model"])),
        model_name=str(recipe["name"]),
        eval_results=scored or None,
    )
    return str(data.to_yaml()).strip()


def _scores(
    results: Mapping[str, Any], recipe: Mapping[str, Any], between: Intervals
) -> Iterator[tuple[str, str, str, float, tuple[float, float] | None]]:
    """Task, split, metric, value and interval of every score, test before validation."""
    tasks = results.get("tasks") or {str(recipe["task"]["name"]): results}
    for task, each in tasks.items():
        for split in sorted(each["metrics"]):
            key = f"{task}/{split}" if "tasks" in results else split
            for metric, value in (each["metrics"][split] or {}).items():
                yield task, split, metric, float(value), between.get(key, {}).get(metric)

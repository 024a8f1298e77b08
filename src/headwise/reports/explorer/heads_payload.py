"""The grid of heads: the statistics of every model, and which heads changed most.

Shapes: T tokens of an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwise.experiments.analysis import ExampleView
from headwise.experiments.head_files import FOLDER, read_answers
from headwise.experiments.head_schemas import ImportanceFile
from headwise.reports.explorer.runs import RUN, ReportRun

STATISTICS = {
    "entropy": ("Entropy", "", "How evenly a token's attention is spread over all tokens: 1 evenly, 0 all on one."),
    "sink": ("Sink mass", "", "Share of attention that goes to special tokens such as [CLS] and [SEP]."),
    "distance": ("Distance", "tokens", "How many tokens away a token looks, on average."),
    "cross": ("Cross-segment share", "", "Share of a text token's attention that goes to the other text of the pair."),
    "match": ("Match", "", "Share of attention that goes where {pattern} wants it, of the tokens for which it does."),
    "similarity": (
        "Similarity",
        "",
        "Mean cosine between what tokens receive from this head and from each of the others: 1 if all look alike.",
    ),
    "importance": (
        "Importance",
        "",
        "How much the loss would change if the head's output did: the mean size of the gradient of its gate.",
    ),
}
Grid = dict[str, Any]


def heads_payload(runs: Sequence[ReportRun]) -> dict[str, Any]:
    """Statistics by model; those that no model has are left out."""
    pattern = _pattern(runs)
    grids = {run.id: _grids(run) for run in runs}
    for run in runs:
        if run.analysis.content.get("pattern") != pattern:  # held against something else
            grids[run.id].pop("match", None)
    names = [name for name in STATISTICS if any(name in found for found in grids.values())]
    content = runs[0].analysis.content
    return {
        "statistics": [
            _statistic(name, [found[name] for found in grids.values() if name in found], pattern) for name in names
        ],
        "values": {
            model: {name: {"mean": found[name]["mean"], "error": found[name]["error"]} for name in found}
            for model, found in grids.items()
        },
        "examples": content["examples"],
        "split": content["split"],
        "changes": None,
    }


def _pattern(runs: Sequence[ReportRun]) -> dict[str, Any] | None:
    """What heads were held against: that of the run itself before those that it is compared with."""
    first = sorted(runs, key=lambda run: run.role != RUN)
    found = [run.analysis.content.get("pattern") for run in first]  # an older headwise wrote none
    return next((each for each in found if each is not None), None)


def _grids(run: ReportRun) -> dict[str, Grid]:
    """Of the analysis, and the importance that `headwise heads importance` found, if the analysis has none."""
    grids: dict[str, Grid] = dict(run.analysis.content["statistics"])
    if "importance" in grids:
        return grids
    found = read_answers(run.folder / FOLDER, "importance", run.folder, ImportanceFile)
    measured = {} if found is None else found[0]["tasks"]
    task = run.analysis.content["task"]
    if task in measured:
        grids["importance"] = {"mean": measured[task]["scores"], "error": None}
    return grids


def _statistic(name: str, grids: Sequence[Grid], pattern: dict[str, Any] | None) -> dict[str, Any]:
    title, unit, meaning = STATISTICS[name]
    if name == "match" and pattern is not None:
        title, meaning = f"Match with {pattern['name']}", meaning.format(pattern=f"the pattern {pattern['name']}")
    values = [value for grid in grids for row in grid["mean"] for value in row if value is not None]
    return {
        "id": name,
        "name": title,
        "unit": unit,
        "help": meaning,
        "low": min(values),
        "high": max(values),
        "diverging": False,
    }


def changes_of(before: Sequence[ExampleView], after: Sequence[ExampleView]) -> list[dict[str, Any]]:
    """For each head the mean distance between its rows in two models, the largest first.

    The distance of two rows is half the sum of the differences of their weights: the part of a token's attention that
    has gone elsewhere. It is a mean over the rows of an example, then over examples, with a standard error over these.
    Examples whose maps are cut count only where there are no others.
    """
    pairs = list(zip(before, after, strict=True))
    whole = [(one, other) for one, other in pairs if one.maps.exact and other.maps.exact]
    distances = np.stack([head_distances(one, other) for one, other in whole or pairs])
    mean = distances.mean(0)
    count = len(distances)
    error = distances.std(0, ddof=1) / np.sqrt(count) if count > 1 else None
    order = np.argsort(-mean, axis=None, kind="stable")
    found = []
    for place in order:
        layer, head = (int(each) for each in np.unravel_index(place, mean.shape))
        found.append(
            {
                "layer": layer,
                "head": head,
                "change": round(float(mean[layer, head]), 5),
                "error": None if error is None else round(float(error[layer, head]), 5),
            }
        )
    return found


def head_distances(one: ExampleView, other: ExampleView) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[layers, heads] the mean distance between the rows of two models' maps of one example.

    Of cut maps, what is left out of a row counts as one more key: that can make the distance smaller, not larger, where
    both kept the same keys.
    """
    layers, heads = one.maps.heads
    found = np.zeros((layers, heads))
    for layer in range(layers):
        for head in range(heads):
            first, second = one.head_map(layer, head), other.head_map(layer, head)
            moved = np.abs(first - second).sum(1)
            if not (one.maps.exact and other.maps.exact):
                moved = moved + np.abs(first.sum(1) - second.sum(1))
            found[layer, head] = 0.5 * float(moved.mean())
    return found

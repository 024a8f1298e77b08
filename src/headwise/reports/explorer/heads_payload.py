"""The grid of heads: the statistics of every model, and which heads changed most.

Shapes: T tokens of an example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.experiments.analysis.analysis_files import ExampleView
from headwise.experiments.head_studies.head_files import FOLDER, IMPORTANCE, read_result
from headwise.experiments.token_scores import read_snapshots
from headwise.heads import principal_components
from headwise.reports.explorer.report_runs import RUN, ReportRun

# Views of one source each: heads over training, and what a re-ranker puts first.


def diversity_payload(runs: Sequence[ReportRun]) -> dict[str, Any]:
    """By model, how alike its heads were at each snapshot; models without snapshots are left out."""
    seen = {run.id: found for run in runs if (found := read_snapshots(run.folder)) is not None and len(found.steps) > 1}
    points = _common_points({model: each.vectors for model, each in seen.items()})
    return {
        model: {
            "steps": each.steps.tolist(),
            "similarity": _rounded(each.similarity),
            "entropy": _rounded(each.entropy),
            "points": _rounded(points[model]),
            "examples": each.examples,
        }
        for model, each in seen.items()
    }


def _common_points(vectors: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float64]]:
    """[S,M,2] of each model: all snapshots of all models on common axes, so a head that stays does not move.

    Models that looked at texts of different lengths have nothing in common, and each has axes of its own.
    """
    lengths = {each.shape[2] for each in vectors.values()}
    if len(lengths) > 1:
        return {model: _common_points({model: each})[model] for model, each in vectors.items()}
    if not vectors:
        return {}
    rows = [each.reshape(-1, each.shape[2]) for each in vectors.values()]
    points, _ = principal_components(torch.from_numpy(np.concatenate(rows)))
    parts = points.split([len(each) for each in rows])
    shapes = {model: each.shape[:2] for model, each in vectors.items()}
    return {model: part.numpy().reshape(*shape, 2) for part, (model, shape) in zip(parts, shapes.items(), strict=True)}


def retrieval_payload(runs: Sequence[ReportRun]) -> dict[str, Any] | None:
    """The claims that all re-rankers were asked about, with the ranks that each gave; None for other runs."""
    claims = [{claim["id"]: claim for claim in run.analysis.content["claims"] or ()} for run in runs]
    common = [claim for claim in claims[0] if all(claim in each for each in claims)]
    if not common:
        return None
    return {"claims": [_claim([each[name] for each in claims], [run.id for run in runs]) for name in common]}


def _claim(views: Sequence[dict[str, Any]], models: Sequence[str]) -> dict[str, Any]:
    papers = []
    for number, paper in enumerate(views[0]["papers"]):
        as_seen = {model: view["papers"][number] for model, view in zip(models, views, strict=True)}
        papers.append(
            {
                "id": paper["id"],
                "text": paper["text"],
                "relevant": paper["relevant"],
                "ranks": {model: each["rank"] for model, each in as_seen.items()},
                "scores": {model: each["score"] for model, each in as_seen.items()},
            }
        )
    return {"id": views[0]["id"], "text": views[0]["text"], "papers": papers}


def _rounded(values: Any) -> Any:
    return np.round(np.asarray(values, dtype=np.float64), 5).tolist()


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
    found = read_result(run.folder / FOLDER, IMPORTANCE, run.folder)
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

"""Views of one source each: heads over training, and what a re-ranker puts first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.experiments.snapshots import read_snapshots
from headwise.heads import principal_components
from headwise.reports.explorer.runs import ReportRun


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

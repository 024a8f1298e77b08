"""Views of one source each: heads over training, and what a re-ranker puts first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headwise.experiments.snapshots import read_snapshots
from headwise.heads import principal_components
from headwise.reports.explorer.runs import ReportRun


def diversity_payload(runs: Sequence[ReportRun]) -> dict[str, Any]:
    """By model, how alike its heads were at each snapshot; models without snapshots are left out."""
    found = {}
    for run in runs:
        seen = read_snapshots(run.folder)
        if seen is None or len(seen.steps) < 2:
            continue
        # All snapshots on common axes, so that a head that stays where it was does not move.
        points, _ = principal_components(torch.from_numpy(np.concatenate(list(seen.vectors))))
        heads = seen.vectors.shape[1]
        found[run.id] = {
            "steps": seen.steps.tolist(),
            "similarity": _rounded(seen.similarity),
            "entropy": _rounded(seen.entropy),
            "points": _rounded(points.reshape(len(seen.steps), heads, 2).numpy()),
            "examples": seen.examples,
        }
    return found


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

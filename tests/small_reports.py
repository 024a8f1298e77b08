"""Plugin: analysed runs, to look at only: plain and guided, with SSA, of several tasks, and a re-ranker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_collection import write_collection
from tiny_runs import small

from headwise.experiments.analysis.analyze import AnalysisSettings, analyze_tasks
from headwise.experiments.apply import load_tasks
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe import check_recipe
from headwise.experiments.run import train

KEPT = 4


def analysed(folder: Path, recipe: dict[str, Any], place: RunPaths, **settings: Any) -> Path:
    """Train, then analyse."""
    torch.set_num_threads(1)
    train(check_recipe(recipe, "test"), place)
    analyze_tasks(load_tasks(folder), AnalysisSettings(**{"examples": KEPT, **settings}))
    return folder


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory, encoder: str, pairs: str) -> Path:
    """A folder with the runs plain and guided, with snapshots and importance."""
    folder = tmp_path_factory.mktemp("two")
    for name, guides in (("plain", {}), ("guided", {"mdg": {"weight": 1.0}})):
        recipe = small(encoder, guides=guides, training__snapshots=4, training__evaluate_every=3)
        analysed(folder / name, recipe, RunPaths(folder / name, Path(pairs)), importance=8)
    return folder


@pytest.fixture(scope="session")
def supervised_run(tmp_path_factory: pytest.TempPathFactory, encoder: str, pairs: str) -> Path:
    """A run with SSA."""
    folder = tmp_path_factory.mktemp("supervised") / "run"
    recipe = small(encoder, guides={}, training__epochs=1, ssa={"attention_threshold": 0.5})
    return analysed(folder, recipe, RunPaths(folder, Path(pairs)))


@pytest.fixture(scope="session")
def analysed_reranker(tmp_path_factory: pytest.TempPathFactory, encoder: str) -> Path:
    """A re-ranker that is tested on claims of the collection."""
    root = tmp_path_factory.mktemp("ranking")
    write_collection(root / "papers")
    task = {"name": "retrieval", "collection": "papers", "negatives": 2, "splits": {"test": "test"}}
    recipe = small(encoder, task=task, guides={}, training__epochs=1) | {
        "data": {"max_length": 24, "limit": {"test": 5}}
    }
    return analysed(root / "run", recipe, RunPaths(root / "run", root, cache=root / "cache"))

"""A small run on three tasks of different kinds that share one encoder, to look at only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import write_data

from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe import check_recipe
from headwise.experiments.run import train

KINDS = {"signs": "pairs", "single": "sentences", "number": "pairs-regression"}


def joint_recipe(encoder: str, tasks: tuple[str, ...] = tuple(KINDS)) -> dict[str, Any]:
    """A recipe as plain data: pairs of three classes, single texts of three classes, numbers for pairs."""
    files = {task: {split: f"{task}/{split}.tsv" for split in ("train", "validation", "test")} for task in tasks}
    return {
        "name": "tiny",
        "tasks": {task: {"name": KINDS[task], "files": files[task]} for task in tasks},
        "model": encoder,
        "data": {"max_length": 24},
        "training": {
            "num_train_epochs": 6,
            "per_device_train_batch_size": 8,
            "learning_rate": 3e-3,
            "head_learning_rate_multiplier": 1,
            "logging_steps": 20,
        },
    }


@pytest.fixture(scope="session")
def joint_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the three tasks."""
    folder = tmp_path_factory.mktemp("joint-data")
    for task, kind in KINDS.items():
        write_data(folder / task, kind)
    return folder


@pytest.fixture(scope="session")
def joint(tmp_path_factory: pytest.TempPathFactory, encoder: str, joint_data: Path) -> Path:
    """The finished run; copy it before you write into it."""
    folder = tmp_path_factory.mktemp("joint") / "run"
    torch.set_num_threads(1)
    train(check_recipe(joint_recipe(encoder), "test"), RunPaths(folder, joint_data))
    return folder

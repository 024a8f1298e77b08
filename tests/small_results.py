"""Runs made by hand, as the files that `headwise sweep` and `headwise train` leave: no model, no training."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tiny_runs import changed

from headwise.experiments.recipe import OLD_TRAINING_KEYS
from headwise.metrics import METRICS, score

EXAMPLES = 80
WORLD = {
    "headwise": "0.1.0",
    "python": "3.11.7",
    "threads": 1,
    "accelerator": None,
    "packages": {"torch": "2.9.0", "transformers": "5.22.0", "numpy": "2.4.6"},
}
CLASSES = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
NUMBERS = ("pearson", "spearman")
GUIDED = {"mdg": {"weight": 0.001}, "pdg": {"weight": 0.001}}


def dotted(key: str) -> str:
    """`training__batch` as a recipe has it."""
    *parts, last = key.split("__")
    return ".".join([*parts, OLD_TRAINING_KEYS.get(last, last) if parts == ["training"] else last])


def recipe(**changes: Any) -> dict[str, Any]:
    """A resolved recipe, or as much of one as matters here."""
    plain = {
        "name": "small",
        "description": "",
        "task": {"name": "pairs"},
        "model": "builtin:minilm-l6",
        "guides": {},
        "data": {"max_length": 128, "fraction": 1.0, "limit": {}},
        "training": {"num_train_epochs": 3.0, "per_device_train_batch_size": 16, "learning_rate": 1e-5, "freeze": []},
        "seed": 1,
    }
    return changed(plain, **changes)


def key_of(recipe: Mapping[str, Any]) -> str:
    content = {name: value for name, value in recipe.items() if name not in ("name", "description")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def gold(kind: str = "classification", examples: int = EXAMPLES, draw: int = 0) -> np.ndarray:
    """What is right: the same for every run of a kind."""
    chance = np.random.default_rng([draw, 99])
    return chance.integers(3, size=examples) if kind == "classification" else chance.normal(size=examples)


def output(kind: str, quality: float, *, seed: int, examples: int = EXAMPLES, draw: int = 0) -> dict[str, Any]:
    """What a model of this quality answered; `draw` chooses the examples, the seed the mistakes."""
    right, chance = gold(kind, examples, draw), np.random.default_rng([draw, seed, round(1000 * quality)])
    known: dict[str, Any] = {"kind": kind, "examples": f"{kind}-{examples}-{draw}"}
    if kind == "ranking":
        ranks = np.where(chance.random(examples) < quality, 1, chance.integers(2, 9, size=examples))
        rows = {
            f"c{place}": {"mrr": 1 / rank, "recall@1": float(rank == 1)} for place, rank in enumerate(ranks.tolist())
        }
        return known | {"per_query": rows}
    if kind == "regression":
        answers = quality * right + (1 - quality) * chance.normal(size=examples)
    else:
        answers = np.where(chance.random(examples) < quality, right, chance.integers(3, size=examples))
    return known | {"gold": right.tolist(), "predictions": answers.tolist()}


def metrics_of(answers: Mapping[str, Any]) -> dict[str, float]:
    """What these answers are worth."""
    if answers["kind"] == "ranking":
        rows = list(answers["per_query"].values())
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    names = CLASSES if answers["kind"] == "classification" else NUMBERS
    return score(names, np.array(answers["predictions"]), np.array(answers["gold"]))


def run(
    recipe: Mapping[str, Any],
    quality: float = 0.8,
    *,
    kind: str = "classification",
    examples: int = EXAMPLES,
    draw: int = 0,
    world: Mapping[str, Any] | None = None,
    seconds: Sequence[float] = (10.0, 12.0),
) -> dict[str, Any]:
    """The record of a finished run on one task."""
    made = {
        split: output(kind, quality, seed=recipe["seed"] + 1000 * place, examples=examples, draw=draw + 50 * place)
        for place, split in enumerate(("test", "validation"))
    }
    metrics = {split: metrics_of(each) for split, each in made.items()}
    results = {
        "status": "finished",
        "metrics": metrics,
        "primary": next(iter(metrics["test"])),
        "steps": 40,
        "outputs": made,
    }
    times = {"seconds": sum(seconds), "seconds_per_epoch": list(seconds)}
    return {
        "format": 2,
        "key": key_of(recipe),
        "recipe": dict(recipe),
        "examples": f"all-{recipe['task']['name']}-{draw}",
        "results": results,
        "environment": {**WORLD, **(world or {}), "times": times},
    }


def joint_run(recipe: Mapping[str, Any], qualities: Mapping[str, tuple[str, float]]) -> dict[str, Any]:
    """The record of a run on several tasks: of each its kind and quality."""
    made = {
        f"{task}/test": output(kind, quality, seed=recipe["seed"], examples=60 + 20 * place, draw=place)
        for place, (task, (kind, quality)) in enumerate(qualities.items())
    }
    scores = {task: metrics_of(made[f"{task}/test"]) for task in qualities}
    primaries = {task: next(iter(each)) for task, each in scores.items()}
    named = {f"{task}/{name}": value for task, each in scores.items() for name, value in each.items()}
    content = run(recipe)
    content["results"] |= {
        "metrics": {"test": {"mean": float(np.mean([scores[task][primaries[task]] for task in qualities])), **named}},
        "primary": "mean",
        "tasks": {task: {"primary": primary} for task, primary in primaries.items()},
        "outputs": made,
    }
    return content


def failed(recipe: Mapping[str, Any], message: str = "out of memory") -> dict[str, Any]:
    content = run(recipe)
    return content | {"results": {"status": "failed", "error": {"kind": "RuntimeError", "message": message}}}


def folder_for(place: Path) -> Path:
    """An empty folder of results."""
    (place / "runs").mkdir(parents=True)
    (place / "sweeps").mkdir()
    (place / "headwise-sweep.json").write_text('{"format": 1, "headwise": "0.1.0"}', encoding="utf-8")
    return place


def write(folder: Path, content: Mapping[str, Any]) -> Path:
    """Put a run into a folder of results."""
    ending = ".error.json" if content["results"]["status"] == "failed" else ".json"
    path = folder / "runs" / f"{content['key']}{ending}"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write_trained(folder: Path, content: Mapping[str, Any]) -> Path:
    """The same run as a folder of `headwise train`."""
    content = copy.deepcopy(dict(content))
    outputs = content["results"].pop("outputs")
    content["results"]["seconds_per_epoch"] = content["environment"].pop("times")["seconds_per_epoch"]
    content["results"] |= {"labels": ["no", "maybe", "yes"], "best_step": 40}
    content["data"] = None
    folder.mkdir(parents=True)
    (folder / "headwise.json").write_text(json.dumps(content), encoding="utf-8")
    (folder / "outputs.json").write_text(json.dumps({"format": 1, "outputs": outputs}), encoding="utf-8")
    return folder


# label on an axis -> changes, as in the grid of a sweep
Axes = Mapping[str, Mapping[str, Mapping[str, Any]]]
SYSTEMS = {"plain": {"guides": {}}, "ag": {"guides": GUIDED}}


def sweep(
    place: Path,
    axes: Axes | None = None,
    *,
    seeds: Sequence[int] = (1, 2, 3),
    qualities: Mapping[str, float] | None = None,
    compare: Mapping[str, Any] | None = None,
    name: str = "table",
    **options: Any,
) -> Path:
    """A whole sweep: every point of its axes with every seed; the quality of a run is that of its first known label."""
    axes = {"system": SYSTEMS} if axes is None else axes
    folder = place if (place / "runs").is_dir() else folder_for(place)
    points: list[tuple[dict[str, str], dict[str, Any]]] = [({}, {})]
    for axis, labels in axes.items():
        points = [
            ({**point, axis: label}, {**changes, **more}) for point, changes in points for label, more in labels.items()
        ]
    rows = []
    for point, changes in points:
        for seed in seeds:
            quality = next(((qualities or {})[label] for label in point.values() if label in (qualities or {})), 0.7)
            content = run(recipe(seed=seed, **changes), quality, **options)
            write(folder, content)
            rows.append({"key": content["key"], "point": {**point, "seed": str(seed)}})
    described = {
        axis: {
            "labels": list(labels),
            "keys": list(dict.fromkeys(dotted(key) for changes in labels.values() for key in changes)),
        }
        for axis, labels in axes.items()
    }
    described["seed"] = {"labels": [str(seed) for seed in seeds], "keys": ["seed"]}
    manifest = {
        "format": 1,
        "name": name,
        "axes": described,
        "compare": {"by": "system", "baseline": "plain", "within": []} if compare is None else compare or None,
        "runs": rows,
    }
    (folder / "sweeps" / f"{name}.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def alter(path: Path, **changes: Any) -> None:
    """Change values of a JSON file."""
    path.write_text(json.dumps(changed(json.loads(path.read_text(encoding="utf-8")), **changes)), encoding="utf-8")


def runs_of(folder: Path) -> list[Path]:
    return sorted((folder / "runs").iterdir())


def run_of(folder: Path, **wanted: Any) -> Path:
    """The file of the run whose recipe has these values at the top."""
    for path in runs_of(folder):
        found = json.loads(path.read_text(encoding="utf-8"))["recipe"]
        if all(found[name] == value for name, value in wanted.items()):
            return path
    raise LookupError(wanted)


def slow_metric(name: str, answers: Mapping[str, Any], places: Sequence[int]) -> float:
    """A metric on some of the examples, by the plain function."""
    chosen = list(places)
    return METRICS[name](np.array(answers["predictions"])[chosen], np.array(answers["gold"])[chosen])

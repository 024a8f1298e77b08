"""Pruning curves, D-scores and kept maps made by hand, as the files that runs get: no model, no training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headwise.experiments.analysis.analysis_files import (
    ExampleMaps,
    ExampleView,
    analysis_folder,
    pack_examples,
    to_bytes,
)
from headwise.experiments.head_studies.curve_masks import BASE, MATCHED, RANDOM, CurveSettings, Pruned
from headwise.experiments.head_studies.head_dissociation import dissociate, dissociation_rows
from headwise.experiments.head_studies.head_files import ANALYSIS, DISSOCIATION, FOLDER, identity, write_result
from headwise.experiments.head_studies.prune_curve import PruneCurve, write_curve
from headwise.metrics import METRICS

SHAPE = (2, 4)
LABELS = 3
TOKENS = ("[CLS]", "a", "cat", "[SEP]")


def bare_record(name: str, **results: Any) -> dict[str, Any]:
    """The least that a record of a finished run holds."""
    least = {"metrics": {}, "primary": "accuracy", "labels": ["no", "yes"], "steps": 3, "best_step": 3}
    recipe = {"name": name, "seed": 1}
    return {"format": 2, "recipe": recipe, "data": None, "results": {**least, **results}, "environment": {}}


def bare_run(folder: Path, **results: Any) -> Path:
    """A record and a log, and nothing else."""
    folder.mkdir(parents=True)
    (folder / "headwise.json").write_text(json.dumps(bare_record(folder.name, **results)), encoding="utf-8")
    lines = [{"step": step, "loss": 1 / step} for step in (1, 2, 3)]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def curve_of(run: Path, tasks: Sequence[str], settings: CurveSettings, examples: int = 40) -> PruneCurve:
    """A curve whose predictions are a matter of chance, better without masks than with them."""
    chance = np.random.default_rng(5)
    counts = settings.counts(SHAPE)
    steps = range(len(counts))
    plan: list[tuple[str, int | None, str | None, int | None]] = [(BASE, None, None, None)]
    plan += [(order, step, task, None) for order in settings.orders for task in settings.task for step in steps]
    plan += [(RANDOM, step, None, repeat) for repeat in range(settings.repeats) for step in steps]
    plan += [
        (MATCHED, step, task, repeat) for task in settings.task for repeat in range(settings.repeats) for step in steps
    ]
    masks = []
    for order, step, task, repeat in plan:
        mask = np.zeros(SHAPE, dtype=bool)
        mask.flat[chance.permutation(mask.size)[: 0 if step is None else counts[step]]] = True
        masks.append(Pruned(order, step, task, repeat, mask))
    labels = {task: chance.integers(LABELS, size=examples) for task in tasks}
    right = np.array([0.9, *chance.uniform(0.2, 0.8, size=len(masks) - 1)])
    predictions = {
        task: np.where(
            chance.random((len(masks), examples)) < right[:, None],
            labels[task],
            chance.integers(LABELS, size=(len(masks), examples)),
        )
        for task in tasks
    }
    values = [
        [METRICS["accuracy"](predictions[task][place], labels[task]) for task in tasks] for place in range(len(masks))
    ]
    return PruneCurve(
        run=identity(run),
        metrics=dict.fromkeys(tasks, "accuracy"),
        settings=settings,
        shape=SHAPE,
        counts=counts,
        masks=tuple(masks),
        values=np.array(values),
        importance={},
        labels=labels,
        predictions=predictions,
    )


def write_heads(run: Path, tasks: Sequence[str] = ("one", "two"), **settings: Any) -> PruneCurve:
    """Put a curve into a run, and its D-scores if there are several tasks."""
    chosen = CurveSettings(**({"percent": (50.0, 25.0), "task": tuple(tasks)} | settings))
    curve = curve_of(run, tasks, chosen)
    write_curve(run / FOLDER, curve)
    if len(tasks) > 1:
        found = dissociate(curve, resamples=50, seed=0)
        write_result(run / FOLDER, DISSOCIATION, found, rows=dissociation_rows(found))
    return curve


def view(number: int, tokens: Sequence[str] = TOKENS, *, seed: int = 0, gone: Sequence[int] = ()) -> ExampleView:
    """An example of a split, at place 10 times its number; heads that are gone look at nothing."""
    size = len(tokens)
    maps = np.random.default_rng([seed, number]).random((*SHAPE, size, size))
    maps /= maps.sum(-1, keepdims=True)
    maps.reshape(-1, size, size)[list(gone)] = 0
    vectors = maps.sum(2).reshape(-1, size)
    return ExampleView(
        title=f"test {10 * number}",
        place=10 * number,
        texts=(" ".join(tokens),),
        tokens=tuple(tokens),
        sources=tuple(-1 if token.startswith("[") else 0 for token in tokens),
        gold="yes",
        prediction="no",
        probabilities={"yes": 0.4, "no": 0.6},
        maps=ExampleMaps(to_bytes(maps)),
        mean_map=maps.mean((0, 1)).astype(np.float32),
        vectors=(vectors / np.maximum(vectors.sum(1, keepdims=True), 1e-30)).astype(np.float32),
    )


def write_analysis(run: Path, views: Sequence[ExampleView], *, name: str = "demo", heads: int = SHAPE[1]) -> Path:
    """Put kept examples into a run, with so many heads of each layer."""
    cut = [
        replace(
            each,
            maps=ExampleMaps(each.maps.values[:, :heads]),
            vectors=each.vectors.reshape(*SHAPE, -1)[:, :heads].reshape(SHAPE[0] * heads, -1),
        )
        for each in views
    ]
    described, arrays = pack_examples(cut)
    content = {
        "run": identity(run),
        "task": "pairs",
        "name": name,
        "split": "test",
        "examples": 100,
        "examples_key": "0",
        "tokenizer": "0",
        "max_length": 24,
        "labels": ["no", "yes"],
        "task_kind": "classification",
        "layers": SHAPE[0],
        "heads": heads,
        "statistics": {"entropy": {"mean": [[0.5] * heads] * SHAPE[0], "error": None}},
        "answers": None,
        "claims": None,
        "kept": described,
    }
    write_result(analysis_folder(run), ANALYSIS, content, arrays=arrays)
    return run

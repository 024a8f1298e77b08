"""From a finished run to its analysis: statistics over a split, and some examples with all their maps.

Shapes: n examples, C classes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.attention import capture
from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import InputError, StateError, Stopped
from headwise.experiments.analysis.analysis_files import (
    FOLDER,
    Analysis,
    ExampleView,
    analysis_folder,
    pack_examples,
    read_analysis,
)
from headwise.experiments.analysis.example_views import (
    ExpectedPattern,
    ExpectedRows,
    expected_pattern,
    gold_of,
    marks_of,
    view_examples,
)
from headwise.experiments.apply import Loaded, RunTasks, Source, load_tasks
from headwise.experiments.head_studies.head_files import ANALYSIS, identity, new_results, write_result
from headwise.experiments.head_studies.head_importance import Examples, ImportanceSettings, task_importance
from headwise.experiments.head_studies.head_patterns import batch_inputs
from headwise.experiments.outputs import examples_key
from headwise.experiments.recipe_files import NotYamlError, parse_yaml
from headwise.experiments.record import finished_record
from headwise.experiments.splits import read_split
from headwise.heads.importance import NORMAL_95
from headwise.heads.statistics import MapStatistics
from headwise.limits import allowing_code, code_allowed
from headwise.patterns import Pattern, build_pattern, refuse_named_code
from headwise.training import Listener, Silence, predictions_of
from headwise.training.predict import evaluating, stretches, tokens_at_a_time

# A page shows one example at a time.
MOST_EXAMPLES = 200
CLAIMS = 20
# Pages list examples by the beginning of their texts.
LONGEST_TEXT = 400
LONGEST_CLAIM_TEXT = 300


@dataclass(frozen=True)
class AnalysisSettings:
    """Which examples are analysed, and how."""

    split: str = "test"
    limit: int | None = None
    """The number of examples, from the first; None for all."""
    examples: int = 20
    """How many are kept with their maps, spread evenly over the split."""
    pick: tuple[int, ...] = ()
    """Examples to keep in addition, by their index in the split."""
    file: Path | None = None
    """A file in the task's format whose rows are kept with their maps instead."""
    importance: int = 0
    """Examples over which the importance of heads is measured; 0 for none."""
    batch: int | None = None
    pattern: Pattern | None = None
    """The pattern that heads are compared with; None for the one that the run was guided to, if any."""


def read_pattern(option: str, text: str | None) -> Pattern | None:
    """A pattern as a user writes it: a name, or a name with options in YAML."""
    if text is None:
        return None
    try:
        choice = parse_yaml(text, f"{option} {text[:60]!r}")
    except NotYamlError:
        raise InputError(
            f"{option} {text[:200]!r} is not YAML: expected a name such as next, or {{name: pmi, window: 5}}."
        ) from None
    pattern = build_pattern(choice)
    refuse_named_code(pattern, option)
    return pattern


def spread(count: int, examples: int, pick: Sequence[int], split: str) -> list[int]:
    """Indices of some examples, spread evenly over a split of `count`, and of those picked."""
    for index in pick:
        if not 0 <= index < count:
            raise InputError(f"pick={index}: the analysed examples of the {split} set are 0 to {count - 1}.")
    examples = min(examples, count)
    even = {round(number * (count - 1) / max(examples - 1, 1)) for number in range(examples)}
    return sorted(even | set(pick))


def read_examples(run: Loaded, path: Path) -> Split:
    """The examples of a file with the task's text columns."""
    split = run.task.read_file(path, labelled=False)
    if not len(split):
        raise InputError(f"{path} holds no example: expected rows with the text columns of {run.task.name}.")
    if len(split) > MOST_EXAMPLES:
        raise InputError(
            f"{path} holds {len(split)} examples: expected at most {MOST_EXAMPLES}, since all their maps are kept; "
            "shorten it."
        )
    return split


# -- statistics ------------------------------------------------------------------------------------------------------


def _measure_heads(
    run: Loaded, encoded: Encoded, collate: Collator, batch: int, expected: ExpectedRows | None, progress: Listener
) -> tuple[dict[str, dict[str, Any]], NDArray[Any]]:
    """The statistics of all heads by name, and the logits [n,C] in the order of the data; no map is kept."""
    lengths = np.asarray(encoded.lengths)
    order = np.argsort(-lengths, kind="stable")
    model, statistics, parts = run.model, MapStatistics(), []
    with evaluating(model), torch.inference_mode(), capture(model, what="map", digest=statistics.digest) as record:
        for start, end in stretches(lengths[order].tolist(), batch, tokens_at_a_time(model)):
            indices = order[start:end].tolist()
            inputs = batch_inputs(model, collate, encoded, indices)
            statistics.begin(marks_of(encoded, indices, inputs["attention_mask"], expected))
            parts.append(model(**inputs).logits.float().cpu().numpy())
            statistics.add(record)
            progress.advance(end)
    logits = np.concatenate(parts)
    if not np.isfinite(logits).all():
        raise StateError("the model's outputs are not finite: has training diverged?")
    restored = np.empty_like(logits)
    restored[order] = logits
    return statistics.result(), restored


def _claims(split: Split, scores: NDArray[Any]) -> list[dict[str, Any]]:
    """The first claims of a re-ranker with the ranks and scores [n] of all their candidates, equals in their order."""
    members: dict[str, list[int]] = {}
    for index, group in enumerate(split.groups or ()):
        members.setdefault(group, []).append(index)
    claims = []
    for group, candidates in list(members.items())[:CLAIMS]:
        order = sorted(candidates, key=lambda index: -float(scores[index]))
        claims.append(
            {
                "id": group,
                "text": split.texts[candidates[0]][0][:LONGEST_CLAIM_TEXT],
                "papers": [
                    {
                        "id": str(number),  # among the candidates, which two models of one collection share
                        "text": split.texts[index][1][:LONGEST_CLAIM_TEXT],
                        "relevant": bool(split.labels[index]),
                        "rank": order.index(index) + 1,
                        "score": round(float(scores[index]), 4),
                    }
                    for number, index in enumerate(candidates)
                ],
            }
        )
    return claims


# -- the analysis ----------------------------------------------------------------------------------------------------


class _Material(NamedTuple):
    """The data of one task: the split, and the examples that are kept with their maps."""

    split: Split
    encoded: Encoded
    shown: Split
    titles: list[str]
    indices: list[int | None]


def _read(run: Loaded, settings: AnalysisSettings, source: Source) -> _Material:
    split = read_split(run.recipe, run.task, settings.split, source.data or run.data, network=source.network)
    limit = len(split) if settings.limit is None else min(settings.limit, len(split))
    if split.groups is not None and limit < len(split):
        # No claim with a part of its candidates, and one claim at least.
        ends = [end for end in range(1, len(split)) if split.groups[end] != split.groups[end - 1]] or [len(split)]
        limit = max([end for end in ends if end <= limit], default=ends[0])
    split = split.subset(range(limit))
    encoded = encode(split, run.tokenizer, run.recipe.data.max_length, offsets=True)
    if settings.file is None:
        indices = spread(len(split), settings.examples, settings.pick, settings.split)
        titles = [f"{settings.split} {index}" for index in indices]
        return _Material(split, encoded, split.subset(indices), titles, list(indices))
    if settings.pick:
        raise InputError("pick=... is for examples of the split, and examples=... for a file: leave one of them out.")
    shown = read_examples(run, settings.file)
    titles = [f"{settings.file.name} {number + 1}" for number in range(len(shown))]
    return _Material(split, encoded, shown, titles, [None] * len(shown))


@dataclass(frozen=True)
class Written:
    """An analysis as it was written."""

    content: dict[str, Any]
    paths: list[Path]


@contextmanager
def new_analysis(run: Path, task: str | None, *, overwrite: bool) -> Iterator[None]:
    """Lock RUN/analysis for the block that writes it; `task` is one of several, None for all."""
    tasks = finished_record(run)["results"].get("tasks")
    names: list[str | None] = [None] if tasks is None else [task] if task is not None else list(tasks)
    paths = [analysis_folder(run, name) / f"{ANALYSIS}.json" for name in names]
    with new_results(run, run / FOLDER, paths, overwrite=overwrite):
        yield


def analyze_tasks(
    tasks: RunTasks, settings: AnalysisSettings, source: Source | None = None, progress: Listener | None = None
) -> dict[str, Written]:
    """Analyse each of these tasks of a run and write the results into RUN/analysis.

    Everything is read before the first model is run.
    """
    progress, source = progress or Silence(), source or Source()
    tasks.refuse_pruned("an analysis")
    for run in tasks.runs.values():
        run.refuse_several_labels("an analysis")
    material = {name: _read(run, settings, source) for name, run in tasks.runs.items()}
    expected = {name: expected_pattern(run, settings.pattern, source, progress) for name, run in tasks.runs.items()}
    written: dict[str, Written] = {}
    try:
        for name, run in tasks.runs.items():
            content, views = _analyse(run, material[name], settings, expected[name], progress)
            described, arrays = pack_examples(views)
            content = {"run": identity(tasks.folder), "task": name, **content, "kept": described}
            folder = analysis_folder(tasks.folder, name if tasks.joint else None)
            paths = write_result(folder, ANALYSIS, content, rows=_rows(content["statistics"]), arrays=arrays)
            written[name] = Written(content, paths)
    except KeyboardInterrupt:
        kept = f"the analysis of {', '.join(written)} is kept" if written else "nothing was written"
        raise Stopped(f"{kept}, and the same command begins the analysis of {tasks.folder} again") from None
    return written


def _analyse(
    run: Loaded, material: _Material, settings: AnalysisSettings, pattern: ExpectedPattern | None, progress: Listener
) -> tuple[dict[str, Any], list[ExampleView]]:
    data, split, ranking = run.recipe.data, material.split, run.task.kind == "ranking"
    collate = Collator.of(run.tokenizer, run.task.kind, padding=data.padding, max_length=data.max_length)
    maps = None if pattern is None else pattern.of(split.texts, material.encoded, progress)
    pattern = None if maps is None else pattern
    progress.start(f"heads of {run.recipe.name}", len(split))
    batch = settings.batch or run.recipe.training.per_device_eval_batch_size
    grids, logits = _measure_heads(run, material.encoded, collate, batch, maps, progress)
    progress.end()
    if pattern is not None and "match" not in grids:
        progress.log(f"the pattern {pattern.pattern.name} wants nothing of any of the {len(split)} examples")
    if settings.importance:
        if ranking or not split.labelled:
            raise InputError(
                f"importance={settings.importance} needs labelled single examples, and the {settings.split} set of "
                f"{run.task.name} has none: leave it out, or give another split."
            )
        examples = Examples(material.encoded, collate, np.asarray(split.labels))
        options = ImportanceSettings(examples=settings.importance, split=settings.split)
        measured = task_importance(run.task.name, run, examples, options, progress)
        error = None if measured.half_width is None else (measured.half_width / NORMAL_95).tolist()
        grids["importance"] = {"examples": measured.examples, "mean": measured.scores.tolist(), "error": error}
    views = view_examples(run, material.shown, material.titles, material.indices, whole=settings.pick, expected=pattern)
    answers = None
    if not ranking:
        predictions = predictions_of(logits).tolist()
        answers = {
            "predictions": [run.labels[int(each)] if run.labels else round(float(each), 4) for each in predictions],
            "gold": [gold_of(run, label) for label in split.labels],
            "texts": [[text[:LONGEST_TEXT] for text in texts] for texts in split.texts],
        }
    vocabulary = json.dumps(sorted(run.tokenizer.get_vocab().items()), ensure_ascii=False)
    content = {
        "name": run.recipe.name,
        "split": settings.split,
        "examples": len(split),
        "examples_key": examples_key(split),
        # Models with the same vocabulary split texts into the same tokens.
        "tokenizer": hashlib.sha256(vocabulary.encode()).hexdigest()[:16],
        "max_length": data.max_length,
        "labels": list(run.labels),
        "task_kind": run.task.kind,
        "layers": len(grids["entropy"]["mean"]),
        "heads": max(len(row) for row in grids["entropy"]["mean"]),
        "truncated": material.encoded.truncated,
        "statistics": grids,
        "pattern": None if pattern is None else pattern.identity(),
        "answers": answers,
        "claims": _claims(split, logits[:, 0]) if ranking else None,
    }
    return content, views


def _rows(grids: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for each head."""
    for layer, row in enumerate(grids["entropy"]["mean"]):
        for head in range(len(row)):
            means = {name: grid["mean"][layer][head] for name, grid in grids.items()}
            errors = {
                f"{name}_error": None if grid["error"] is None else grid["error"][layer][head]
                for name, grid in grids.items()
            }
            yield {"layer": layer, "head": head, **means, **errors}


def analyze(
    run: Path | str,
    *,
    split: str = "test",
    limit: int | None = None,
    examples: int = 20,
    importance: int = 0,
    pattern: Pattern | str | Mapping[str, Any] | None = None,
    task: str | None = None,
    data: Path | str | None = None,
    allow_code: bool = False,
    overwrite: bool = False,
) -> Analysis:
    """Analyse what every head of a run does on a split, save it in RUN/analysis, and return it.

    Args:
        run: a folder of `headwise train`.
        split: train, validation, test, or another split of its task.
        limit: the number of examples, from the first; None for all.
        examples: how many are kept with all their maps, spread evenly over the split.
        importance: labelled examples over which the importance of heads is measured too; 0 for none.
        pattern: compare heads with this one, as for `hw.Match`; None for the one that the run was guided to, if any.
        task: of a run on several tasks, which one.
        data: folder with the task's files, if not the one of training.
        allow_code: import the Python code that the record of the run names, if any.
        overwrite: replace an earlier analysis.
    """
    for name, value, least in (("limit", limit, 1), ("examples", examples, 1), ("importance", importance, 0)):
        if value is not None and value < least:
            raise InputError(f"{name}={value}: expected {least} or more.")
    folder = Path(run)
    content = finished_record(folder)
    if "tasks" in content["results"] and task is None:
        raise InputError(f"{folder} has several tasks ({', '.join(content['results']['tasks'])}): give one as task=.")
    chosen = None if pattern is None else build_pattern(pattern)
    settings = AnalysisSettings(split=split, limit=limit, examples=examples, importance=importance, pattern=chosen)
    with allowing_code(allow_code or code_allowed()), new_analysis(folder, task, overwrite=overwrite):
        tasks = load_tasks(folder, [] if task is None else [task])
        analyze_tasks(tasks, settings, Source(None if data is None else Path(data)))
    return read_analysis(folder, task if tasks.joint else None)

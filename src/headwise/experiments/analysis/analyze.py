"""From a finished run to its analysis: statistics over a split, and some examples with all their maps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

from headwise.attention import capture
from headwise.code_permission import allowing_code, code_allowed
from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import InputError, StateError, Stopped
from headwise.experiments.analysis.analysis_files import (
    Analysis,
    analysis_folder,
    new_analysis,
    read_analysis,
    write_analysis,
)
from headwise.experiments.analysis.example_views import ExampleView, gold_of, spread, view_examples
from headwise.experiments.analysis.expected_maps import WantedMaps, WantedPattern, marks_of, wanted_pattern
from headwise.experiments.apply import Loaded, RunTasks, Source, load_tasks
from headwise.experiments.head_studies.head_files import Examples, identity
from headwise.experiments.head_studies.head_importance import ImportanceSettings, task_importance
from headwise.experiments.outputs import examples_key
from headwise.experiments.recipe_files import NotYamlError, parse_yaml
from headwise.experiments.record import finished_record
from headwise.experiments.splits import read_split
from headwise.heads.statistics import HeadStatistic, MapStatistics
from headwise.patterns import Pattern, build_pattern, refuse_named_code
from headwise.training import Listener, Silence, predictions_of
from headwise.training.predict import evaluating, stretches, tokens_at_a_time

# What to analyse.


@dataclass(frozen=True)
class AnalysisSettings:
    """Which examples are looked at, and how closely."""

    split: str = "test"
    limit: int | None = None
    """The first so many examples; None for all."""
    examples: int = 20
    """How many are kept with their maps, spread evenly over the split."""
    places: tuple[int, ...] = ()
    """These are kept in any case, by their places in the split, from 0."""
    file: Path | None = None
    """A file in the task's format whose rows are kept with their maps instead."""
    importance: int = 0
    """Examples over which the importance of heads is measured; 0 for none."""
    batch: int | None = None
    pattern: Pattern | None = None
    """Heads are held against this pattern; None for the one that the run was guided to, if any."""


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


# One pass over a data set: what every head does, and what the model answers.


def watch_data(
    model: nn.Module,
    encoded: Encoded,
    collate: Collator,
    *,
    batch: int,
    wanted: WantedMaps | None = None,
    after_batch: Callable[[int], None] | None = None,
) -> tuple[list[HeadStatistic], numpy.ndarray]:
    """The statistics of all heads, and the logits [N,C] in the order of the data; no map is kept.

    Args:
        model: a classifier; its mode is restored afterwards.
        encoded: the examples, encoded with offsets.
        collate: makes a batch of them.
        batch: examples at a time; fewer where they are long.
        wanted: what a pattern wants of each example, to see how far heads follow it.
        after_batch: told how many examples are done.
    """
    lengths = numpy.asarray(encoded.lengths)
    order = numpy.argsort(-lengths, kind="stable")
    device = next(model.parameters()).device
    statistics = MapStatistics()
    parts = []
    with (
        evaluating(model),
        torch.inference_mode(),
        capture(model, what="map", digest=statistics.digest) as record,
    ):
        for start, end in stretches(lengths[order].tolist(), batch, tokens_at_a_time(model)):
            places = order[start:end].tolist()
            inputs: dict[str, Any] = collate([encoded[place] for place in places])
            inputs.pop("labels", None)
            inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
            statistics.begin(marks_of(encoded, places, inputs["attention_mask"], wanted))
            parts.append(model(**inputs).logits.float().cpu().numpy())
            statistics.add(record)
            if after_batch is not None:
                after_batch(end)
    logits = numpy.concatenate(parts)
    if not numpy.isfinite(logits).all():
        raise StateError("the model's outputs are not finite: has training diverged?")
    restored: numpy.ndarray = numpy.empty_like(logits)
    restored[order] = logits
    return statistics.result(), restored


# How a re-ranker orders the candidates of some claims.


CLAIMS = 20
LONGEST_CLAIM_TEXT = 300


def claims_of(split: Split, logits: numpy.ndarray) -> list[dict[str, Any]]:
    """The first claims with the ranks and scores of all their candidates.

    Papers with equal scores keep the order of the candidates.
    """
    groups = split.groups or ()
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    return [_claim(group, members, split, logits[:, 0]) for group, members in list(places.items())[:CLAIMS]]


def _claim(group: str, members: list[int], split: Split, scores: numpy.ndarray) -> dict[str, Any]:
    order = sorted(members, key=lambda place: -float(scores[place]))
    ranks = {place: rank for rank, place in enumerate(order, start=1)}
    # By their numbers among the candidates, which two models of one collection share.
    return {
        "id": group,
        "text": split.texts[members[0]][0][:LONGEST_CLAIM_TEXT],
        "papers": [
            {
                "id": str(number),
                "text": split.texts[place][1][:LONGEST_CLAIM_TEXT],
                "relevant": bool(split.labels[place]),
                "rank": ranks[place],
                "score": round(float(scores[place]), 4),
            }
            for number, place in enumerate(members)
        ],
    }


# Texts are for lists of examples whose prediction changed: the beginning is enough to know one by.
LONGEST_TEXT = 400
# A page is to be looked at, one example at a time.
MOST_EXAMPLES = 200


@dataclass(frozen=True)
class Written:
    """What `analyze` has found, and where it lies."""

    content: dict[str, Any]
    paths: list[Path]


def analyze_tasks(
    tasks: RunTasks, settings: AnalysisSettings, source: Source | None = None, listener: Listener | None = None
) -> dict[str, Written]:
    """Analyse each of these tasks of a run and write what was found into RUN/analysis.

    Everything is read before the first model is run.
    """
    listener = listener or Silence()
    tasks.refuse_pruned("an analysis")
    source = source or Source()
    material = {name: _read(run, settings, source) for name, run in tasks.runs.items()}
    wanted = {name: wanted_pattern(run, settings.pattern, source, listener) for name, run in tasks.runs.items()}
    found: dict[str, Written] = {}
    try:
        for name, run in tasks.runs.items():
            content, views, rows = _analyse(run, material[name], settings, wanted[name], listener)
            folder = analysis_folder(tasks.folder, name if tasks.joint else None)
            content = {"run": identity(tasks.folder), "task": name, **content}
            found[name] = Written(content, write_analysis(folder, content, views, rows))
    except KeyboardInterrupt:
        kept = f"the analysis of {', '.join(found)} is kept" if found else "nothing was written"
        raise Stopped(f"{kept}, and the same command begins the analysis of {tasks.folder} again") from None
    return found


def _whole_groups(split: Split, limit: int) -> int:
    """How many examples: at most so many, but no claim with a part of its candidates, and one claim at least."""
    if split.groups is None or limit >= len(split):
        return min(limit, len(split))
    ends = [place for place in range(1, len(split)) if split.groups[place] != split.groups[place - 1]] or [len(split)]
    return max([end for end in ends if end <= limit], default=ends[0])


@dataclass(frozen=True)
class _Material:
    split: Split
    encoded: Encoded
    shown: Split
    titles: list[str]
    places: list[int | None]


def _read(run: Loaded, settings: AnalysisSettings, source: Source) -> _Material:
    split = read_split(run.recipe, run.task, settings.split, source.data or run.data, network=source.network)
    if settings.limit is not None:
        split = split.subset(range(_whole_groups(split, settings.limit)))
    encoded = encode(split, run.tokenizer, run.recipe.data.max_length, offsets=True)
    if settings.file is not None:
        if settings.places:
            raise InputError("--pick is for examples of the split, and --examples takes a file instead: leave one out.")
        shown = read_examples(run, settings.file)
        titles = [f"{settings.file.name} {number + 1}" for number in range(len(shown))]
        return _Material(split, encoded, shown, titles, [None] * len(shown))
    places = spread(len(split), settings.examples, settings.places, settings.split)
    titles = [f"{settings.split} {place}" for place in places]
    return _Material(split, encoded, split.subset(places), titles, list(places))


def read_examples(run: Loaded, path: Path) -> Split:
    """The examples of a file with the task's text columns."""
    split = run.task.read_file(path, labelled=False)
    if not len(split):
        raise InputError(f"{path} holds no example: expected rows with the text columns of {run.task.name}.")
    if len(split) > MOST_EXAMPLES:
        raise InputError(
            f"{path} holds {len(split)} examples: expected at most {MOST_EXAMPLES}, each to be looked at with all its "
            "maps; shorten it."
        )
    return split


def _analyse(
    run: Loaded, material: _Material, settings: AnalysisSettings, wanted: WantedPattern | None, listener: Listener
) -> tuple[dict[str, Any], list[ExampleView], list[dict[str, Any]]]:
    data, split = run.recipe.data, material.split
    collate = Collator.of(run.tokenizer, run.task.kind, padding=data.padding, max_length=data.max_length)
    targets = None if wanted is None else wanted.of(split.texts, material.encoded, listener)
    wanted = None if targets is None else wanted
    listener.start(f"heads of {run.recipe.name}", len(split))
    statistics, logits = watch_data(
        run.model,
        material.encoded,
        collate,
        batch=settings.batch or run.recipe.training.per_device_eval_batch_size,
        wanted=targets,
        after_batch=listener.advance,
    )
    listener.end()
    grids = {each.name: _grid(each) for each in statistics}
    if wanted is not None and "match" not in grids:
        listener.tell(f"the pattern {wanted.pattern.name} wants nothing of any of the {len(split)} examples")
    if settings.importance:
        grids["importance"] = _importance(run, material, collate, settings, listener)
    views = view_examples(run, material.shown, material.titles, material.places, whole=settings.places, wanted=wanted)
    layers, heads = (len(grids["entropy"]["mean"]), max(len(row) for row in grids["entropy"]["mean"]))
    content = {
        "name": run.recipe.name,
        "split": settings.split,
        "examples": len(split),
        "examples_key": examples_key(split),
        "tokenizer": tokenizer_key(run.tokenizer),
        "max_length": data.max_length,
        "labels": list(run.labels),
        "task_kind": run.task.kind,
        "layers": layers,
        "heads": heads,
        "truncated": material.encoded.truncated,
        "statistics": grids,
        "pattern": None if wanted is None else wanted.identity(),
        "answers": _answers(run, split, logits),
        "claims": claims_of(split, logits) if run.task.kind == "ranking" else None,
    }
    return content, views, list(_rows(grids))


def tokenizer_key(tokenizer: Any) -> str:
    """A short hash of a vocabulary: models with the same one cut texts into the same tokens."""
    words = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=False)
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _grid(statistic: HeadStatistic) -> dict[str, Any]:
    layers = sorted({layer for layer, _ in statistic.mean})
    by_layer = {layer: sorted(head for each, head in statistic.mean if each == layer) for layer in layers}
    return {
        "examples": statistic.examples,
        "mean": [[statistic.mean[layer, head] for head in heads] for layer, heads in by_layer.items()],
        "error": [[statistic.error[layer, head] for head in heads] for layer, heads in by_layer.items()],
    }


def _importance(
    run: Loaded, material: _Material, collate: Collator, settings: AnalysisSettings, listener: Listener
) -> dict[str, Any]:
    """The gradient of the loss by the heads' gates; its half-width of a 95 % interval is about two standard errors."""
    if run.task.kind == "ranking" or not material.split.labelled:
        raise InputError(
            f"--importance needs labelled single examples, and the {settings.split} set of {run.task.name} has none: "
            "leave it out, or choose another split."
        )
    kind = numpy.float64 if run.task.kind == "regression" else numpy.int64
    examples = Examples(material.encoded, collate, numpy.asarray(material.split.labels, dtype=kind))
    wanted = ImportanceSettings(examples=settings.importance, split=settings.split)
    found = task_importance(run.task.name, run, examples, wanted, listener)
    half = None if found.half_width is None else (found.half_width / 1.96).tolist()
    return {"examples": found.examples, "mean": found.scores.tolist(), "error": half}


def _answers(run: Loaded, split: Split, logits: numpy.ndarray) -> dict[str, Any] | None:
    """What was answered to every example; of ranking, the claims tell more."""
    if run.task.kind == "ranking":
        return None
    predictions = predictions_of(logits)
    return {
        "predictions": [
            run.labels[int(each)] if run.labels else round(float(each), 4) for each in predictions.tolist()
        ],
        "gold": [gold_of(run, label) for label in split.labels],
        "texts": [[text[:LONGEST_TEXT] for text in texts] for texts in split.texts],
    }


def _rows(grids: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for each head, for people with spreadsheets."""
    sizes: Sequence[Sequence[float]] = grids["entropy"]["mean"]
    for layer, row in enumerate(sizes):
        for head in range(len(row)):
            yield {
                "layer": layer,
                "head": head,
                **{name: grid["mean"][layer][head] for name, grid in grids.items()},
                **{
                    f"{name}_error": None if grid["error"] is None else grid["error"][layer][head]
                    for name, grid in grids.items()
                },
            }


# `hw.analyze`: the analysis of a run in one call.


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
    """Look at what every head of a run does on a split, save it in RUN/analysis, and return it.

    Args:
        run: a folder of `headwise train`.
        split: train, validation, test, or another split of its task.
        limit: the first so many examples; None for all.
        examples: how many are kept with all their maps, spread evenly over the split.
        importance: labelled examples over which the importance of heads is measured too; 0 for none.
        pattern: hold heads against this one, as for `hw.Match`; None for the one that the run was guided to, if any.
        task: of a run on several tasks, which one.
        data: folder with the task's files, if not the one of training.
        allow_code: import the Python code that the record of the run names, if any.
        overwrite: replace the analysis that is there.
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
    with (
        allowing_code(allow_code or code_allowed()),
        new_analysis(folder, task, overwrite=overwrite, by="overwrite=True"),
    ):
        tasks = load_tasks(folder, [] if task is None else [task])
        analyze_tasks(tasks, settings, Source(None if data is None else Path(data)))
    return read_analysis(folder, task if tasks.joint else None)

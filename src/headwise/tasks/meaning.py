"""Options about meaning: classes or numbers, which classes, and how they are scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.errors import InputError, choices
from headwise.tasks.checks import mapping, one_of, text, texts, written
from headwise.tasks.file_task import FileTask
from headwise.tasks.labels import RULES, Unlabelled, label_text
from headwise.tasks.rows import PAPER_METRICS
from headwise.tasks.task import CLASSIFICATION_METRICS, REGRESSION_METRICS


def configured_meaning(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    """The task with the user's kind, classes and metrics."""
    if "kind" in options:
        task = _of_kind(task, one_of(options["kind"], ("classification", "regression"), "kind"))
    if task.kind == "regression" and {"labels", "label_names"} & set(options):
        raise InputError(f"task {task.name!r} predicts numbers and has no labels: leave labels and label_names out.")
    if "labels" in options:
        task = _with_labels(task, options["labels"])
    if "label_names" in options:
        task = _with_aliases(task, options["label_names"])
    if "unlabelled" in options:
        task = replace(task, unlabelled=_unlabelled(task.unlabelled, options["unlabelled"]))
    return _with_metrics(task, options)


def _of_kind(task: FileTask, kind: str) -> FileTask:
    if kind == task.kind:
        return task
    metrics = REGRESSION_METRICS if kind == "regression" else PAPER_METRICS
    return replace(task, kind=kind, known_labels=(), aliases={}, metrics=metrics, primary=metrics[0])


def _with_labels(task: FileTask, value: Any) -> FileTask:
    if isinstance(value, str) or not isinstance(value, list | tuple) or len(value) < 2:
        raise InputError(f"labels: expected a list of at least two, got {value!r}; list all classes in order.")
    labels = texts([written(label, "labels") for label in value], "labels")
    return replace(task, known_labels=labels, aliases=_kept(task.aliases, labels))


def _kept(aliases: Mapping[str, str], labels: tuple[str, ...]) -> dict[str, str]:
    """Those of the table that still lead somewhere, and do not hide a class that is really named so."""
    return {name: label for name, label in aliases.items() if label in labels and name not in labels}


def _with_aliases(task: FileTask, value: Any) -> FileTask:
    given = {label_text(raw): written(label, "label_names") for raw, label in mapping(value, "label_names").items()}
    for label in given.values():
        if task.known_labels and label not in task.known_labels:
            raise InputError(
                f"label_names: {label!r} is not a label of task {task.name!r}; {choices(label, task.known_labels)}."
            )
    return replace(task, aliases={**task.aliases, **given})


def _unlabelled(before: Unlabelled, value: Any) -> Unlabelled:
    for key in mapping(value, "unlabelled"):
        one_of(key, ("values", "rule"), "unlabelled")
    values, rule = value.get("values", before.values), value.get("rule", before.rule)
    if isinstance(values, str) or not isinstance(values, list | tuple):
        raise InputError(f"unlabelled.values: expected a list, got {values!r}; write it in brackets.")
    return Unlabelled(tuple(label_text(item) for item in values), one_of(rule, RULES, "unlabelled.rule"))


def _with_metrics(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    known = REGRESSION_METRICS if task.kind == "regression" else CLASSIFICATION_METRICS
    metrics = texts(options["metrics"], "metrics") if "metrics" in options else task.metrics
    for name in metrics:
        one_of(name, known, f"metrics of a {task.kind} task")
    if "f1" in metrics and len(task.known_labels) > 2:
        raise InputError(
            f"metrics: f1 is for two classes, task {task.name!r} has {len(task.known_labels)}: use macro_f1."
        )
    default = task.primary if task.primary in metrics else metrics[0]
    primary = one_of(text(options.get("primary", default), "primary"), metrics, "primary")
    return replace(task, metrics=metrics, primary=primary)

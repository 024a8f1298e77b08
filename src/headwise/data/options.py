"""A user's options: what a recipe may change in a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.data.examples import RULES, Unlabelled, label_text
from headwise.data.hub import SPLITS, Hub
from headwise.data.layouts import Layout
from headwise.data.readers import FORMATS
from headwise.data.task import CLASSIFICATION_METRICS, PAPER_METRICS, REGRESSION_METRICS, FileTask
from headwise.errors import InputError, choices

# Small checks of what a recipe may say.


def one_of(value: Any, known: Sequence[str], option: str) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{option}: {value!r} is not known; {choices(str(value), known)}.")
    return value


def text(value: Any, option: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{option}: expected a text, got {value!r}; quote it if it is one.")
    return value


def texts(value: Any, option: str) -> tuple[str, ...]:
    """Texts, all different; a single one may stand alone."""
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not items:
        raise InputError(f"{option}: expected a list of texts, got {value!r}; list at least one.")
    found = tuple(text(item, option) for item in items)
    if len(set(found)) < len(found):
        raise InputError(f"{option}: expected different texts, got {list(found)!r}; name each once.")
    return found


def mapping(value: Any, option: str) -> Mapping[Any, Any]:
    """A mapping."""
    if not isinstance(value, Mapping):
        raise InputError(f"{option}: expected a mapping, got {value!r}; write it as key: value.")
    return value


def written(value: Any, option: str) -> str:
    """A label as it is written in a file; whole numbers may be given as such."""
    # YAML reads yes, no, on and off as booleans, which is never what was meant.
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{option}: expected a text or a whole number, got {value!r}; quote it.")
    return str(value)


# Options about columns: which hold the texts and the label, and what they are called without a header.


def configured_layouts(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    """The task with the user's columns, which then are the only ones that it looks for."""
    if not {"texts", "label", "header", "columns"} & set(options):
        return task
    layout = task.layouts[0]
    if "texts" in options:
        layout = replace(layout, texts=_texts(options["texts"], task))
    if "label" in options:
        layout = replace(layout, label=text(options["label"], "label"))
    layout = replace(layout, columns=_columns(options, layout))
    _check_named(layout)
    return replace(task, layouts=(layout,))


def _texts(value: Any, task: FileTask) -> tuple[str, ...]:
    names = texts(value, "texts")
    if len(names) != task.sentences:
        raise InputError(
            f"texts: task {task.name!r} takes {task.sentences} of them, got {list(names)!r}; use another task, such as "
            f"{'sentences' if len(names) == 1 else 'pairs'}."
        )
    return names


def _columns(options: Mapping[str, Any], layout: Layout) -> tuple[str, ...] | None:
    """The names of all columns, or None for a file with a header."""
    header = options.get("header", "columns" not in options and layout.columns is None)
    if not isinstance(header, bool):
        raise InputError(f"header: expected true or false, got {header!r}; write one of them.")
    if header and "columns" in options:
        raise InputError("columns are for files without a header: leave them out, or set header: false.")
    if header:
        return None
    columns = texts(options["columns"], "columns") if "columns" in options else layout.columns
    if columns is None:
        raise InputError("header: false needs the names of all columns: give them in order, as columns.")
    return columns


def _check_named(layout: Layout) -> None:
    if layout.columns is None:
        return
    for name in layout.text_columns:
        if name not in layout.columns:
            raise InputError(
                f"texts: {name!r} is not among the columns {list(layout.columns)!r} of a file without a header; "
                "name it there, or set header: true."
            )


# Options about meaning: classes or numbers, which classes, and how they are scored.


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


COLUMNS = ("texts", "label", "header", "columns")
MEANING = ("kind", "labels", "label_names", "metrics", "primary", "unlabelled")
HUB = ("hub", "hub_config", "hub_splits")
WRITING = ("format", "quoting", "encoding")
OPTIONS = ("files", *WRITING, *COLUMNS, *MEANING, "broken_rows", *HUB)


def configured(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    """The task with the user's options."""
    for option in mapping(options, f"options of task {task.name!r}"):
        if option not in OPTIONS:
            raise InputError(f"task {task.name!r} has no option {option!r}: {choices(str(option), OPTIONS)}.")
    steps: tuple[Callable[[FileTask, Mapping[str, Any]], FileTask], ...] = (
        _files,
        _writing,
        configured_layouts,
        configured_meaning,
        _broken_rows,
        _hub,
    )
    for step in steps:
        task = step(task, options)
    return task


def _files(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    if "files" not in options:
        return task
    known = tuple(dict.fromkeys([*SPLITS, *task.places.splits]))
    files = {
        one_of(split, known, "files"): text(str(path), f"files.{split}")
        for split, path in mapping(options["files"], "files").items()
    }
    return replace(task, places=task.places.naming(files))


def _writing(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    dialect = task.dialect
    if "format" in options:
        dialect = replace(dialect, format=one_of(options["format"], FORMATS, "format"))
    if "quoting" in options:
        dialect = replace(dialect, quoting=one_of(options["quoting"], ("none", "minimal"), "quoting"))
    if "encoding" in options:
        dialect = replace(dialect, encoding=_encoding(options["encoding"]))
    return replace(task, dialect=dialect)


def _encoding(value: Any) -> str:
    try:
        "".encode(text(value, "encoding"))
    except LookupError:
        raise InputError(f"encoding: {value!r} is not a text encoding; give one, such as utf-8 or latin-1.") from None
    return str(value)


def _broken_rows(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    if "broken_rows" not in options:
        return task
    return replace(task, broken_rows=one_of(options["broken_rows"], ("error", "drop"), "broken_rows"))


def _hub(task: FileTask, options: Mapping[str, Any]) -> FileTask:
    given = [option for option in HUB if option in options]
    if not given:
        return task
    if "hub" not in options:
        raise InputError(f"{given[0]} says how to read a data set on the Hub: name it with hub, or leave this out.")
    if "files" in options:
        raise InputError(f"task {task.name!r} is given both files and hub: leave one out.")
    config = options.get("hub_config")
    splits = mapping(options.get("hub_splits", SPLITS), "hub_splits")
    hub = Hub(
        text(options["hub"], "hub"),
        None if config is None else text(config, "hub_config"),
        {text(split, "hub_splits"): text(name, f"hub_splits.{split}") for split, name in splits.items()},
    )
    return replace(task, hub=hub)

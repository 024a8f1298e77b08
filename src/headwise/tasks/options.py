"""A user's options: what a recipe may change in a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headwise.errors import InputError, choices
from headwise.tasks.checks import mapping, one_of, text
from headwise.tasks.columns import configured_layouts
from headwise.tasks.file_task import FileTask
from headwise.tasks.hub import SPLITS, Hub
from headwise.tasks.meaning import configured_meaning
from headwise.tasks.tables import FORMATS

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

"""Options about columns: which hold the texts and the label, and what they are called without a header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.errors import InputError
from headwise.tasks.checks import text, texts
from headwise.tasks.file_task import FileTask
from headwise.tasks.layout import Layout


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

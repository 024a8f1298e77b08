"""Which task reads the files, and by which columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.tasks import FileTask, build_task
from headwise.tasks.catalogue import GENERATED, RETRIEVAL, task_name
from headwise.tasks.generic import GENERIC
from headwise.tasks.tables import open_table


@dataclass(frozen=True)
class Choice:
    """How the files are to be read; what is left out is guessed from their columns."""

    task: str | None = None
    texts: tuple[str, ...] = ()
    label: str | None = None
    columns: tuple[str, ...] = ()
    """Of files without a header, the names of all columns."""

    def options(self) -> dict[str, Any]:
        """As options of a task."""
        given = {"texts": list(self.texts), "label": self.label, "columns": list(self.columns)}
        return {name: value for name, value in given.items() if value}


def built_task(name: str, choice: Choice) -> FileTask:
    """The task of this name with the columns that were chosen."""
    task = None if task_name(name) in (GENERATED, RETRIEVAL) else build_task(name, choice.options())
    if not isinstance(task, FileTask):
        raise InputError(f"--task {name} reads no files of single examples: use pairs or sentences.")
    return task


def chosen_task(path: Path, choice: Choice) -> FileTask:
    """The task that reads the files: the one that was named, or the generic one that the first file looks like."""
    if choice.task is not None:
        return built_task(choice.task, choice)
    if len(choice.texts) > 2:
        raise InputError(f"--texts {','.join(choice.texts)}: expected one column or two, got {len(choice.texts)}.")
    if choice.texts:
        return built_task("pairs" if len(choice.texts) == 2 else "sentences", choice)
    columns = choice.columns or open_table(path, GENERIC[0].dialect).first
    for task in GENERIC[:2]:
        if set(task.layouts[0].text_columns) <= set(columns):
            return built_task(task.name, choice)
    raise InputError(
        f"{path} has the columns {', '.join(map(repr, columns))}, none of which is known to be a text: name them with "
        "--texts A,B --label C, choose a --task, or name all --columns of a file without a header."
    )

"""All tasks by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headwise.errors import InputError, choices
from headwise.tasks.cross_lingual import CROSS_LINGUAL
from headwise.tasks.file_task import FileTask
from headwise.tasks.generic import GENERIC
from headwise.tasks.glue import GLUE
from headwise.tasks.inference import INFERENCE
from headwise.tasks.options import configured
from headwise.tasks.task import Task
from headwise.tasks.topics import TOPICS

ROWS: dict[str, FileTask] = {task.name: task for task in (*INFERENCE, *CROSS_LINGUAL, *GLUE, *TOPICS, *GENERIC)}
SPELLINGS = {"sst-2": "sst2", "sts-b": "stsb", "yelp_p": "yelp-polarity", "yelp_f": "yelp-full"}
"""Other ways to write a name: those of the authors of functional specialisation (Li et al., 2023)."""
GENERATED = "clinic"
RETRIEVAL = "retrieval"


class TaskTable(Mapping[str, Task]):
    """Names to tasks with their default options, in a fixed order."""

    def __getitem__(self, name: str) -> Task:
        """A fresh task of this name."""
        return build_task(name, {})

    def __contains__(self, name: object) -> bool:
        """Whether there is a task of this name, in any spelling."""
        return name in (GENERATED, RETRIEVAL) or name in ROWS or name in SPELLINGS

    def __iter__(self) -> Iterator[str]:
        """The names, each in one spelling."""
        yield GENERATED
        yield from ROWS
        yield RETRIEVAL

    def __len__(self) -> int:
        """How many there are."""
        return len(ROWS) + 2


TASKS = TaskTable()


def task_name(name: str) -> str:
    """The name under which the table lists a task, whatever its spelling."""
    return SPELLINGS.get(name, name)


def build_task(name: str, options: Mapping[str, Any]) -> Task:
    """The task of this name, with a user's options."""
    name = task_name(name)
    if name == GENERATED:
        # Imported when asked for: it makes its examples itself and needs none of the readers.
        from headwise.tasks.clinic import clinic_task

        made: Task = clinic_task(options)
        return made
    if name == RETRIEVAL:
        from headwise.tasks.retrieval.task import retrieval_task

        return retrieval_task(options)
    if name not in ROWS:
        raise InputError(f"unknown task {name!r}: {choices(str(name), TASKS)}.")
    # A copy, since a task remembers the classes that it found in train.
    return configured(replace(ROWS[name]), options)

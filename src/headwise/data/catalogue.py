"""All tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headwise.data.glue import GLUE
from headwise.data.inference import CROSS_LINGUAL, GENERIC, INFERENCE
from headwise.data.options import configured
from headwise.data.task import FileTask, Task
from headwise.data.topics import TOPICS
from headwise.errors import InputError, choices

ROWS: dict[str, FileTask] = {task.name: task for task in (*INFERENCE, *CROSS_LINGUAL, *GLUE, *TOPICS, *GENERIC)}
SPELLINGS = {"sst-2": "sst2", "sts-b": "stsb", "yelp_p": "yelp-polarity", "yelp_f": "yelp-full"}
"""Other ways to write a name: those of the authors of functional specialisation (Li et al., 2023)."""
GENERATED = "clinic"
RETRIEVAL = "retrieval"
BUILDERS: dict[str, Callable[[Mapping[str, Any]], Task]] = {}
"""Tasks of higher folders, which register themselves: `import headwise.retrieval` adds its task."""


class TaskTable(Mapping[str, Task]):
    """Names to tasks with their default options, in a fixed order."""

    def __getitem__(self, name: str) -> Task:
        """A fresh task of this name."""
        return build_task(name, {})

    def __contains__(self, name: object) -> bool:
        """Whether there is a task of this name, in any spelling."""
        return name == GENERATED or name in BUILDERS or name in ROWS or name in SPELLINGS

    def __iter__(self) -> Iterator[str]:
        """The names, each in one spelling."""
        yield GENERATED
        yield from ROWS
        yield from BUILDERS

    def __len__(self) -> int:
        """How many there are."""
        return 1 + len(ROWS) + len(BUILDERS)


TASKS = TaskTable()


def task_name(name: str) -> str:
    """The name under which the table lists a task, whatever its spelling."""
    return SPELLINGS.get(name, name)


def build_task(name: str, options: Mapping[str, Any]) -> Task:
    """The task of this name, with a user's options."""
    name = task_name(name)
    if name == GENERATED:
        # Imported when asked for: it makes its examples itself and needs none of the readers.
        from headwise.data.clinic import clinic_task

        made: Task = clinic_task(options)
        return made
    if name in BUILDERS:
        return BUILDERS[name](options)
    if name not in ROWS:
        raise InputError(f"unknown task {name!r}: {choices(str(name), TASKS)}.")
    # A copy, since a task remembers the classes that it found in train.
    return configured(replace(ROWS[name]), options)

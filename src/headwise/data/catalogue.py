"""All tasks by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from headwise.data.examples import Unlabelled
from headwise.data.options import DEFAULT_METRICS, configured
from headwise.data.readers import Layout
from headwise.data.task import FileTask, SplitFiles, Task
from headwise.errors import InputError, choices

SPELLINGS = {"sst-2": "sst2", "sts-b": "stsb", "yelp_p": "yelp-polarity", "yelp_f": "yelp-full"}
"""Other ways to write a name: those of the authors of functional specialisation (Li et al., 2023)."""
GENERATED = ("clinic", "course")
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
        return name in SPELLINGS or name in list(self)

    def __iter__(self) -> Iterator[str]:
        """The names, each in one spelling."""
        return iter([*GENERATED, *file_tasks(), *BUILDERS])

    def __len__(self) -> int:
        """How many there are."""
        return len(list(iter(self)))


TASKS = TaskTable()


def task_name(name: str) -> str:
    """The name under which the table lists a task, whatever its spelling."""
    return SPELLINGS.get(name, name)


def build_task(name: str, options: Mapping[str, Any]) -> Task:
    """The task of this name, with a user's options."""
    name = task_name(name)
    if name in GENERATED:
        from headwise.data.clinic import generated_task  # loads its words and templates

        return generated_task(name, options)
    if name in BUILDERS:
        return BUILDERS[name](options)
    if name not in file_tasks():
        raise InputError(f"unknown task {name!r}: {choices(str(name), TASKS)}.")
    # A copy, since a task remembers the classes that it found in train.
    return configured(replace(file_tasks()[name]), options)


@cache
def file_tasks() -> dict[str, FileTask]:
    """The tasks of tasks.yaml, by name."""
    tasks = {}
    for group in yaml.safe_load(Path(__file__).with_name("tasks.yaml").read_text(encoding="utf-8")):
        for name, content in group["tasks"].items():
            plain = json.dumps({**group["defaults"], **content, "name": name})
            for code, language in content.get("languages", {"": ""}).items():
                task = _file_task(json.loads(plain.replace("{code}", code).replace("{language}", language)))
                tasks[task.name] = task
    return tasks


def _file_task(row: dict[str, Any]) -> FileTask:
    """The task of one row of tasks.yaml."""
    labels, kind = tuple(row.get("labels", ())), row.get("kind", "classification")
    aliases = row.get("aliases", {})
    if "first_number" in row:
        aliases = {str(number): label for number, label in enumerate(labels, row["first_number"])}
    folders = row["folders"]
    if "parents" in row:
        folders = [*(parent + folder for folder in folders for parent in row["parents"]), ""]
    names = {split: tuple(text.split()) for split, text in row["files"].items()}
    metrics = tuple(row.get("metrics", DEFAULT_METRICS[kind]))
    unlabelled = row.get("unlabelled", {})
    return FileTask(
        name=row["name"],
        description=row["description"],
        source=row["source"],
        files=SplitFiles(names, tuple(folders), guessed=row.get("guessed_files", False)),
        layouts=tuple(Layout(**{key: _tuples(value) for key, value in each.items()}) for each in row["layouts"]),
        kind=kind,
        known_labels=labels,
        aliases=aliases,
        unlabelled=Unlabelled(tuple(unlabelled.get("values", ())), unlabelled.get("rule", "error")),
        broken_rows=row.get("broken_rows", "error"),
        metrics=metrics,
        primary=metrics[0],
    )


def _tuples(value: Any) -> Any:
    """Lists, which YAML reads, as the tuples that frozen dataclasses need."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value

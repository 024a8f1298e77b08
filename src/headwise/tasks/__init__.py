"""Tasks: data sets as the papers use them. A new one is a row of a table; importing this loads nothing heavy."""

from headwise.tasks.catalogue import TASKS, build_task
from headwise.tasks.collate import Collator
from headwise.tasks.encode import Encoded, encode
from headwise.tasks.file_task import FileTask
from headwise.tasks.split import Split
from headwise.tasks.task import Task

__all__ = ["TASKS", "Collator", "Encoded", "FileTask", "Split", "Task", "build_task", "encode"]

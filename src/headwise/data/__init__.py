"""Tasks: data sets as the papers use them. A new one is a row of a table; importing this loads nothing heavy."""

from headwise.data.catalogue import TASKS, build_task
from headwise.data.encode import Collator, Encoded, encode
from headwise.data.examples import Split
from headwise.data.task import FileTask, Task

__all__ = ["TASKS", "Collator", "Encoded", "FileTask", "Split", "Task", "build_task", "encode"]

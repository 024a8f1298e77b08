"""Tasks and data sets: reading, generating, encoding and checking them. Importing this does not load torch."""

from headwise.data.catalogue import TASKS, build_task
from headwise.data.encode import Collator, Encoded, RationaleCollator, encode, rationale_mask
from headwise.data.examples import Split
from headwise.data.task import FileTask, Task

__all__ = [
    "TASKS",
    "Collator",
    "Encoded",
    "FileTask",
    "RationaleCollator",
    "Split",
    "Task",
    "build_task",
    "encode",
    "rationale_mask",
]

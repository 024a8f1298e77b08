"""`hw.analyze`: the analysis of a run in one call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.code_permission import allowing_code, code_allowed
from headwise.errors import InputError
from headwise.experiments.analysis.analyze import analyze as analyze_tasks
from headwise.experiments.analysis.settings import AnalysisSettings
from headwise.experiments.analysis.store import Analysis, new_analysis, read_analysis
from headwise.experiments.apply import Source, finished_record
from headwise.experiments.run_tasks import load_tasks
from headwise.patterns import Pattern, build_pattern


def analyze(
    run: Path | str,
    *,
    split: str = "test",
    limit: int | None = None,
    examples: int = 20,
    importance: int = 0,
    pattern: Pattern | str | Mapping[str, Any] | None = None,
    task: str | None = None,
    data: Path | str | None = None,
    allow_code: bool = False,
    overwrite: bool = False,
) -> Analysis:
    """Look at what every head of a run does on a split, save it in RUN/analysis, and return it.

    Args:
        run: a folder of `headwise train`.
        split: train, validation, test, or another split of its task.
        limit: the first so many examples; None for all.
        examples: how many are kept with all their maps, spread evenly over the split.
        importance: labelled examples over which the importance of heads is measured too; 0 for none.
        pattern: hold heads against this one, as for `hw.Match`; None for the one that the run was guided to, if any.
        task: of a run on several tasks, which one.
        data: folder with the task's files, if not the one of training.
        allow_code: import the Python code that the record of the run names, if any.
        overwrite: replace the analysis that is there.
    """
    for name, value, least in (("limit", limit, 1), ("examples", examples, 1), ("importance", importance, 0)):
        if value is not None and value < least:
            raise InputError(f"{name}={value}: expected {least} or more.")
    folder = Path(run)
    content = finished_record(folder)
    if "tasks" in content["happened"] and task is None:
        raise InputError(f"{folder} has several tasks ({', '.join(content['happened']['tasks'])}): give one as task=.")
    chosen = None if pattern is None else build_pattern(pattern)
    settings = AnalysisSettings(split=split, limit=limit, examples=examples, importance=importance, pattern=chosen)
    with (
        allowing_code(allow_code or code_allowed()),
        new_analysis(folder, task, overwrite=overwrite, by="overwrite=True"),
    ):
        tasks = load_tasks(folder, [] if task is None else [task])
        analyze_tasks(tasks, settings, Source(None if data is None else Path(data)))
    return read_analysis(folder, task if tasks.joint else None)

"""The runs of a report: each with its record and its analysis, checked to be of one kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.analysis.analysis_files import Analysis, ExampleView, check_heads, read_analysis
from headwise.experiments.comparison.run_plots import names_apart
from headwise.experiments.results import StoredRun, read_stored

RUN, BASELINE, ALSO = "run", "baseline", "also"
MOST = 6


@dataclass(frozen=True)
class ReportRun:
    """One run of a report."""

    id: str
    name: str
    role: str
    folder: Path
    record: Mapping[str, Any]
    analysis: Analysis

    @property
    def recipe(self) -> Mapping[str, Any]:
        """What was asked for."""
        recipe: Mapping[str, Any] = self.record["recipe"]
        return recipe

    @property
    def happened(self) -> Mapping[str, Any]:
        """What came of it."""
        happened: Mapping[str, Any] = self.record["results"]
        return happened

    def stored(self) -> StoredRun:
        """As comparisons want it."""
        found = read_stored(self.folder)
        if not isinstance(found, StoredRun):
            raise InputError(f"{self.folder} holds a run that failed: {found.reason}.")
        return found


def gather_runs(
    run: Path, baseline: Path | None = None, also: Sequence[Path] = (), task: str | None = None
) -> list[ReportRun]:
    """Read all runs of a report, the baseline first; refuses runs that cannot stand side by side."""
    wanted = [*([(baseline, BASELINE)] if baseline else []), (run, RUN), *((each, ALSO) for each in also)]
    if len(wanted) > MOST:
        raise InputError(
            f"{len(wanted)} runs are too many for one page: expected at most {MOST}; leave some --also out."
        )
    names = unique_names([folder for folder, _ in wanted])
    found = []
    for number, (folder, role) in enumerate(wanted):
        content = record.read(folder)
        if not record.finished(content):
            raise InputError(f"{folder} holds a run that is not finished: go on with `headwise train ... --resume`.")
        if task is not None:
            record.task_recipe(content, folder, task)  # refuses a task that the run does not have
        found.append(ReportRun(f"m{number}", names[number], role, folder, content, read_analysis(folder, task)))
    for other in found[1:]:
        check_pair(found[0], other)
    for each in found:
        check_heads(each.folder, each.analysis, task)
    return found


def unique_names(folders: Sequence[Path]) -> list[str]:
    """The names of the folders, with as much of their parents as tells them apart."""
    whole = [folder.expanduser().resolve() for folder in folders]
    for place, folder in enumerate(whole):
        if folder in whole[:place]:
            raise InputError(f"{folders[place]} is given twice: give different runs.")
    return names_apart(whole)


def check_pair(one: ReportRun, other: ReportRun) -> None:
    """Refuse two runs whose heads or answers cannot be held against each other."""
    mine, theirs = one.analysis.content, other.analysis.content
    if mine["tokenizer"] != theirs["tokenizer"]:
        raise InputError(
            f"{one.folder} and {other.folder} have different tokenizers, so their maps are not over the same tokens: "
            "compare runs of one encoder."
        )
    if mine["max_length"] != theirs["max_length"]:
        raise InputError(
            f"{one.folder} reads {mine['max_length']} tokens of a text and {other.folder} {theirs['max_length']}, so "
            "their maps are not over the same tokens: train both with one data.max_length."
        )
    if mine["labels"] != theirs["labels"]:
        raise InputError(
            f"{one.folder} has the labels {_listed(mine['labels'])} and {other.folder} {_listed(theirs['labels'])}: "
            "compare runs of one task."
        )
    same = ("split", "examples", "examples_key")
    if any(mine[name] != theirs[name] for name in same):
        raise InputError(
            f"{one.folder} was analysed on {mine['examples']} examples of {mine['split']}, and {other.folder} on other "
            f"ones ({theirs['examples']} of {theirs['split']}): analyse both with the same options of headwise analyze."
        )
    if (one.analysis.layers, one.analysis.heads) != (other.analysis.layers, other.analysis.heads):
        raise InputError(
            f"{one.folder} has {one.analysis.layers} x {one.analysis.heads} heads and {other.folder} "
            f"{other.analysis.layers} x {other.analysis.heads}: compare runs of one encoder."
        )


def with_examples(runs: Sequence[ReportRun], examples: Sequence[Sequence[ExampleView]]) -> list[ReportRun]:
    """The same runs with other examples in the place of those of their analyses."""
    return [
        replace(run, analysis=replace(run.analysis, examples=list(views)))
        for run, views in zip(runs, examples, strict=True)
    ]


def common_examples(runs: Sequence[ReportRun]) -> list[tuple[ExampleView, ...]]:
    """The examples that all runs have, each as every run sees it."""
    first, *others = runs
    by_key = [{_key(view): view for view in run.analysis.examples} for run in others]
    found = [
        (view, *(each[_key(view)] for each in by_key))
        for view in first.analysis.examples
        if all(_key(view) in each for each in by_key)
    ]
    if not found:
        names = " and ".join(str(run.folder) for run in runs)
        raise InputError(
            f"{names} have no analysed example in common: analyse them with the same options of headwise analyze."
        )
    return found


def _key(view: ExampleView) -> tuple[Any, ...]:
    return view.place, view.texts, view.tokens


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels) if labels else "none (numbers)"

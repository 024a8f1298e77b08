"""The runs of a report: each with its record and its analysis, checked to be comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.analysis.analysis_files import read_analysis
from headwise.experiments.comparison.run_plots import names_apart

if TYPE_CHECKING:
    from headwise.experiments.analysis.analysis_files import Analysis, ExampleView

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


def gather_runs(
    run: Path, baseline: Path | None = None, also: Sequence[Path] = (), task: str | None = None
) -> list[ReportRun]:
    """Read all runs of a report, the baseline first; refuses runs that cannot be compared."""
    sources = [*([(baseline, BASELINE)] if baseline else []), (run, RUN), *((each, ALSO) for each in also)]
    if len(sources) > MOST:
        raise InputError(
            f"{len(sources)} runs are too many for one page: expected at most {MOST}; leave out some also=RUN."
        )
    whole = [folder.expanduser().resolve() for folder, _ in sources]
    for number, folder in enumerate(whole):
        if folder in whole[:number]:
            raise InputError(f"{sources[number][0]} is given twice: give different runs.")
    runs: list[ReportRun] = []
    for number, ((folder, role), name) in enumerate(zip(sources, names_apart(whole), strict=True)):
        content = record.finished_record(folder)
        if task is not None:
            record.task_recipe(content, folder, task)  # refuses a task that the run does not have
        runs.append(ReportRun(f"m{number}", name, role, folder, content, read_analysis(folder, task)))
    for other in runs[1:]:
        _check_pair(runs[0], other)
    return runs


def _check_pair(one: ReportRun, other: ReportRun) -> None:
    """Refuse two runs whose heads or answers cannot be compared."""
    first, second = one.folder, other.folder
    mine, theirs = one.analysis.content, other.analysis.content
    labels, other_labels = (", ".join(each["labels"] or ["none (numbers)"]) for each in (mine, theirs))
    heads, other_heads = (f"{run.analysis.layers} x {run.analysis.heads}" for run in (one, other))
    problems = {
        ("tokenizer",): f"{first} and {second} have different tokenizers, so their maps are not over the same tokens: "
        "compare runs of one encoder.",
        ("max_length",): f"{first} reads {mine['max_length']} tokens of a text and {second} {theirs['max_length']}, so "
        "their maps are not over the same tokens: train both with one data.max_length.",
        ("labels",): f"{first} has the labels {labels} and {second} {other_labels}: compare runs of one task.",
        ("split", "examples", "examples_key"): f"{first} was analysed on {mine['examples']} examples of "
        f"{mine['split']}, and {second} on other ones ({theirs['examples']} of {theirs['split']}): analyse both with "
        "the same options.",
        ("layers", "heads"): f"{first} has {heads} heads and {second} {other_heads}: compare runs of one encoder.",
    }
    for names, problem in problems.items():
        if any(mine[name] != theirs[name] for name in names):
            raise InputError(problem)


def with_examples(runs: Sequence[ReportRun], examples: Sequence[Sequence[ExampleView]]) -> list[ReportRun]:
    """The same runs with other examples instead of those of their analyses."""
    return [
        replace(run, analysis=replace(run.analysis, examples=list(views)))
        for run, views in zip(runs, examples, strict=True)
    ]


def common_examples(runs: Sequence[ReportRun]) -> list[tuple[ExampleView, ...]]:
    """The examples that all runs have, each as every run sees it."""
    by_key = [{(view.place, view.texts, view.tokens): view for view in run.analysis.examples} for run in runs]
    common = [tuple(each[key] for each in by_key) for key in by_key[0] if all(key in each for each in by_key)]
    if not common:
        names = " and ".join(str(run.folder) for run in runs)
        raise InputError(f"{names} have no analysed example in common: analyse them with the same options.")
    return common

"""The runs of a comparison, read from files into a table: one row for each run at each point of its sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from headwise import documents
from headwise.errors import InputError, choices
from headwise.experiments import record
from headwise.experiments.record import FailedRun, StoredRun, read_json, read_stored
from headwise.experiments.record_schema import ManifestFile
from headwise.experiments.sweeps.result_folder import FORMAT, MARK, SWEEPS, check_mark, run_files
from headwise.metrics.resampling import RESAMPLES

SEED = "seed"
# Columns beside those of the axes, whose names are up to the user.
RUN, KEY = "stored run", "run key"
SPLITS = ("test", "validation")
STARS = ("holm", "raw")


@dataclass(frozen=True)
class CompareOptions:
    """What to compare; options that are left out follow the sweep, or the way in which the runs differ."""

    by: tuple[str, ...] = ()
    """Axes of the sweep or keys of the recipe that separate the systems."""
    within: tuple[str, ...] = ()
    """Axes or keys with a separate table for each value."""
    baseline: str | None = None
    """The label of the system that the others are compared with."""
    sweep: str | None = None
    """Which sweep of a folder that holds several."""
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of an axis or key, the labels to keep."""
    metric: str | None = None
    all_metrics: bool = False
    split: str | None = None
    ignore: tuple[str, ...] = ()
    """Keys of the recipe, or parts of the environment, in which runs may differ."""
    common_seeds: bool = False
    """Leave out seeds that not all systems have."""
    stars: str = "holm"
    """Which p-values get stars: corrected by Holm, or raw."""
    resamples: int = RESAMPLES
    """Of the bootstrap."""

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        for name, known in (("split", SPLITS), ("stars", STARS)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise InputError(f"{name}={value}: {choices(value, known)}.")
        if self.metric is not None and self.all_metrics:
            raise InputError(f"metric={self.metric} and all_metrics=True: one metric, or all; leave one of them out.")
        if both := [name for name in self.by if name in self.within]:
            raise InputError(
                f"{both[0]} is in both by=... and within=...: it separates systems, or tables; choose one."
            )


@dataclass(frozen=True)
class Manifest:
    """The list that a sweep leaves of its runs: its axes, and the point of each run."""

    name: str
    title: str
    axes: Mapping[str, Mapping[str, Sequence[str]]]
    """By name, the `labels` of its points, and the dotted `keys` of recipes that it changes."""
    by: tuple[str, ...]
    """The axes that separate the systems of the comparison; none if the sweep does not say."""
    baseline: str | None
    within: tuple[str, ...]
    points: Sequence[Mapping[str, Any]]
    """The `key` of a run, and its `point`: a label on every axis. A run may stand at several points."""


@dataclass(frozen=True, eq=False)
class RunTable:
    """The runs of a comparison."""

    runs: pd.DataFrame
    """A row for each finished run at a point: the StoredRun, and its label on each axis of the sweep."""
    missing: pd.DataFrame
    """Key and labels of the runs of the sweep that are not finished."""
    manifest: Manifest | None = None
    failed: tuple[FailedRun, ...] = ()
    repeated: int = 0
    """Files that repeat the results of another one."""

    def __post_init__(self) -> None:
        """Refuse a table without runs."""
        if self.runs.empty:
            failed = f"; {len(self.failed)} failed, such as {self.failed[0].path}" if self.failed else ""
            raise InputError(f"there is no finished run to compare{failed}: let some finish, or choose others.")

    @property
    def progress(self) -> str | None:
        """How much of the sweep is not finished."""
        if self.missing.empty or self.manifest is None:
            return None
        missing = self.missing[KEY].nunique()
        total = missing + len({run.identity for run in self.runs[RUN]})
        return f"{missing} of {total} runs of the sweep {self.manifest.name} are not there yet: start the sweep again"


def read_manifest(folder: Path, name: str | None) -> Manifest | None:
    """The sweep of this name in a folder, or its only one; None if it has none."""
    names = sorted(path.stem for path in (folder / SWEEPS).glob("*.json") if not path.name.startswith("."))
    if name is not None and name not in names:
        known = choices(name, names) if names else "the folder has none"
        raise InputError(f"sweep={name}: {folder} holds no such sweep; {known}.")
    if name is None and len(names) > 1:
        raise InputError(f"{folder} holds several sweeps ({', '.join(names)}): choose one with sweep=NAME.")
    if not names:
        return None
    path = folder / SWEEPS / f"{name or names[0]}.json"
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise InputError(f"{path} has format {content.get('format')!r:.40}: this headwise reads format {FORMAT}.")
    documents.check(content, ManifestFile, path, "start the sweep again to write it")
    compare, title = content.get("compare") or {}, content.get("title")
    by, within = ([each] if isinstance(each := compare.get(part), str) else each or () for part in ("by", "within"))
    return Manifest(
        name=content["name"],
        title=title if isinstance(title, str) and title else content["name"],
        axes=content["axes"],
        by=tuple(by),
        baseline=compare.get("baseline"),
        within=tuple(within),
        points=content["runs"],
    )


def gather(paths: Sequence[Path], sweep: str | None = None) -> RunTable:
    """Read runs from folders of sweeps, folders of single runs, and single files.

    Args:
        paths: the sweep of a folder counts only where that folder is all there is.
        sweep: the name of the sweep, where a folder holds several.
    """
    if not paths:
        raise InputError("nothing to compare: name a folder of results, or runs.")
    paths = list(dict.fromkeys(path.expanduser() for path in paths))
    folders = [path for path in paths if (path / MARK).is_file()]
    for folder in folders:
        check_mark(folder)
    if len(paths) == 1 and folders and (manifest := read_manifest(folders[0], sweep)) is not None:
        return _runs_of_sweep(folders[0], manifest)
    if sweep is not None:
        raise InputError(f"sweep={sweep} chooses a sweep of one folder of results: name that folder alone.")
    return _single_runs([file for path in paths for file in _files(path)])


def _runs_of_sweep(folder: Path, manifest: Manifest) -> RunTable:
    files = run_files(folder)
    keys = dict.fromkeys(each["key"] for each in manifest.points)
    stored = {key: read_stored(files[key]) for key in keys if key in files}
    runs = {key: run for key, run in stored.items() if isinstance(run, StoredRun)}
    points = pd.DataFrame(
        [{**each["point"], KEY: each["key"]} for each in manifest.points], columns=[*manifest.axes, KEY]
    )
    finished = points[KEY].isin(list(runs))
    return RunTable(
        runs=points[finished].assign(**{RUN: [runs[key] for key in points[KEY][finished]]}),
        missing=points[~finished],
        manifest=manifest,
        failed=tuple(run for run in stored.values() if isinstance(run, FailedRun)),
    )


def _single_runs(files: Sequence[Path]) -> RunTable:
    """Each run once; in an order that does not depend on that of the files."""
    kept: dict[str, StoredRun] = {}
    failed, repeated = [], 0
    for path in sorted(set(files)):
        run = read_stored(path)
        if isinstance(run, FailedRun):
            failed.append(run)
        elif run.identity not in kept:
            kept[run.identity] = run
        elif kept[run.identity].same_results(run):
            repeated += 1
        else:
            raise InputError(
                f"{kept[run.identity].path} and {path} have the same recipe and seed but other results: leave one of "
                "them out."
            )
    runs = pd.DataFrame({RUN: [kept[identity] for identity in sorted(kept)]})
    return RunTable(runs, pd.DataFrame(), failed=tuple(failed), repeated=repeated)


def _files(path: Path) -> list[Path]:
    if (path / MARK).is_file():
        return list(run_files(path).values())
    if path.is_dir() and not (path / record.NAME).is_file():
        raise InputError(
            f"{path} holds neither the results of a sweep ({MARK}) nor a run ({record.NAME}): name such folders, or "
            "files of single runs."
        )
    return [path]

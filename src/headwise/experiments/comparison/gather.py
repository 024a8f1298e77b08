"""From files to runs, each at its points of the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise import documents
from headwise.errors import InputError, choices
from headwise.experiments import record
from headwise.experiments.record_schema import ManifestFile
from headwise.experiments.results import SWEEPS, FailedRun, StoredRun, check_mark, read_json, read_stored, run_files
from headwise.experiments.sweeps.sweep_folder import FORMAT, MARK
from headwise.metrics.significance import RESAMPLES

# The list that a sweep leaves of its runs: which axes it went along, and which run stands at which point.


SEED = "seed"


@dataclass(frozen=True)
class Axis:
    """What a sweep varies."""

    labels: tuple[str, ...]
    keys: tuple[str, ...]
    """The dotted keys of the recipe that it changes; one covers all below it."""


@dataclass(frozen=True)
class Manifest:
    """A sweep."""

    name: str
    axes: Mapping[str, Axis]
    by: tuple[str, ...]
    """The axes that tell the systems apart that are to be compared; none if the sweep does not say."""
    baseline: str | None
    within: tuple[str, ...]
    """The axes whose points are compared by themselves."""
    points: tuple[tuple[str, Mapping[str, str]], ...]
    """The key of a run, and its label on every axis; a run may stand at several points."""


def read_manifest(folder: Path, name: str | None) -> Manifest | None:
    """The sweep of a folder that is asked for, or its only one; None if it has none."""
    names = sorted(path.stem for path in (folder / SWEEPS).glob("*.json") if not path.name.startswith("."))
    if name is not None and name not in names:
        known = choices(name, names) if names else "the folder has none"
        raise InputError(f"--sweep {name}: {folder} holds no such sweep; {known}.")
    if name is None and len(names) > 1:
        raise InputError(f"{folder} holds several sweeps ({', '.join(names)}): choose one with --sweep.")
    if not names:
        return None
    path = folder / SWEEPS / f"{name or names[0]}.json"
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise InputError(f"{path} has format {content.get('format')!r:.40}: this headwise reads format {FORMAT}.")
    return _manifest(documents.check(content, ManifestFile, path, "`headwise sweep` writes it again"))


def _manifest(content: Mapping[str, Any]) -> Manifest:
    axes = {
        name: Axis(tuple(str(label) for label in axis["labels"]), tuple(axis["keys"]))
        for name, axis in content["axes"].items()
    }
    compare = content.get("compare") or {}
    points = tuple(
        (str(run["key"]), {axis: str(label) for axis, label in run["point"].items()}) for run in content["runs"]
    )
    baseline = compare.get("baseline")
    return Manifest(
        name=str(content["name"]),
        axes=axes,
        by=_names(compare.get("by")),
        baseline=None if baseline is None else str(baseline),
        within=_names(compare.get("within")),
        points=points,
    )


def _names(value: Any) -> tuple[str, ...]:
    """One name, several, or none."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(name) for name in value)


# What the user wants to be compared.


SPLITS = ("test", "validation")
STARS = ("holm", "raw")


@dataclass(frozen=True)
class Asked:
    """All choices; those left out are taken from the sweep, or found out."""

    by: tuple[str, ...] = ()
    """Axes of the sweep or keys of the recipe that tell the systems apart."""
    within: tuple[str, ...] = ()
    """Axes or keys whose values are compared by themselves."""
    baseline: str | None = None
    """The label of the system that the others are compared with."""
    sweep: str | None = None
    """Which sweep of a folder that holds several."""
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of an axis or key, the labels to look at."""
    metric: str | None = None
    all_metrics: bool = False
    split: str | None = None
    ignore: tuple[str, ...] = ()
    """Keys of the recipe, or parts of the world, in which runs may differ."""
    common_seeds: bool = False
    """Leave out seeds that not all systems have."""
    stars: str = "holm"
    """Which p-values get stars: corrected by Holm, or raw."""
    resamples: int = RESAMPLES
    """Of the bootstrap."""

    def check(self) -> None:
        """Refuse what cannot be meant."""
        if self.split is not None and self.split not in SPLITS:
            raise InputError(f"--split {self.split}: {choices(self.split, SPLITS)}.")
        if self.stars not in STARS:
            raise InputError(f"--stars {self.stars}: {choices(self.stars, STARS)}.")
        if self.metric is not None and self.all_metrics:
            raise InputError(f"--metric {self.metric} and --all-metrics: one metric, or all; leave one of them out.")
        if both := [name for name in self.by if name in self.within]:
            raise InputError(f"{both[0]} is in both --by and --within: it tells systems apart, or blocks; choose one.")


@dataclass(frozen=True)
class Placed:
    """A finished run at a point of a sweep; the point is empty without one."""

    run: StoredRun
    point: Mapping[str, str]


@dataclass(frozen=True)
class Gathered:
    """All that was read."""

    placed: tuple[Placed, ...]
    manifest: Manifest | None
    missing: tuple[tuple[str, Mapping[str, str]], ...]
    """Key and point of every run of the sweep that is not there, failed ones among them."""
    failed: tuple[FailedRun, ...]
    repeated: int
    """Runs that are there once more with the same results."""

    def __post_init__(self) -> None:
        """Refuse to go on without anything to look at."""
        if not self.placed:
            failed = f"; {len(self.failed)} failed, such as {self.failed[0].path}" if self.failed else ""
            raise InputError(f"there is no finished run to compare{failed}: let some finish, or choose others.")


def gather(paths: Sequence[Path], sweep: str | None) -> Gathered:
    """Read runs from folders of results, folders of `headwise train`, and single files.

    Args:
        paths: what the user named. The sweep of a folder counts only where that folder is all.
        sweep: the name of the sweep, where a folder holds several.
    """
    if not paths:
        raise InputError("nothing to compare: name a folder of results, or runs.")
    paths = list(dict.fromkeys(path.expanduser() for path in paths))
    folders = [path for path in paths if (path / MARK).is_file()]
    for folder in folders:
        check_mark(folder)
    if len(paths) == 1 and folders:
        manifest = read_manifest(folders[0], sweep)
        if manifest is not None:
            return _of_sweep(folders[0], manifest)
    if sweep is not None:
        raise InputError(f"--sweep {sweep} chooses a sweep of one folder of results: name that folder alone.")
    return _loose([file for path in paths for file in _files(path)])


def _of_sweep(folder: Path, manifest: Manifest) -> Gathered:
    files = run_files(folder)
    read = {key: read_stored(files[key]) for key in dict.fromkeys(key for key, _ in manifest.points) if key in files}
    runs = {key: run for key, run in read.items() if isinstance(run, StoredRun)}
    return Gathered(
        placed=tuple(Placed(runs[key], point) for key, point in manifest.points if key in runs),
        manifest=manifest,
        missing=tuple((key, point) for key, point in manifest.points if key not in runs),
        failed=tuple(run for run in read.values() if isinstance(run, FailedRun)),
        repeated=0,
    )


def _files(path: Path) -> list[Path]:
    if (path / MARK).is_file():
        return list(run_files(path).values())
    if path.is_dir() and not (path / record.NAME).is_file():
        raise InputError(
            f"{path} holds neither results of `headwise sweep` ({MARK}) nor a run of `headwise train` ({record.NAME}): "
            "name such folders, or files of single runs."
        )
    return [path]


def _loose(files: Sequence[Path]) -> Gathered:
    """Runs by themselves, each once; in an order that does not depend on that of the files."""
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
    placed = tuple(Placed(kept[identity], {}) for identity in sorted(kept))
    return Gathered(placed, None, (), tuple(failed), repeated)

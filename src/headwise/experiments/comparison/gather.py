"""From files to runs, each at its points of the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.comparison.manifest import Manifest, read_manifest
from headwise.experiments.results import FailedRun, StoredRun, check_mark, read_stored, run_files
from headwise.experiments.sweeps.folder import MARK


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

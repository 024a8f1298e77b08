"""The sweeps that a folder of results holds, and what each of them varies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.comparison.manifest import SEED, Axis, Manifest, read_manifest
from headwise.experiments.results import FAILED, SWEEPS, check_mark, read_json, run_files
from headwise.experiments.sweeps.folder import MARK


@dataclass(frozen=True)
class FoundSweep:
    """A sweep with at least one finished run."""

    folder: Path
    title: str
    manifest: Manifest

    def axes(self, wanted: Callable[[str, Axis], bool]) -> list[str]:
        """The names of its axes of some kind, of two points or more."""
        axes = self.manifest.axes.items()
        return [name for name, axis in axes if name != SEED and len(axis.labels) > 1 and wanted(name, axis)]


def found_sweeps(folder: Path, sweep: str | None = None) -> list[FoundSweep]:
    """All sweeps of a folder, or the one that is named; those of which nothing is finished yet are left out.

    Args:
        folder: of `headwise sweep`.
        sweep: the name of one.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: give the results of `headwise sweep`.")
    if not (folder / MARK).is_file():
        what = "is a run of `headwise train`" if (folder / record.NAME).is_file() else f"has no {MARK}"
        raise InputError(f"{folder} {what}: expected a folder of results that `headwise sweep` made.")
    check_mark(folder)
    names = sorted(path.stem for path in (folder / SWEEPS).glob("*.json") if not path.name.startswith("."))
    found = [_read(folder, name) for name in ([sweep] if sweep is not None else names)]
    done = {key for key, path in run_files(folder).items() if not path.name.endswith(FAILED)}
    return [each for each in found if any(key in done for key, _ in each.manifest.points)]


def _read(folder: Path, name: str) -> FoundSweep:
    manifest = read_manifest(folder, name)
    if manifest is None:
        raise InputError(f"{folder} holds no sweep {name}: run `headwise sweep` first.")
    title = read_json(folder / SWEEPS / f"{name}.json").get("title")
    return FoundSweep(folder, title if isinstance(title, str) and title else manifest.name, manifest)

"""A folder of results.

It has headwise-sweep.json with its format, runs/KEY.json for every finished run, runs/KEY.error.json for every failed
one, and sweeps/NAME.json for every sweep, which says which runs belong to it.
"""

from __future__ import annotations

from pathlib import Path

from headwise.errors import InputError
from headwise.experiments.record import FailedRun, StoredRun, canonical, read_json, read_stored
from headwise.experiments.sweeps.result_folder import FORMAT, MARK

RUNS = "runs"
SWEEPS = "sweeps"
FAILED = ".error.json"

__all__ = ["FailedRun", "StoredRun", "canonical", "read_json", "read_stored"]


def check_mark(folder: Path) -> None:
    """Refuse a folder of results that another version wrote in another way."""
    content = read_json(folder / MARK)
    if content.get("format") != FORMAT:
        raise InputError(
            f"{folder} has format {content.get('format')!r:.40}, written by headwise {content.get('headwise')!r:.40}: "
            f"this headwise reads format {FORMAT}; use that version, or run the sweep again in another folder."
        )


def run_files(folder: Path) -> dict[str, Path]:
    """The files of a folder of results by key; where a run failed once and finished later, the finished one."""
    found: dict[str, Path] = {}
    for path in sorted((folder / RUNS).glob("*.json")):
        failed = path.name.endswith(FAILED)
        key = path.name.removesuffix(FAILED if failed else ".json")
        if not key.startswith(".") and not (failed and key in found):
            found[key] = path
    return found

"""The folder with the results of sweeps: one JSON file for each run, and locks so that no run is trained twice.

headwise-sweep.json      the version of headwise that wrote the folder
runs/KEY.json            a finished run: recipe, results, environment
runs/KEY.error.json      a failed run
sweeps/NAME.json         the runs of a sweep and their points
unfinished/KEY           the folder of a run in training, with its checkpoints
models/KEY               its model, if models are kept
locks/KEY.lock           held by the process that trains it
log.jsonl                when each run finished or failed
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from headwise import __version__
from headwise.disk import (
    check_folder,
    clear_drafts_of,
    disk_errors,
    held,
    is_leftover,
    write_atomically,
    write_once,
)
from headwise.documents import Document, finite, read_checked
from headwise.errors import BusyError, InputError
from headwise.experiments.record import read_json
from headwise.experiments.record_schema import ManifestFile, MarkFile

MARK = "headwise-sweep.json"
FORMAT = 1
RUNS = "runs"
SWEEPS = "sweeps"
FAILED = ".error.json"
FOLDERS = ("runs", "sweeps", "unfinished", "models", "locks")
# Keys of a recipe that do not change a run.
NAMES_ONLY = ("name", "description", "baseline")


@dataclass(frozen=True)
class ResultFolder:
    """A folder of results; `open` creates or checks it."""

    path: Path

    def check(self) -> None:
        """Refuse a folder that holds something else, or results of another version."""
        check_folder(self.path)
        names = {each.name for each in self.path.iterdir()} if self.path.is_dir() else set()
        if MARK not in names:
            if all(name == "locks" or is_leftover(name) for name in names):
                return  # another process is creating it, or was killed while it did
            raise InputError(f"{self.path} holds other files: choose another folder with output=FOLDER.")
        mark = _read(self.path / MARK, MarkFile)
        if (mark["format"], mark["headwise"]) != (FORMAT, __version__):
            raise InputError(
                f"{self.path} holds results of headwise {mark['headwise']} (format {mark['format']}), and this is "
                f"{__version__} (format {FORMAT}): results of two versions are not mixed; choose another folder with "
                "output=FOLDER."
            )

    def open(self) -> None:
        """Create the folder if it does not exist."""
        self.check()
        with writing(self.path):
            (self.path / "locks").mkdir(parents=True, exist_ok=True)
            with self.lock():
                self.check()
                clear_drafts_of(self.path / MARK)
                # The mark first: another process that looks now must not take the folders for those of another program.
                if not (self.path / MARK).is_file():
                    write_atomically(self.path / MARK, json.dumps({"format": FORMAT, "headwise": __version__}) + "\n")
                for name in FOLDERS:
                    (self.path / name).mkdir(exist_ok=True)

    def lock(self) -> FileLock:
        """Held while files that several processes write are replaced."""
        return FileLock(self.path / "locks" / "folder.lock")

    def save_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the list of runs of a sweep; runs of earlier calls with the same axes and scale stay in it."""
        path = self.path / "sweeps" / f"{manifest['name']}.json"
        with writing(self.path), self.lock():
            clear_drafts_of(path)
            content, before = dict(manifest), _read(path, ManifestFile) if path.is_file() else None
            axes = manifest["axes"]
            if before and before.get("scale") == manifest["scale"] and list(before["axes"]) == list(axes):
                for name, axis in axes.items():
                    old = before["axes"][name]
                    content["axes"] |= {name: {part: [*dict.fromkeys([*old[part], *axis[part]])] for part in axis}}
                points = [run["point"] for run in manifest["runs"]]
                content["runs"] = [*(run for run in before["runs"] if run["point"] not in points), *manifest["runs"]]
            write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def result(self, key: str) -> Path:
        """The file of a finished run."""
        return self.path / "runs" / f"{key}.json"

    def error(self, key: str) -> Path:
        """The file of a failed run."""
        return self.path / "runs" / f"{key}.error.json"

    def unfinished(self, key: str) -> Path:
        """The folder in which a run is trained."""
        return self.path / "unfinished" / key

    def has(self, key: str) -> bool:
        """Whether the run is finished; refuses a damaged file, which a comparison could not read."""
        path = self.result(key)
        if not path.is_file():
            return False
        read_json(path)
        return True

    @contextmanager
    def claimed(self, key: str) -> Iterator[bool]:
        """Whether this process alone trains a run within the block; the lock of a process that died is free."""
        with ExitStack() as stack:
            try:
                with writing(self.path):
                    stack.enter_context(held(self.path / "locks" / f"{key}.lock", self.path))
                    for path in (self.result(key), self.error(key)):
                        clear_drafts_of(path)
            except BusyError:
                yield False
            else:
                yield True

    def save(self, key: str, content: Mapping[str, Any]) -> bool:
        """Write a finished run, unless it exists; False if it did."""
        with writing(self.path):
            written = write_once(self.result(key), run_text(content))
            self.error(key).unlink(missing_ok=True)
            return written

    def save_error(self, key: str, content: Mapping[str, Any]) -> None:
        """Write a failed run."""
        with writing(self.path):
            write_atomically(self.error(key), run_text(content))

    def log(self, key: str, state: str, engine: str) -> None:
        """Add a line to the log in one write, so that lines of several processes do not mix."""
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": when, "key": key, "state": state, "engine": engine, "process": os.getpid()}) + "\n"
        with writing(self.path), (self.path / "log.jsonl").open("ab", buffering=0) as file:
            file.write(line.encode())


def run_text(content: Mapping[str, Any]) -> str:
    """A run as text, with a line for each part, so that parts can be compared byte by byte."""
    parts = (f"{json.dumps(name)}: {json.dumps(finite(part), ensure_ascii=False)}" for name, part in content.items())
    return "{" + ",\n".join(parts) + "}\n"


def writing(folder: Path) -> AbstractContextManager[None]:
    """Errors of the disk in one sentence."""
    fix = "make room, or choose another folder with output=FOLDER; finished runs are kept."
    return disk_errors(f"{folder} could not be written", fix)


def _read(path: Path, schema: type[Document]) -> dict[str, Any]:
    return read_checked(path, schema, "remove it, or choose another folder with output=FOLDER")


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

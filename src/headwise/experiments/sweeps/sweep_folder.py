"""The folder of a sweep's results: one JSON for each run, and locks so that no run is made twice.

headwise-sweep.json      which headwise made the folder
runs/KEY.json            a finished run: asked, happened, world
runs/KEY.error.json      a failed one
sweeps/NAME.json         which run stands where in a sweep
unfinished/KEY           where a run is worked on, with its checkpoints
models/KEY               its model, if models are kept
locks/KEY.lock           held by whoever works on it
log.jsonl                when which run was finished or failed
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
    draft_prefix,
    held,
    is_leftover,
    write_atomically,
    write_once,
)
from headwise.documents import Document, finite, read_checked
from headwise.errors import BusyError, InputError
from headwise.experiments.record_schema import ManifestFile, MarkFile

MARK = "headwise-sweep.json"
FORMAT = 1
FOLDERS = ("runs", "sweeps", "unfinished", "models", "locks")


@dataclass(frozen=True)
class ResultFolder:
    """A folder of results; `open` makes or checks it."""

    path: Path

    def check(self) -> None:
        """Refuse a folder that holds something else, or results of another headwise."""
        check_folder(self.path)
        names = {each.name for each in self.path.iterdir()} if self.path.is_dir() else set()
        if MARK not in names:
            if all(name == "locks" or is_leftover(name) for name in names):
                return  # another sweep is just beginning, or was killed in its first moment
            raise InputError(f"{self.path} holds other files: choose another folder with --output.")
        made = _read(self.path / MARK, MarkFile)
        if made.get("format") != FORMAT or made.get("headwise") != __version__:
            raise InputError(
                f"{self.path} holds results of headwise {made.get('headwise')} (format {made.get('format')}), and this "
                f"is {__version__} (format {FORMAT}): results of two versions are not mixed; choose another folder "
                "with --output."
            )

    def open(self) -> None:
        """Make the folder if it is not there."""
        self.check()
        with writing(self.path):
            (self.path / "locks").mkdir(parents=True, exist_ok=True)
            with FileLock(self.path / "locks" / "folder.lock"):
                self.check()
                clear_drafts_of(self.path / MARK)
                # The mark first: whoever looks meanwhile must not take the folders for somebody else's.
                if not (self.path / MARK).is_file():
                    write_atomically(self.path / MARK, json.dumps({"format": FORMAT, "headwise": __version__}) + "\n")
                for name in FOLDERS:
                    (self.path / name).mkdir(exist_ok=True)

    def keep_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Keep which run stands where; runs that an earlier, wider or narrower, call of this sweep had stay in it."""
        path = self.path / "sweeps" / f"{manifest['name']}.json"
        with writing(self.path), FileLock(self.path / "locks" / "folder.lock"):
            clear_drafts_of(path)
            before = _read(path, ManifestFile) if path.is_file() else None
            write_atomically(path, json.dumps(_merged(before, manifest), indent=2, ensure_ascii=False) + "\n")

    def result(self, key: str) -> Path:
        """The file of a finished run."""
        return self.path / "runs" / f"{key}.json"

    def error(self, key: str) -> Path:
        """The file of a failed run."""
        return self.path / "runs" / f"{key}.error.json"

    def work(self, key: str) -> Path:
        """Where a run is worked on."""
        return self.path / "unfinished" / key

    def model(self, key: str) -> Path:
        """Where its model is kept, if it is."""
        return self.path / "models" / key

    def has(self, key: str) -> bool:
        """Whether the run is finished."""
        return self.result(key).is_file()

    def half_tidied(self) -> list[str]:
        """Finished runs of which a kill left the draft, or the folder where they were worked on."""
        drafts = [path.name for path in (self.path / "runs").glob(".headwise*.new")]
        finished = [path.stem for path in (self.path / "runs").glob("*.json") if self.has(path.stem)]
        return [
            key
            for key in finished
            if self.work(key).is_dir() or any(name.startswith(draft_prefix(self.result(key))) for name in drafts)
        ]

    @contextmanager
    def claimed(self, key: str) -> Iterator[bool]:
        """Whether this process alone works on a run within the block; the lock of one that has died is free."""
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

    def keep(self, key: str, content: Mapping[str, Any]) -> bool:
        """Keep a finished run, unless it is there already; False if it was."""
        with writing(self.path):
            kept = write_once(self.result(key), run_text(content))
            self.error(key).unlink(missing_ok=True)
        return kept

    def keep_error(self, key: str, content: Mapping[str, Any]) -> None:
        """Keep what went wrong."""
        with writing(self.path):
            write_atomically(self.error(key), run_text(content))

    def note(self, key: str, state: str, engine: str) -> None:
        """Add a line to the log: one write, so that lines of several processes do not mix."""
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": when, "key": key, "state": state, "engine": engine, "process": os.getpid()}) + "\n"
        with writing(self.path), (self.path / "log.jsonl").open("ab", buffering=0) as file:
            file.write(line.encode())


def run_text(content: Mapping[str, Any]) -> str:
    """A run as text, a line for each part, so that parts can be compared byte by byte."""
    parts = (f"{json.dumps(name)}: {json.dumps(finite(part), ensure_ascii=False)}" for name, part in content.items())
    return "{" + ",\n".join(parts) + "}\n"


def writing(folder: Path) -> AbstractContextManager[None]:
    """Errors of the disk in one sentence."""
    remedy = "make room, or choose another folder with --output; the same command then goes on."
    return disk_errors(f"{folder} could not be written", remedy)


def _read(path: Path, schema: type[Document]) -> dict[str, Any]:
    return read_checked(path, schema, "remove it, or choose another folder with --output")


def _merged(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with the runs of both, as long as both speak of the same axes."""
    if before is None or before.get("scale") != now["scale"] or list(before["axes"]) != list(now["axes"]):
        return dict(now)
    axes = {name: _joined_axis(before["axes"][name], axis) for name, axis in now["axes"].items()}
    points = [run["point"] for run in now["runs"]]
    old = [run for run in before["runs"] if run["point"] not in points]
    return {**now, "axes": axes, "runs": [*old, *now["runs"]]}


def _joined_axis(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(dict.fromkeys([*before[name], *now[name]])) for name in ("labels", "keys")}

"""Who is alive: each process that tunes holds a lock in the folder, which is free as soon as the process has died."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from headwise.experiments.sweeps.folder import writing
from headwise.experiments.tuning.library import optuna
from headwise.experiments.tuning.trials import WORKER, in_state, lost, nobodys


class Worker:
    """This process, among those that tune in a folder."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the results."""
        self._locks = folder / "locks"
        self.name = uuid.uuid4().hex

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Others see that this process is alive."""
        with writing(self._locks.parent):
            lock = self._lock(self.name)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def bury(self, study: Any) -> None:
        """Put back the trials of processes that have died.

        Those of this folder are known by their locks, at once; those of other machines by Optuna's heartbeat.
        """
        library = optuna()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", library.exceptions.ExperimentalWarning)
            library.storages.fail_stale_trials(study)
        for trial in in_state(study.get_trials(deepcopy=False), "RUNNING"):
            if self._dead(trial.user_attrs.get(WORKER)) or nobodys(trial):
                study.tell(trial.number, state=library.trial.TrialState.FAIL, skip_if_finished=True)
                lost(study, trial)

    def _dead(self, name: str | None) -> bool:
        """Whether a process of this folder has died."""
        if name is None or name == self.name or not (self._locks / f"tune-{name}.lock").is_file():
            return False
        try:
            with self._lock(name).acquire(timeout=0):
                return True
        except Timeout:
            return False

    def _lock(self, name: str) -> FileLock:
        return FileLock(self._locks / f"tune-{name}.lock")

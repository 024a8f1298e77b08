"""The study of Optuna behind tuning: its database, its identity, and the trials that several processes draw from it."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from headwise.errors import InputError
from headwise.experiments.comparison.differences import MISSING, covered, flat, shown, value_name
from headwise.experiments.sweeps.result_folder import NAMES_ONLY, writing
from headwise.experiments.sweeps.search_space import GRID, TPE, Search, Space

# Seconds between two heartbeats of a running trial, and after how many without one it counts as dead.
HEARTBEAT, GRACE = 30, 120
# Seconds to wait for a connection, and for a lock of SQLite.
CONNECT, LOCKED = 5.0, 60
# Processes that start together may both create the tables of a new database: the second one finds them later.
ATTEMPTS = 3
PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "mssql": 1433, "oracle": 1521}
# How often a trial is queued again after its process died.
RETRIES = 2
# Attributes of a trial: its process, and its error; of a study: what it is about.
WORKER, ERROR, ABOUT = "worker", "error", "headwise"
FORMAT = 1
FINISHED, PRUNED, FAILED = "finished", "pruned", "failed"
STATES = {"COMPLETE": FINISHED, "PRUNED": PRUNED, "FAIL": FAILED, "RUNNING": "running", "WAITING": "waiting"}


def optuna() -> Any:
    """Optuna, which logs nothing below errors."""
    try:
        import optuna as library
    except ImportError:
        raise InputError("tuning needs Optuna: install it by pip install 'headwise[tune]'.") from None
    library.logging.set_verbosity(library.logging.ERROR)
    return library


def storage_errors() -> tuple[type[Exception], ...]:
    """The errors of a database that cannot be reached, or does not answer as it should."""
    from sqlalchemy.exc import SQLAlchemyError

    return (SQLAlchemyError, optuna().exceptions.StorageInternalError)


# -- the database ------------------------------------------------------------------------------------------------------


def sqlite_url(path: Path) -> str:
    """The URL of a file of SQLite, whatever its name."""
    optuna()  # which depends on SQLAlchemy
    from sqlalchemy.engine import URL

    return URL.create("sqlite", database=str(path)).render_as_string()


class Storage:
    """A database, opened; `close` closes its connections."""

    def __init__(self, url: str, folder: Path) -> None:
        """Connect, and create the tables of a new database; fails in seconds. `folder` holds the results."""
        self._url, self.name = _checked_url(url)
        sqlite = self._url.get_backend_name() == "sqlite"
        # SQLite cannot lock a row: one process at a time creates the study and draws a trial.
        self.lock = FileLock(f"{self._url.database}.lock") if sqlite else None
        with writing(folder), self.lock or nullcontext():
            self.backend = self._open(sqlite=sqlite)

    def _open(self, *, sqlite: bool) -> Any:
        library = optuna()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with warnings.catch_warnings():
                    # Heartbeats are experimental in Optuna; tests cover what we rely on.
                    warnings.simplefilter("ignore", library.exceptions.ExperimentalWarning)
                    return library.storages.RDBStorage(
                        self._url.render_as_string(hide_password=False),
                        engine_kwargs={"connect_args": {"timeout": LOCKED}} if sqlite else {"pool_pre_ping": True},
                        heartbeat_interval=HEARTBEAT,
                        grace_period=GRACE,
                        heartbeat_stale_trial_callback=partial(queue_again, died=True),
                    )
            except ImportError as error:
                driver = self._url.get_driver_name()
                raise InputError(
                    f"storage {self.name}: its driver {driver} is not installed: add that package, or name another "
                    "driver, as in mysql+pymysql://."
                ) from error
            except Exception as error:  # every database has its own
                if attempt == ATTEMPTS or sqlite:
                    reason = " ".join(str(error).splitlines()[0].split())[:200].rstrip(".") if str(error) else ""
                    raise InputError(
                        f"{self.name} cannot be used ({reason or type(error).__name__}): repair it, or name another "
                        "database with storage=URL."
                    ) from error
                time.sleep(1)

    def close(self) -> None:
        """Close all connections."""
        self.backend.remove_session()
        self.backend.engine.dispose()


def _checked_url(url: str) -> tuple[Any, str]:
    """A URL, and how to show it: without its password. Refuses one where no database answers."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
        parsed.get_dialect()
    except ArgumentError as error:
        raise InputError(
            f"storage {url.partition('://')[0]!r:.40}: no such kind of database; expected a URL such as "
            "sqlite:///study.db, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME."
        ) from error
    except ImportError:
        pass  # refused when it is opened
    name = parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise InputError(f"storage {name} is kept in memory and lost at the end: name a file, sqlite:///study.db.")
        if not Path(parsed.database).absolute().parent.is_dir():
            parent = Path(parsed.database).parent
            raise InputError(f"storage {name}: there is no folder {parent}: create it, or name another.")
    port = parsed.port or PORTS.get(parsed.get_backend_name())
    if parsed.host and port is not None:  # some drivers would try for minutes
        try:
            socket.create_connection((parsed.host, port), timeout=CONNECT).close()
        except OSError as error:
            raise InputError(
                f"storage {name}: no database can be reached at {parsed.host}:{port} ({error.strerror or error}): "
                "check the address, or leave storage=... out for a file of SQLite."
            ) from error
    return parsed, name


# -- the study ---------------------------------------------------------------------------------------------------------


class Study:
    """A study as one process sees it, which draws trials beside other processes."""

    def __init__(self, storage: Storage, name: str, space: Space, search: Search, locks: Path) -> None:
        """Create it if it does not exist; refuses one that is about something else.

        Processes that share the folder `locks` know by its files which of them are alive. Trials are pruned that are
        worse than the median at the same step, once there are some to compare with.
        """
        self.worker = uuid.uuid4().hex
        self.alive = _worker_lock(locks, self.worker)
        self._space, self._search, self._storage, self._locks = space, search, storage, locks
        self._drawing = storage.lock or FileLock(locks / "study.lock")
        self.failed: set[str] = set()  # combinations that failed here: the next call tries them again, this one not
        library = optuna()
        pruner = library.pruners.MedianPruner(n_startup_trials=min(5, max(2, search.trials // 4)))
        varied = ["seed", *NAMES_ONLY, *(axis.key for axis in space.axes)]
        about = {  # all that decides the trials, but for their number
            "format": FORMAT,
            "recipe": {key: each for key, each in flat(space.recipe.as_data()).items() if not covered(key, varied)},
            "space": space.as_data(),
            "seeds": ",".join(map(str, space.seeds)),
            "sampler": search.sampler,
        }
        with storage.lock or nullcontext():
            self.optuna = library.create_study(
                storage=storage.backend,
                study_name=name,
                direction="maximize",
                load_if_exists=True,
                pruner=pruner if search.prune else library.pruners.NopPruner(),
            )
            maximises = self.optuna.directions == [library.study.StudyDirection.MAXIMIZE]
            if maximises and ABOUT not in self.optuna.user_attrs and not self.trials:
                self.optuna.set_user_attr(ABOUT, about)
        _check_same(self.optuna.user_attrs.get(ABOUT), about, f"study {name!r} of {storage.name}")

    @property
    def trials(self) -> list[Any]:
        """All trials so far, frozen."""
        trials: list[Any] = self.optuna.get_trials(deepcopy=False)
        return trials

    def draw(self) -> Iterator[Any]:
        """Trials to run here, until nothing is left; None as long as all that is left runs elsewhere."""
        while True:
            with writing(self._locks.parent), self._drawing:
                self.queue_dead()
                more = self._more()
                trial = self._ask() if more else None
            if more is None:
                return
            yield trial

    def _more(self) -> bool | None:
        """Whether a trial can be drawn, for which a point of the grid is queued; None if nothing is left."""
        trials, wanted = self.trials, self._search.trials
        given_up = self.failed | {identity(trial) for trial in died_too_often(trials)}
        over = len(in_state(trials, "COMPLETE", "PRUNED")) + len(given_up)
        running = len(in_state(trials, "RUNNING"))
        if over >= wanted:
            return None
        if over + running >= wanted:
            return False
        if in_state(trials, "WAITING") or self._search.sampler != GRID:
            return True
        taken = {identity(trial) for trial in trials if trial.state.name != "FAIL"} | given_up
        point = next((each for each in self._space.points() if _point_identity(each) not in taken), None)
        if point is None:
            return False if running else None
        # Optuna's GridSampler counts a stopped trial as done, and lets two processes draw the same point.
        self.optuna.enqueue_trial(point)
        return True

    def _ask(self) -> Any:
        """A trial of Optuna, signed by this process."""
        # Another seed for each trial, so that a second call does not repeat the numbers of the first.
        seed = random.Random(f"{self._space.recipe.seed} {len(self.trials)}").randrange(2**32)
        samplers = optuna().samplers
        sampler = samplers.TPESampler if self._search.sampler == TPE else samplers.RandomSampler
        self.optuna.sampler = sampler(seed=seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Heartbeat of storage")  # it does not know of ours
            trial = self.optuna.ask()
        trial.set_user_attr(WORKER, self.worker)
        return trial

    def queue_dead(self) -> None:
        """Queue the trials of processes that died.

        Processes of this folder are known by their locks, at once; those of other machines by Optuna's heartbeat.
        """
        library = optuna()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", library.exceptions.ExperimentalWarning)
            library.storages.fail_stale_trials(self.optuna)
        for trial in in_state(self.trials, "RUNNING"):
            worker, start = trial.user_attrs.get(WORKER), trial.datetime_start
            if worker is None:  # it died before it could sign, or signs just now
                dead = start is not None and datetime.now() - start > timedelta(seconds=GRACE)
            else:
                lock, dead = _worker_lock(self._locks, worker), False
                if worker != self.worker and Path(lock.lock_file).is_file():
                    with suppress(Timeout), lock.acquire(timeout=0):
                        dead = True
            if dead:
                self.optuna.tell(trial.number, state=library.trial.TrialState.FAIL, skip_if_finished=True)
                queue_again(self.optuna, trial, died=True)

    @contextmanager
    def heartbeat(self, trial: Any) -> Iterator[None]:
        """Say now and then that a trial is running. Optuna's own thread ends if the database is away for a moment."""
        over = threading.Event()

        def beat() -> None:
            while not over.is_set():
                with suppress(*storage_errors()):
                    self._storage.backend.record_heartbeat(trial._trial_id)
                over.wait(HEARTBEAT)

        with ThreadPoolExecutor(1) as thread:
            thread.submit(beat)
            try:
                yield
            finally:
                over.set()

    def put_back(self, trial: Any) -> None:
        """Queue a trial of this process that is stopped, unless another one took this process for dead and did so."""
        if self.trials[trial.number].state.name == "RUNNING":
            stopped = self.optuna.tell(trial, state=optuna().trial.TrialState.FAIL)
            queue_again(self.optuna, stopped, died=False)


def _check_same(kept: Mapping[str, Any] | None, now: Mapping[str, Any], where: str) -> None:
    if kept is None:
        raise InputError(f"{where} was not created by headwise: choose another name with study=NAME.")
    if kept["format"] != FORMAT:
        raise InputError(f"{where} has format {kept['format']}, and this headwise reads {FORMAT}: choose another name.")
    for part in ("recipe", "space", "seeds", "sampler"):
        there, here = (flat(each[part], "" if isinstance(each[part], Mapping) else part) for each in (kept, now))
        pairs = {key: (there.get(key, MISSING), here.get(key, MISSING)) for key in {**there, **here}}
        changed = [(key, *pair) for key, pair in pairs.items() if value_name(pair[0]) != value_name(pair[1])]
        if changed:
            (key, old, new), more = changed[0], len(changed) - 1
            others = f", and in {more} other {'key' if more == 1 else 'keys'}" if more else ""
            raise InputError(
                f"{where} is of {'other' if part == 'seeds' else 'another'} {part}: {key} is {shown(old)} there and "
                f"{shown(new)} here{others}; give the same, or choose another folder with output=FOLDER, or another "
                "name with study=NAME."
            )


# -- trials ------------------------------------------------------------------------------------------------------------


def _point_identity(point: Mapping[str, Any]) -> str:
    """The identity of all trials of a point of a grid."""
    return json.dumps(dict(point), sort_keys=True)


def identity(trial: Any) -> str:
    """The same for all tries of one combination: the point of a grid, or the number of the first try."""
    point = trial.system_attrs.get("fixed_params")
    return _point_identity(point) if point else f"trial {trial.system_attrs.get('failed_trial', trial.number)}"


def in_state(trials: Iterable[Any], *states: str) -> list[Any]:
    """The trials in some states, such as COMPLETE."""
    return [trial for trial in trials if trial.state.name in states]


def latest(trials: Iterable[Any]) -> list[Any]:
    """Of each combination the last try."""
    kept = {identity(trial): trial for trial in trials}
    return sorted(kept.values(), key=lambda trial: trial.number)


def died_too_often(trials: Iterable[Any]) -> list[Any]:
    """Failed trials that are not queued again, since their processes keep dying."""
    return [
        trial
        for trial in in_state(latest(trials), "FAIL")
        if len(trial.system_attrs.get("retry_history", ())) >= RETRIES and ERROR not in trial.user_attrs
    ]


def queue_again(study: Any, trial: Any, *, died: bool) -> None:
    """Queue a trial whose process was stopped or died, with all that it has reported; one that keeps dying is not.

    Optuna's own callback for this (RetryHeartbeatStaleTrialCallback, whose attributes these are) would count a trial
    that the user stops as one that died.
    """
    history = [*trial.system_attrs.get("retry_history", ()), *([trial.number] if died else [])]
    if len(history) > RETRIES:
        return
    library = optuna()
    first = trial.system_attrs.get("failed_trial", trial.number)
    study.add_trial(
        library.trial.create_trial(
            state=library.trial.TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            system_attrs={**trial.system_attrs, "failed_trial": first, "retry_history": history},
            intermediate_values=trial.intermediate_values,
        )
    )


def _worker_lock(locks: Path, worker: str) -> FileLock:
    """Held by a process that tunes, and free as soon as it has died."""
    return FileLock(locks / f"tune-{worker}.lock")

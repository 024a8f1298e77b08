"""Where a study is kept: a file of SQLite, or a database that many machines reach."""

from __future__ import annotations

import json
import socket
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from headwise.errors import InputError
from headwise.experiments.sweeps.sweep_folder import writing

# The way to Optuna, which is installed only where it is wanted.


def optuna() -> Any:
    """Optuna, kept from talking over the result."""
    try:
        import optuna as library
    except ImportError:
        raise InputError("headwise tune needs Optuna: install it by pip install 'headwise[tune]'.") from None
    library.logging.set_verbosity(library.logging.ERROR)
    return library


def storage_errors() -> tuple[type[Exception], ...]:
    """What a database raises that cannot be reached, or does not do what it should."""
    from sqlalchemy.exc import SQLAlchemyError

    return (SQLAlchemyError, optuna().exceptions.StorageInternalError)


# Seconds between two signs of life of a running trial, and after how many without one it counts as lost.
HEARTBEAT, GRACE = 30, 120
# Seconds to wait for a connection, and for a lock of SQLite.
CONNECT, LOCKED = 5.0, 60
# Machines that start together may both make the tables of a new database: who loses finds them the next time.
ATTEMPTS = 3
PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "mssql": 1433, "oracle": 1521}


class Storage:
    """A database, opened; `close` lets go of it."""

    def __init__(self, url: str, folder: Path, lost: Callable[[Any, Any], None]) -> None:
        """Connect, and make the tables of a new database; fails in seconds.

        Args:
            url: as SQLAlchemy takes it.
            folder: that of the results, for messages.
            lost: called by Optuna with a study and a trial that has given no sign of life for long.
        """
        self._library = optuna()
        self._url, self.name = _checked(url)
        self.turn = Turn(self._file, folder)
        with self.turn:
            self.backend = self._opened(lost)
        self.backend.record_heartbeat = _patiently(self.backend.record_heartbeat)

    @property
    def _file(self) -> Path | None:
        """The file of SQLite."""
        return Path(self._url.database) if self._url.get_backend_name() == "sqlite" else None

    def _opened(self, lost: Callable[[Any, Any], None]) -> Any:
        sqlite = self._file is not None
        options = {"connect_args": {"timeout": LOCKED}} if sqlite else {"pool_pre_ping": True}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with warnings.catch_warnings():
                    # Known to Optuna as experimental: the tests say what we rely on.
                    warnings.simplefilter("ignore", self._library.exceptions.ExperimentalWarning)
                    return self._library.storages.RDBStorage(
                        self._url.render_as_string(hide_password=False),
                        engine_kwargs=options,
                        heartbeat_interval=HEARTBEAT,
                        grace_period=GRACE,
                        heartbeat_stale_trial_callback=lost,
                    )
            except ImportError as error:
                driver = self._url.get_driver_name()
                raise InputError(
                    f"--storage {self.name}: its driver {driver} is not installed: add that package, or name another "
                    "driver, as in mysql+pymysql://."
                ) from error
            except Exception as error:  # every database has its own
                if attempt == ATTEMPTS or sqlite:
                    raise InputError(
                        f"{self.name} cannot be used ({_reason(error)}): mend it, or name another database with "
                        "--storage."
                    ) from error
                time.sleep(1)

    def close(self) -> None:
        """Close all connections."""
        self.backend.remove_session()
        self.backend.engine.dispose()


class Turn:
    """One process at a time draws a trial from a file of SQLite, which has no locks of its own for that."""

    def __init__(self, file: Path | None, folder: Path) -> None:
        """`file` is None where the database itself takes care of it."""
        self._lock = None if file is None else FileLock(file.with_name(f"{file.name}.lock"))
        self._folder = folder

    def __enter__(self) -> Turn:
        """Wait for the turn."""
        if self._lock is not None:
            with writing(self._folder):
                self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        """The next one, if that was not said before."""
        self.over()

    def over(self) -> None:
        """The next one."""
        if self._lock is not None and self._lock.is_locked:
            self._lock.release()


def file_url(path: Path) -> str:
    """The URL of a file of SQLite, whatever its name."""
    optuna()  # which brings SQLAlchemy along, or says how to install both
    from sqlalchemy.engine import URL

    return URL.create("sqlite", database=str(path)).render_as_string()


def _patiently(beat: Callable[[int], None]) -> Callable[[int], None]:
    """A sign of life that goes on when the database is gone for a moment: Optuna's thread would end."""

    def record(trial: int) -> None:
        with suppress(*storage_errors()):
            beat(trial)

    return record


def _checked(url: str) -> tuple[Any, str]:
    """A URL, and how it is told: without its password. Refuses one where nobody answers."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
        parsed.get_dialect()
    except ArgumentError as error:
        raise InputError(
            f"--storage {url.partition('://')[0]!r:.40}: no such kind of database; expected a URL such as "
            "sqlite:///study.db, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME."
        ) from error
    except ImportError:
        pass  # told when it is opened
    name = parsed.render_as_string(hide_password=True)
    if parsed.get_backend_name() == "sqlite":
        _check_file(parsed.database, name)
    elif parsed.host:
        _check_host(parsed.host, parsed.port or PORTS.get(parsed.get_backend_name()), name)
    return parsed, name


def _check_file(database: str | None, name: str) -> None:
    if not database or database == ":memory:":
        raise InputError(f"--storage {name} is kept in memory and lost at the end: name a file, sqlite:///study.db.")
    if not Path(database).absolute().parent.is_dir():
        raise InputError(f"--storage {name}: there is no folder {Path(database).parent}: make it, or name another.")


def _check_host(host: str, port: int | None, name: str) -> None:
    """Some drivers would try for minutes."""
    if port is None:
        return
    try:
        socket.create_connection((host, port), timeout=CONNECT).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"--storage {name}: no database can be reached at {host}:{port} ({reason}): check the address, or leave "
            "--storage out for a file of SQLite."
        ) from error


def _reason(error: Exception) -> str:
    """The first line that says something; those of SQLAlchemy go on with statements and links."""
    return " ".join(str(error).splitlines()[0].split())[:200].rstrip(".") if str(error) else type(error).__name__


# Trials of a study: whose they are, which count, and which are put back to be done again.


# Attributes that we give to trials.
TICKET, WORKER, WITHDRAWN, DEATHS, ERROR = "ticket", "worker", "withdrawn", "deaths", "error"
# How often a trial is begun again after whoever worked on it has died.
RETRIES = 2


def of_point(point: Mapping[str, Any]) -> str:
    """The ticket of a point of a grid."""
    return json.dumps(dict(point), sort_keys=True)


def ticket(trial: Any) -> str:
    """The ticket of a trial; one that was drawn by a sampler has its number."""
    return str(trial.user_attrs.get(TICKET, f"trial {trial.number}"))


def in_state(trials: Iterable[Any], *names: str) -> list[Any]:
    """Those of the trials that are COMPLETE, say."""
    return [trial for trial in trials if trial.state.name in names]


def current(trials: Iterable[Any]) -> list[Any]:
    """Without those that were withdrawn, and of those with the same ticket the last one."""
    kept = {ticket(trial): trial for trial in trials if WITHDRAWN not in trial.user_attrs}
    return sorted(kept.values(), key=lambda trial: trial.number)


def given_up(trials: Iterable[Any]) -> list[Any]:
    """Those on which too many have died."""
    return [
        trial
        for trial in in_state(current(trials), "FAIL")
        if trial.user_attrs.get(DEATHS, 0) >= RETRIES and ERROR not in trial.user_attrs
    ]


def superfluous(trial: Any, trials: Iterable[Any], wanted: int) -> bool:
    """Whether a trial that was just drawn is already done, or at work, or more than were asked for.

    Two processes may draw at the same time; both come to the same answer, since the one with the lower number stays.
    """
    earlier = [each for each in trials if each.number < trial.number and each.state.name != "FAIL"]
    twice = TICKET in trial.user_attrs and any(ticket(each) == ticket(trial) for each in earlier)
    return twice or len(in_state(earlier, "COMPLETE", "PRUNED", "RUNNING")) >= wanted


def put_back(study: Any, trial: Any, deaths: int = 0) -> None:
    """Let somebody do a trial again that has failed through no fault of its own, with what it has reported so far."""
    library = optuna()
    study.add_trial(
        library.trial.create_trial(
            state=library.trial.TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={TICKET: ticket(trial), DEATHS: trial.user_attrs.get(DEATHS, 0) + deaths},
            system_attrs=trial.system_attrs,
            intermediate_values=trial.intermediate_values,
        )
    )


def lost(study: Any, trial: Any) -> None:
    """Whoever worked on a trial, which is marked as failed by now, has died: put it back, but not for ever."""
    if trial.user_attrs.get(DEATHS, 0) < RETRIES:
        put_back(study, trial, deaths=1)


def nobodys(trial: Any) -> bool:
    """Whether a running trial was drawn by somebody who died before they could sign it."""
    start = trial.datetime_start
    return WORKER not in trial.user_attrs and start is not None and datetime.now() - start > timedelta(seconds=GRACE)


# Who is alive: each process that tunes holds a lock in the folder, which is free as soon as the process has died.


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

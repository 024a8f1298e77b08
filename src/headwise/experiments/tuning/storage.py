"""Where a study is kept: a file of SQLite, or a database that many machines reach."""

from __future__ import annotations

import socket
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from headwise.errors import InputError
from headwise.experiments.sweeps.folder import writing
from headwise.experiments.tuning.library import optuna, storage_errors

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

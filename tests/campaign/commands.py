"""Run `headwise` commands in fresh forks of a process that has imported everything, or as real processes."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pkgutil
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60.0  # of work for one input; more is a hang
PATIENCE = 240.0  # seconds of waiting, which also count what other programs take
CAPABILITIES = 0x20080522  # the version of capset(2) with two blocks of data
DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
MEMORY = 6 * 2**30  # bytes of data one input may take

# Imported once beside all of headwise, so that a fork starts in milliseconds.
LIBRARIES = (
    *("accelerate", "bm25s", "ir_measures", "matplotlib.pyplot", "optuna", "pyarrow.parquet", "scipy.stats"),
    *("sklearn.linear_model", "torch", "transformers.models.bert.modeling_bert", "transformers.trainer"),
)


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    code: int | None
    """Exit code; negative: the signal that ended it; None: it did not end in time."""
    out: str
    err: str
    seconds: float = 0.0


def preload() -> None:
    """Import what commands need, once, without starting threads or changing their settings."""
    import matplotlib

    matplotlib.use("agg")
    import torch

    import headwise

    ours = (module.name for module in pkgutil.walk_packages(headwise.__path__, "headwise."))
    for name in (*LIBRARIES, *ours):
        if not name.endswith("__main__"):
            importlib.import_module(name)

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


class Fork:
    """A function in a fork of this process; its output goes to files."""

    def __init__(self, target: Callable[[], Any], logs: Path, *, cwd: Path | None = None) -> None:
        """Start it; `logs` is a folder for what it prints."""
        logs.mkdir(parents=True, exist_ok=True)
        self.out, self.err = logs / "stdout", logs / "stderr"
        for path in (self.out, self.err):
            path.write_bytes(b"")
        self.begun = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        self._code: int | None = None
        self._ended = 0.0
        if self.pid == 0:
            _become(target, self.out, self.err, cwd)

    def poll(self) -> int | None:
        """The exit code, once there is one."""
        if self._code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self._code, self._ended = os.waitstatus_to_exitcode(status), time.monotonic()
        return self._code

    def wait(self, seconds: float) -> int | None:
        """Wait for the end; None if it does not come in time."""
        end, pause = time.monotonic() + seconds, 0.001
        while self.poll() is None and time.monotonic() < end:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        return self._code

    def send(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the process, or also to those that it started."""
        if self.poll() is None:
            (os.killpg if group else os.kill)(self.pid, number)

    def answer(self, seconds: float = PATIENCE) -> Answer:
        """Wait for the end and read what it printed; one that takes too long is killed."""
        code = self.wait(seconds)
        if code is None:
            self.send(signal.SIGKILL, group=True)
            self.wait(10)
        with suppress(ProcessLookupError, PermissionError):  # what it left in its group
            os.killpg(self.pid, signal.SIGKILL)
        out, err = (path.read_text(encoding="utf-8", errors="replace") for path in (self.out, self.err))
        return Answer(None if code == -signal.SIGXCPU else code, out, err, self._ended - self.begun)


def _become(target: Callable[[], Any], out: Path, err: Path, cwd: Path | None) -> None:
    """In the child: files for the output, limits, its own process group; never returns."""
    code = 70
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
        for path, number in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if cwd is not None:
            os.chdir(cwd)
        target()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def command(
    words: Sequence[str], box: Path, logs: Path, before: Callable[[], None] | None = None, *, work: float | None = None
) -> Fork:
    """`headwise WORDS...` with the folder `box` as current one.

    Args:
        words: of the command.
        box: the current folder.
        logs: folder for what it prints; caches and temporary files go beside it.
        before: runs in the child first.
        work: seconds of the processor that it may take.
    """

    def target() -> None:
        os.environ.update(environment(logs))
        if work is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(work), int(work) + 5))
        if before is not None:
            before()
        from headwise.cli import main

        sys.argv = ["headwise", *words]
        main.run()

    return Fork(target, logs, cwd=box)


def environment(logs: Path) -> dict[str, str]:
    """Variables of a command: no network, one thread, its own caches and temporary files."""
    places = {name: logs.parent / folder for name, folder in (("HEADWISE_CACHE", "cache"), ("TMPDIR", "tmp"))}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    return {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        **{name: str(place) for name, place in places.items()},
    }


def real(words: Sequence[str], box: Path, logs: Path, seconds: float = PATIENCE) -> Answer:
    """The same as a process of a fresh interpreter."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "headwise", *words],
        cwd=box,
        env=os.environ | environment(logs),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=seconds)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        code = None
    texts = (part.decode("utf-8", errors="replace") for part in (out, err))
    return Answer(code, *texts, time.monotonic() - begun)


def fresh_box(benches: Path, box: Path, names: Iterable[str]) -> Path:
    """A new folder with copies of these parts of the bench."""
    shutil.rmtree(box, ignore_errors=True)
    box.mkdir(parents=True)
    put(benches, box, names)
    return box


def put(benches: Path, box: Path, names: Iterable[str]) -> None:
    """Copy parts of the bench into a folder."""
    for name in names:
        source, target = benches / name, box / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


# -- rights ------------------------------------------------------------------------------------------------------------


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Block(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def give_up_rights() -> None:
    """Let the permissions of files count for this process, whoever runs it."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, blocks = _Header(CAPABILITIES, 0), (_Block * 2)()
    if libc.capget(ctypes.byref(header), ctypes.byref(blocks)) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    kept = ~((1 << DAC_OVERRIDE) | (1 << DAC_READ_SEARCH)) & 0xFFFFFFFF
    blocks[0].effective &= kept
    blocks[0].permitted &= kept
    if libc.capset(ctypes.byref(header), ctypes.byref(blocks)) != 0:
        raise OSError(ctypes.get_errno(), "capset")

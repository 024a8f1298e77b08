"""Files that are whole or not there, and locks that end with the process."""

import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time

import pytest

from headwise import disk
from headwise.disk import (
    FOLDER_LOCK,
    folder_lock,
    held,
    holds_nothing,
    new_file,
    ordinary_modes,
    write_atomically,
    write_once,
)
from headwise.errors import BusyError, DiskError, InputError

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def umask():
    """Set the umask for a test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# -- files -------------------------------------------------------------------------------------------------------------


def write_again_and_again(path, letter, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        write_atomically(path, letter * 50_000)


def test_two_writers_and_a_reader(tmp_path):
    """Real processes on one file: nobody fails, and no read is torn."""
    path = tmp_path / "a.txt"
    write_atomically(path, "a" * 50_000)
    writers = [SPAWN.Process(target=write_again_and_again, args=(path, letter, 2)) for letter in "ab"]
    for each in writers:
        each.start()
    seen, reads = set(), 0
    while any(each.is_alive() for each in writers):
        text = path.read_text()
        seen.add((len(text), "".join(sorted(set(text)))))
        reads += 1
    for each in writers:
        each.join(30)
    assert [each.exitcode for each in writers] == [0, 0]
    assert seen == {(50_000, "a"), (50_000, "b")}
    assert reads > 100
    assert names(tmp_path) == ["a.txt"]


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    """Neither at the name of the draft, if somebody could guess it, nor at the name of the file."""
    victim, path = tmp_path / "victim", tmp_path / "a.txt"
    victim.write_text("precious")
    with monkeypatch.context() as patch:
        patch.setattr(disk.uuid, "uuid4", lambda: type("Known", (), {"hex": "0" * 32}))
        draft = tmp_path / f"{disk.draft_prefix(path)}{'0' * 32}.new"
        draft.symlink_to(victim)
        with pytest.raises(FileExistsError):
            write_atomically(path, "content")
        assert draft.is_symlink()  # it is not ours
        draft.unlink()
    path.symlink_to(victim)
    write_atomically(path, "content")
    assert (path.read_text(), path.is_symlink(), victim.read_text()) == ("content", False, "precious")


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_files_get_the_ordinary_mode(tmp_path, umask, mask):
    umask(mask)
    write_atomically(tmp_path / "a.txt", "a")
    (tmp_path / "below").mkdir()
    for name in ("private", "below/private"):
        (tmp_path / name).touch(0o600)
    ordinary_modes(tmp_path)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {0o666 & ~mask}
    assert names(tmp_path) == ["a.txt", "below", "private"]


def test_a_name_as_long_as_names_can_be(tmp_path):
    path = tmp_path / ("é" * 127)
    with new_file(path, "--output", replace=False):
        write_atomically(path, "content")
    assert path.read_text() == "content"
    assert names(tmp_path) == [path.name]
    long = tmp_path / ("é" * 128)
    with (
        pytest.raises(DiskError, match="--output .* cannot be written .File name too long"),
        new_file(long, "--output", replace=False),
    ):
        pass


def test_a_file_is_written_once(tmp_path):
    path = tmp_path / "a.txt"
    assert write_once(path, "first")
    assert not write_once(path, "second")
    assert path.read_text() == "first"
    assert names(tmp_path) == ["a.txt"]


# -- locks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def holder():
    """A process that holds the lock of a folder until its input ends, or it is killed."""
    started = []

    def start(folder, then="sys.stdin.read()"):
        script = f"""
            import sys, time
            from pathlib import Path
            from headwise.disk import folder_lock
            with folder_lock(Path(sys.argv[1])):
                print("held", flush=True)
                {then}
        """
        command = [sys.executable, "-c", textwrap.dedent(script), str(folder)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_holder_is_named_and_a_kill_frees_the_lock(tmp_path, holder):
    folder = tmp_path / "above" / "out"
    process = holder(folder)
    with (
        pytest.raises(BusyError, match=rf"out is in use by process {process.pid} \(.*since 2.*: wait"),
        folder_lock(folder),
    ):
        pass
    assert folder.is_dir()  # of the holder
    process.send_signal(signal.SIGKILL)
    process.wait(20)
    assert names(folder) == [FOLDER_LOCK]  # a kill leaves it
    assert holds_nothing(folder)
    with folder_lock(folder):
        assert json.loads((folder / FOLDER_LOCK).read_text())["pid"] == os.getpid()
    assert names(folder) == []


def test_a_lock_goes_with_its_holder(tmp_path, holder):
    folder = tmp_path / "above" / "out"
    process = holder(folder)
    process.communicate("", timeout=20)
    assert process.returncode == 0
    assert names(tmp_path) == []  # nothing was written, so the folders that it made go


def test_a_holder_that_cannot_be_named(tmp_path, holder):
    holder(tmp_path)
    for content in ("", "{", "[]", '{"pid": "x"}', '{"pid": 1e999}', "\x00"):
        (tmp_path / FOLDER_LOCK).write_text(content)
        with pytest.raises(BusyError, match=r"is in use by another process: wait"), folder_lock(tmp_path):
            pass


def test_the_name_of_a_dead_process_is_not_given(tmp_path, holder):
    """A new holder may not have written its own yet."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(20)
    holder(tmp_path)
    about = json.loads((tmp_path / FOLDER_LOCK).read_text())
    (tmp_path / FOLDER_LOCK).write_text(json.dumps(about | {"pid": dead.pid}))
    with pytest.raises(BusyError, match="another process"), folder_lock(tmp_path):
        pass
    (tmp_path / FOLDER_LOCK).write_text(json.dumps(about | {"host": "elsewhere"}))
    with pytest.raises(BusyError, match=rf"process {about['pid']} on elsewhere"), folder_lock(tmp_path):
        pass


def work_alone(folder, turns):
    """Count up a number in turns, as slowly as if somebody else could do so as well."""
    done = 0
    while done < turns:
        try:
            with folder_lock(folder):
                path = folder.parent / "count"
                before = int(path.read_text())
                time.sleep(0.002)
                path.write_text(str(before + 1))
                done += 1
        except BusyError:
            pass


def test_nobody_shares_a_lock_whose_file_comes_and_goes(tmp_path):
    """The folder and the lock in it are made and removed all the time."""
    (tmp_path / "count").write_text("0")
    workers = [SPAWN.Process(target=work_alone, args=(tmp_path / "out", 40)) for _ in range(3)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(100)
    assert [each.exitcode for each in workers] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "120"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["count"]


def test_a_forked_child_does_not_keep_the_lock(tmp_path, holder):
    """As of a worker that outlives its killed parent."""
    then = 'import os; os.fork() or time.sleep(3) or os._exit(0); print("forked", flush=True); sys.stdin.read()'
    process = holder(tmp_path, then)
    assert process.stdout.readline() == "forked\n"
    process.kill()
    process.wait(20)
    with folder_lock(tmp_path):
        pass


def test_what_was_written_stays_and_drafts_of_dead_processes_go(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / ".headwise-0123-dead.new").touch()
    with folder_lock(folder):
        write_atomically(folder / "result", "content")
    assert names(folder) == ["result"]
    with pytest.raises(ZeroDivisionError), folder_lock(tmp_path / "other"):
        raise ZeroDivisionError
    assert names(tmp_path) == ["out"]


def test_the_lock_of_somebody_else_is_not_removed(tmp_path):
    """The folder went while the lock was held, and somebody made it again."""
    with held(tmp_path / "lock", tmp_path):
        (tmp_path / "lock").unlink()
        (tmp_path / "lock").write_text("theirs")
    assert (tmp_path / "lock").read_text() == "theirs"


# -- before any work ---------------------------------------------------------------------------------------------------


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "broken"):
        with pytest.raises(InputError, match="is a file: choose a folder"), folder_lock(folder):
            pass
    for folder in ("/proc/headwise", tmp_path / ("x" * 300), "/proc"):
        with pytest.raises(DiskError, match="cannot be"), folder_lock(type(tmp_path)(folder)):
            pass
    assert names(tmp_path) == ["broken", "file"]


def test_files_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    wrong = {
        tmp_path / "file" / "below": "there is no folder",
        tmp_path / "nowhere" / "a": "there is no folder",
        tmp_path: "is a folder: name a file in it",
        tmp_path / "file": "exists already: choose another name, or add overwrite=True",
        type(tmp_path)("/proc/headwise"): "cannot be written",
        type(tmp_path)("/dev/null"): "is no ordinary file",
    }
    for path, said in wrong.items():
        with pytest.raises((InputError, DiskError), match=said), new_file(path, "--output", replace=False):
            pass
    assert names(tmp_path) == ["file"]


def test_a_file_that_somebody_else_writes(tmp_path):
    path = tmp_path / "a.txt"
    with (
        new_file(path, "--output", replace=True),
        pytest.raises(BusyError, match=f"process {os.getpid()}"),
        new_file(path, "--output", replace=True),
    ):
        pass
    with new_file(path, "--output", replace=True), new_file(tmp_path / "b.txt", "--output", replace=True):
        pass
    assert names(tmp_path) == []

"""The folder of results: who wrote it, what is kept in it, and that nothing is kept twice."""

import json
import multiprocessing

import pytest

from headwise import __version__
from headwise.disk import draft_prefix
from headwise.errors import DiskError, InputError
from headwise.experiments.sweeps.jobs import tidy_finished
from headwise.experiments.sweeps.result_folder import FORMAT, MARK, ResultFolder


@pytest.fixture
def folder(tmp_path):
    made = ResultFolder(tmp_path / "out")
    made.open()
    return made


def test_a_folder_is_marked_and_others_are_refused(folder, tmp_path):
    mark = folder.path / MARK
    assert json.loads(mark.read_text()) == {"format": FORMAT, "headwise": __version__}
    folder.open()
    (tmp_path / "file").write_text("")
    (tmp_path / "new").mkdir()
    ResultFolder(tmp_path / "new").check()
    other = json.dumps({"format": FORMAT, "headwise": "0.0.9"})
    for path, content, reason in (
        (folder.path, other, "results of headwise 0.0.9.*are not mixed"),
        (folder.path, "{", "damaged"),
        (tmp_path / "file", "{", "is a file"),
        (tmp_path, "{", "holds other files"),
    ):
        mark.write_text(content)
        with pytest.raises(InputError, match=reason):
            ResultFolder(path).open()


def test_a_run_is_kept_once(folder):
    folder.save_error("a", {"results": "failed"})
    assert folder.save("a", {"results": 1})
    assert not folder.save("a", {"results": 2})
    assert json.loads(folder.result("a").read_text()) == {"results": 1}
    assert not folder.error("a").exists()
    assert sorted(path.name for path in (folder.path / "runs").iterdir()) == ["a.json"]


def _hold(path, ready, release):
    with ResultFolder(path).claimed("a") as mine:
        ready.put(mine)
        release.wait(60)


def test_a_run_is_claimed_by_one_process_until_it_lets_go_or_dies(folder):
    context = multiprocessing.get_context("fork")
    ready, release = context.Queue(), context.Event()
    other = context.Process(target=_hold, args=(folder.path, ready, release))
    other.start()
    assert ready.get(timeout=60)
    with folder.claimed("a") as mine, folder.claimed("b") as another:
        assert (mine, another) == (False, True)
    other.kill()
    other.join()
    with folder.claimed("a") as mine:
        assert mine


def manifest(labels, runs, scale=None):
    points = [{"key": key, "point": {"system": label}} for label, key in runs]
    return {"name": "s", "scale": scale, "axes": {"system": {"labels": labels, "keys": ["guides"]}}, "runs": points}


def test_a_narrower_call_of_a_sweep_keeps_the_runs_of_a_wider_one(folder):
    folder.save_manifest(manifest(["a", "b"], [("a", "1"), ("b", "2")]))
    folder.save_manifest(manifest(["b"], [("b", "3")]))
    kept = json.loads((folder.path / "sweeps" / "s.json").read_text())
    assert kept["axes"]["system"]["labels"] == ["a", "b"]
    assert [(run["key"], run["point"]["system"]) for run in kept["runs"]] == [("1", "a"), ("3", "b")]
    folder.save_manifest(manifest(["c"], [("c", "4")], scale="small"))
    kept = json.loads((folder.path / "sweeps" / "s.json").read_text())
    assert [run["key"] for run in kept["runs"]] == ["4"]


def test_a_disk_that_refuses_is_an_error_in_one_sentence(folder):
    (folder.path / "runs").rename(folder.path / "gone")
    with pytest.raises(DiskError, match="could not be written"):
        folder.save("a", {})


def test_what_a_kill_left_of_finished_runs_is_tidied(folder):
    def draft(path):
        left = path.with_name(f"{draft_prefix(path)}0.new")
        left.touch()
        return left

    for key in ("a", "b", "c"):
        folder.unfinished(key).mkdir()
        (folder.unfinished(key) / "config.json").touch()
    for key in ("a", "b"):
        folder.save(key, {})
    gone = [draft(path) for path in (folder.path / MARK, folder.result("a"))]
    folder.open()
    with folder.claimed("b"):  # by another process
        tidy_finished(folder, keep_models=True)
    assert not any(path.exists() for path in gone)
    assert sorted(path.name for path in (folder.path / "unfinished").iterdir()) == ["b", "c"]
    assert (folder.path / "models" / "a" / "config.json").exists()

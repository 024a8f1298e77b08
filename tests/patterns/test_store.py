"""The store of knowledge: built once, whatever happens to the processes and the files."""

import itertools
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from patterns.small_knowledge import CountedLetters, Letters, knowledge_from, letters, sentences, wait_for

from headwise import cache as cache_module
from headwise.errors import DiskError, HeadwiseWarning, InputError, StateError
from headwise.patterns import default_cache, gather, store_key
from headwise.patterns.base import Resources, WordMatrix

EXAMPLES = sentences(60)
NAMES = ("spans", "rows", "columns", "values")
FILES = ("columns.npy", "entries.npy", "meta.json", "rows.npy", "spans.npy", "values.npy", "words.npy")


@pytest.fixture
def traces(tmp_path):
    """A folder with a file for every part that was worked on."""
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def worked(traces, process=None):
    """How many examples were worked on, by all processes or by one; twice counts twice."""
    notes = [path.read_text().split() for path in traces.iterdir()]
    return sum(int(number) for number, by in notes if process in (None, int(by)))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_right(stored, examples):
    assert len(stored) == len(examples)
    for matrix, texts in zip(stored, examples, strict=True):
        for name in NAMES:
            np.testing.assert_array_equal(getattr(matrix, name), getattr(letters(texts), name), strict=False)


def test_what_is_present_is_not_computed_again_unless_it_is_rebuilt(cache, traces):
    pattern = Letters(traces=str(traces))
    stored = gather(pattern, EXAMPLES, cache=cache)
    before = contents(stored.folder)
    assert (stored.folder.parent, stored.folder.name) == (cache, f"letters-{stored.key}")
    assert sorted(before) == sorted(FILES)
    assert_right(stored, EXAMPLES)
    found = gather(pattern, EXAMPLES, cache=cache, workers=2, progress=lambda *each: pytest.fail("nothing to do"))
    assert (stored.built, found.built) == (True, False)
    assert_right(found, EXAMPLES)
    assert worked(traces) == 60
    again = gather(pattern, EXAMPLES, cache=cache, rebuild=True)
    assert again.built
    assert contents(again.folder) == before
    assert worked(traces) == 120


def test_arrays_are_mapped_and_another_process_gets_the_path_only(cache):
    stored = gather(Letters(), EXAMPLES, cache=cache)
    for name, kind in zip(NAMES, ("uint16", "uint16", "uint16", "float32"), strict=True):
        array = getattr(stored[5], name)
        assert isinstance(array.base.base, np.memmap)
        assert (array.dtype, array.flags.writeable) == (kind, False)
    sent = pickle.dumps(stored)
    assert len(sent) < 500
    assert_right(pickle.loads(sent), EXAMPLES)
    part = stored.subset([4, 1, 2])
    for some in (part, pickle.loads(pickle.dumps(part)), part.subset([0, 1, 2]), [part[0], *part[1:]]):
        assert_right(some, [EXAMPLES[index] for index in (4, 1, 2)])
    assert_right([part[-1]], [EXAMPLES[2]])
    with pytest.raises(IndexError):
        part[3]
    shutil.rmtree(stored.folder)
    with pytest.raises(StateError, match="gather the knowledge again"):
        pickle.loads(sent)


# --- the key


def test_the_key_counts_all_that_matters_and_nothing_else(tmp_path):
    def key(pattern=None, examples=EXAMPLES, corpus=()):
        return store_key(pattern or Letters(), examples, corpus, Resources())

    first = EXAMPLES[0]
    others = [
        key(Letters(scale=2.0)),
        key(CountedLetters()),
        key(examples=[(first[0] + "s", *first[1:]), *EXAMPLES[1:]]),
        key(examples=EXAMPLES[::-1]),
        key(examples=EXAMPLES[:-1]),
    ]
    assert len({key(), *others}) == 6
    assert key() == key(examples=tuple(EXAMPLES)) == key(corpus=[("other",)])
    assert key(CountedLetters(), corpus=[("one",)]) != key(CountedLetters(), corpus=[("two",)])
    for one, other in [
        ([("ab", "c")], [("a", "bc")]),
        ([("ab", "c")], [("ab",), ("c",)]),
        ([("a", "b"), ("c",)], [("a",), ("b", "c")]),
        ([("a", "")], [("a",)]),
        ([("1:a",)], [("1", "a")]),
        ([("\ud800",)], [("\ud801",)]),
    ]:
        assert key(examples=one) != key(examples=other)
    with pytest.raises(StateError, match="pattern own: its options and fingerprint must be plain data"):
        key(knowledge_from(None, lambda resources: {"file": tmp_path}))


# --- the work


@pytest.mark.slow
def test_several_processes_give_the_same_bytes(cache, traces, tmp_path):
    examples = sentences(300)

    def build(part):
        (traces / str(os.getpid())).touch()
        if not wait_for(lambda: len(list(traces.iterdir())) == 2):
            raise InputError("nobody else is here.")
        return [letters(texts) for texts in part]

    there = gather(knowledge_from(build), examples, cache=cache, workers=2)
    assert len({path.name for path in traces.iterdir()} - {str(os.getpid())}) == 2
    here = gather(knowledge_from(lambda part: list(map(letters, part))), examples, cache=tmp_path / "one", workers=1)
    assert_right(there, examples)
    assert contents(there.folder) == contents(here.folder)


def test_progress_counts_examples_and_an_error_of_the_builder_stays_as_it_was(cache):
    calls = []
    gather(Letters(), EXAMPLES, cache=cache, workers=1, progress=lambda *each: calls.append(each))
    assert len(calls) > 2
    assert calls == sorted(calls)
    assert calls[-1] == (60, 60)
    shutil.rmtree(cache)
    with pytest.raises(InputError, match=r"^no yak here, please\.$"):
        gather(Letters(refuse="yak"), [*EXAMPLES, ("one yak",)], cache=cache, workers=1)
    assert [path.name for path in cache.iterdir() if path.suffix not in (".lock", ".parts")] == []


def test_wrong_arguments_are_refused(cache):
    for examples, options, message in [
        ([], {}, "pattern letters: there are no examples"),
        ([("fine",), "a text"], {}, "pattern letters: example 1: expected a tuple of texts"),
        ([("fine",), ("a", None)], {}, "pattern letters: example 1: expected a tuple of texts"),
        (EXAMPLES, {"workers": 0}, "expected a whole number of 1 or more"),
        (EXAMPLES, {"workers": True}, "expected a whole number of 1 or more"),
    ]:
        with pytest.raises(InputError, match=message):
            gather(Letters(), examples, cache=cache, **options)
    assert not cache.exists()


GOOD = {"spans": [[0, 0, 1], [0, 2, 5], [1, 0, 3]], "rows": [0, 1], "columns": [2, 1], "values": [1.0, 2.0]}
BAD = [
    ({"rows": [0, 2]}, r"0 <= row <= column < 3 words"),
    ({"values": [1.0, 0.0]}, "a finite number above 0"),
    ({"values": np.array([1e300, 1.0])}, "a finite number above 0"),
    ({"rows": [0, 0], "columns": [1, 1]}, "a pair of words occurs twice"),
    ({"spans": [[0, 0, 1], [0, 2, 5], [2, 0, 3]]}, r"a text that is not there \(the example has 2\)"),
    ({"spans": [[0, 0, 1], [0, 2, 5], [1, 0, 4]]}, "reaches out of its text"),
    ({"spans": [[0, 0, 0], [0, 2, 5], [1, 0, 3]]}, "a word is empty"),
    ({"values": [1.0]}, "lists of one length"),
    ({"spans": [0, 0, 1]}, r"spans must be \[words,3\], got \[3\]"),
    ({"rows": np.array([0.0, 1.0])}, "whole numbers"),
]


def matrix_of(**changes):
    kinds = {"spans": np.int32, "rows": np.int32, "columns": np.int32, "values": np.float32}
    given = {**GOOD, **changes}
    return WordMatrix(
        *(np.asarray(given[name], None if hasattr(given[name], "dtype") else kinds[name]) for name in NAMES)
    )


def test_what_a_builder_must_not_return(cache):
    examples = [("a bee", "ant")] * 2
    for changes, reason in BAD:
        pattern = knowledge_from(lambda part, changes=changes: [matrix_of(), matrix_of(**changes)])
        with pytest.raises(StateError, match=f"own: its builder returned a bad matrix for example 1: .*{reason}"):
            gather(pattern, examples, cache=cache)
    with pytest.raises(StateError, match="example 0: expected a WordMatrix, got dict"):
        gather(knowledge_from(lambda part: [{}, {}]), examples, cache=cache)
    with pytest.raises(StateError, match="pattern own: its builder returned 3 matrices for 2 examples"):
        gather(knowledge_from(lambda part: [matrix_of()] * 3), examples, cache=cache)


# --- damage


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def rewrite(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGES = {
    "flip": (flip, "rows.npy"),
    "truncate": (lambda path: os.truncate(path, path.stat().st_size - 1), "spans.npy"),
    "delete": (Path.unlink, "values.npy"),
    "delete-meta": (Path.unlink, "meta.json"),
    "binary-meta": (lambda path: path.write_bytes(b"\xff\xfe"), "meta.json"),
    "other-key": (lambda path: rewrite(path, key="0" * 32), "meta.json"),
    "odd-files": (lambda path: rewrite(path, files={"spans": 3}), "meta.json"),
}


def test_damage_is_found_reported_and_repaired(cache, traces):
    pattern = Letters(traces=str(traces))
    stored = gather(pattern, EXAMPLES, cache=cache)
    before = contents(stored.folder)
    for number, (change, name) in enumerate(DAMAGES.values(), 2):
        gather(pattern, EXAMPLES, cache=cache)  # so that this process has already checked it
        time.sleep(0.02)  # clocks of file systems are coarse
        change(stored.folder / name)
        with pytest.warns(HeadwiseWarning, match=f"letters-{stored.key} is damaged and is built again: .*{name}"):
            again = gather(pattern, EXAMPLES, cache=cache)
        assert again.built
        assert contents(again.folder) == before
        assert worked(traces) == 60 * number
    shutil.rmtree(stored.folder)
    stored.folder.mkdir()  # an empty folder may be replaced
    with pytest.warns(HeadwiseWarning, match=r"meta\.json is missing"):
        assert_right(gather(pattern, EXAMPLES, cache=cache), EXAMPLES)


def foreign_folder(folder):
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    (folder / "meta.json").write_text("{}")


def foreign_file(folder):
    folder.parent.mkdir(parents=True)
    folder.write_text("years of work")


def foreign_link(folder):
    foreign_folder(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("make", [foreign_folder, foreign_file, foreign_link])
def test_what_is_not_ours_is_never_deleted(cache, traces, make):
    pattern = Letters(traces=str(traces))
    folder = cache / f"letters-{store_key(pattern, EXAMPLES, (), Resources())}"
    make(folder)
    before = sorted((path, path.read_bytes()) for path in cache.rglob("*") if path.is_file())
    with pytest.raises(InputError, match="was not made by headwise: move it away, or choose another cache folder"):
        gather(pattern, EXAMPLES, cache=cache, rebuild=True)
    after = [(path, path.read_bytes()) for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert sorted(after) == before
    assert worked(traces) == 0


# --- disks


def test_a_cache_that_cannot_be_written(tmp_path, cache):
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match=r"the cache .*file/cache could not be written \(Not a directory\)"):
        gather(Letters(), EXAMPLES, cache=tmp_path / "file" / "cache")
    stored = gather(Letters(), EXAMPLES, cache=cache)
    lock = stored.folder.with_name(f"{stored.folder.name}.lock")
    lock.unlink()
    lock.mkdir()  # so that no lock can be had, not even by root
    assert not gather(Letters(), EXAMPLES, cache=cache).built
    with pytest.raises(DiskError, match="could not be written"):
        gather(Letters(), EXAMPLES, cache=cache, rebuild=True)
    assert_right(gather(Letters(), EXAMPLES, cache=cache), EXAMPLES)


@contextmanager
def limited_files(size):
    """No file may be larger, as on a disk that is almost full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("limit", [300, 5000])
def test_a_full_disk_leaves_what_was_there(cache, limit):
    stored = gather(Letters(), EXAMPLES, cache=cache)
    before = contents(stored.folder)
    with limited_files(limit), pytest.raises(DiskError, match="could not be written") as caught:
        gather(Letters(), EXAMPLES, cache=cache, rebuild=True)
    assert "\n" not in str(caught.value)
    assert contents(stored.folder) == before
    assert not list(cache.rglob("*.draft"))
    again = gather(Letters(), EXAMPLES, cache=cache, rebuild=True)
    assert contents(again.folder) == before


def test_the_folder_of_the_cache(monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", "~/mine")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_cache() == Path("/home/someone/mine")
    monkeypatch.setenv("HEADWISE_CACHE", "")
    assert default_cache() == Path("/somewhere/headwise/knowledge")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path("/home/someone/.cache/headwise/knowledge")


# --- builds that are stopped

BUILD = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from patterns.small_knowledge import *
from headwise.patterns import gather
examples = sentences(int(sys.argv[4]))
stored = gather(Letters(traces=sys.argv[3], pause=0.2), examples, cache=Path(sys.argv[2]),
                workers=int(sys.argv[5]), progress=lambda *each: print(*each, flush=True))
print("built" if stored.built else "found", flush=True)
"""


def start(*arguments):
    command = [sys.executable, "-c", BUILD, str(Path(__file__).parents[1]), *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, start_new_session=True, **pipes)


@pytest.mark.parametrize(
    ("how", "number", "workers"),
    [(signal.SIGKILL, 100, 1), pytest.param(signal.SIGINT, 300, 2, marks=pytest.mark.slow)],
)
def test_a_build_that_was_stopped_is_resumed(cache, traces, how, number, workers):
    pattern, examples, calls = Letters(traces=str(traces), pause=0.2), sentences(number), []
    process = start(cache, traces, number, workers)
    with process.stdout, process.stderr:
        try:
            done = int([process.stdout.readline() for _ in range(2)][-1].split()[0])
            # Ctrl-C in a terminal reaches the workers as well; a kill does not.
            (os.kill if how == signal.SIGKILL else os.killpg)(process.pid, how)
            assert process.wait(timeout=30) != 0
            assert not [path for path in cache.iterdir() if not path.suffix]
            if how == signal.SIGINT:
                errors = process.stderr.read()  # to the end: no worker is left that could write more
                assert errors.rstrip().endswith("KeyboardInterrupt")
                assert errors.count("\n  File") == errors[errors.rindex("Traceback") :].count("\n  File"), errors
                assert "Warning" not in errors
            stored = gather(pattern, examples, cache=cache, workers=1, progress=lambda *each: calls.append(each))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # workers that do not know yet
    assert stored.built
    assert_right(stored, examples)
    assert calls[0][0] >= done > 0
    assert worked(traces, os.getpid()) == number - calls[0][0]
    assert sorted(path.name for path in cache.iterdir()) == [stored.folder.name, f"{stored.folder.name}.lock"]


def stop_after(parts):
    """A pattern whose builder fails once, after some parts; and the parts that were worked on."""
    seen, calls = [], itertools.count()

    def build(examples):
        if next(calls) == parts:
            raise InputError("enough.")
        seen.append(examples)
        return [letters(texts) for texts in examples]

    return knowledge_from(build), seen


def test_only_missing_and_damaged_parts_are_computed_again(cache):
    pattern, seen = stop_after(3)
    examples = sentences(190)
    with pytest.raises(InputError, match="enough"):
        gather(pattern, examples, cache=cache, workers=1)
    (parts,) = cache.glob("*.parts")
    size = len(seen[0])
    assert len(list(parts.iterdir())) == 3
    flip(sorted(parts.iterdir())[1])
    del seen[:]
    assert_right(gather(pattern, examples, cache=cache, workers=5), examples)
    assert [texts for part in seen for texts in part] == [*examples[size : 2 * size], *examples[3 * size :]]
    # A rebuild takes none of the parts of a stopped build.
    pattern, seen = stop_after(1)
    with pytest.raises(InputError, match="enough"):
        gather(pattern, EXAMPLES, cache=cache, rebuild=True)
    del seen[:]
    gather(pattern, EXAMPLES, cache=cache, rebuild=True)
    assert sum(map(len, seen)) == 60


def test_the_corpus_is_not_counted_again_for_the_last_step_alone(cache, monkeypatch):
    pattern, _ = stop_after(-1)
    with monkeypatch.context() as full:
        full.setattr(cache_module, "_settled", lambda path: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(DiskError):
            gather(pattern, EXAMPLES, cache=cache)
    monkeypatch.setattr(type(pattern), "builder", lambda *arguments: pytest.fail("there was nothing to build"))
    assert_right(gather(pattern, EXAMPLES, cache=cache), EXAMPLES)


@pytest.mark.slow
def test_two_processes_at_once_build_once(cache, traces):
    both = [start(cache, traces, 100, 1) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [errors for _, errors in outputs] == ["", ""]
    assert sorted(output.splitlines()[-1] for output, _ in outputs) == ["built", "found"]
    assert worked(traces) == 100
    # Another process finds it under the same key.
    assert not gather(Letters(traces=str(traces), pause=0.2), sentences(100), cache=cache).built

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
from headwise.patterns import PMI, default_cache, gather, store_key
from headwise.patterns.base import Resources, WordMatrix
from headwise.patterns.store import Parts, _flat_part

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
    return sum(int(number) for number, by, _ in notes if process in (None, int(by)))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_right(stored, examples, scale=1.0):
    assert len(stored) == len(examples)
    for matrix, texts in zip(stored, examples, strict=True):
        for name in NAMES:
            np.testing.assert_array_equal(getattr(matrix, name), getattr(letters(texts, scale), name), strict=False)


def test_by_hand(cache):
    stored = gather(Letters(), [("a bee", "ant"), ("",)], cache=cache)
    first, second = stored
    assert first.spans.tolist() == [[0, 0, 1], [0, 2, 5], [1, 0, 3]]
    assert first.dense().tolist() == [[2, 0, 4], [0, 6, 0], [4, 0, 6]]
    assert (second.spans.shape, second.rows.shape, second.values.shape) == ((0, 3), (0,), (0,))
    assert stored.built
    assert (stored.folder.parent, stored.folder.name) == (cache, f"letters-{stored.key}")
    assert sorted(contents(stored.folder)) == sorted(FILES)


def test_what_is_there_is_not_worked_out_again(cache, traces):
    pattern = Letters(traces=str(traces))
    assert gather(pattern, EXAMPLES, cache=cache).built
    found = gather(pattern, EXAMPLES, cache=cache, workers=2)
    assert not found.built
    assert_right(found, EXAMPLES)
    assert worked(traces) == 60


def test_rebuild_works_it_out_again(cache, traces):
    pattern = Letters(traces=str(traces))
    before = contents(gather(pattern, EXAMPLES, cache=cache).folder)
    again = gather(pattern, EXAMPLES, cache=cache, rebuild=True)
    assert again.built
    assert contents(again.folder) == before
    assert worked(traces) == 120


def test_arrays_are_mapped_small_and_cannot_be_written_to(cache):
    matrix = gather(Letters(), EXAMPLES, cache=cache)[5]
    for name, kind in zip(NAMES, ("uint16", "uint16", "uint16", "float32"), strict=True):
        array = getattr(matrix, name)
        assert len(array)
        assert isinstance(array.base.base, np.memmap)
        assert array.dtype == kind
        assert not array.flags.writeable


def test_to_another_process_goes_the_place_only(cache):
    stored = gather(Letters(), EXAMPLES, cache=cache)
    sent = pickle.dumps(stored)
    assert len(sent) < 500
    assert_right(pickle.loads(sent), EXAMPLES)
    shutil.rmtree(stored.folder)
    with pytest.raises(StateError, match="gather the knowledge again"):
        pickle.loads(sent)


# --- the key


def test_the_key_counts_all_that_matters_and_nothing_else():
    def key(pattern=None, examples=EXAMPLES, corpus=(), resources=Resources()):  # noqa: B008
        return store_key(pattern or Letters(), examples, corpus, resources)

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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("ab", "c")], [("a", "bc")]),
        ([("ab", "c")], [("ab",), ("c",)]),
        ([("a", "b"), ("c",)], [("a",), ("b", "c")]),
        ([("a", "")], [("a",)]),
        ([("1:a",)], [("1", "a")]),
        ([("\ud800",)], [("\ud801",)]),
    ],
)
def test_texts_that_are_cut_otherwise_have_another_key(one, other):
    assert store_key(Letters(), one, (), Resources()) != store_key(Letters(), other, (), Resources())


def test_sources_that_are_no_plain_data_are_the_fault_of_the_pattern(tmp_path):
    pattern = knowledge_from(None, lambda resources: {"file": tmp_path})
    with pytest.raises(StateError, match="pattern own: its options and fingerprint must be plain data"):
        store_key(pattern, EXAMPLES, (), Resources())


def test_the_key_is_the_same_in_another_process():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from patterns.small_knowledge import *\nfrom headwise.patterns import store_key\n"
        "print(store_key(Letters(), sentences(60), (), None))"
    )
    assert run(program).strip() == store_key(Letters(), EXAMPLES, (), None)


# --- the work


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    examples = sentences(500, seed=1)
    return examples, gather(Letters(), examples, cache=tmp_path_factory.mktemp("alone"), workers=1)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [3])
def test_the_same_bytes_whatever_the_number_of_workers(cache, alone, workers):
    examples, stored = alone
    there = gather(Letters(), examples, cache=cache, workers=workers)
    assert_right(there, examples)
    assert there.key == stored.key
    assert contents(there.folder) == contents(stored.folder)


@pytest.mark.slow
def test_the_work_is_done_by_several_processes(cache, traces):
    def build(examples):
        (traces / str(os.getpid())).touch()
        if not wait_for(lambda: len(list(traces.iterdir())) == 2):
            raise InputError("nobody else is here.")
        return [letters(texts) for texts in examples]

    gather(knowledge_from(build), sentences(500), cache=cache, workers=2)
    assert len({path.name for path in traces.iterdir()} - {str(os.getpid())}) == 2


@pytest.mark.parametrize(("number", "workers"), [(60, 1), pytest.param(300, 2, marks=pytest.mark.slow)])
def test_progress_counts_examples(cache, number, workers):
    told = []
    gather(Letters(), sentences(number), cache=cache, workers=workers, progress=lambda *each: told.append(each))
    assert len(told) > 2
    assert told == sorted(told)
    assert told[-1] == (number, number)
    gather(Letters(), sentences(number), cache=cache, progress=lambda *each: pytest.fail("nothing was to be done"))


@pytest.mark.parametrize(("number", "workers"), [(60, 1), pytest.param(300, 2, marks=pytest.mark.slow)])
def test_an_error_of_the_builder_comes_out_as_it_was_and_nothing_is_kept(cache, number, workers):
    examples = [*sentences(number), ("one yak",)]
    with pytest.raises(InputError, match=r"^no yak here, please\.$"):
        gather(Letters(refuse="yak"), examples, cache=cache, workers=workers)
    assert [path.name for path in cache.iterdir() if path.suffix not in (".lock", ".parts")] == []


def test_no_examples_are_refused(cache):
    with pytest.raises(InputError, match="pattern letters: there are no examples"):
        gather(Letters(), [], cache=cache)
    assert not cache.exists()


@pytest.mark.parametrize("wrong", ["a text", ("a", None)])
def test_an_example_that_is_no_tuple_of_texts_is_refused(cache, wrong):
    with pytest.raises(InputError, match="pattern letters: example 1: expected a tuple of texts"):
        gather(Letters(), [("fine",), wrong], cache=cache)


GOOD = {"spans": [[0, 0, 1], [0, 2, 5], [1, 0, 3]], "rows": [0, 1], "columns": [2, 1], "values": [1.0, 2.0]}
BAD = {
    "row-after-column": ({"rows": [0, 2]}, r"0 <= row <= column < 3 words"),
    "value-0": ({"values": [1.0, 0.0]}, "a finite number above 0"),
    "infinite": ({"values": [np.inf, 1.0]}, "a finite number above 0"),
    "infinite-as-float32": ({"values": np.array([1e300, 1.0])}, "a finite number above 0"),
    "twice": ({"rows": [0, 0], "columns": [1, 1]}, "a pair of words occurs twice"),
    "third-text": ({"spans": [[0, 0, 1], [0, 2, 5], [2, 0, 3]]}, r"a text that is not there \(the example has 2\)"),
    "beyond-its-text": ({"spans": [[0, 0, 1], [0, 2, 5], [1, 0, 4]]}, "reaches out of its text"),
    "empty-word": ({"spans": [[0, 0, 0], [0, 2, 5], [1, 0, 3]]}, "a word is empty"),
    "lengths": ({"values": [1.0]}, "lists of one length"),
    "flat-spans": ({"spans": [0, 0, 1]}, r"spans must be \[words,3\], got \[3\]"),
    "fractions": ({"rows": np.array([0.0, 1.0])}, "whole numbers"),
}


def matrix_of(**changes):
    kinds = {"spans": np.int32, "rows": np.int32, "columns": np.int32, "values": np.float32}
    given = {**GOOD, **changes}
    return WordMatrix(
        *(np.asarray(given[name], None if hasattr(given[name], "dtype") else kinds[name]) for name in NAMES)
    )


@pytest.mark.parametrize("case", BAD)
def test_a_bad_matrix_is_the_fault_of_the_pattern(cache, case):
    changes, reason = BAD[case]
    pattern = knowledge_from(lambda examples: [matrix_of(), matrix_of(**changes)])
    with pytest.raises(StateError, match=f"pattern own: its builder returned a bad matrix for example 1: .*{reason}"):
        gather(pattern, [("a bee", "ant")] * 2, cache=cache)


def test_what_is_no_matrix_is_the_fault_of_the_pattern(cache):
    with pytest.raises(StateError, match="example 0: expected a WordMatrix, got dict"):
        gather(knowledge_from(lambda examples: [{}]), [("a bee", "ant")], cache=cache)


@pytest.mark.parametrize("number", [1, 3])
def test_the_wrong_number_of_matrices_is_the_fault_of_the_pattern(cache, number):
    with pytest.raises(StateError, match=f"pattern own: its builder returned {number} matrices for 2 examples"):
        gather(knowledge_from(lambda examples: [matrix_of()] * number), [("a bee", "ant")] * 2, cache=cache)


# --- damage


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path):
    with path.open("ab") as file:
        file.write(b"x")


def rewrite(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGES = {
    "flip": (flip, "rows.npy"),
    "flip-meta.json": (flip, "meta.json"),
    "lengthen": (lengthen, "columns.npy"),
    "truncate": (truncate, "spans.npy"),
    "delete": (Path.unlink, "values.npy"),
    "delete-meta": (Path.unlink, "meta.json"),
    "binary-meta": (lambda path: path.write_bytes(b"\xff\xfe"), "meta.json"),
    "foreign-meta": (lambda path: path.write_text('{"name": "something"}'), "meta.json"),
    "other-key": (lambda path: rewrite(path, key="0" * 32), "meta.json"),
    "odd-files": (lambda path: rewrite(path, files={"spans": 3}), "meta.json"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_found_said_and_repaired(cache, traces, case):
    change, name = DAMAGES[case]
    pattern = Letters(traces=str(traces))
    stored = gather(pattern, EXAMPLES, cache=cache)
    before = contents(stored.folder)
    gather(pattern, EXAMPLES, cache=cache)  # so that this process has already looked it through
    time.sleep(0.02)  # clocks of file systems are coarse
    change(stored.folder / name)
    said = name if case != "flip-meta.json" else ""  # it may seem that another file is the damaged one
    with pytest.warns(HeadwiseWarning, match=f"letters-{stored.key} is damaged and is built again: .*{said}"):
        again = gather(pattern, EXAMPLES, cache=cache)
    assert again.built
    assert contents(again.folder) == before
    assert_right(again, EXAMPLES)
    assert worked(traces) == 120
    assert not gather(pattern, EXAMPLES, cache=cache).built


def test_hashes_are_worked_out_once_per_process(cache, monkeypatch):
    gather(Letters(), EXAMPLES, cache=cache)
    hashed = []
    whole = cache_module.file_digest
    monkeypatch.setattr(cache_module, "file_digest", lambda path: hashed.append(path.name) or whole(path))
    cache_module._verified.clear()
    for _ in range(3):
        assert not gather(Letters(), EXAMPLES, cache=cache).built
    assert len(hashed) == 6


def foreign_folder(folder):
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")


def foreign_folder_with_meta(folder):
    foreign_folder(folder)
    (folder / "meta.json").write_text("{}")


def foreign_file(folder):
    folder.parent.mkdir(parents=True)
    folder.write_text("years of work")


def foreign_link(folder):
    foreign_folder(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("rebuild", [True])
@pytest.mark.parametrize("make", [foreign_folder, foreign_folder_with_meta, foreign_file, foreign_link])
def test_what_is_not_ours_is_never_deleted(cache, traces, make, rebuild):
    pattern = Letters(traces=str(traces))
    folder = cache / f"letters-{store_key(pattern, EXAMPLES, (), Resources())}"
    make(folder)
    before = sorted((path, path.read_bytes()) for path in cache.rglob("*") if path.is_file())
    with pytest.raises(InputError, match="was not made by headwise: move it away, or choose another cache folder"):
        gather(pattern, EXAMPLES, cache=cache, rebuild=rebuild)
    after = [(path, path.read_bytes()) for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert sorted(after) == before
    assert worked(traces) == 0


def test_an_empty_folder_may_be_replaced(cache):
    folder = cache / f"letters-{store_key(Letters(), EXAMPLES, (), Resources())}"
    folder.mkdir(parents=True)
    with pytest.warns(HeadwiseWarning, match=r"meta\.json is missing"):
        assert_right(gather(Letters(), EXAMPLES, cache=cache), EXAMPLES)


# --- disks


def test_a_cache_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match=r"the cache .*file/cache could not be written \(Not a directory\)"):
        gather(Letters(), EXAMPLES, cache=tmp_path / "file" / "cache")


def test_an_entry_can_be_read_where_nothing_can_be_written(cache):
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


def test_the_place_of_the_cache(monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", "~/mine")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_cache() == Path("/home/someone/mine")
    monkeypatch.setenv("HEADWISE_CACHE", "")
    assert default_cache() == Path("/somewhere/headwise/knowledge")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path("/home/someone/.cache/headwise/knowledge")


# --- processes

BUILD = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from patterns.small_knowledge import *
from headwise.patterns import gather
examples = sentences(int(sys.argv[4]))
stored = gather(Letters(traces=sys.argv[3], pause=float(sys.argv[6])), examples, cache=Path(sys.argv[2]),
                workers=int(sys.argv[5]), progress=lambda *each: print(*each, flush=True))
print("built" if stored.built else "found", flush=True)
"""


def start(program, *arguments, **options):
    command = [sys.executable, "-c", program, str(Path(__file__).parents[1]), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run(program, *arguments):
    process = start(program, *arguments)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


@contextmanager
def stopped(how, *arguments):
    """A build that is stopped after two parts; how many examples were done then, and what it said."""
    process = start(BUILD, *arguments, start_new_session=True)
    with process.stdout, process.stderr:
        try:
            done = int([process.stdout.readline() for _ in range(2)][-1].split()[0])
            # Ctrl-C in a terminal reaches the workers as well; a kill does not.
            (os.kill if how == signal.SIGKILL else os.killpg)(process.pid, how)
            assert process.wait(timeout=30) != 0
            yield done, process.stderr
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # workers that do not know yet


@pytest.mark.parametrize(("number", "workers"), [(150, 1), pytest.param(400, 2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_build_that_was_stopped_goes_on(cache, traces, number, workers, how):
    pattern, examples, told = Letters(traces=str(traces), pause=0.2), sentences(number), []
    with stopped(how, cache, traces, number, workers, 0.2) as (done, errors):
        assert not [path for path in cache.iterdir() if not path.suffix]
        if how == signal.SIGINT:
            said = errors.read()  # to the end: no worker is left who could say more
            assert said.rstrip().endswith("KeyboardInterrupt")
            assert said.count("\n  File") == said[said.rindex("Traceback") :].count("\n  File"), said
            assert "Warning" not in said
        stored = gather(pattern, examples, cache=cache, workers=1, progress=lambda *each: told.append(each))
    assert stored.built
    assert_right(stored, examples)
    assert told[0][0] >= done > 0
    assert worked(traces, os.getpid()) == number - told[0][0]
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


@pytest.mark.parametrize("workers", [5])
def test_only_what_is_missing_is_worked_out_even_if_parts_are_cut_otherwise(cache, monkeypatch, workers):
    pattern, seen = stop_after(2)
    examples = sentences(199)
    monkeypatch.setattr("headwise.patterns.parallel.LEAST", 10)
    with pytest.raises(InputError, match="enough"):
        gather(pattern, examples, cache=cache, workers=1)
    size = len(seen[0])
    del seen[:]
    monkeypatch.setattr("headwise.patterns.parallel.LEAST", 7 * workers)
    assert_right(gather(pattern, examples, cache=cache, workers=workers), examples)
    assert [texts for part in seen for texts in part] == examples[2 * size :]


def test_a_damaged_part_is_worked_out_again(cache):
    pattern, seen = stop_after(3)
    examples = sentences(190)
    with pytest.raises(InputError, match="enough"):
        gather(pattern, examples, cache=cache, workers=1)
    (parts,) = cache.glob("*.parts")
    size = len(seen[0])
    assert len(list(parts.iterdir())) == 3
    flip(sorted(parts.iterdir())[1])
    del seen[:]
    assert_right(gather(pattern, examples, cache=cache, workers=1), examples)
    assert [texts for part in seen for texts in part] == [*examples[size : 2 * size], *examples[3 * size :]]


def test_parts_that_overlap_count_once(cache):
    cache.mkdir()
    saved = Parts(cache / "parts", 60)
    for part in (range(10, 30), range(0, 20), range(30, 40)):
        build = lambda examples: [letters(texts) for texts in examples]  # noqa: E731
        saved.save(*_flat_part("letters", build, (part, EXAMPLES[part.start : part.stop])))
    found = Parts(cache / "parts", 60)
    assert found.done == 30
    assert list(found.gaps()) == [range(20, 30), range(40, 60)]


def test_the_corpus_is_not_counted_again_for_the_last_step_alone(cache, monkeypatch):
    pattern, _ = stop_after(-1)
    with monkeypatch.context() as full:
        full.setattr(cache_module, "_settled", lambda path: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(DiskError):
            gather(pattern, EXAMPLES, cache=cache)
    monkeypatch.setattr(type(pattern), "builder", lambda *arguments: pytest.fail("there was nothing to build"))
    assert_right(gather(pattern, EXAMPLES, cache=cache), EXAMPLES)


def test_rebuild_forgets_the_parts_of_a_stopped_build(cache):
    pattern, seen = stop_after(1)
    with pytest.raises(InputError, match="enough"):
        gather(pattern, EXAMPLES, cache=cache)
    del seen[:]
    gather(pattern, EXAMPLES, cache=cache, rebuild=True)
    assert sum(map(len, seen)) == 60


@pytest.mark.slow
def test_two_processes_at_once_build_once(cache, traces):
    both = [start(BUILD, cache, traces, 150, 1, 0.2) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [errors for _, errors in outputs] == ["", ""]
    assert sorted(output.splitlines()[-1] for output, _ in outputs) == ["built", "found"]
    assert worked(traces) == 150


def test_a_subset_is_the_examples_at_its_places_here_and_elsewhere(tmp_path):
    examples = [("w" * (number + 1) + " other",) for number in range(6)]  # each with spans of its own
    store = gather(PMI(minimum=1), examples, corpus=examples, cache=tmp_path)
    part = store.subset([4, 1, 2])
    for chosen in (part, pickle.loads(pickle.dumps(part)), part.subset([0, 1, 2])):
        assert len(chosen) == 3
        assert [matrix.spans.tolist() for matrix in chosen] == [store[place].spans.tolist() for place in (4, 1, 2)]
    assert part[-1].spans.tolist() == store[2].spans.tolist()
    assert [matrix.spans.tolist() for matrix in part[1:]] == [store[place].spans.tolist() for place in (1, 2)]
    assert part.subset([2, 0])[0].spans.tolist() == store[2].spans.tolist()
    with pytest.raises(IndexError):
        part[3]

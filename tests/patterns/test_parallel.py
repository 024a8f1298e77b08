"""Work in other processes: the same answers, errors as they were, and nothing sent twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from patterns.small_knowledge import count, sentences, wait_for

from headwise.errors import InputError, StateError
from headwise.patterns.parallel import Processes, apply, cores, cut

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def squared(number):
    return number * number, os.getpid()


def picky(number):
    if number == 3:
        raise InputError("no threes, please: use four.")
    return number


def suicidal(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


class Heavy:
    """Says how often it was pickled, and in a worker, how it lies in memory there, and how many threads there are."""

    pickled = 0

    def __init__(self, size):
        self.table = np.arange(size)
        self.words = {str(number): number for number in range(1000)}
        self.calls = 0

    def __getstate__(self):
        type(self).pickled += 1
        return vars(self)

    def __call__(self, number):
        self.calls += 1
        base = self.table
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap) and base.base is not None:
            base = base.base
        threads = {os.environ.get(name) for name in THREADS}
        return os.getpid(), self.calls, int(self.table[number]) + self.words[str(number)], type(base).__name__, threads


def test_a_single_item_is_done_here():
    assert list(apply(squared, [5], workers=4)) == [(25, os.getpid())]
    assert list(apply(squared, [], workers=4)) == []
    assert list(apply(squared, range(3), workers=1)) == [(number * number, os.getpid()) for number in range(3)]


def test_out_of_order_means_as_soon_as_done(tmp_path):
    mark = tmp_path / "last"

    def first_waits_for_last(number):
        if number == 3:
            mark.touch()
        return number, number > 0 or wait_for(mark.exists)

    assert list(apply(first_waits_for_last, range(4), workers=2, ordered=False))[-1] == (0, True)
    mark.unlink()
    assert list(apply(first_waits_for_last, range(4), workers=2)) == [(number, True) for number in range(4)]


@pytest.mark.slow
def test_a_worker_that_dies_is_a_clear_error():
    with pytest.raises(StateError, match="ended without a result.*finished parts are kept; use fewer"):
        list(apply(suicidal, range(8), workers=2))


def test_a_large_function_is_pickled_once_and_its_arrays_are_shared(monkeypatch):
    for name in THREADS:
        monkeypatch.setenv(name, "8")
    heavy = Heavy(1_000_000)  # 8 MB
    Heavy.pickled = 0
    answers = list(apply(heavy, range(40), workers=2))
    assert Heavy.pickled == 1
    assert [answer for _, _, answer, _, _ in answers] == [2 * number for number in range(40)]
    assert {base for *_, base, _ in answers} == {"memmap"}
    assert all(threads == {"1"} for *_, threads in answers)  # of a worker, whatever we have
    # The calls of each worker count up: it unpacked the function once.
    for process in {process for process, *_ in answers}:
        calls = sorted(calls for found, calls, *_ in answers if found == process)
        assert calls == list(range(1, len(calls) + 1))


def test_errors_come_out_as_they_were_and_a_function_that_cannot_travel_is_one(tmp_path):
    with pytest.raises(InputError, match=r"^no threes, please: use four\.$") as caught:
        list(apply(picky, range(8), workers=2))
    assert type(caught.value) is InputError
    with (tmp_path / "file").open("w") as file, pytest.raises(StateError, match="cannot be sent to other processes"):
        list(apply(lambda number: file, range(8), workers=2))


def test_parts_cover_everything_once():
    for total in (0, 1, 26, 5_000, 54_321):
        for most in (250, 2000):
            parts = cut(total, most)
            assert [number for part in parts for number in part] == list(range(total))
            assert max(map(len, parts), default=0) <= most
            assert len(parts) >= min(60, total // 25)


def test_spread_answers_by_part_in_order():
    examples = sentences(450)
    here, there = (list(Processes(workers)(list, examples)) for workers in (1, 2))
    assert len(there) > 2
    for parts in (here, there):
        assert [texts for part in parts for texts in part] == examples
    assert sum(Processes(2)(count, examples)) == count(examples)
    assert list(Processes(2)(count, [])) == []


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_only_the_cores_that_we_may_use_count():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.slow
def test_no_worker_outlives_its_process():
    program = (
        "import os, sys\nsys.path.insert(0, sys.argv[1])\n"
        "from patterns.test_parallel import squared\nfrom headwise.patterns.parallel import apply\n"
        "print(*{process for _, process in apply(squared, range(8), workers=2)})"
    )
    tests = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", program, tests], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    for process in map(int, done.stdout.split()):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)

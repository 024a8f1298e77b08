"""Pieces of work on several threads, on quiet cores and on crowded ones."""

import multiprocessing
import threading
import time
import warnings
from collections import Counter

import pytest
import torch

from headwise.attention import workers
from headwise.attention.workers import Crowding, alone_if_crowded, run_pieces


class CrowdedFromNowOn(Crowding):
    """Finds the cores crowded after the first piece that it looks at."""

    WINDOW = -1.0

    def measured(self, wall, processor, threads):
        return True


class NeverCrowded(Crowding):
    WINDOW = -1.0

    def measured(self, wall, processor, threads):
        return False


@pytest.fixture(params=[("quiet", 2), ("crowded in between", 2), ("deterministic", 3), ("quiet", 5)], ids=str)
def threads(request, monkeypatch):
    """So many of them, on cores that are like this; deterministic algorithms always use the pool."""
    cores, count = request.param
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    torch.use_deterministic_algorithms(cores == "deterministic")
    monkeypatch.setattr(workers, "_crowding", CrowdedFromNowOn() if cores == "crowded in between" else NeverCrowded())
    yield count
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(before)


def test_every_piece_is_done_once(threads):
    done = Counter()
    lock = threading.Lock()

    def work(piece):
        with lock:
            done[piece] += 1

    run_pieces(range(0), work)
    run_pieces(range(50), work)
    assert done == Counter(range(50))


def test_pieces_may_write_where_the_caller_may(threads):
    with torch.inference_mode():
        numbers = torch.zeros(8)
        run_pieces(range(8), lambda piece: numbers[piece : piece + 1].add_(piece))
    assert numbers.is_inference()
    assert numbers.tolist() == list(range(8))


def test_an_error_reaches_the_caller_and_the_threads_live_on(threads):
    def work(piece):
        if piece == 5:
            raise KeyError("piece five")

    with pytest.raises(KeyError, match="piece five"):
        run_pieces(range(8), work)
    done = []
    run_pieces(range(8), done.append)
    assert sorted(done) == list(range(8))


def test_the_thread_count_of_everybody_else_stays(threads):
    run_pieces(range(8), lambda piece: None)
    assert torch.get_num_threads() == threads
    seen = []
    newcomer = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    newcomer.start()
    newcomer.join()
    assert seen == [threads]


def test_no_gradients_are_recorded_in_the_pieces(threads):
    weight = torch.ones(1, requires_grad=True)
    results = []
    with torch.no_grad():
        run_pieces(range(4), lambda piece: results.append(weight * piece))
    assert len(results) == 4
    assert not any(result.requires_grad for result in results)


@pytest.mark.parametrize("threads", [("deterministic", 3)], indirect=True)
def test_the_pool_shares_pieces_among_threads_that_are_single_inside(threads):
    """Each thread waits for all others, so fewer threads than allowed would never finish."""
    together = threading.Barrier(threads, timeout=20)
    seen = []

    def work(piece):
        together.wait()
        seen.append((threading.get_ident(), torch.get_num_threads()))

    run_pieces(range(threads), work)
    assert len({thread for thread, _ in seen}) == threads
    assert {inside for _, inside in seen} == {1}


def test_several_threads_can_ask_at_once(threads):
    done = Counter()
    lock = threading.Lock()

    def work(piece):
        with lock:
            done[piece] += 1

    callers = [threading.Thread(target=run_pieces, args=(range(20), work)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert done == Counter({piece: 4 for piece in range(20)})


@pytest.mark.parametrize(("count", "crowded", "expected"), [(2, False, 2), (2, True, 1), (5, False, 1)])
def test_operations_are_split_only_on_few_quiet_cores(count, crowded, expected, monkeypatch):
    """On the pool torch has one thread inside a piece; without it, all of them."""
    monkeypatch.setattr(workers, "_crowding", NeverCrowded())
    monkeypatch.setattr(NeverCrowded, "assumed", lambda self: crowded)
    before, inside = torch.get_num_threads(), []
    torch.set_num_threads(count)
    try:
        run_pieces(range(6), lambda piece: inside.append(torch.get_num_threads()))
    finally:
        torch.set_num_threads(before)
    assert inside == [expected] * 6


@pytest.mark.parametrize(("crowded", "deterministic", "expected"), [(0, 0, 2), (1, 0, 1), (1, 1, 2)])
def test_a_block_takes_one_thread_on_crowded_cores_and_gives_the_others_back(
    crowded, deterministic, expected, monkeypatch
):
    """Not with deterministic algorithms, whose results must not depend on the load."""
    monkeypatch.setattr(workers, "_crowding", NeverCrowded())
    monkeypatch.setattr(NeverCrowded, "assumed", lambda self: bool(crowded))
    before, inside = torch.get_num_threads(), []
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(bool(deterministic))
    try:
        with pytest.raises(KeyError), alone_if_crowded():
            raise KeyError(inside.append(torch.get_num_threads()))
        assert (inside, torch.get_num_threads()) == ([expected], 2)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(before)


def test_a_block_that_waits_for_its_core_shows_that_the_cores_are_crowded(monkeypatch):
    crowding = settled()
    monkeypatch.setattr(workers, "_crowding", crowding)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with alone_if_crowded():
            time.sleep(2 * Crowding.WINDOW)  # as if other programs had the core
        with alone_if_crowded():
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def in_a_child(queue):
    done = []
    run_pieces(range(8), done.append)
    queue.put(sorted(done))


@pytest.mark.parametrize("threads", [("deterministic", 3)], indirect=True)
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_the_threads_are_made_again_after_a_fork(threads):
    run_pieces(range(8), lambda piece: None)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_a_child, args=(queue,), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks among threads: our point
        child.start()
    assert queue.get(timeout=20) == list(range(8))
    child.join(20)
    assert child.exitcode == 0


# -- crowding ----------------------------------------------------------------------------------------------------

FULL, HALF = (1.0, 2.0, 2), (1.0, 1.0, 2)  # wall and processor seconds, threads


def settled():
    """One that has seen its first runs."""
    crowding = Crowding()
    for _ in range(Crowding.GRACE + 1):
        assert not crowding.assumed()
    return crowding


def believed_for(crowding):
    """For how many runs it takes the cores for crowded from now on."""
    count = 0
    while crowding.assumed():
        count += 1
        assert count <= Crowding.PATIENCE[1]
    return count


def test_quiet_cores_are_not_taken_for_crowded():
    crowding = settled()
    assert not crowding.measured(*FULL)
    assert not crowding.measured(1.0, 2 * Crowding.SHARE, 2)
    assert not crowding.assumed()


def test_the_first_runs_are_not_judged():
    crowding = Crowding()
    crowding.assumed()
    assert not crowding.measured(*HALF)


def test_crowding_is_believed_longer_each_time_and_forgotten_in_the_end():
    crowding = settled()
    shortest, longest = Crowding.PATIENCE
    lasting = []
    for _ in range(12):
        assert crowding.measured(*HALF)
        lasting.append(believed_for(crowding))
    assert lasting[0] == pytest.approx(shortest, abs=1)
    assert lasting[1] == pytest.approx(2 * shortest, abs=1)
    assert max(lasting) == lasting[-1] == pytest.approx(longest, abs=1)
    assert not crowding.measured(*FULL)
    assert crowding.measured(*HALF)
    assert believed_for(crowding) == lasting[0]

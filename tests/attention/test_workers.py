"""Pieces of work on several threads."""

import multiprocessing
import threading
import warnings
from collections import Counter

import pytest
import torch

from headwise.attention.workers import run_pieces


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_every_piece_is_done_once(threads, count):
    done = Counter()
    run_pieces(range(count), lambda piece: done.update([piece]))
    assert done == Counter(range(count))


def test_pieces_are_shared_out_among_threads_that_are_single_inside(threads):
    """Each thread waits for all others, so fewer threads than allowed would never finish."""
    together = threading.Barrier(threads, timeout=20)
    seen = []

    def work(piece):
        together.wait()
        seen.append((threading.get_ident(), torch.get_num_threads()))

    run_pieces(range(threads), work)
    assert len({thread for thread, _ in seen}) == threads
    assert {inside for _, inside in seen} == {1}


def test_no_gradients_are_recorded_in_the_pieces(threads):
    weight = torch.ones(1, requires_grad=True)
    results = []
    with torch.no_grad():
        run_pieces(range(4), lambda piece: results.append(weight * piece))
    assert not any(result.requires_grad for result in results)


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


def test_the_thread_count_can_be_changed_in_between(threads):
    for count in (threads + 1, threads):
        torch.set_num_threads(count)
        together = threading.Barrier(count, timeout=20)
        run_pieces(range(count), lambda piece, together=together: together.wait())
        assert torch.get_num_threads() == count


def test_several_threads_can_ask_at_once(threads):
    done = Counter()
    lock = threading.Lock()

    def work(piece):
        with lock:
            done.update([piece])

    callers = [threading.Thread(target=run_pieces, args=(range(20), work)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert done == Counter({piece: 4 for piece in range(20)})


def in_a_child(queue):
    done = []
    run_pieces(range(8), done.append)
    queue.put(sorted(done))


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

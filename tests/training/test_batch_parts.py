"""The part of each process in a batch."""

from hypothesis import given
from hypothesis import strategies as st

from headwise.training.trainer import PartOfBatches


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 5))
def test_processes_share_every_batch(sizes, processes):
    batches = [list(range(100 * number, 100 * number + size)) for number, size in enumerate(sizes)]
    parts = [list(PartOfBatches(batches, rank, processes)) for rank in range(processes)]
    assert {len(part) for part in parts} == {len(batches)}
    for number, batch in enumerate(batches):
        mine = [part[number] for part in parts]
        assert set().union(*map(set, mine)) == set(batch)
        if len(batch) >= processes:  # nothing twice, and sizes differ by one at most
            assert sorted(sum(mine, [])) == batch
            assert max(map(len, mine)) - min(map(len, mine)) <= 1
        else:  # all take the same steps, so some repeat the first example
            assert all(part in ([batch[0]], [batch[rank]]) for rank, part in enumerate(mine) if rank < len(batch))
            assert all(part == [batch[0]] for part in mine[len(batch) :])

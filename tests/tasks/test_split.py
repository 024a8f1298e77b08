import pytest

from headwise.data import Split
from headwise.errors import InputError

SPLIT = Split((("a",), ("b",), ("c",)), (0, 1, None), (((0, 0, 1),), (), ((0, 1, 2),)))


def test_subset_keeps_order_and_spans():
    part = SPLIT.subset([2, 0])
    assert part == Split((("c",), ("a",)), (None, 0), (((0, 1, 2),), ((0, 0, 1),)))
    assert len(part) == 2
    assert Split((("a",),), (1,)).subset([0, 0]).spans is None


def test_labelled():
    assert not SPLIT.labelled
    assert SPLIT.subset([0, 1]).labelled


@pytest.mark.parametrize("parts", [((("a",),), ()), ((("a",),), (1,), ())])
def test_parts_of_different_lengths(parts):
    with pytest.raises(InputError, match="as many of each"):
        Split(*parts)

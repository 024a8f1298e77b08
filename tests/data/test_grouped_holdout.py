"""Whole groups: which texts are equal, and which groups come nearest to a number of examples."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.data import Split, grouped_holdout
from headwise.data.grouped_holdout import hold_out_groups, text_groups
from headwise.errors import InputError


def test_texts_that_look_the_same_are_one_group():
    texts = [("Café  au lait", "x"), ("tea", "X"), ("CAFE\u0301 au\tLait ", "y"), ("Cafe au lait", "x ")]
    split = Split(tuple(texts), (0, 1, 0, 1))
    assert text_groups(split, "text1") == [[0, 2], [1], [3]]
    assert text_groups(split, "text2") == [[0, 1, 3], [2]]


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.floats(0.01, 0.99))
def test_no_other_choice_is_nearer(sizes, fraction):
    target = fraction * sum(sizes)
    held = hold_out_groups(sizes, target)
    assert 0 < len(set(held)) == len(held) < len(sizes)
    totals = [sum(each) for count in range(1, len(sizes)) for each in combinations(sizes, count)]
    nearest = min(abs(total - target) for total in totals)
    assert abs(sum(sizes[index] for index in held) - target) == pytest.approx(nearest)


def test_groups_of_equal_size_are_taken_from_the_start():
    assert hold_out_groups([2] * 10, 6) == [0, 1, 2]
    assert hold_out_groups([2] * 10, 5) == [0, 1]  # 4 and 6 are equally near
    assert hold_out_groups([50, 10], 30) == [1]
    assert hold_out_groups([5, 1, 1, 9], 6) == [0, 1]


@given(st.lists(st.integers(1, 5), min_size=20, max_size=60), st.floats(0.3, 0.9))
def test_with_little_memory_the_first_groups_are_taken_without_a_search(sizes, fraction):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped_holdout, "MOST_BITS", 1)
        held = hold_out_groups(sizes, fraction * sum(sizes))
    assert 0 < len(set(held)) == len(held) < len(sizes)
    assert abs(sum(sizes[index] for index in held) - fraction * sum(sizes)) <= max(sizes) / 2 + 1e-9
    assert held[0] == 0


def test_one_group_is_refused():
    with pytest.raises(InputError, match="expected two or more, got 1"):
        hold_out_groups([5], 2)

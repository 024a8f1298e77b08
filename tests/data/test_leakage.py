"""Duplicates, leaks and near-duplicates, against comparing every example with every other."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.data import near_duplicates as module
from headwise.data.checked_files import DataFile
from headwise.data.examples import Examples
from headwise.data.leakage import find_duplicates, find_leaks
from headwise.data.near_duplicates import SimilarSets, near_duplicates, similarity, word_stretches


def data_file(name, texts, labels=None):
    labels = [None] * len(texts) if labels is None else labels
    examples = Examples(f"{name}.tsv", "line", texts=list(texts), lines=list(range(2, len(texts) + 2)))
    return DataFile(name, name, f"{name}.tsv", examples, tuple(labels))


def numbers(repeats):
    return [tuple(position.number for position in positions) for positions in repeats.examples]


# Few texts, some of which are the same but for case and white space, so that everything happens.
TEXTS = ["a", "A ", "b", "c", " c"]
PAIRS = st.lists(st.tuples(*[st.sampled_from(TEXTS)] * 2), min_size=1, max_size=12)
LABELS = st.lists(st.sampled_from([None, 0, 1]), min_size=12, max_size=12)


def plain(texts):
    return tuple(text.strip().lower() for text in texts)


@given(PAIRS, LABELS)
def test_duplicates_are_those_of_a_slow_search(pairs, labels):
    labels = labels[: len(pairs)]
    keys = [plain(pair) for pair in pairs]
    before = [keys[:index] for index in range(len(keys))]
    found = find_duplicates(data_file("train", pairs, labels), tolerance=0.0)
    assert found.repeated.count == sum(key in earlier for key, earlier in zip(keys, before, strict=True))
    assert found.identical.count == sum(first == second for first, second in keys)
    assert found.swapped.count == sum(
        key[0] != key[1] and key[::-1] in earlier for key, earlier in zip(keys, before, strict=True)
    )
    said = {key: {label for other, label in zip(keys, labels, strict=True) if other == key} - {None} for key in keys}
    assert found.contradicting.count == sum(len(each) > 1 for each in said.values())
    for indices in numbers(found.contradicting):
        first, second = (index - 2 for index in indices)
        assert keys[first] == keys[second]
        assert {labels[first], labels[second]} == {0, 1}


def test_where_duplicates_are():
    pairs = [("a", "b"), ("b", "a"), ("A", " b"), ("c", "c"), ("a", "b")]
    found = find_duplicates(data_file("train", pairs, [0, 0, 1, 0, 0]), tolerance=0.0)
    assert numbers(found.repeated) == [(2, 4), (2, 6)]
    assert numbers(found.contradicting) == [(2, 4)]
    assert numbers(found.swapped) == [(2, 3), (3, 4), (3, 6)]
    assert numbers(found.identical) == [(5,)]
    assert str(found.repeated.examples[0][0]) == "train line 2"
    found = find_duplicates(data_file("train", [("a",), ("a",)], [0, 1]), tolerance=0.0)
    assert (found.repeated.count, found.contradicting.count) == (1, 1)
    assert found.identical is found.swapped is None


def test_numbers_contradict_each_other_beyond_a_tolerance():
    texts = [("a",), ("a",), ("b",), ("b",), ("b",)]
    file = data_file("train", texts, [1.0, 1.4, 2.0, 2.3, 2.6])
    assert numbers(find_duplicates(file, tolerance=0.5).contradicting) == [(4, 6)]
    assert find_duplicates(file, tolerance=0.7).contradicting.count == 0


@given(PAIRS, PAIRS, LABELS, LABELS)
def test_leaks_are_those_of_a_slow_search(first, second, before, after):
    before, after = before[: len(first)], after[: len(second)]
    train, test = data_file("train", first, before), data_file("test", second, after)
    (leak,) = find_leaks([train, test], ("one", "two"), 0.0)
    known, new = [plain(pair) for pair in first], [plain(pair) for pair in second]
    exact = [index for index, key in enumerate(new) if key in known]
    assert (leak.exact.count, leak.exact.share) == (len(exact), len(exact) / len(new))
    assert leak.swapped.count == sum(key not in known and key[::-1] in known for key in new)
    for index, name in enumerate(("one", "two")):
        there = {key[index] for key in known}
        assert leak.texts[name].count == sum(key[index] in there for key in new)
    both = [(before[known.index(new[index])], after[index]) for index in exact]
    both = [pair for pair in both if None not in pair]
    assert leak.exact.same_label == (sum(one == other for one, other in both) / len(both) if both else None)


def test_every_file_is_compared_with_every_later_one():
    files = [data_file(name, [(text,)]) for name, text in (("train", "x"), ("validation", "y"), ("test", "X"))]
    leaks = find_leaks(files, ("text",), 0.0)
    assert [(leak.first, leak.second, leak.exact.count) for leak in leaks] == [
        ("train", "validation", 0),
        ("train", "test", 1),
        ("validation", "test", 0),
    ]
    assert leaks[1].texts is leaks[1].swapped is None
    (match,) = leaks[1].exact.examples
    assert (str(match.first), str(match.second), match.similarity) == ("train line 2", "test line 2", 1.0)


# -- near-duplicates ---------------------------------------------------------------------------------------------------


def slow_similarity(first, second):
    """Word by word, as the page says it."""
    values = []
    for one, other in zip(first, second, strict=True):
        sets = []
        for text in (one, other):
            cut = text.split()
            sets.append({tuple(cut[at : at + 3]) for at in range(len(cut) - 2)} if len(cut) > 2 else {tuple(cut)})
        values.append(len(sets[0] & sets[1]) / len(sets[0] | sets[1]))
    return min(values)


def sentences(chance, count, texts):
    words = "red green blue old new big".split()
    return [tuple(" ".join(chance.choices(words, k=chance.randint(1, 7))) for _ in range(texts)) for _ in range(count)]


@pytest.mark.parametrize(("sizes", "texts", "threshold"), [((60, 25), 1, 0.7), ((25, 60), 2, 0.2), ((60, 25), 2, 0.5)])
def test_near_duplicates_are_those_of_a_slow_search(sizes, texts, threshold):
    chance = random.Random(f"{sizes} {texts} {threshold}")
    first, second = (sentences(chance, size, texts) for size in sizes)
    # Rewordings of what is there, in which one word differs.
    second[:5] = [tuple(f"{text} indeed" for text in example) for example in first[:5]]
    slow = {
        index: {other for other, texts in enumerate(first) if slow_similarity(texts, example) >= threshold}
        for index, example in enumerate(second)
    }
    found = near_duplicates(first, second, threshold=threshold)
    assert found.complete
    assert sorted(found.matches) == [index for index, others in slow.items() if others]
    for index, (other, alike) in found.matches.items():
        assert other in slow[index]
        assert alike == pytest.approx(slow_similarity(first[other], second[index]))


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), min_size=1, max_size=15), st.data())
def test_whoever_is_similar_enough_is_met(texts, data):
    examples = [word_stretches([" ".join(words)]) for words in texts]
    new = data.draw(st.sampled_from(examples))
    threshold = data.draw(st.floats(0.05, 1.0))
    slow = {index for index, each in enumerate(examples) if similarity(new, each) >= threshold}
    assert {index for index, _ in SimilarSets(examples, threshold).search(new)} == slow


def test_which_examples_are_near_duplicates():
    # A long premise does not.
    premise = "the old man with the red hat sat down beside the river and looked at the boats for a long time"
    first, second = (premise, "a man sits near a river"), (premise, "somebody is swimming in the sea")
    assert similarity(word_stretches(first), word_stretches(second)) == 0
    assert near_duplicates([first], [second]).matches == {}
    # Case and punctuation are no difference, and signs without blanks are words.
    assert near_duplicates([("A man, sleeping ...",)], [("a man sleeping!",)]).matches == {0: (0, 1.0)}
    assert near_duplicates([("?!",)], [("?!",), ("!!",)]).matches == {0: (0, 1.0)}
    first, second = "男人正在街上骑自行车回家", "男人正在街上骑自行车回去"
    assert list(near_duplicates([(first,)], [(second,)], threshold=0.6).matches) == [0]
    assert near_duplicates([(first,)], [("女孩们在公园里唱歌跳舞",)], threshold=0.1).matches == {}


def test_exact_ones_are_not_near_ones_as_well():
    train = data_file("train", [("the old man sleeps here",)] * 2, [0, 1])
    texts = [("The old man sleeps here",), ("the old man sleeps here .",), ("a young cat",)]
    (leak,) = find_leaks([train, data_file("test", texts, [0, 1, 0])], ("text",), 0.0)
    assert (leak.exact.count, leak.near.count) == (1, 1)
    (match,) = leak.near.examples
    assert (match.first.number, match.second.number) == (2, 3)
    assert (leak.exact.same_label, leak.near.same_label) == (1.0, 0.0)
    # The most similar are shown first.
    words = [f"w{number}" for number in range(30)]
    train = data_file("train", [(" ".join(words),)])
    texts = [(" ".join(words[start:]),) for start in (5, 1, 3, 2, 4)]
    (leak,) = find_leaks([train, data_file("test", texts)], ("text",), 0.0)
    assert leak.near.count == 5
    assert [match.second.number for match in leak.near.examples] == [3, 5, 4]


def test_the_search_is_limited_in_files_that_repeat_themselves(monkeypatch):
    template = "the patient with number {} has a high fever and a bad cough and was seen by the doctor again today"
    first, second = ([(template.format(number),) for number in range(start, start + 60)] for start in (0, 60))
    monkeypatch.setattr(module, "LIMIT", 20)
    calls = []
    counted = module.similarity
    monkeypatch.setattr(module, "similarity", lambda one, other: calls.append(1) or counted(one, other))
    found = near_duplicates(first, second)
    assert len(found.matches) == 60
    assert found.complete  # nobody is left to be found
    assert len(calls) < 200 < 60 * 60
    # Where candidates are left that nobody looked at, it says so.
    different = [(f"{text} {number} {number + 1}",) for number, (text,) in enumerate(second)]
    assert not near_duplicates(first, [*second, *different, ("else",)], threshold=0.75).complete


def test_labels_of_both_sides_meet():
    pairs = list(product("ab", "cd"))
    train = data_file("train", pairs, [0.0, 1.0, 2.0, None])
    test = data_file("test", pairs, [0.05, 2.0, 2.0, 1.0])
    (leak,) = find_leaks([train, test], ("one", "two"), 0.1)
    assert leak.exact.count == 4
    assert leak.exact.same_label == pytest.approx(2 / 3)

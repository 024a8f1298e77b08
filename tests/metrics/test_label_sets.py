"""Several labels for an example: entities as seqeval finds them, and sets of classes."""

import random

import numpy
import pytest

from headwise.errors import InputError
from headwise.metrics.label_sets import entities, in_sentences, score_sets, score_words


def slow_entities(tags):
    """The rules of seqeval 1.2.2 (get_entities), written out."""
    found, before, kind_before, begin = [], "O", "", 0
    for position, text in enumerate([*tags, "O"]):
        tag, _, kind = text.partition("-")
        pairs = ("BB", "BS", "BO", "IB", "IS", "IO")
        ends = before in ("E", "S") or before + tag in pairs or (before != "O" and kind != kind_before)
        starts = tag in ("B", "S") or before + tag in ("EE", "EI", "SE", "SI", "OE", "OI")
        starts = starts or (tag != "O" and kind != kind_before)
        if ends:
            found.append((kind_before, begin, position - 1))
        if starts:
            begin = position
        before, kind_before = tag, kind
    return found


def test_entities_are_those_of_seqeval():
    chance, tags = random.Random(3), ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC"))]
    for _ in range(3000):
        sentence = chance.choices(tags, k=chance.randint(0, 7))
        assert entities(sentence) == slow_entities(sentence), sentence


def test_tags_without_prefix():
    assert entities(["O", "PER", "PER", "LOC", "O", "LOC"]) == [("PER", 1, 2), ("LOC", 3, 3), ("LOC", 5, 5)]


def test_scores_by_hand():
    true = [["B-PER", "I-PER", "O", "B-LOC"], ["O"]]
    guessed = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC"]]  # one of three right, one of two found
    names = ("entity_precision", "entity_recall", "entity_f1", "word_accuracy")
    assert score_words(names, guessed, true) == pytest.approx(dict(zip(names, (1 / 3, 1 / 2, 0.4, 0.6), strict=True)))
    assert score_words(["entity_f1"], [["O"]], [["O"]]) == {"entity_f1": 0.0}
    assert in_sentences("abcde", [4, 1]) == [["a", "b", "c", "d"], ["e"]]
    with pytest.raises(InputError, match="as many"):
        score_words(["entity_f1"], [["O", "O"]], [["O"]])


def test_sets_by_hand():
    labels = numpy.array([[1, 0, 1], [0, 0, 0], [1, 1, 0]])
    guessed = numpy.array([[1, 0, 0], [0, 0, 0], [1, 0, 1]])
    scores = score_sets(("micro_f1", "macro_f1", "exact_match"), guessed, labels)
    # Class by class: 2 hits of 2 and 2, 0 of 0 and 1, 0 of 1 and 1.
    assert scores == pytest.approx({"micro_f1": 2 * 2 / (3 + 4), "macro_f1": 1 / 3, "exact_match": 1 / 3})

"""The generated task `course`: one sentence of each note decides, and nothing else does."""

from collections import Counter

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from headwise.data import build_task
from headwise.data.clinic.generator import load_yaml
from headwise.errors import InputError

SPLITS = ("train", "validation", "test")
PHRASES = load_yaml("course.yaml")


def notes(split, seed=0, size=400):
    return build_task("course", {"seed": seed, "sizes": {split: size}}).read(split)


def plain(phrase):
    return phrase.replace("[", "").replace("]", "")


@pytest.mark.parametrize("split", SPLITS)
def test_one_sentence_decides_and_the_span_is_in_it(split):
    phrases = {label: [plain(each) for each in PHRASES[split][label]] for label in ("better", "worse")}
    marked = {each.partition("[")[2].partition("]")[0] for part in PHRASES[split].values() for each in part}
    part = notes(split)
    assert Counter(part.labels) == {0: 200, 1: 200}
    assert len(set(part.texts)) == 400
    for (text,), label, spans in zip(part.texts, part.labels, part.spans, strict=True):
        said = [name for name, each in phrases.items() for phrase in each if f"patient {phrase}." in text]
        assert said == [("better", "worse")[label]]
        ((source, start, end),) = spans
        assert source == 0
        assert text[start:end] in marked
        assert 3 <= len([each for each in text.split(".") if each.strip()]) <= 5


def test_no_phrase_is_in_two_splits_or_under_both_labels():
    every = [plain(each) for split in SPLITS for part in PHRASES[split].values() for each in part]
    assert len(set(every)) == len(every)


def test_without_the_deciding_sentence_nothing_is_known():
    """A bag of words of the other sentences learns the label of new notes no better than chance."""
    rest = {}
    for split in ("train", "test"):
        part = notes(split, size=1000)
        found = []
        for (text,), ((_, start, end),) in zip(part.texts, part.spans, strict=True):
            first = text.rfind(". ", 0, start) + 2 if ". " in text[:start] else 0
            found.append(text[:first] + text[text.index(".", end) + 1 :])
        rest[split] = (found, part.labels)
    words = CountVectorizer()
    model = LogisticRegression(max_iter=1000).fit(words.fit_transform(rest["train"][0]), rest["train"][1])
    score = model.score(words.transform(rest["test"][0]), rest["test"][1])
    assert abs(score - 0.5) < 0.06  # 4 standard errors


def test_more_notes_continue_fewer_and_seeds_differ():
    assert notes("train", size=50).texts == notes("train").texts[:50]
    assert not set(notes("train", seed=1).texts) & set(notes("train").texts)


def test_options_are_checked():
    with pytest.raises(InputError, match="unknown option 'files' of task course"):
        build_task("course", {"files": {}})
    with pytest.raises(InputError, match="task course has no split 'tests'"):
        build_task("course", {}).read("tests")

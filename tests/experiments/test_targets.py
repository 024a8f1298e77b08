"""Guides that look for tokens of a kind: in how many training examples there are any."""

import pytest

from headwise.data import Split, encode
from headwise.experiments.gather_knowledge import count_targets
from headwise.training import Silence
from headwise.training.encoders import find_encoder

TEXTS = (("one.", "two"), ("three", "four"), ("five. six.", "seven."))


class Listening(Silence):
    def __init__(self):
        self.told = []

    def log(self, message):
        self.told.append(message)


@pytest.fixture(scope="module")
def tokenizer():
    return find_encoder("builtin:minilm-l6").tokenizer


def counted(tokenizer, guides, texts=TEXTS):
    listener = Listening()
    encoded = encode(Split(texts, (0,) * len(texts)), tokenizer, 32)
    return count_targets(guides, encoded, tokenizer, listener), listener.told


def test_examples_are_counted_not_tokens(tokenizer):
    guides = {"period": {}, "delim": {}, "next": {}, "mdg": {}, "match": {"pattern": "period"}}
    assert counted(tokenizer, guides) == ({"period": 2, "delim": 3, "match": 2}, [])
    assert counted(tokenizer, {}) == ({}, [])


def test_few_are_told_and_none_is_refused(tokenizer):
    counts, told = counted(tokenizer, {"period": {}}, (*TEXTS[:1], *TEXTS[1:2] * 10))
    assert counts == {"period": 1}
    assert told == ["guide period: only 1 of 11 training examples have a full-stop token"]
    with pytest.raises(ValueError, match="guide period: none of the 2 training examples has a full-stop token"):
        counted(tokenizer, {"period": {}}, TEXTS[1:2] * 2)

"""What guides know from a tokenizer, and what they do where there is none."""

from importlib import import_module
from types import SimpleNamespace

import pytest
from conftest import build_batch, build_model
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import headwise as hw
from headwise.errors import InputError
from headwise.guides.guidance import Vocabulary

WORDS = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", ".", "##.", "heart", "lung"]


def tokenizer(words=WORDS, **names):
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]")),
        **{"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", **names},
    )


def test_special_tokens_and_kinds_are_known():
    vocabulary = Vocabulary.of(tokenizer())
    assert vocabulary.special_ids == (1, 2, 3)
    assert vocabulary.ids == {"separator": (3,), "full-stop": (4, 5)}
    # The end of the text separates where nothing else does.
    assert Vocabulary.of(tokenizer(sep_token=None, eos_token="[SEP]")).ids["separator"] == (3,)
    # Anything with all_special_ids will do where no kinds are needed.
    assert Vocabulary.of(SimpleNamespace(all_special_ids=[3, 2, 3])).special_ids == (2, 3)


@pytest.mark.parametrize("given", ["bert-base-uncased", SimpleNamespace()])
def test_what_is_no_tokenizer_is_refused(given):
    with pytest.raises(InputError, match="expected a tokenizer of transformers"):
        Vocabulary.of(given)


def test_a_guide_whose_tokens_are_missing_is_refused():
    without_stops = tokenizer([word for word in WORDS if "." not in word])
    with pytest.raises(InputError, match="guide match does not know the separator tokens: pass tokenizer="):
        hw.guide(build_model("bert"), hw.Match("delim"))
    with pytest.raises(InputError, match="guide match-2 needs a full-stop token, and .*Tokenizer.* has none: leave"):
        hw.guide(build_model("bert"), hw.Match("delim") + hw.Match("period"), tokenizer=without_stops)
    hw.guide(build_model("bert"), hw.Match("delim") + hw.Match("next"), tokenizer=without_stops)


def test_marks_that_no_guide_needs_are_not_computed(monkeypatch):
    """A guide that does not count at a step needs nothing."""
    fixed = import_module("headwise.patterns.fixed")
    kinds, find = [], fixed.find_marks
    monkeypatch.setattr(fixed, "find_marks", lambda ids, known, names: kinds.append(names) or find(ids, known, names))
    guides = hw.Match("delim", weight=1.0) + hw.Match("period", weight=0.0) + hw.MDG()
    model = hw.guide(build_model("bert").train(), guides, tokenizer=tokenizer())
    model(**build_batch())
    assert kinds == [["separator"]]


def test_embeddings_instead_of_ids_leave_separators_unknown():
    model = hw.guide(build_model("bert").train(), hw.Match("delim"), tokenizer=tokenizer())
    batch = build_batch()
    embeddings = model.get_input_embeddings()(batch.pop("input_ids"))
    with pytest.raises(InputError, match="pattern delim does not know which tokens are a separator"):
        model(inputs_embeds=embeddings, **batch)

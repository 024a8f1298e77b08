"""What a tokenizer tells guides, and what they do where there is none."""

from types import SimpleNamespace

import pytest
import torch
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


IDS = torch.tensor([[2, 6, 4, 3, 7, 5, 3, 1]])


def test_special_tokens_and_kinds_are_known():
    vocabulary = Vocabulary.of(tokenizer())
    assert vocabulary.special_ids == (1, 2, 3)
    assert vocabulary.ids == {"separator": (3,), "full-stop": (4, 5)}
    assert vocabulary.special(IDS).tolist() == [[True, False, False, True, False, False, True, True]]
    marks = vocabulary.marks(IDS, ["separator", "full-stop"])
    assert marks["separator"].nonzero()[:, 1].tolist() == [3, 6]
    assert marks["full-stop"].nonzero()[:, 1].tolist() == [2, 5]


def test_only_the_requested_kinds_are_computed():
    vocabulary = Vocabulary.of(tokenizer())
    assert list(vocabulary.marks(IDS, ["full-stop"])) == ["full-stop"]
    assert vocabulary.marks(IDS, []) == {}


def test_the_end_of_the_text_separates_where_nothing_else_does():
    assert Vocabulary.of(tokenizer(sep_token=None, eos_token="[SEP]")).ids["separator"] == (3,)


def test_without_a_tokenizer_nothing_is_known():
    vocabulary = Vocabulary.of(None)
    assert vocabulary == Vocabulary()
    assert vocabulary.special(IDS) is None
    assert vocabulary.marks(IDS, ["separator"]) == {}
    vocabulary.check("next", [])
    with pytest.raises(InputError, match="guide delim does not know the separator tokens: pass tokenizer="):
        vocabulary.check("delim", ["separator"])


@pytest.mark.parametrize("given", ["bert-base-uncased", SimpleNamespace()])
def test_what_is_no_tokenizer_is_refused(given):
    with pytest.raises(InputError, match="expected a tokenizer of transformers"):
        Vocabulary.of(given)


def test_without_ids_nothing_is_known():
    vocabulary = Vocabulary.of(tokenizer())
    assert vocabulary.special(None) is None
    assert vocabulary.marks(None, ["separator"]) == {}


def test_special_ids_alone_are_something():
    """Anything with all_special_ids will do where no kinds are asked for."""
    vocabulary = Vocabulary.of(SimpleNamespace(all_special_ids=[3, 2, 3]))
    assert vocabulary.special_ids == (2, 3)
    assert vocabulary.special(IDS).sum() == 3
    assert Vocabulary.of(SimpleNamespace(all_special_ids=[])).special(IDS).sum() == 0


def test_a_guide_whose_tokens_are_missing_is_refused():
    vocabulary = Vocabulary.of(tokenizer([word for word in WORDS if "." not in word]))
    with pytest.raises(InputError, match="guide period-2 needs a full-stop token, and .*Tokenizer.* has none: leave"):
        vocabulary.check("period-2", ["separator", "full-stop"])
    vocabulary.check("delim", ["separator"])
    vocabulary.check("mdg", [])


def test_marks_that_no_guide_needs_are_not_computed(monkeypatch):
    """A guide that does not count at a step asks for nothing."""
    asked = []
    marks = Vocabulary.marks
    monkeypatch.setattr(
        Vocabulary, "marks", lambda self, ids, wanted: asked.append(list(wanted)) or marks(self, ids, wanted)
    )
    guides = hw.Match("delim", weight=1.0) + hw.Match("period", weight=0.0) + hw.MDG()
    model = hw.guide(build_model("bert").train(), guides, tokenizer=tokenizer())
    model(**build_batch())
    assert asked == [["separator"]]


def test_embeddings_instead_of_ids_leave_separators_unknown():
    model = hw.guide(build_model("bert").train(), hw.Match("delim"), tokenizer=tokenizer())
    batch = build_batch()
    embeddings = model.get_input_embeddings()(batch.pop("input_ids"))
    with pytest.raises(InputError, match="pattern delim cannot tell which tokens are a separator"):
        model(inputs_embeds=embeddings, **batch)

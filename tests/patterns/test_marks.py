"""Separators and full stops, told by real tokenizers of every kind."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from headwise.patterns import Delim, Period, Tokens, find_marks, mark_ids
from headwise.patterns.fixed import STOPS
from headwise.training.encoders import builtin_folder

TEXTS = [
    "The patient slept . He was well. Dr. Who gave 3.5 mg, he said... (twice.)",
    "A man walks. A dog runs. The end .",
    "彼は寝た。犬は走る。終わり．はい｡",
] * 4
PAIR = ("The man sleeps. He is well.", "A dog runs 3.5 miles.")


def wordpiece(**changes):
    """BERT's kind: [CLS] A [SEP] B [SEP]."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(special_tokens=special, vocab_size=200, show_progress=False)
    )
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", **changes}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def byte_level():
    """RoBERTa's kind: <s> A </s></s> B </s>, without token types."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        special_tokens=special, vocab_size=360, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"},
        **{"pad_token": "<pad>", "unk_token": "<unk>"},
        model_input_names=["input_ids", "attention_mask"],
    )


def unigram(pair="<s> $A </s> </s> $B </s>", **names):
    """SentencePiece: XLM-R by default."""
    pieces = ["▁", ".", "▁.", "。", "▁。", "...", "▁...", *"abcdefghijklmnopqrstuvwxyz,0123456789"]
    special = ["<s>", "<pad>", "</s>", "<unk>", "[CLS]", "[SEP]"]
    entries = [(piece, 0.0) for piece in special] + [(piece, -2.0 - 0.01 * n) for n, piece in enumerate(pieces)]
    backend = Tokenizer(models.Unigram(entries, unk_id=3))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    special_tokens = [(piece, number) for number, piece in enumerate(special)]
    backend.post_processor = processors.TemplateProcessing(
        single=pair.split("$A")[0] + "$A " + pair.split()[-1], pair=pair, special_tokens=special_tokens
    )
    names = names or {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", **names)


def albert():
    names = {"bos_token": "[CLS]", "eos_token": "[SEP]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return unigram("[CLS] $A [SEP] $B [SEP]", **names)


def eos_only():
    """T5's kind knows no separator, only an end."""
    return unigram("$A </s> $B </s>", eos_token="</s>")


KINDS = {
    "wordpiece": wordpiece,
    "byte-level": byte_level,
    "xlm-r": unigram,
    "albert": albert,
    "eos only": eos_only,
    "minilm": lambda: AutoTokenizer.from_pretrained(builtin_folder("builtin:minilm-l6")),
}
# How many separators an example of one text and of two texts has.
SEPARATORS = {"wordpiece": (1, 2), "byte-level": (1, 3), "xlm-r": (1, 3), "albert": (1, 2), "eos only": (1, 2)}


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


# -- separators --------------------------------------------------------------------------------------------------------


def test_separators_of_one_text_and_of_a_pair(kind, tokenizer):
    single, pair = SEPARATORS.get(kind, (1, 2))
    name = tokenizer.sep_token or tokenizer.eos_token
    for texts, count in (((PAIR[0],), single), (PAIR, pair)):
        tokens, places = marked(tokenizer, *texts)
        assert places["separator"] == [place for place, token in enumerate(tokens) if token == name]
        assert len(places["separator"]) == count
        assert places["separator"][-1] == len(tokens) - 1


def test_the_first_token_and_the_padding_are_no_separators(kind, tokenizer):
    ids = tokenizer([PAIR[0], "a dog"], padding=True, return_tensors="pt")
    found = find_marks(ids["input_ids"], mark_ids(tokenizer), ["separator"])["separator"]
    assert found.sum(1).tolist() == [SEPARATORS.get(kind, (1, 2))[0]] * 2
    assert not found[ids["attention_mask"] == 0].any()
    if tokenizer.cls_token is not None:
        assert not found[:, 0].any()


def test_a_text_cut_by_hand_before_every_separator_has_no_target(tokenizer):
    ids = tokenizer(PAIR[0], return_tensors="pt")["input_ids"][:, :-1]
    target = Delim().target(Tokens(torch.ones_like(ids).bool(), find_marks(ids, mark_ids(tokenizer), Delim.marks)))
    assert not target.present.any()


def test_the_sep_token_goes_before_the_eos_token():
    tokenizer = wordpiece(eos_token="[PAD]")
    assert mark_ids(tokenizer)["separator"] == (tokenizer.sep_token_id,) != (tokenizer.eos_token_id,)


# -- full stops --------------------------------------------------------------------------------------------------------


def test_full_stops_stand_where_the_text_has_them(tokenizer):
    text = "The man sleeps. He is well ."
    encoding = tokenizer(text, return_offsets_mapping=True)
    _, places = marked(tokenizer, text)
    # With SentencePiece a stop after a space begins at the space.
    starts = [text[slice(*encoding["offset_mapping"][place])].strip() for place in places["full-stop"]]
    assert starts == [".", "."]


def test_every_full_stop_reads_as_one(tokenizer):
    ids = mark_ids(tokenizer)["full-stop"]
    assert len(ids) >= 2
    for number in ids:
        text = tokenizer.convert_tokens_to_string([tokenizer.convert_ids_to_tokens(number)])
        assert text.removeprefix("##").strip(" ▁") in STOPS


def test_no_other_token_of_the_vocabulary_reads_as_one(tokenizer):
    ids = mark_ids(tokenizer)["full-stop"]
    assert list(ids) == sorted(set(ids))
    for number in set(range(len(tokenizer))) - set(ids) - set(tokenizer.all_special_ids):
        text = tokenizer.convert_tokens_to_string([tokenizer.convert_ids_to_tokens(number)])
        assert text.removeprefix("##").strip(" ▁") not in STOPS


@pytest.mark.parametrize("text", [*STOPS, *(f" {stop}" for stop in STOPS)])
def test_a_stop_of_any_script_is_found_as_bytes(text):
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ((piece, _),) = bytes_of.pre_tokenize_str(text)
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "word": 1, piece: 2}, unk_token="[UNK]"))
    assert mark_ids(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")) == {"full-stop": (2,)}


@pytest.mark.parametrize("token", ["##.", "▁.", "Ġ.", ".</w>"])
@pytest.mark.parametrize("text", [".", "a."])
def test_a_marker_is_no_part_of_the_text_and_nothing_else_is_taken_away(token, text):
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, token.replace(".", text): 1}, unk_token="[UNK]"))
    expected = {"full-stop": (1,)} if text == "." else {}
    assert mark_ids(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")) == expected


def test_a_decimal_point_of_wordpiece_counts():
    tokens, places = marked(wordpiece(), "3.5")
    assert [tokens[place] for place in places["full-stop"]] == ["."]


def test_text_without_a_full_stop_has_no_target(tokenizer):
    ids = tokenizer("a dog", return_tensors="pt")["input_ids"]
    found = find_marks(ids, mark_ids(tokenizer), Period.marks)
    assert not Period().target(Tokens(torch.ones_like(ids).bool(), found)).present.any()


# -- what is left out --------------------------------------------------------------------------------------------------


def test_kinds_without_a_token_are_left_out():
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "word": 1}, unk_token="[UNK]"))
    assert mark_ids(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")) == {}
    assert find_marks(torch.zeros(1, 2).long(), {"separator": ()}, ["separator", "full-stop"]) == {}


def test_only_wanted_kinds_are_looked_for():
    known = {"separator": (2,), "full-stop": (5, 9)}
    ids = torch.tensor([[0, 5, 2], [9, 1, 2]])
    found = find_marks(ids, known, ["full-stop", "comma"])
    assert list(found) == ["full-stop"]
    assert found["full-stop"].tolist() == [[False, True, False], [True, False, False]]
    assert find_marks(ids.int(), known, ["separator"])["separator"].tolist() == [[False, False, True]] * 2

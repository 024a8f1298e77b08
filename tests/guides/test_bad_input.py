"""Bad input is answered with one sentence: what, where, what was expected, and the way out."""

from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
import transformers
from conftest import build_batch, build_model
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import headwise as hw
from headwise.errors import HeadwiseError, HeadwiseWarning, InputError, StateError, UnsupportedModelError
from headwise.guides import build
from headwise.guides.guidance import Vocabulary

WORDS = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", ".", "##.", "heart", "lung"]


def tokenizer(words=WORDS, **names):
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]")),
        **{"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", **names},
    )


WITHOUT_STOPS = tokenizer([word for word in WORDS if "." not in word])


def on_a_model(*args, **options):
    """Guiding a model, which a refusal must leave alone."""

    def attach():
        model = build_model("bert")
        before, config = set(model.__dict__), model.config
        try:
            hw.guide(model, *args, **options)
        finally:
            assert set(model.__dict__) == before
            assert model.config is config

    return attach


# What is done, and what the sentence about it must hold.
WRONG = [
    (on_a_model({"mgd": {}}), ["unknown guide 'mgd'", "did you mean 'mdg'?", "known: ", "pdg"]),
    (lambda: hw.MDG(wieght=1.0), ["mdg has no option 'wieght'", "did you mean 'weight'?", "tau", "layers"]),
    (lambda: build("pdg", tau=1.0), ["pdg has no option 'tau'", "normalise"]),
    (on_a_model({"pdg": {"tau": 1.0}}), ["pdg has no option 'tau'"]),
    (lambda: hw.MDG(0.1), ["mdg(0.1,)", "name the options", "weight=0.1"]),
    (lambda: hw.MDG(reduction="median"), ["mdg(reduction='median')", "expected one of 'mean', 'sum'"]),
    (lambda: hw.MDG(contrast="head"), ["mdg(contrast='head')", "expected one of 'model', 'layer'"]),
    (lambda: hw.MDG(dropout="during"), ["mdg(dropout='during')", "expected one of 'before', 'after'"]),
    (lambda: hw.PDG(preset="mine"), ["pdg(preset='mine')", "expected one of 'paper', 'released'"]),
    (lambda: hw.PDG(normalise=1), ["pdg(normalise=1)", "expected one of True, False"]),
    (lambda: hw.PDG(standardise="yes"), ["pdg(standardise='yes')", "expected one of True, False"]),
    (lambda: hw.PDG(special_tokens="no"), ["pdg(special_tokens='no')", "expected one of True, False"]),
    (lambda: hw.guides.Disagreement(on="value"), ["disagreement(on='value')", "'subspace', 'position', 'output'"]),
    *((lambda tau=tau: hw.MDG(tau=tau), [f"mdg(tau={tau!r})", "a number above 0"]) for tau in (0, float("nan"), "1")),
    *(
        (lambda weight=weight: hw.PDG(weight=weight), [f"weight of pdg is {weight!r}", "0 or more", "auto(share)"])
        for weight in (-0.1, float("nan"), True, "0.1")
    ),
    *(
        (lambda weight=weight: hw.MDG(weight=weight), ["weight", "points"])
        for weight in ({"points": 5}, {"points": [[0, 1, 2]]}, {"share": 0.1, "evry": 3})
    ),
    (lambda: hw.guides.warm_up(1.0, steps=0), ["steps=0", "1 or more"]),
    (lambda: hw.guides.piecewise((2, 1.0), (1, 0.0)), ["(2, 1.0), (1, 0.0)", "steps that rise"]),
    (lambda: hw.guides.piecewise(0.5), ["0.5", "points (step, weight)"]),
    (lambda: hw.auto(-0.1), ["share", "-0.1", "0 or more"]),
    (lambda: hw.auto(0.1, window=True), ["auto(window=True)", "1 or more"]),
    *(
        (lambda factor=factor: hw.MDG() * factor, ["expected a number of 0 or more"])
        for factor in (-1, float("nan"), "2")
    ),
    (on_a_model({}), ["guides=", "hw.MDG(weight=1e-3)"]),
    (on_a_model([hw.MDG(), None]), ["guides=", "hw.MDG(weight=1e-3)"]),
    (on_a_model({"mdg": 0.1}), ["mdg", "0.1"]),
    (on_a_model(hw.MDG(), share_every=-1), ["share_every=-1", "0 or more"]),
    (on_a_model(hw.MDG(), share_every=True), ["share_every=True", "0 or more"]),
    (on_a_model(hw.MDG(layers=7)), ["layer 7 is out of range", "layers 0 to 2"]),
    # tokenizers
    (lambda: Vocabulary.of("bert-base-uncased"), ["expected a tokenizer of transformers"]),
    (lambda: Vocabulary.of(SimpleNamespace()), ["expected a tokenizer of transformers"]),
    (on_a_model(hw.Match("delim")), ["guide match does not know the separator tokens: pass tokenizer="]),
    (
        on_a_model(hw.Match("delim") + hw.Match("period"), tokenizer=WITHOUT_STOPS),
        ["guide match-2 needs a full-stop token, and ", "Tokenizer", " has none: leave"],
    ),
    # patterns
    (lambda: hw.Match(), ["match needs a pattern: known: ", "delim", "next"]),
    (lambda: hw.Match("nxt"), ["unknown pattern 'nxt': did you mean 'next'?"]),
    (lambda: hw.Match(3), ["pattern 3: expected a name such as 'next'"]),
    (lambda: hw.Match({"name": "next", "by": 2}), ["pattern next has no option 'by'"]),
    (lambda: hw.Match("next", "prev"), ["match", "name the options"]),
    (lambda: hw.Match("prev", pattern="next"), ["match", "pattern", "twice"]),
    (lambda: hw.Match("next", distance="l1"), ["match(distance='l1'): expected one of 'mse', 'kl', 'cosine'"]),
    (lambda: build("next", pattern="prev"), ["guide next has its own pattern, not 'prev': use match for others"]),
    (lambda: build("next", pattern={"by": 2}), ["pattern next has no option 'by'"]),
    (
        lambda: hw.Match("delim", on="received", special_tokens=False),  # on maps it leaves out rows, not columns
        ["delim has special tokens as its target"],
    ),
]


@pytest.mark.parametrize(("do", "facts"), WRONG, ids=[facts[0] for _, facts in WRONG])
def test_a_mistake_is_answered_with_one_sentence(do, facts):
    answered(InputError, do, facts)


def answered(kind, do, facts):
    """It must fail with one sentence that holds these facts."""
    with pytest.raises(kind) as caught:
        do()
    text = str(caught.value)
    assert isinstance(caught.value, HeadwiseError)
    assert "\n" not in text
    assert text.endswith(".")
    assert [fact for fact in facts if fact not in text] == []


def test_a_model_that_cannot_be_guided():
    config = transformers.T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    model = transformers.T5Model(config)
    before = set(model.__dict__)
    answered(UnsupportedModelError, lambda: hw.guide(model, hw.MDG()), ["t5 is an encoder-decoder", "BERT-like"])
    assert set(model.__dict__) == before


def test_the_right_call_at_the_wrong_time(model, batch):
    plain = model(**batch).loss
    assert hw.unguide(model) is model  # no mistake, once or twice
    for ask in (hw.guides.guidance, hw.guides.last_losses):
        answered(StateError, lambda ask=ask: ask(model), ["this model is not guided"])
    hw.guide(model, hw.MDG(weight=hw.auto(0.1)))
    answered(StateError, lambda: hw.guide(model, hw.PDG()), ["already guided", "unguide(model) first"])
    model(**batch)
    assert {"mdg", "pdg"} & set(hw.guides.last_losses(model)) == {"mdg"}
    guidance = hw.guides.guidance(model)
    for state, facts in (({"step": 3, "auto": {"pdg": {}}}, ["['mdg']", "['pdg']"]), ({}, [])):
        facts = ["of other guides", "attach the guides that were saved", *facts]
        answered(InputError, lambda state=state: guidance.load_state_dict(state), facts)
    assert guidance.step == 0
    assert torch.equal(hw.unguide(model)(**batch).loss, plain)


def test_maps_that_a_guided_model_does_not_return_are_warned_of_once(model, batch):
    hw.guide(model, hw.MDG(weight=0.1))
    with pytest.warns(HeadwiseWarning, match=r"returns no maps.*hw\.capture\(model, what='map'\)") as caught:
        answer = model(**batch, output_attentions=True)
    assert not answer.attentions
    assert [each.filename for each in caught] == [__file__]
    model(**batch, output_attentions=True)  # a second warning would be an error
    with hw.capture(model, what="map") as record:  # what the warning says to use
        model(**batch)
    assert record.stacked().shape[:2] == (len(batch["labels"]), 12)
    hw.unguide(model).set_attn_implementation("eager")
    assert len(model(**batch, output_attentions=True).attentions) == 3


# -- what guides know from a tokenizer ---------------------------------------------------------------------------------


def test_special_tokens_and_kinds_are_known():
    vocabulary = Vocabulary.of(tokenizer())
    assert vocabulary.special_ids == (1, 2, 3)
    assert vocabulary.ids == {"separator": (3,), "full-stop": (4, 5), "punctuation": (4, 5)}
    # The unknown token stands for a word, unless it is the end of the text as well.
    assert Vocabulary.of(tokenizer(unk_token="[UNK]")).special_ids == (1, 2, 3)
    assert Vocabulary.of(tokenizer(unk_token="[UNK]", eos_token="[UNK]")).special_ids == (0, 1, 2, 3)
    # The end of the text separates where nothing else does.
    assert Vocabulary.of(tokenizer(sep_token=None, eos_token="[SEP]")).ids["separator"] == (3,)
    # Anything with all_special_ids will do where no kinds are needed.
    assert Vocabulary.of(SimpleNamespace(all_special_ids=[3, 2, 3])).special_ids == (2, 3)
    hw.guide(build_model("bert"), hw.Match("delim") + hw.Match("next"), tokenizer=WITHOUT_STOPS)


def test_only_the_marks_that_guides_need_are_computed_and_embeddings_have_none(monkeypatch):
    """A guide that does not count at a step needs nothing."""
    fixed = import_module("headwise.patterns.fixed")
    kinds, find = [], fixed.find_marks
    monkeypatch.setattr(fixed, "find_marks", lambda ids, known, names: kinds.append(names) or find(ids, known, names))
    guides = hw.Match("delim", weight=1.0) + hw.Match("period", weight=0.0) + hw.MDG()
    model, batch = hw.guide(build_model("bert").train(), guides, tokenizer=tokenizer()), build_batch()
    model(**batch)
    assert kinds == [["separator"]]
    embeddings = model.get_input_embeddings()(batch.pop("input_ids"))
    with pytest.raises(InputError, match="pattern delim does not know which tokens are a separator"):
        model(inputs_embeds=embeddings, **batch)

"""The options of SSA: every bad value has its sentence, and the labelled share grows as it should."""

import dataclasses
from itertools import product

import pytest

from headwise.errors import InputError
from headwise.ssa import SSA, build_ssa

FRACTION, ABOVE, COUNT, FLAG = (
    "a number from 0 to 1",
    "a number above 0",
    "a whole number of 1 or more",
    "true or false",
)
FOLDER = "the folder of a fine-tuned classifier"
FRACTIONS = ("cls_weight", "aug_threshold", "rm_threshold", "mask_fraction", "ratio_step", "ratio_max")
EITHER = ("attention_threshold", "attention_quantile", "aug_loss_weight")  # None leaves them to others
FLAGS = ("whole_words", "shuffle_labels", "share_weight", "normalise_blend", "only_bert")
# Options, values that they refuse, and what is expected instead.
REFUSED = [
    ((*FRACTIONS, *EITHER), (-0.01, 1.01, float("nan"), "0.3", True), FRACTION),
    (FRACTIONS, (None,), FRACTION),
    (("token_share",), (-0.1, float("nan"), float("inf"), "0.3", True), "a number of 0 or more"),
    (("mask_fraction", "ratio_step"), (0, 0.0), ABOVE),
    (("regression_tolerance",), (0, -1, "x", None, True, float("nan"), float("inf")), ABOVE),
    (("probes_per_example", "max_passes", "most_hidden"), (0, 1.5, "2", True), COUNT),
    (FLAGS, (2, 0.5, "true", None), FLAG),
    (("use_saved",), ("", 3, True, ["folder"]), FOLDER),
]


def test_bad_values_are_refused_with_a_sentence():
    for names, values, expected in REFUSED:
        for name, value in product(names, values):
            with pytest.raises(InputError, match=rf"^ssa\.{name} is .*: expected {expected}\.$"):
                SSA(**{name: value})
    for name in (*FRACTIONS[:3], *EITHER[:2]):
        assert (getattr(SSA(**{name: 0}), name), getattr(SSA(**{name: 1}), name)) == (0, 1)


def test_flags_may_be_written_as_the_authors_do():
    for name in FLAGS:
        assert getattr(SSA(**{name: 1}), name) is True
        assert getattr(SSA(**{name: 0}), name) is False
    assert SSA(use_saved=0).use_saved is None


def test_options_that_contradict_each_other():
    for options, reason in (
        ({"sampler": "reference", "most_hidden": 2}, r"ssa\.most_hidden is for the uniform sampler"),
        ({"sampler": "reference", "whole_words": True}, r"ssa\.whole_words is for the uniform sampler"),
        ({"token_share": 0.3, "aug_loss_weight": 0.3}, "ssa.token_share and ssa.aug_loss_weight are two ways to weigh"),
        (
            {"attention_quantile": 0, "attention_threshold": 0},
            "ssa.attention_quantile and ssa.attention_threshold are two ways to choose the tokens that are pooled",
        ),
        ({"aug_loss_weight": 1}, r"ssa\.aug_loss_weight is 1, so the task itself would not be learned"),
        ({"ratio_max": 0.1}, r"ssa\.ratio_max is 0\.1, less than one step \(ratio_step: 0\.2\)"),
    ):
        with pytest.raises(InputError, match=f"^{reason}"):
            SSA(**options)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"^ssa\.model is 'co-training': did you mean 'cotraining'\? known: "):
        SSA(model="co-training")
    for name in ("pool_softmax", "sampler", "label_rule", "precision"):
        with pytest.raises(InputError, match=rf"^ssa\.{name} is 3: known: "):
            SSA(**{name: 3})
    with pytest.raises(InputError, match=r"^ssa has no option 'cls_wieght': did you mean 'cls_weight'\? known: "):
        SSA(cls_wieght=0.5)
    with pytest.raises(InputError, match="name the options"):
        SSA("hybrid")


def test_the_labelled_share_grows_and_stays():
    assert [SSA().share(epoch) for epoch in range(7)] == [0, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8]
    assert [SSA(use_saved="run").share(epoch) for epoch in range(5)] == [0.2, 0.4, 0.6, 0.8, 0.8]
    assert [SSA(ratio_step=0.3).share(epoch) for epoch in range(4)] == [0, 0.3, 0.6, 0.6]
    assert SSA(ratio_max=0.2).share(9) == 0.2
    assert [SSA(ratio_max=0.6).share(epoch) for epoch in range(5)] == [0, 0.2, 0.4, 0.6, 0.6]
    assert [SSA(ratio_step=1, ratio_max=1).share(epoch) for epoch in range(3)] == [0, 1, 1]


def test_nothing_is_labelled_where_nothing_is_learned_from_labels():
    for chosen in (SSA(aug_loss_weight=0), SSA(token_share=0), SSA(only_bert=True, use_saved="run")):
        assert not chosen.learns_labels
        assert [chosen.share(epoch) for epoch in range(4)] == [0, 0, 0, 0]
    assert SSA(aug_loss_weight=0.01).learns_labels


def test_our_way_is_the_default_and_the_authors_is_complete():
    ours, theirs = SSA(), SSA.released()
    assert (ours.token_share, ours.attention_quantile, ours.normalise_blend) == (0.3, 0.5, True)
    assert (ours.aug_loss_weight, ours.attention_threshold) == (None, None)
    assert (theirs.token_share, theirs.attention_quantile, theirs.normalise_blend) == (None, None, False)
    assert (theirs.aug_loss_weight, theirs.attention_threshold, theirs.cls_weight) == (0.3, 0.3, 0.5)
    assert (theirs.sampler, theirs.label_rule, theirs.pool_softmax) == ("reference", "reference", "probabilities")
    assert SSA.released(cls_weight=0.9).cls_weight == 0.9
    assert SSA(attention_threshold=0.2).token_share == 0.3  # one choice leaves the other alone


def test_labels_that_must_be_attributable_hide_few_tokens():
    assert [SSA(label_rule=rule).hidden_at_most for rule in ("probe", "soft", "reference")] == [3, 3, None]
    assert SSA(label_rule="reference", most_hidden=2).hidden_at_most == 2
    assert SSA(most_hidden=7).hidden_at_most == 7


def test_plain_data_and_back():
    chosen = SSA(model="cotraining", most_hidden=2, use_saved="run")
    assert build_ssa(dataclasses.asdict(chosen)) == chosen
    assert build_ssa(chosen) is chosen
    for nothing in (None, "hybrid", ["model"], 3):
        with pytest.raises(InputError, match="expected options with values, such as model: hybrid"):
            build_ssa(nothing)

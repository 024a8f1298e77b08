"""The options of SSA: every bad value has its sentence, and the labelled share grows as it should."""

import dataclasses

import pytest
from tiny_runs import build_tokenizer

import headwise as hw
from headwise.errors import InputError
from headwise.ssa import SSA, build_ssa

PARTS = ("cls_weight", "attention_threshold", "aug_loss_weight", "aug_threshold", "rm_threshold")
MORE_PARTS = ("mask_fraction", "ratio_step", "ratio_max")
FLAGS = ("whole_words", "shuffle_labels", "share_weight", "only_bert")
NO_PART = (-0.01, 1.01, float("nan"), float("inf"), "0.3", None, True, [0.3])


def test_the_defaults_are_the_authors_where_they_have_any():
    chosen = SSA()
    assert [getattr(chosen, name) for name in PARTS] == [0.5, 0.3, 0.3, 0.1, 0.7]
    assert (chosen.ratio_step, chosen.ratio_max, chosen.share_weight, chosen.only_bert) == (0.2, 0.8, True, False)
    assert (chosen.model, chosen.sampler, chosen.label_rule) == ("hybrid", "uniform", "probe")


@pytest.mark.parametrize("name", [*PARTS, *MORE_PARTS])
@pytest.mark.parametrize("value", NO_PART)
def test_a_part_is_a_number_from_0_to_1(name, value):
    with pytest.raises(InputError, match=rf"^ssa\.{name} is .*: expected a number from 0 to 1\.$"):
        SSA(**{name: value})


@pytest.mark.parametrize("name", [name for name in PARTS if name != "aug_loss_weight"])  # see below
@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0])
def test_both_ends_are_parts(name, value):
    assert getattr(SSA(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("mask_fraction", [0, 0.0]),
        ("ratio_step", [0]),
        ("regression_tolerance", [0, -1, "x", None, True, float("nan"), float("inf")]),
    ],
)
def test_what_has_to_be_above_0(name, values):
    for value in values:
        with pytest.raises(InputError, match=rf"^ssa\.{name} is .*: expected a number above 0\.$"):
            SSA(**{name: value})


@pytest.mark.parametrize("name", ["probes_per_example", "max_passes", "most_hidden"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_counts(name, value):
    with pytest.raises(InputError, match=rf"^ssa\.{name} is .*: expected a whole number of 1 or more\.$"):
        SSA(**{name: value})
    assert getattr(SSA(**{name: 1}), name) == 1


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", [2, -1, 0.5, "true", None])
def test_flags(name, value):
    with pytest.raises(InputError, match=rf"^ssa\.{name} is .*: expected true or false\.$"):
        SSA(**{name: value})


@pytest.mark.parametrize("name", FLAGS)
def test_flags_may_be_written_as_the_authors_do(name):
    assert (getattr(SSA(**{name: 1}), name), getattr(SSA(**{name: 0}), name)) == (True, False)
    assert SSA(use_saved=0).use_saved is None


def test_a_bound_is_for_the_sampler_that_knows_it():
    with pytest.raises(InputError, match=r"ssa\.most_hidden is for the uniform sampler"):
        SSA(sampler="reference", most_hidden=2)


def test_the_task_has_to_count():
    with pytest.raises(InputError, match=r"ssa\.aug_loss_weight is 1, so the task itself would not be learned"):
        SSA(aug_loss_weight=1)


@pytest.mark.parametrize(
    ("name", "nearly", "meant"),
    [
        ("model", "hybird", "hybrid"),
        ("model", "co-training", "cotraining"),
        ("pool_softmax", "logit", "logits"),
        ("sampler", "unifrom", "uniform"),
        ("label_rule", "prob", "probe"),
        ("precision", "bf-16", "bf16"),
    ],
)
def test_names_are_answered_with_the_nearest(name, nearly, meant):
    with pytest.raises(InputError, match=rf"^ssa\.{name} is '{nearly}': did you mean '{meant}'\? known: "):
        SSA(**{name: nearly})
    with pytest.raises(InputError, match=rf"^ssa\.{name} is 3: known: "):
        SSA(**{name: 3})


def test_an_unknown_option_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"^ssa has no option 'cls_wieght': did you mean 'cls_weight'\? known: "):
        SSA(cls_wieght=0.5)
    with pytest.raises(InputError, match="name the options"):
        SSA("hybrid")


def test_options_that_contradict_each_other():
    with pytest.raises(InputError, match=r"^ssa\.whole_words is for the uniform sampler"):
        SSA(whole_words=True, sampler="reference")
    with pytest.raises(InputError, match=r"^ssa\.ratio_max is 0\.1, less than one step \(ratio_step: 0\.2\)"):
        SSA(ratio_max=0.1)
    assert SSA(ratio_max=0.2).share(9) == 0.2


@pytest.mark.parametrize("value", ["", 3, True, ["folder"]])
def test_the_folder_to_start_from(value):
    with pytest.raises(InputError, match=r"^ssa\.use_saved is .*: expected the folder of a fine-tuned classifier\.$"):
        SSA(use_saved=value)


def test_the_labelled_share_grows_and_stays():
    assert [SSA().share(epoch) for epoch in range(7)] == [0, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8]
    assert [SSA(use_saved="run").share(epoch) for epoch in range(5)] == [0.2, 0.4, 0.6, 0.8, 0.8]
    assert [SSA(ratio_step=0.3).share(epoch) for epoch in range(4)] == [0, 0.3, 0.6, 0.6]
    assert [SSA(ratio_max=0.6).share(epoch) for epoch in range(5)] == [0, 0.2, 0.4, 0.6, 0.6]
    assert [SSA(ratio_step=1, ratio_max=1).share(epoch) for epoch in range(3)] == [0, 1, 1]


def test_nothing_is_labelled_where_nothing_is_learned_from_labels():
    for chosen in (SSA(aug_loss_weight=0), SSA(only_bert=True, use_saved="run")):
        assert not chosen.labels_wanted
        assert [chosen.share(epoch) for epoch in range(4)] == [0, 0, 0, 0]
    assert SSA(aug_loss_weight=0.01).labels_wanted


def test_labels_that_need_a_culprit_hide_few_tokens():
    assert [SSA(label_rule=rule).hidden_at_most for rule in ("probe", "soft", "reference")] == [3, 3, None]
    assert SSA(label_rule="reference", most_hidden=2).hidden_at_most == 2
    assert SSA(most_hidden=7).hidden_at_most == 7


def test_plain_data_and_back():
    chosen = SSA(model="cotraining", most_hidden=2, use_saved="run")
    assert build_ssa(chosen.as_data()) == chosen
    assert build_ssa(chosen) is chosen
    assert set(chosen.as_data()) == {field.name for field in dataclasses.fields(SSA)}
    for nothing in (None, "hybrid", ["model"], 3):
        with pytest.raises(InputError, match="expected options with values, such as model: hybrid"):
            build_ssa(nothing)


def test_they_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SSA().cls_weight = 1.0


def test_a_tokenizer_without_a_mask_token_is_refused(model):
    tokenizer = build_tokenizer()
    tokenizer.mask_token = None
    before = set(model.state_dict())
    with pytest.raises(InputError, match=r"SSA hides tokens behind a mask token, and .* has none"):
        hw.self_supervise(model, tokenizer=tokenizer)
    assert set(model.state_dict()) == before

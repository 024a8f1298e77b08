"""Labelling a training set by a model that is a plain function of the ids, so that the right labels are known."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

from headwise.data.encode import Encoded
from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.ssa.config import SSA
from headwise.ssa.labeller import Labeller
from headwise.ssa.model import TextTokens

PAD, CLS, SEP, MASK, UNKNOWN, SIGN = 0, 1, 2, 3, 4, 9
TOKENS = TextTokens((PAD, CLS, SEP), MASK)


def build_data(count, *, seed=0, shortest=6, longest=12, pairs=False):
    """Random texts; every second one has the sign at a random place, and the label says so."""
    random = numpy.random.default_rng(seed)
    rows, labels = [], []
    for index in range(count):
        text = random.integers(10, 60, random.integers(shortest, longest + 1))
        if index % 2:
            text[random.integers(len(text))] = SIGN
        second = [*random.integers(10, 60, 3), SEP] if pairs else []
        rows.append([CLS, *text, SEP, *second])
        labels.append(index % 2)
    starts = numpy.cumsum([0, *map(len, rows)])
    ids = numpy.concatenate(rows).astype(numpy.int32)
    types = numpy.concatenate([numpy.cumsum(numpy.array(row) == SEP) for row in rows]).astype(numpy.int8)
    return Encoded(ids, starts, types, tuple(labels), 0)


class Items(list):
    """Examples as a plain list of dicts, without the flat arrays of Encoded."""


def as_items(data, **more):
    return Items({**data[index], **{name: rows[index] for name, rows in more.items()}} for index in range(len(data)))


class Model:
    """Class 1 if the sign is there. `wrong`: which examples it answers wrongly, whatever is hidden."""

    def __init__(self, wrong=lambda example: False):
        self.wrong, self.views = wrong, []

    def __call__(self, view):
        self.views.append(view)
        return numpy.array([self.logits(view, index) for index in range(len(view))], numpy.float32)

    def logits(self, view, index):
        item = view[index]
        assert "labels" not in item
        assert view.lengths[index] == len(item["input_ids"]) == len(item["token_type_ids"])
        found = SIGN in item["input_ids"]
        return [-5.0, 5.0] if found != self.wrong(int(view.examples[index])) else [5.0, -5.0]

    @property
    def originals(self):
        return [int(example) for view in self.views for example in self._of(view, hidden=False)]

    @property
    def probes(self):
        return [int(example) for view in self.views for example in self._of(view, hidden=True)]

    @staticmethod
    def _of(view, hidden):
        return [view.examples[index] for index in range(len(view)) if (MASK in view[index]["input_ids"]) == hidden]


def build(data, *, kind="classification", seed=5, **options):
    return Labeller(data, SSA(**options), TOKENS, kind=kind, seed=seed)


def labelled(labels):
    return [index for index in range(len(labels)) if not numpy.isnan(labels.of(index)).all()]


def same(one, other):
    return numpy.array_equal(one.labels.values, other.labels.values, equal_nan=True)


def test_labels_are_those_of_a_slow_obvious_reference():
    """Each probe that the model predicted, labelled by hand; a token gets the least of its probes."""
    data = build_data(40, pairs=True)
    model = Model(wrong=lambda example: example % 5 == 0)
    found = build(data, probes_per_example=4, max_passes=1).label(model, epoch=2, share=1.0)
    expected = {index: [float("nan")] * len(data[index]["input_ids"]) for index in range(len(data))}
    for view in model.views:
        for index in range(len(view)):
            example, ids = int(view.examples[index]), view[index]["input_ids"]
            for place in numpy.flatnonzero(ids == MASK):
                value = float(SIGN in data[example]["input_ids"] and SIGN not in ids)
                known = expected[example][place]
                expected[example][place] = value if known != known else min(known, value)
    for index in range(len(data)):
        numpy.testing.assert_array_equal(found.labels.of(index), expected[index])
    assert {0.0, 1.0} <= set(found.labels.values.tolist())
    assert found.labels.values.dtype == numpy.float32


def test_the_share_is_exact():
    for rule, count, share, expected in (("probe", 35, 0.6, 21), ("soft", 100, 0.29, 29), ("probe", 9, 0.333333333, 3)):
        found = build(build_data(count), label_rule=rule).label(Model(), epoch=1, share=share)
        assert found.statistics["needed"] == len(labelled(found.labels)) == expected
        assert found.statistics["share"] == expected / count


@pytest.mark.parametrize("rule", ["probe", "reference"])
def test_no_share_means_blank_labels_and_no_prediction(rule):
    data, model = build_data(6), Model()
    labeller = build(data, label_rule=rule)
    found = labeller.label(model, epoch=0, share=0.0)
    blank = labeller.blank()
    assert model.views == []
    assert numpy.array_equal(found.labels.values, blank.values, equal_nan=True)
    text = numpy.isin(data.ids, TOKENS.special_ids, invert=True)
    assert numpy.isnan(blank.values[~text]).all()
    assert (blank.values[text] == 1).all() if rule == "reference" else numpy.isnan(blank.values).all()
    assert found.statistics["base_rate"] == (1.0 if rule == "reference" else 0.0)
    assert found.statistics["probes"] == found.statistics["passes"] == found.statistics["share"] == 0.0


def test_other_epochs_and_seeds_choose_other_examples_and_sets():
    data = build_data(60)
    labeller = build(data)
    first = labeller.label(Model(), epoch=1, share=0.5)
    assert same(first, labeller.label(Model(), epoch=1, share=0.5))
    for other in (labeller.label(Model(), epoch=2, share=0.5), build(data, seed=6).label(Model(), epoch=1, share=0.5)):
        assert labelled(other.labels) != labelled(first.labels)
        both = set(labelled(first.labels)) & set(labelled(other.labels))
        differ = [not numpy.array_equal(first.labels.of(each), other.labels.of(each), equal_nan=True) for each in both]
        assert sum(differ) > len(both) / 2


def test_the_order_of_examples_is_not_that_of_the_batches():
    """Both are keyed by seed and epoch: with one generator the labelled examples would all be in the first batches."""
    data = build_data(200)
    found = build(data, seed=5).label(Model(), epoch=1, share=0.2)
    batches = numpy.random.default_rng([5, 1]).permutation(200)
    assert len(set(batches[:44].tolist()) & set(labelled(found.labels))) < 25


def test_originals_are_predicted_once_and_wrong_ones_are_never_probed():
    model = Model(wrong=lambda example: example % 3 == 0)
    found = build(build_data(90), label_rule="reference").label(model, epoch=1, share=1.0)
    assert sorted(model.originals) == list(range(90))
    assert all(example % 3 for example in model.probes)
    assert found.statistics["passes"] > 1
    # Who has labels is not asked again: there is one accepted probe for each labelled example.
    accepted = found.statistics["acceptance"] * (found.statistics["probes"] + 30)
    assert accepted == pytest.approx(90 * found.statistics["share"])
    assert found.statistics["right"] == pytest.approx(2 / 3)
    assert found.statistics["originals"] == 90
    assert found.statistics["probes"] == len(model.probes)


def test_only_as_many_examples_as_needed_are_probed():
    model = Model()
    build(build_data(200)).label(model, epoch=1, share=0.2)
    assert len(model.originals) == len(model.probes) == 40
    half = Model(wrong=lambda example: example % 4 > 1)
    build(build_data(2000)).label(half, epoch=1, share=0.2)
    assert 800 <= len(half.originals) <= 1000  # 400 / 0.5, and at most a 32nd part of all in each further round
    assert len(half.views) <= 8  # two for each round: the yield is measured, not hoped for


def test_a_hidden_set_is_tried_once():
    """Two tokens have two sets of one: what is repeated is not asked again, neither in this pass nor in the next."""
    model = Model()
    model.logits = lambda view, index: (
        [0.0, 1.0] if (MASK in view[index]["input_ids"]) != bool(view.examples[index] % 2) else [1.0, 0.0]
    )  # right, and never the same with anything hidden
    labeller = build(build_data(20, shortest=2, longest=2), label_rule="reference", probes_per_example=8)
    with pytest.warns(HeadwiseWarning, match="20 of 20 predictions were right, and none of 40 probes.*raise max_pas"):
        found = labeller.label(model, epoch=1, share=1.0)
    assert sorted(model.probes) == sorted([*range(20), *range(20)])
    assert found.statistics["flips"] == 1.0
    assert found.statistics["passes"] == 5.0


def test_an_empty_set_is_no_probe():
    """The authors' sampler spares most short texts: their code takes that for an accepted probe."""
    data = build_data(60, shortest=5, longest=5)
    model = Model()
    options = {"sampler": "reference", "label_rule": "reference", "max_passes": 1}
    found = build(data, **options).label(model, epoch=1, share=1.0)
    assert len(model.originals) == 60
    assert 0 < len(model.probes) < 30  # P(empty) is .81
    probed = set(model.probes)
    hidden = {index for index in range(60) if (found.labels.of(index) == 0).any()}
    assert hidden <= probed
    assert found.statistics["share"] == len(hidden) / 60
    assert found.statistics["hidden"] >= 1


def test_a_model_that_is_always_wrong_ends_in_a_warning_and_blank_labels():
    labeller, model = build(build_data(80)), Model(wrong=lambda example: True)
    with pytest.warns(
        HeadwiseWarning, match=r"epoch 1 .*: 0 of 80 predictions were right, and none of 0 probes.*train"
    ):
        found = labeller.label(model, epoch=1, share=0.5)
    assert numpy.isnan(found.labels.values).all()
    assert len(model.originals) == 80
    assert model.probes == []
    assert found.statistics["share"] == found.statistics["acceptance"] == found.statistics["right"] == 0.0
    assert len(model.views) < 10
    assert found.statistics["passes"] == 1.0  # there is nobody left to ask again


class Counted(Items):
    def __init__(self, items):
        super().__init__(items)
        self.asked = 0

    def __getitem__(self, index):
        self.asked += 1
        return super().__getitem__(index)


def test_work_grows_with_the_number_of_examples_and_no_faster():
    """A quarter is wrong and some probes never pass, so that all examples and all passes are used."""
    work = {}
    for count in (1000, 10_000):
        data, asked = Counted(as_items(build_data(count, longest=7))), []

        def predict(view, asked=asked):
            items = [view[index]["input_ids"] for index in range(len(view))]
            asked.append(len(items))
            wrong = view.examples % 4 == 0
            flips = numpy.array([MASK in ids for ids in items]) & (view.examples % 7 == 0)
            gold = view.examples % 2 == 1
            return numpy.where((gold ^ wrong ^ flips)[:, None], [0.0, 1.0], [1.0, 0.0])

        build(data, label_rule="reference").label(predict, epoch=1, share=0.75)
        work[count] = sum(asked), data.asked, len(asked)
    small, large = work[1000], work[10_000]
    assert large[0] == pytest.approx(10 * small[0], rel=0.1)
    assert large[1] == pytest.approx(10 * small[1], rel=0.1)
    assert large[2] <= small[2] + 4  # calls: the size of rounds grows with the data, not their number


def test_special_tokens_are_never_hidden_and_never_labelled():
    """RoBERTa's pairs have two separators between the texts; unknown words and mask tokens are text."""
    rows = [[CLS, 10, SIGN, UNKNOWN, SEP, SEP, 12, MASK, 14, SEP] for _ in range(20)]
    data = Items({"input_ids": row, "token_type_ids": [0] * 10, "labels": 1} for row in rows)
    model = Model()
    found = build(data, probes_per_example=60).label(model, epoch=1, share=1.0)
    for index in range(20):
        labels = found.labels.of(index)
        assert numpy.isnan(labels[[0, 4, 5, 9]]).all()
        assert not numpy.isnan(labels[[1, 2, 3, 6, 7, 8]]).any()
    for view in model.views:
        for index in range(len(view)):
            assert view[index]["input_ids"][[0, 4, 5, 9]].tolist() == [CLS, SEP, SEP, SEP]


@pytest.mark.parametrize("options", [{"label_rule": "reference"}, {"probes_per_example": 3}])
def test_shuffled_labels_keep_their_number_in_each_example(options):
    data = build_data(60, pairs=True)
    plain = build(data, **options).label(Model(), epoch=1, share=0.8)
    thrown = build(data, shuffle_labels=True, **options).label(Model(), epoch=1, share=0.8)
    moved = 0
    for index in range(60):
        text = numpy.isin(data[index]["input_ids"], TOKENS.special_ids, invert=True)
        one, other = plain.labels.of(index), thrown.labels.of(index)
        assert numpy.isnan(one[text]).sum() == numpy.isnan(other[text]).sum()
        assert numpy.isnan(other[~text]).all()
        moved += not numpy.array_equal(one, other, equal_nan=True)
    assert moved > 30
    numpy.testing.assert_array_equal(numpy.sort(plain.labels.values), numpy.sort(thrown.labels.values))
    assert plain.statistics["base_rate"] == pytest.approx(thrown.statistics["base_rate"])
    assert same(thrown, build(data, shuffle_labels=True, **options).label(Model(), epoch=1, share=0.8))


def test_shuffled_labels_do_not_depend_on_their_example():
    # One probe gives all tokens of an example the same label: within it there would be nothing to shuffle.
    data = build_data(300)
    plain, thrown = (
        build(data, shuffle_labels=shuffle).label(Model(), epoch=1, share=1.0).labels for shuffle in (False, True)
    )
    means = numpy.array([[numpy.nanmean(labels.of(index)) for index in range(300)] for labels in (plain, thrown)])
    assert set(means[0]) == {0.0, 1.0}
    assert abs(numpy.corrcoef(means)[0, 1]) < 0.2


def in_ranks(data, world, wrong, **options):
    """The labelling of every rank, each in a thread, with a gather of a barrier and a shared list."""
    barrier, shared, models = threading.Barrier(world, timeout=20), [None] * world, []

    def work(rank):
        def gather(own):
            shared[rank] = own
            barrier.wait()
            joined = [each for part in shared for each in part]
            barrier.wait()
            return joined

        try:
            models.append(model := Model(wrong))
            return build(data, **options).label(model, epoch=3, share=0.9, split=(rank, world), gather=gather)
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(work, range(world))), models


@pytest.mark.parametrize(
    ("options", "count", "world"),
    [
        ({"probes_per_example": 3}, 60, 3),
        ({"label_rule": "reference"}, 3, 4),
    ],
)
def test_the_labels_are_the_same_for_any_number_of_processes(options, count, world):
    data = build_data(count)

    def wrong(example):
        return example % 5 == 4

    alone = build(data, **options).label(Model(wrong), epoch=3, share=0.9)
    results, models = in_ranks(data, world, wrong, **options)
    for result in results:
        assert same(result, alone)
        assert {**result.statistics, "seconds": 0} == {**alone.statistics, "seconds": 0}
    everyone = sorted(example for model in models for example in model.originals)
    assert everyone == sorted(set(everyone))  # no original is predicted by two
    if count == 60:
        assert max(len(model.originals) for model in models) <= 60 / world + 2


def test_the_labels_are_the_same_for_any_batch_size_and_form_of_the_data():
    """The caller batches as it likes, longest first."""
    data, batch = build_data(60, pairs=True), 7
    rows = Items({**row, "input_ids": row["input_ids"].tolist()} for row in as_items(data))

    def predict(view):
        order = numpy.argsort(-view.lengths, kind="stable")
        logits = numpy.zeros((len(view), 2))
        for begin in range(0, len(view), batch):
            part = order[begin : begin + batch]
            width = max(view.lengths[part])
            padded = numpy.array([[*view[int(i)]["input_ids"], *[PAD] * (width - view.lengths[i])] for i in part])
            logits[part, 1] = (padded == SIGN).any(1) - 0.5
        return logits

    assert same(build(data).label(predict, epoch=1, share=0.7), build(rows).label(Model(), epoch=1, share=0.7))


GOOD = {"input_ids": [CLS, 10, 11, SEP], "labels": 1}
BARE = build_data(3)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, r"nothing to label: give a training set"),
        (
            [GOOD, {"input_ids": [CLS, SEP], "labels": 0}, {"input_ids": [], "labels": 0}],
            {},
            r"example 1 \(from 0\).* no token of text.*\(2 of 3 .*\): remove it",
        ),
        (
            [GOOD, GOOD, {"input_ids": [CLS, 10, SEP]}],
            {},
            r"example 2 \(from 0\) of the training set has no label: give",
        ),
        ([{**GOOD, "labels": float("nan")}], {}, r"example 0 \(from 0\) of the training set has no label"),
        (Encoded(BARE.ids, BARE.starts, BARE.types, None, 0), {}, r"example 0 \(from 0\) .* has no label"),
        ([GOOD], {"whole_words": True}, r"whole_words needs the word_ids.*example 0 \(from 0\) has none for 4 tokens"),
        ([{**GOOD, "word_ids": [0, 1]}], {"whole_words": True}, r"example 0 \(from 0\) has 2 for 4 tokens: add them"),
    ],
)
def test_bad_data_are_refused_with_a_sentence(data, options, message):
    with pytest.raises(InputError, match=message):
        build(data, **options)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        ({"share": 1.5}, InputError, "share is 1.5: expected a part"),
        ({"split": (2, 2)}, InputError, r"split is \(2, 2\): expected \(rank, world\)"),
        ({"split": (0, 2)}, InputError, "among 2 processes: give gather"),
        ({"predict": lambda view: numpy.zeros(2)}, InputError, r"shape \[2\] for .* examples: expected a row"),
        ({"predict": lambda view: numpy.full((len(view), 2), numpy.nan)}, StateError, "not finite: training has div"),
    ],
)
def test_bad_calls_are_refused_with_a_sentence(call, kind, message):
    with pytest.raises(kind, match=message):
        build(build_data(8)).label(**{"predict": Model(), "epoch": 1, "share": 0.5, **call})


def test_texts_of_one_token_have_nothing_to_hide():
    data = build_data(10, shortest=1, longest=1)
    with pytest.warns(HeadwiseWarning, match="none of 0 probes was accepted in 5 passes; the texts are too short"):
        found = build(data).label(Model(), epoch=1, share=1.0)
    assert numpy.isnan(found.labels.values).all()

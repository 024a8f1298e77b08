"""Detectors of patterns against plain loops, by hand, and whatever the batches look like."""

import json
import math
from statistics import fmean as mean

import pytest
import torch
from conftest import build_model
from guides.reference import random_maps, record_of
from tiny_runs import build_tokenizer

import headwise as hw
from headwise.attention import AttentionRecord, Request
from headwise.data import Split
from headwise.errors import InputError, StateError
from headwise.experiments.head_studies.head_patterns import pattern_scores
from headwise.heads import PatternScores
from headwise.patterns import Delim, First, Next, Period, Prev, Tokens

PATTERNS = (First(), Next(), Prev(), Delim(), Period())


def summary(record, tokens, patterns=PATTERNS):
    scores = PatternScores(patterns)
    scores.add(record, tokens)
    return scores.result()


def random_case(layers=2):
    """Three examples, with padding on either side; the last one has no full stop, the second no separator."""
    valid = torch.ones(3, 9, dtype=torch.bool)
    valid[1, 6:] = False
    valid[2, :4] = False
    separator, stop = torch.zeros(2, 3, 9).bool()
    separator[[0, 0, 2, 1], [4, 8, 8, 7]] = True  # the last of these is padding
    stop[[0, 1, 1], [3, 2, 5]] = True
    record = record_of(random_maps(valid).detach(), valid, layers=layers, what="map")
    return record, Tokens(valid, {"separator": separator, "full-stop": stop})


def approximately(value):
    return pytest.approx(value, rel=1e-12)


# -- the slow way ------------------------------------------------------------------------------------------------------


def slow_shares(record, tokens, pattern):
    """For every example with a target: the share of even attention, and the share of each map."""
    target = pattern.target(tokens)
    for example, maps in enumerate(record.stacked()):
        queries = [query for query, present in enumerate(target.present[example]) if present]
        if not queries:
            continue
        wanted = {
            query: [key for key, value in enumerate(target.rows[example, query]) if value > 0] for query in queries
        }
        even = mean(len(wanted[query]) / int(tokens.valid[example].sum()) for query in queries)
        yield even, [mean(sum(float(one[query, key]) for key in wanted[query]) for query in queries) for one in maps]


def test_equals_the_slow_loops():
    record, tokens = random_case()
    for pattern in PATTERNS:
        expected = list(slow_shares(record, tokens, pattern))
        even = mean(even for even, _ in expected)
        shares = [mean(column) for column in zip(*(shares for _, shares in expected), strict=True)]
        found = summary(record, tokens).patterns[pattern.name]
        assert found.examples == len(expected) == (2 if pattern.name in ("delim", "period") else 3)
        assert (found.even, found.share) == approximately((even, mean(shares)))
        assert sum(found.share_by_head, []) == approximately(shares)
        assert sum(found.lift_by_head, []) == approximately([share / even for share in shares])


# -- by hand -----------------------------------------------------------------------------------------------------------

# The first head: half of row 0 and a quarter of row 1 lie on the next token; row 2 has none. Share 3/8, evenly 1/3.
# The second looks at the next token only. All of the first column is on the first token: 0.25, 0.5, 1 and 0, 0, 0.
BY_HAND = torch.tensor(
    [[[[0.25, 0.5, 0.25], [0.5, 0.25, 0.25], [1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]]]
)
THREE = torch.ones(1, 3, dtype=torch.bool)


def test_examples_without_a_target_are_counted_nowhere_else():
    tokens = Tokens(THREE, {"full-stop": torch.zeros(1, 3).bool()})
    found = summary(record_of(BY_HAND, THREE, what="map"), tokens, [First(), Period()])
    assert (found.examples, found.patterns["first"].examples) == (1, 1)
    period = found.patterns["period"]
    assert (period.examples, period.even, period.share, period.share_by_head, period.lift_by_head) == (0, *[None] * 4)
    assert found.strongest("period") == []


def test_the_strongest_heads_are_named_by_layer_and_head():
    request = Request.of("map", {1: (3,), 5: (0, 2)})
    rows = torch.tensor([[0.8, 0.2], [0.1, 0.9], [0.5, 0.5]], dtype=torch.float64)  # [head,K]
    maps = rows[None, :, None].expand(1, 3, 2, 2)
    record = AttentionRecord(request).fill({1: maps[:, :1], 5: maps[:, 1:]}, torch.ones(1, 2).bool(), None)
    found = summary(record, Tokens(record.valid), [Next()])
    assert (found.layers, found.heads) == ([1, 5], [[3], [0, 2]])
    assert [(head.layer, head.head) for head in found.strongest("next")] == [(5, 0), (5, 2), (1, 3)]
    assert found.strongest("next", 1) == [(5, 0, approximately(0.9), approximately(1.8))]
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False)) == found.as_dict()


# -- batches of a model ------------------------------------------------------------------------------------------------


def assert_same(first, second, tolerance=1e-10):
    assert (first.examples, first.layers, first.heads) == (second.examples, second.layers, second.heads)
    for name, score in first.patterns.items():
        other = second.patterns[name]
        assert score.examples == other.examples
        torch.testing.assert_close(
            torch.tensor([score.share_by_head, score.lift_by_head]),
            torch.tensor([other.share_by_head, other.lift_by_head]),
            rtol=tolerance,
            atol=tolerance,
        )
        assert (score.even, score.share) == pytest.approx((other.even, other.share), rel=tolerance)


def test_padding_on_the_left_or_in_between_changes_nothing():
    record, tokens = random_case()
    # [K] old places among the new ones: padding before, in the middle and behind
    places = torch.tensor([1, 2, 4, 5, 6, 9, 10, 11, 12])
    valid = torch.zeros(3, 14, dtype=torch.bool)
    valid[:, places] = tokens.valid
    marks = {name: torch.ones(3, 14).bool().index_copy(1, places, mark) for name, mark in tokens.marks.items()}
    maps = torch.rand(3, 6, 14, 14, dtype=torch.float64)  # the padding is full of attention, which does not count,
    maps[:, :, 13] = math.nan  # whatever it is
    maps[:, :, places[:, None], places] = record.stacked()
    request = Request.of("map", record.heads)
    wide = AttentionRecord(request).fill(dict(enumerate(maps.chunk(2, 1))), valid, None)
    assert_same(summary(wide, Tokens(valid, marks)), summary(record, tokens))


def test_what_cannot_be_scored_is_refused_and_not_counted():
    record = record_of(BY_HAND, THREE, what="map")
    for cell in ((0, 0, 0, 0), (0, 0, 2, 2)):  # on no target, and in a row without one
        broken, scores = BY_HAND.clone(), PatternScores([Next()])
        broken[cell] = math.nan
        with pytest.raises(InputError, match="example 0 is not finite"):
            scores.add(record_of(broken, THREE, what="map"), Tokens(THREE))
        with pytest.raises(StateError):
            scores.result()
    with pytest.raises(InputError, match="expected one or more, each name once"):
        PatternScores([Next(), First(), Next()])
    with pytest.raises(InputError, match="not those of the record"):
        summary(record, Tokens(torch.tensor([[True, True, False]])), [Next()])
    with pytest.raises(InputError, match=r"pattern 'nxt'.*did you mean 'next'\? known: first, next"):
        summary(record, Tokens(THREE), [Next(), First()]).strongest("nxt")
    with pytest.raises(InputError, match="pattern period needs to know each full-stop, .* leave it out"):
        over_split(patterns=[Next(), Period()])


# -- over a split ------------------------------------------------------------------------------------------------------

SPLIT = Split(
    texts=(("the cat", "a dog sees the old man"), ("a red bird", "the man"), ("a", "tree"), ("new house and", "river")),
    labels=(0, None, 1, 0),
)


SOME = (First(), Next(), Delim())


def over_split(split=SPLIT, patterns=SOME, **options):
    tokenizer = build_tokenizer()
    model = build_model("bert", dtype=torch.float64, pad_token_id=0, hidden_dropout_prob=0.5).train()
    found = pattern_scores(model, tokenizer, split, patterns, max_length=24, **options)
    assert model.training
    return found


def test_over_a_split_every_example_counts_alone():
    scores = PatternScores(SOME)
    tokenizer, model = build_tokenizer(), build_model("bert", dtype=torch.float64, pad_token_id=0).eval()
    with torch.no_grad(), hw.capture(model, what="map") as record:
        for texts in SPLIT.texts:
            inputs = tokenizer(*texts, return_tensors="pt")
            model(**inputs)
            separator = inputs["input_ids"] == tokenizer.sep_token_id
            assert separator.sum() == 2
            scores.add(record, Tokens(record.valid, {"separator": separator}))
    for batch in (1, 3, None):
        assert_same(over_split(batch=batch), scores.result())


def test_the_batch_is_made_small_for_long_examples(monkeypatch):
    done = []
    # 12 heads, 11 tokens at most, 4 bytes: two examples fit, three do not
    monkeypatch.setattr("headwise.experiments.head_studies.head_patterns.MAP_BYTES", 2 * 12 * 11 * 11 * 4)
    over_split(after_batch=done.append)
    assert done == [2, 4]

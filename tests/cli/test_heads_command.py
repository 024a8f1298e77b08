"""`headwise heads patterns`: which heads of a run follow a pattern."""

import json

import pytest
from tiny_runs import assert_done, assert_one_sentence

from headwise.experiments.apply import load_run
from headwise.experiments.head_studies.head_patterns import pattern_scores
from headwise.patterns import PATTERNS, Delim, First, Next, Prev
from headwise.patterns.base import Knowledge

FIXED = {"first", "next", "prev", "delim"}  # the vocabulary of the small runs has no full stop


@pytest.fixture
def patterns(headwise, finished):
    """Run `heads patterns` on the finished run."""

    def type_in(*words):
        return headwise("heads", "patterns", finished, *words)

    return type_in


def test_json_is_what_the_library_says(patterns, finished):
    out, err = assert_done(patterns("--json"))
    found, run = json.loads(out), load_run(finished)
    fixed = [Next(), First(), Prev(), Delim()]
    expected = pattern_scores(run.model, run.tokenizer, run.task.read("test", run.data), fixed, max_length=24)
    assert (found["run"], found["split"], found["examples"]) == (str(finished), "test", 21)
    assert (found["layers"], found["heads"]) == ([0, 1], [[0, 1, 2, 3]] * 2)
    assert set(found["patterns"]) == FIXED
    for name, score in expected.as_dict()["patterns"].items():
        strongest = found["patterns"][name].pop("strongest")
        assert found["patterns"][name].keys() == score.keys()
        assert found["patterns"][name]["examples"] == score["examples"] == 21
        for layer in (0, 1):
            assert found["patterns"][name]["share_by_head"][layer] == pytest.approx(score["share_by_head"][layer])
        assert [head["share"] for head in strongest] == sorted(sum(score["share_by_head"], []), reverse=True)[:3]
    assert {"left out period: the tokenizer has no full-stop", "small: 21/21"} <= set(err.splitlines())


def test_the_options_are_obeyed(patterns, monkeypatch):
    done = []

    def watched(*args, after_batch, **options):
        return pattern_scores(*args, after_batch=done.append, **options)

    monkeypatch.setattr("headwise.experiments.head_studies.head_patterns.pattern_scores", watched)
    chosen = ("--split", "validation", "--limit", 5, "--batch", 2, "--pattern", "next", "--pattern", "next")
    found = json.loads(patterns("--json", "--top", 1, *chosen)[1])
    assert (found["split"], found["examples"]) == ("validation", 5)
    (score,) = found["patterns"].values()
    assert len(score["strongest"]) == 1
    assert done == [2, 4, 5]


def test_the_table_names_the_strongest_heads(patterns):
    out, _ = assert_done(patterns("--top", 2))
    assert out.count(" head ") == 2 * len(FIXED)
    lines = out.splitlines()
    for name, score in json.loads(patterns("--json", "--top", 2)[1])["patterns"].items():
        at = next(number for number, line in enumerate(lines) if line.split()[:1] == [name])
        assert lines[at].split()[1:4] == ["21", f"{score['even']:.2f}", f"{score['share']:.2f}"]
        for line, head in zip(lines[at:], score["strongest"], strict=False):
            assert line.rstrip().endswith(f"layer {head['layer']} head {head['head']}: {head['share']:.2f}")


def test_patterns_that_cannot_be_detected_are_refused(patterns):
    class Known(Knowledge):
        pass

    assert_one_sentence(patterns("--pattern", "nxt"), "unknown pattern 'nxt'", "did you mean 'next'?", "prev")
    code, out, err = patterns("--pattern", "period", "--pattern", "next")
    assert (code, out) == (2, "")
    assert "headwise: pattern period needs to know each full-stop" in err.splitlines()[-1]
    PATTERNS.add("known", Known)
    try:
        result = patterns("--pattern", "known")
        assert_one_sentence(result, "--pattern known", "only fixed patterns", "delim, first, next")
    finally:
        PATTERNS.remove("known")

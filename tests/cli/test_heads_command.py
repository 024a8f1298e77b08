"""`headwise heads patterns`: which heads of a run follow a pattern."""

import json

import pytest
from tiny_runs import assert_one_sentence

from headwise.experiments.apply import load_run
from headwise.experiments.head_studies.head_patterns import pattern_scores
from headwise.patterns import PATTERNS, Delim, First, Next, Prev
from headwise.patterns.base import Knowledge

FIXED = {"first", "next", "prev", "delim"}  # the vocabulary of the small runs has no full stop


@pytest.fixture
def ask(headwise, finished):
    """Ask for patterns of the finished run."""

    def type_in(*words):
        return headwise("heads", "patterns", finished, *words)

    return type_in


@pytest.fixture
def answer(ask):
    def type_in(*words):
        code, out, err = ask("--json", *words)
        assert code == 0, err
        return json.loads(out)

    return type_in


# -- json --------------------------------------------------------------------------------------------------------------


def test_json_tells_everything_and_is_what_the_library_says(answer, finished):
    found = answer()
    run = load_run(finished)
    patterns = [Next(), First(), Prev(), Delim()]
    expected = pattern_scores(run.model, run.tokenizer, run.task.read("test", run.data), patterns, max_length=24)
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


def test_the_split_the_limit_and_the_number_of_heads_are_obeyed(answer):
    found = answer("--split", "validation", "--limit", 5, "--top", 1, "--pattern", "next", "--pattern", "next")
    assert (found["split"], found["examples"]) == ("validation", 5)
    (score,) = found["patterns"].values()
    assert len(score["strongest"]) == 1
    assert answer("--split", "validation", "--limit", 1000)["examples"] == 24


def test_the_batch_size_is_obeyed(ask, monkeypatch):
    done = []

    def watched(*args, after_batch, **options):
        return pattern_scores(*args, after_batch=done.append, **options)

    monkeypatch.setattr("headwise.experiments.head_studies.head_patterns.pattern_scores", watched)
    assert ask("--batch", 8)[0] == 0
    assert done == [8, 16, 21]


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_names_the_strongest_heads(ask, answer):
    code, out, err = ask("--top", 2)
    assert code == 0, err
    assert out.count(" head ") == 2 * len(FIXED)
    for name, score in answer("--top", 2)["patterns"].items():
        lines = out.splitlines()
        place = next(number for number, line in enumerate(lines) if line.split()[:1] == [name])
        assert lines[place].split()[1:4] == ["21", f"{score['even']:.2f}", f"{score['share']:.2f}"]
        for line, head in zip(lines[place:], score["strongest"], strict=False):
            assert line.rstrip().endswith(f"layer {head['layer']} head {head['head']}: {head['share']:.2f}")


def test_progress_and_what_was_left_out_go_to_stderr(ask):
    _, out, err = ask()
    assert "left out period: the tokenizer has no full-stop" in err.splitlines()
    assert "small: 21/21" in err.splitlines()
    assert "left out" not in out


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_an_unknown_pattern_is_answered_by_the_known_ones(ask):
    assert_one_sentence(ask("--pattern", "nxt"), "unknown pattern 'nxt'", "did you mean 'next'?", "prev")


def test_a_pattern_that_the_tokenizer_cannot_tell_is_refused_if_named(ask):
    code, out, err = ask("--pattern", "period", "--pattern", "next")
    assert (code, out) == (2, "")
    assert "headwise: pattern period needs to know each full-stop" in err.splitlines()[-1]


def test_a_knowledge_pattern_is_refused(ask):
    class Known(Knowledge):
        pass

    PATTERNS.add("known", Known)
    try:
        assert_one_sentence(ask("--pattern", "known"), "--pattern known", "only fixed patterns", "delim, first, next")
    finally:
        PATTERNS.remove("known")

"""A watcher sees every evaluation, and can end a run."""

import signal
from pathlib import Path

import pytest
from tiny_runs import IAT, small, small_joint

from headwise.experiments import check_recipe
from headwise.experiments.prepare import Place
from headwise.experiments.run import train
from headwise.training.callbacks import AbandonRun

EVERY_TWO = {"training__evaluate_every": 2}


def recipe(encoder):
    return check_recipe(small(encoder, **EVERY_TWO), "test")


def test_every_evaluation_with_the_best_so_far(encoder, pairs, tmp_path):
    seen = []
    result = train(recipe(encoder), Place(tmp_path / "run", Path(pairs)), watch=lambda *each: seen.append(each))
    happened = result.record["results"]
    values = [each["eval_accuracy"] for each in happened["evaluations"]]
    expected = [(each["step"], 10, max(values[: place + 1])) for place, each in enumerate(happened["evaluations"])]
    assert seen == expected
    assert [step for step, _, _ in seen] == [2, 4, 6, 8, 10]
    assert len(set(values)) > 1
    assert seen[-1][2] == happened["metrics"]["validation"]["accuracy"]


@pytest.mark.slow
def test_a_run_that_goes_on_remembers_the_best(encoder, pairs, tmp_path):
    """The best of all is before the stop, so whoever looks only at what comes after would tell another value."""
    whole, place = [], Place(tmp_path / "whole", Path(pairs))
    train(recipe(encoder), place, watch=lambda *each: whole.append(each))
    first, rest, place = [], [], Place(tmp_path / "run", Path(pairs))

    def stop(*each):
        first.append(each)
        if each[0] == 6:
            signal.raise_signal(signal.SIGINT)

    assert train(recipe(encoder), place, watch=stop).interrupted
    result = train(recipe(encoder), place, resume=True, watch=lambda *each: rest.append(each))
    assert [*first, *rest] == whole
    last = [each["eval_accuracy"] for each in result.record["results"]["evaluations"]][-len(rest) :]
    assert max(last) < rest[-1][2]


def test_a_watcher_ends_a_run(encoder, pairs, tmp_path):
    seen = []

    def end(step, total, best):
        seen.append(step)
        if step == 4:
            raise AbandonRun

    with pytest.raises(AbandonRun):
        train(recipe(encoder), Place(tmp_path / "run", Path(pairs)), watch=end)
    assert seen == [2, 4]


@pytest.mark.slow
def test_the_control_of_important_heads_is_not_watched(encoder, several, tmp_path):
    seen = []
    data = small_joint(encoder, among=["type", "score"], training__epochs=1, training__evaluate_every=2, iat=IAT)
    result = train(
        check_recipe(data, "test"), Place(tmp_path / "run", Path(several)), watch=lambda *each: seen.append(each[0])
    )
    assert "control" in result.record["results"]
    assert seen == sorted(set(seen))
    assert seen[-1] == result.record["results"]["steps"]

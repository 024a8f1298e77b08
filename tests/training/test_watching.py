"""A `watch` can end a run, and does not see the control of important heads."""

from pathlib import Path

import pytest
from tiny_runs import IAT, small, small_joint

from headwise.experiments import check_recipe
from headwise.experiments.prepare import RunPaths
from headwise.experiments.run import train
from headwise.training.callbacks import AbandonRun


def recipe(encoder):
    return check_recipe(small(encoder, training__evaluate_every=2), "test")


def test_a_watch_ends_a_run(encoder, pairs, tmp_path):
    seen = []

    def end(step, total, best):
        seen.append(step)
        if step == 4:
            raise AbandonRun

    with pytest.raises(AbandonRun):
        train(recipe(encoder), RunPaths(tmp_path / "run", Path(pairs)), watch=end)
    assert seen == [2, 4]


@pytest.mark.slow
def test_the_control_of_important_heads_is_not_watched(encoder, several, tmp_path):
    seen = []
    data = small_joint(encoder, among=["type", "score"], training__epochs=1, training__evaluate_every=2, iat=IAT)
    place = RunPaths(tmp_path / "run", Path(several))
    result = train(check_recipe(data, "test"), place, watch=lambda *each: seen.append(each[0]))
    assert "control" in result.record["results"]
    assert seen == sorted(set(seen))
    assert seen[-1] == result.record["results"]["steps"]

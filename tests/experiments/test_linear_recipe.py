import pytest
import torch
from tiny_runs import ran_jointly, record, small_joint
from transformers import AutoModel

import headwise as hw
from headwise.errors import InputError
from headwise.experiments.recipe import check_recipe


def test_a_linear_run_fits_the_tasks_and_leaves_the_encoder_alone(encoder, several, tmp_path):
    run = ran_jointly(tmp_path / "run", encoder, several, linear=True)
    before, after = AutoModel.from_pretrained(encoder), AutoModel.from_pretrained(run)
    for name, tensor in before.state_dict().items():
        if "pooler" not in name:  # fresh: the encoder on disk has none
            assert torch.equal(after.state_dict()[name], tensor)
    happened = record(run)["results"]
    assert happened["steps"] == 0
    assert happened["metrics"] == happened["last"]
    assert set(hw.load(run).tasks) == set(happened["tasks"])


def test_linear_and_iat_are_refused_together(encoder):
    with pytest.raises(InputError, match="linear trains nothing, so there is no iat: leave one of them out"):
        check_recipe(small_joint(encoder, linear=True, iat={}), "recipe")

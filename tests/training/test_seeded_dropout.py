"""With GuideCallback, what attention dropout drops of an example does not depend on how batches are split."""

import pytest
import torch
from conftest import build_model
from training.small_task import distance, exact_model, parameters, trainer_of
from transformers import Trainer

import headwise as hw
from headwise.training import GuidedTrainer

SPLITS = [
    {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
]


def trained(folder, guide=None, kind=GuidedTrainer, **changes):
    """Parameters after three steps with dropout of attention alone; attention as in plain models between the runs."""
    model = exact_model(dropout=0.3)
    if guide is not None:
        hw.guide(model, guide)
    changes.setdefault("callbacks", [hw.GuideCallback()])
    trainer_of(kind, model, folder, **changes).train()
    assert model.config._attn_implementation == ("sdpa" if guide is None else "headwise")
    return parameters(model)


# With guides on attention and random heads in both passes.
TWICE = hw.Consistency(weight=3.0, by="heads") + hw.HeadDropout(p=0.3) + hw.MDG(weight=0.3)
GUIDES = {"plain": None, "guided": hw.MDG(weight=0.3), "heads": hw.HeadDropout(p=0.3), "two passes": TWICE}
GUIDES["twice"] = hw.Consistency(weight=3.0)


@pytest.mark.parametrize("guide", GUIDES.values(), ids=GUIDES)
@pytest.mark.parametrize("split", SPLITS, ids=["2 batches", "4 batches"])
def test_accumulated_batches_train_as_one(tmp_path, guide, split):
    whole = trained(tmp_path, guide)
    torch.manual_seed(9)  # decides nothing here
    assert distance(trained(tmp_path, guide, **split), whole) < 1e-9
    assert distance(trained(tmp_path, guide, seed=7), whole) > 1e-5  # so dropout did something


def test_plain_and_guided_arms_drop_the_same_weights(tmp_path):
    plain = trained(tmp_path)
    for guide in (hw.MDG(weight=1e-30), hw.Match("next", weight=1e-30)):
        assert distance(trained(tmp_path, guide), plain) < 1e-9


def test_without_the_callback_the_split_decides(tmp_path):
    """What the callback is for."""
    whole = trained(tmp_path, kind=Trainer, callbacks=[])
    assert distance(trained(tmp_path, kind=Trainer, callbacks=[], **SPLITS[0]), whole) > 1e-5


def test_an_eager_model_trains_with_the_callback(tmp_path):
    """It drops weights itself, so nothing is attached to it."""
    model = build_model("deberta-v2", dropout=0.3, dtype=torch.float64)
    trainer_of(Trainer, model, tmp_path, callbacks=[hw.GuideCallback()], max_steps=1).train()
    assert "_headwise_seam" not in model.__dict__

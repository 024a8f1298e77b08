"""A Trainer that goes on from a checkpoint goes on with the same guides, bit for bit."""

import json

import pytest
import torch
from conftest import build_model
from training.small_task import arguments, collate, distance, examples, logged, parameters
from transformers import Trainer

import headwise as hw
from headwise.errors import InputError
from headwise.training.trainer import GuidedTrainer

WEIGHT = hw.auto(0.3, window=2, every=2)


@pytest.fixture(autouse=True)
def _deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def build(kind, folder, guides=None, **changes):
    """All that a new process would make: dropout and shuffling too, since their random numbers must go on as well."""
    model = hw.guide(
        build_model("bert", dropout=0.2, hidden_dropout_prob=0.2), hw.MDG(weight=WEIGHT) if guides is None else guides
    )
    torch.manual_seed(99)  # a new process begins elsewhere
    options = {
        "max_steps": 6,
        "save_strategy": "steps",
        "save_steps": 3,
        "train_sampling_strategy": "random",
        "learning_rate": 1e-2,
        "lr_scheduler_type": "linear",
        "max_grad_norm": 1.0,
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
        **changes,
    }
    trainer = kind(model=model, args=arguments(folder, **options), train_dataset=examples(40), data_collator=collate)
    return logged(trainer) if kind is Trainer else trainer


def parts(trainer):
    return [
        {name: value for name, value in entry.items() if "loss" in name or "guide" in name}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]


@pytest.mark.parametrize(
    ("kind", "way"), [(Trainer, {}), (GuidedTrainer, {}), (GuidedTrainer, {"label_smoothing_factor": 0.1})]
)
def test_resumed_equals_uninterrupted(tmp_path, kind, way):
    whole = build(kind, tmp_path / "whole", **way)
    whole.train()
    again = build(kind, tmp_path / "whole", **way)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert distance(parameters(whole.model), parameters(again.model)) == 0.0
    assert hw.guides.guidance(again.model).state_dict() == hw.guides.guidance(whole.model).state_dict()
    assert hw.guides.guidance(again.model).step == 6
    assert parts(again) == parts(whole)
    assert len({entry["guide/mdg_weight"] for entry in parts(whole)}) > 2


def test_without_its_state_it_would_have_been_another_run(tmp_path):
    """So the test above can fail."""
    whole = build(Trainer, tmp_path)
    whole.train()
    path = tmp_path / "checkpoint-3" / "trainer_state.json"
    state = json.loads(path.read_text())
    del state["stateful_callbacks"]["GuideCallback"]
    path.write_text(json.dumps(state))
    again = build(Trainer, tmp_path)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert distance(parameters(whole.model), parameters(again.model)) > 1e-6


def test_the_checkpoint_holds_the_guides_state(tmp_path):
    trainer = build(GuidedTrainer, tmp_path, max_steps=3)
    trainer.train()
    state = json.loads((tmp_path / "checkpoint-3" / "trainer_state.json").read_text())
    assert (
        state["stateful_callbacks"]["GuideCallback"]["attributes"]["saved"]
        == hw.guides.guidance(trainer.model).state_dict()
    )
    assert state["stateful_callbacks"]["GuideCallback"]["attributes"]["saved"]["step"] == 3
    assert len(state["stateful_callbacks"]["GuideCallback"]["attributes"]["saved"]["auto"]["mdg"]["norms"]) == 2


@pytest.mark.parametrize("kind", [Trainer, GuidedTrainer])
def test_a_resumed_run_can_be_resumed_again(tmp_path, kind):
    whole = build(kind, tmp_path / "whole", save_steps=2)
    whole.train()
    first = build(kind, tmp_path / "parts", save_steps=2)
    first.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    second = build(kind, tmp_path / "parts", save_steps=2)
    second.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-4"))
    assert distance(parameters(whole.model), parameters(second.model)) == 0.0


def test_restored_callbacks_keep_logging(tmp_path):
    """With this argument the Trainer makes new callbacks from the checkpoint, and puts them at the end."""
    whole = build(GuidedTrainer, tmp_path)
    whole.train()
    again = logged(build(GuidedTrainer, tmp_path, restore_callback_states_from_checkpoint=True))
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert distance(parameters(whole.model), parameters(again.model)) == 0.0
    assert parts(again) == parts(whole)


def test_other_guides_are_refused(tmp_path):
    build(Trainer, tmp_path, max_steps=3).train()
    other = build(Trainer, tmp_path, guides=hw.MDG(weight=0.1))
    with pytest.raises(InputError, match=r"the guidance state is of other guides: .*\['mdg'\]; attach the guides"):
        other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))


def test_a_checkpoint_from_before_the_guides_starts_them_afresh(tmp_path):
    trainer = build(Trainer, tmp_path, max_steps=3)
    trainer.remove_callback(hw.GuideCallback)
    trainer.train()
    again = build(Trainer, tmp_path)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert hw.guides.guidance(again.model).step == 3
    state = json.loads((tmp_path / "checkpoint-6" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["GuideCallback"]["attributes"]["saved"]["step"] == 3

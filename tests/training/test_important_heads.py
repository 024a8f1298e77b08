"""IAT in a real Trainer: rows of other heads stay, steps are clipped by what is used, nothing is left."""

import numpy as np
import pytest
import torch
from conftest import build_batch, build_model
from training.small_task import arguments
from transformers import Trainer, TrainerCallback

from headwise.attention.families import head_weights
from headwise.errors import InputError
from headwise.heads.iat import IAT
from headwise.training.callbacks import TrainImportantHeads
from headwise.training.multitask import MultiTask

ALLOWED = {
    "a": np.array([[True, True, False, False], [False, False, True, False], [False] * 4]),
    "b": np.array([[False, False, False, True], [False, False, True, False], [False, True, False, False]]),
}


def two_tasks():
    return MultiTask({"a": build_model("bert"), "b": build_model("bert", num_labels=2)}).train()


def batch_of(task, shift):
    batch = build_batch(size=4)
    batch["input_ids"] = torch.where(batch["attention_mask"] > 0, (batch["input_ids"] + shift) % 55 + 5, 1)
    batch["labels"] = torch.arange(4) % (3 if task == "a" else 2)
    return {"task": task, **batch}


class Snapshots(TrainerCallback):
    """After every step: its task and the weights of the projections."""

    def __init__(self, model):
        self.model, self.seen = model, [(None, weights_of_heads(model))]

    def on_step_end(self, args, state, control, **kwargs):
        self.seen.append((self.model.last_task, weights_of_heads(self.model)))


def weights_of_heads(model):
    found = {}
    for layer in head_weights(model):
        for part in layer.parts:
            if part.kind != "output":
                for head, places in zip(layer.heads, part.places, strict=True):
                    here = found.setdefault((layer.layer, head), [])
                    here.append(part.parameter.detach().index_select(part.dim, places).clone())
    return found


def train(model, tasks, folder, *callbacks):
    """One micro-batch for each letter of `tasks`."""
    options = {"learning_rate": 0.01, "weight_decay": 0.1, "max_grad_norm": 0.1, "lr_scheduler_type": "linear"}
    options |= {"per_device_train_batch_size": 1, "max_steps": -1, "num_train_epochs": 1}
    trainer = Trainer(
        model,
        arguments(folder, remove_unused_columns=False, **options),
        train_dataset=[batch_of(task, shift) for shift, task in enumerate(tasks)],
        data_collator=lambda items: items[0],
        callbacks=list(callbacks),
    )
    trainer.train()


def test_every_step_of_the_trainer_changes_the_heads_of_its_task_only(tmp_path):
    model = two_tasks()
    snapshots = Snapshots(model)
    train(model, "abba", tmp_path, TrainImportantHeads(model, ALLOWED, IAT()), snapshots)
    assert [task for task, _ in snapshots.seen] == [None, "a", "b", "b", "a"]
    for (_, before), (task, after) in zip(snapshots.seen, snapshots.seen[1:], strict=False):
        for head, tensors in before.items():
            same = [torch.equal(old, new) for old, new in zip(tensors, after[head], strict=True)]
            assert not any(same) if ALLOWED[task][head] else all(same), (task, head)


def test_nothing_is_left_after_training_or_after_an_error(tmp_path):
    model = two_tasks()
    callback = TrainImportantHeads(model, ALLOWED, IAT(others=False))
    with pytest.raises(InputError, match="unknown task 'c'"):
        train(model, "ac", tmp_path, callback)
    callback.remove()
    train(model, "a", tmp_path, callback)
    twin = two_tasks()
    twin.load_state_dict(model.state_dict())
    for each in (model, twin):
        assert not each._forward_hooks
        train(each, "ab", tmp_path)
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=0, atol=0)


def test_several_processes_are_refused():
    class Arguments:
        world_size = 2

    callback = TrainImportantHeads(two_tasks(), ALLOWED, IAT())
    with pytest.raises(InputError, match="2 processes train together, .*: train in one process"):
        callback.on_train_begin(Arguments(), None, None)

"""IAT in a real Trainer: rows of other heads stay, steps are clipped by what is used, nothing is left."""

import copy

import numpy as np
import pytest
import torch
from conftest import build_batch, build_model
from transformers import Trainer, TrainerCallback, TrainingArguments

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


def train(model, tasks, folder, *callbacks, **changes):
    """One micro-batch for each letter of `tasks`."""
    options = {"learning_rate": 0.01, "weight_decay": 0.1, "max_grad_norm": 0.1, **changes}
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=1,
        num_train_epochs=1,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        remove_unused_columns=False,
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **options,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=[batch_of(task, shift) for shift, task in enumerate(tasks)],
        data_collator=lambda items: items[0],
        callbacks=list(callbacks),
    )
    trainer._get_train_sampler = lambda *_: None  # in order
    trainer.train()
    return trainer


def test_every_step_of_the_trainer_changes_the_heads_of_its_task_only(tmp_path):
    model = two_tasks()
    snapshots = Snapshots(model)
    train(model, "abba", tmp_path, TrainImportantHeads(model, ALLOWED, IAT()), snapshots)
    assert [task for task, _ in snapshots.seen] == [None, "a", "b", "b", "a"]
    for (_, before), (task, after) in zip(snapshots.seen, snapshots.seen[1:], strict=False):
        for head, tensors in before.items():
            same = [torch.equal(old, new) for old, new in zip(tensors, after[head], strict=True)]
            assert not any(same) if ALLOWED[task][head] else all(same), (task, head)


def test_the_authors_mode_leaks(tmp_path):
    model = two_tasks()
    before = weights_of_heads(model)
    train(model, "a", tmp_path, TrainImportantHeads(model, ALLOWED, IAT(mode="grad_mask")))
    assert not torch.equal(before[2, 3][0], weights_of_heads(model)[2, 3][0])


def test_micro_batches_of_the_trainer_are_one_update(tmp_path):
    model = two_tasks()
    snapshots = Snapshots(model)
    callback = TrainImportantHeads(model, ALLOWED, IAT())
    train(model, "aabb", tmp_path, callback, snapshots, gradient_accumulation_steps=2)
    assert [task for task, _ in snapshots.seen] == [None, "a", "b"]
    start, middle, end = (weights for _, weights in snapshots.seen)
    assert torch.equal(start[0, 3][0], middle[0, 3][0])
    assert torch.equal(middle[0, 0][0], end[0, 0][0])
    assert not torch.equal(middle[0, 3][0], end[0, 3][0])


def test_without_others_the_encoder_outside_of_the_heads_stays(tmp_path):
    model = two_tasks()
    before = copy.deepcopy(model.state_dict())
    train(model, "ab", tmp_path, TrainImportantHeads(model, ALLOWED, IAT(others=False, protect="qkvo")))
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    attention = "encoder.encoder.layer.{}.attention."
    weights = {f"self.{kind}.{of}" for kind in ("query", "key", "value") for of in ("weight", "bias")}
    expected = {attention.format(layer) + name for layer in range(3) for name in (*weights, "output.dense.weight")}
    assert changed == expected | {f"heads.{task}.classifier.{of}" for task in (0, 1) for of in ("weight", "bias")}
    assert all(parameter.requires_grad for parameter in model.parameters())


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


def test_evaluation_between_steps_does_not_change_the_task(tmp_path):
    model = two_tasks()

    class Evaluates(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            model.eval()
            with torch.no_grad():
                model(**batch_of("b", 9))
            model.train()

        on_step_end = on_substep_end

    callback = TrainImportantHeads(model, ALLOWED, IAT())
    train(model, "aabb", tmp_path, callback, Evaluates(), gradient_accumulation_steps=2)


def test_several_processes_are_refused():
    class Arguments:
        world_size = 2

    callback = TrainImportantHeads(two_tasks(), ALLOWED, IAT())
    with pytest.raises(InputError, match="2 processes train together, .*: train in one process"):
        callback.on_train_begin(Arguments(), None, None)

"""A tiny task for transformers' Trainer, and the same training written out by hand.

Models are in double precision and without dropout, the optimiser is plain SGD without clipping: a loss that is scaled
wrongly shows in the parameters at once.
"""

from __future__ import annotations

import functools

import torch
from conftest import build_model
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from transformers import Trainer, TrainingArguments

import headwise as hw

RATE = 0.5


def examples(count: int = 32, *, seed: int = 3) -> list[dict[str, object]]:
    """Rows of 4 to 14 tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 15, (count,), generator=generator).tolist()
    return [
        {"input_ids": torch.randint(5, 60, (length,), generator=generator).tolist(), "labels": number % 3}
        for number, length in enumerate(lengths)
    ]


def collate(rows: list[dict[str, object]]) -> dict[str, Tensor]:
    """Pad to the longest of these rows."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [1] * (longest - len(row["input_ids"])) for row in rows])
    mask = torch.tensor([[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([row["labels"] for row in rows])}


def exact_model(**changes: object):
    """The same each time."""
    return build_model("bert", dtype=torch.float64, **changes)


def guided(guides: object = None, **options: object):
    return hw.guide(exact_model(), hw.MDG(weight=0.5) if guides is None else guides, **options)


def arguments(
    folder: object, kind: type[TrainingArguments] = TrainingArguments, **changes: object
) -> TrainingArguments:
    options = {
        "output_dir": str(folder),
        "use_cpu": True,
        "max_steps": 3,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 5,
        "train_sampling_strategy": "sequential",
        "max_grad_norm": 0.0,
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **changes,
    }
    return kind(**options)


def sgd(model: torch.nn.Module) -> tuple[torch.optim.Optimizer, None]:
    return torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=RATE), None


def trainer_of(kind: type[Trainer], model: torch.nn.Module, folder: object, **changes: object) -> Trainer:
    """A Trainer of this kind with SGD; `changes` are TrainingArguments, but for those that only the Trainer knows."""
    own = {name: changes.pop(name) for name in ("compute_loss_func", "callbacks", "train_dataset") if name in changes}
    return kind(
        model=model,
        args=arguments(folder, **changes),
        data_collator=collate,
        optimizers=sgd(model),
        **{"train_dataset": examples(), "eval_dataset": examples(13, seed=4), **own},
    )


def parameters(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in model.named_parameters()}


def distance(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """The largest difference between two sets of parameters."""
    assert set(first) == set(second)
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def summed_loss(outputs, labels, num_items_in_batch=None):
    """A compute_loss_func as transformers wants it: divided by the items of the whole accumulated batch."""
    return cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch


# -- by hand -------------------------------------------------------------------------------------------------------


def eager_mdg(attentions: tuple[Tensor, ...], mask: Tensor) -> Tensor:
    """MDG from the maps that transformers itself gives."""
    received = (torch.cat(attentions, 1) * mask[:, None, :, None]).sum(2)  # [B,M,K]
    unit = normalize(received, dim=-1)
    return -torch.log_softmax(unit @ unit.transpose(1, 2), -1).diagonal(dim1=1, dim2=2).mean()


def twins() -> list[dict[str, object]]:
    """Four times the same two examples in every batch of eight, so that micro batches have the batch's own gradient."""
    return [row for pair in range(4) for row in examples(2, seed=pair) * 4]


@functools.cache
def by_hand(weight: float, *, smoothing: float = 0.0, rows=examples):
    """Parameters, and task loss and MDG per step, of a loop that does not know headwise: 3 steps of 8 examples."""
    steps, batch = 3, 8
    rows = rows()
    model = exact_model().train()
    model.set_attn_implementation("eager")
    optimiser, _ = sgd(model)
    history = []
    for step in range(steps):
        inputs = collate(rows[step * batch : (step + 1) * batch])
        labels = inputs.pop("labels")
        outputs = model(**inputs, output_attentions=True)
        task = cross_entropy(outputs.logits, labels, label_smoothing=smoothing)
        guide = eager_mdg(outputs.attentions, inputs["attention_mask"])
        (task + weight * guide).backward()
        optimiser.step()
        optimiser.zero_grad()
        history.append((task.item(), guide.item()))
    return parameters(model), history


def logged(trainer: Trainer) -> Trainer:
    """The trainer, which logs every part of the loss."""
    trainer.add_callback(hw.GuideCallback())
    return trainer

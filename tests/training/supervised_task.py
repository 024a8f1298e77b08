"""A tiny task for Trainers of models with SSA: sentences in which one word decides the label."""

from __future__ import annotations

import random

import torch
from tiny_runs import SIGNS, build_tokenizer, sentence
from training.small_task import arguments
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainerCallback,
)

import headwise as hw
from headwise.ssa import supervision_of
from headwise.training import GuideCallback, SSACallback

TOKENIZER = build_tokenizer()
# Every probe gives labels, from the first epoch on where `use_saved` says that the model was trained before.
SOFT = {"label_rule": "soft", "precision": "fp32"}
AT_ONCE = {**SOFT, "use_saved": "somewhere", "ratio_step": 0.8}


def examples(count: int = 20, *, seed: int = 5, signs: tuple[str, ...] = tuple(SIGNS.values()), **changes: object):
    """Different sentences, encoded, with the number of their sign as label; `changes` go to the tokenizer."""
    chance = random.Random(seed)
    texts = [sentence(chance, signs[number % len(signs)]) for number in range(count)]
    assert len(set(texts)) == count
    return [{**TOKENIZER(text, **changes), "labels": number % len(signs)} for number, text in enumerate(texts)]


def build_model(options: dict[str, object] | None = None, *, dropout: float = 0.0, **changes: object):
    """A random BERT with SSA, the same each time."""
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=40,
        initializer_range=0.2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **{"num_labels": 3, **changes},
    )
    return hw.self_supervise(BertForSequenceClassification(config), options or SOFT, tokenizer=TOKENIZER)


def build(model, folder: object, *, kind: type[Trainer] = Trainer, **changes: object) -> Trainer:
    """A Trainer that relabels; `changes` are TrainingArguments, but for those that only the Trainer knows."""
    names = ("train_dataset", "data_collator", "compute_loss_func", "optimizers")
    own = {name: changes.pop(name) for name in names if name in changes}
    own = {"train_dataset": examples(), "data_collator": DataCollatorWithPadding(TOKENIZER), **own}
    options = {"max_steps": -1, "num_train_epochs": 3, "learning_rate": 1e-2, **changes}
    callbacks: list[TrainerCallback] = [GuideCallback()]
    if supervision_of(model).options.learns_labels:
        callbacks.append(SSACallback(model, own["train_dataset"], own["data_collator"]))
        own |= {"train_dataset": callbacks[1].dataset, "data_collator": callbacks[1].collator}
    trainer = kind(model=model, args=arguments(folder, **options), callbacks=callbacks, **own)
    trainer.remove_callback(PrinterCallback)
    return trainer


class Watch(TrainerCallback):
    """Calls a function before each epoch, after the labels are made."""

    def __init__(self, look) -> None:
        self._look = look

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:
        self._look(int(state.epoch or 0))


def watched(trainer: Trainer, look) -> Trainer:
    trainer.add_callback(Watch(look))
    return trainer


def labels_of(trainer: Trainer) -> list[float]:
    """The newest labels, -100 for none."""
    return torch.from_numpy(trainer.train_dataset.labels.values).nan_to_num(-100.0).tolist()


def labellings(trainer: Trainer, *, seconds: bool = False) -> list[dict[str, float]]:
    """What the log says of each epoch's labels."""
    return [
        {name[4:]: value for name, value in entry.items() if name.startswith("ssa/") and (seconds or "sec" not in name)}
        for entry in trainer.state.log_history
        if "ssa/share" in entry
    ]


def steps(trainer: Trainer) -> list[dict[str, float]]:
    """What the log says of each step."""
    return [entry for entry in trainer.state.log_history if "loss" in entry]

"""Models, batches and Trainers for the sections in Python."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from golden_sections.inputs import SIGNS, build_tokenizer, examples
from golden_sections.lab import log_sums, tensors_of


def inputs() -> dict[str, Tensor]:
    """Four pairs of different lengths."""
    texts = [[row[column] for row in examples(4, 9)] for column in ("sentence1", "sentence2")]
    return dict(build_tokenizer()(*texts, padding=True, return_tensors="pt"))


def batch() -> dict[str, Tensor]:
    """The same with labels."""
    return inputs() | {"labels": torch.tensor([0, 1, 2, 0])}


def classifier(labels: int = 3, seed: int = 5) -> Any:
    """The encoder with a fresh head, without dropout."""
    torch.manual_seed(seed)
    options = {"num_labels": labels, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.AutoModelForSequenceClassification.from_pretrained("encoder", **options).eval()


def logits(model: nn.Module, **options: Any) -> Any:
    with torch.no_grad():
        return model(**inputs(), **options).logits.tolist()


def take_gradient(model: nn.Module) -> float:
    """The norm of the gradient of all parameters, which is then cleared."""
    grads = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    return float(torch.cat(grads).norm())


def training_set(count: int) -> list[dict[str, Any]]:
    tokenizer, labels = build_tokenizer(), list(SIGNS)
    rows = examples(count, 11)
    return [{**tokenizer(row["sentence1"], row["sentence2"]), "labels": labels.index(row["label"])} for row in rows]


def trainer_of(kind: Any, model: Any, folder: str, **options: Any) -> Any:
    """A Trainer that is quick and says nothing."""
    settings = {"per_device_train_batch_size": 8, "learning_rate": 1e-3, "max_steps": 9, "logging_steps": 1, "seed": 2}
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "use_cpu": True}
    arguments = transformers.TrainingArguments(folder, **{**settings, **quiet, **options})
    collate = transformers.DataCollatorWithPadding(build_tokenizer())
    return kind(model=model, args=arguments, train_dataset=training_set(40), data_collator=collate)


def train(trainer: Any) -> dict[str, Any]:
    """The sums of what it logs, and the weights."""
    with redirect_stdout(io.StringIO()):
        trainer.train()
    weights = tensors_of(list(trainer.model.state_dict().values()))
    return {"log": log_sums(trainer.state.log_history), "weights": weights}

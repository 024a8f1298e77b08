"""Several tasks on disk: the shared encoder as an ordinary folder of transformers, and the tasks' heads in one file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

from headwise.attention.config_sizes import check_sizes
from headwise.attention.surgery import prune_structure, pruned_in
from headwise.errors import InputError, choices
from headwise.training.multitask import MultiTask
from headwise.training.saving import HEAD_FILE, fill, holds_classifier, in_one_sentence, save_tokenizer

HEADS_FILE = "headwise_heads.safetensors"
# In the config: the tasks in their order (transformers sorts keys), with what a config of transformers says about one.
TASKS_KEY = "headwise_tasks"
_OF_A_TASK = ("id2label", "label2id", "problem_type")


def save_multitask(model: MultiTask, tokenizer: Any, folder: Path) -> None:
    """Write encoder, heads and tokenizer."""
    save_model(model, folder)
    save_tokenizer(tokenizer, folder)


def save_model(model: MultiTask, folder: Path) -> None:
    """Write encoder and heads.

    Plain transformers loads the encoder (AutoModel); `load_task` puts a task's head on it.
    """
    encoder = model.encoder
    encoder.save_pretrained(folder)
    config = copy.deepcopy(encoder.config)
    for name in _OF_A_TASK:
        config.__dict__.pop(name, None)
    config.architectures = [type(encoder).__name__]
    setattr(config, TASKS_KEY, [_about(task, model.classifier(task).config) for task in model.tasks])
    config.save_pretrained(folder)
    heads = {
        f"{task}/{name}": tensor.contiguous()
        for task, head in zip(model.tasks, model.heads, strict=True)
        for name, tensor in head.state_dict().items()
    }
    save_file(heads, str(folder / HEADS_FILE))


def _about(task: str, config: Any) -> dict[str, Any]:
    labels = [config.id2label[number] for number in range(config.num_labels)]
    return {"name": task, "labels": labels, "problem": config.problem_type}


def tasks_in(folder: Path) -> dict[str, Any]:
    """What the config of a folder says about its tasks, by name; empty if it holds one classifier or none."""
    with in_one_sentence(folder):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        check_sizes(config, folder)
    alone = (folder / HEAD_FILE).is_file() and not (folder / HEADS_FILE).is_file()
    if alone or holds_classifier(config):  # one that began as such a folder, and may have its config still
        return {}
    found = getattr(config, TASKS_KEY, None) or []
    if not isinstance(found, list) or not all(_tells(about) for about in found):
        raise InputError(
            f"the config in {folder} has a damaged {TASKS_KEY} ({f'{found!r}':.60}): save the model again."
        )
    return {about["name"]: about for about in found}


def _tells(about: Any) -> bool:
    """Whether this is what `_about` wrote."""
    return (
        isinstance(about, dict)
        and isinstance(about.get("name"), str)
        and isinstance(about.get("labels"), list)
        and all(isinstance(label, str) for label in about["labels"])
        and isinstance(about.get("problem", 0), str | None)
    )


def load_task(folder: Path, task: str) -> Any:
    """The classifier of one task, as plain transformers has it, in evaluation mode."""
    tasks = tasks_in(folder)
    if task not in tasks:
        raise InputError(f"{folder} has no task {task!r}: {choices(str(task), tasks)}.")
    with in_one_sentence(folder):
        return _classifier(folder, task, tasks[task], _encoder_weights(folder))


def load_multitask(folder: Path) -> MultiTask:
    """All tasks on one encoder, in evaluation mode."""
    tasks = tasks_in(folder)
    with in_one_sentence(folder):
        weights = _encoder_weights(folder)
        parts: dict[str, Any] = {}
        for task, about in tasks.items():  # of their encoders only the first stays
            parts[task] = _classifier(folder, task, about, None if parts else weights)
        model = MultiTask(parts)
    model.eval()
    return model


def _classifier(folder: Path, task: str, about: dict[str, Any], encoder: dict[str, Tensor] | None) -> Any:
    """A task's classifier; without weights for its encoder, that is left to chance."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    delattr(config, TASKS_KEY)
    config.id2label = dict(enumerate(about["labels"]))
    config.label2id = {label: number for number, label in enumerate(about["labels"])}
    config.problem_type = about["problem"]
    model: Any = AutoModelForSequenceClassification.from_config(config)
    prune_structure(model, pruned_in(config))
    model.accepts_loss_kwargs = False
    heads = load_file(str(folder / HEADS_FILE))
    own = {name.removeprefix(f"{task}/"): tensor for name, tensor in heads.items() if name.startswith(f"{task}/")}
    prefix = model.base_model_prefix
    if encoder is not None:
        fill(model.base_model, encoder, lambda name: True)
    fill(model, own, lambda name: not name.startswith(f"{prefix}."))
    return model.eval()


def _encoder_weights(folder: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        weights |= load_file(str(file))
    return weights

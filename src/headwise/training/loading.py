"""Load what headwise saved, whatever it has beyond plain transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from headwise.errors import InputError
from headwise.json_text import parse_json
from headwise.ssa import supervision_of
from headwise.training.multitask import MultiTask
from headwise.training.multitask_saving import load_multitask, load_task, tasks_in
from headwise.training.saving import HEAD_FILE, architectures_in, holds_classifier, load_model_folder

RECORD = "headwise.json"


def load(folder: Path | str, task: str | None = None) -> nn.Module:
    """The model of a run, or of any folder that `save_pretrained` made, with all that headwise added to it.

        model = hw.load("runs/rte-seed1")
        model = hw.load("runs/joint-seed1", task="rte")
        model = hw.load("smaller")              # what hw.prune left, of the class that was saved

    An ordinary model of transformers in evaluation mode, of the class that its config.json names: a classifier, a
    masked language model, a bare encoder. Of a run on several tasks, one task's classifier; without `task` all of them,
    as one `MultiTask`.
    """
    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} holds no model: expected a folder with a config.json; name a finished run.")
    tasks = tasks_in(folder)
    if tasks:
        return load_multitask(folder) if task is None else load_task(folder, task)
    if task is not None:
        raise InputError(f"{folder} holds one classifier, not several tasks: leave task={task!r} out.")
    head = run_settings(folder)[0]
    model = load_model_folder(folder, head)
    if head == "pooler" and (folder / HEAD_FILE).is_file():  # its classifier is there, and nothing says of which kind
        check_classifier(folder, model)
    return model


def load_trained(folder: Path | str) -> nn.Module:
    """Like `load`, for those who need a trained classifier: a model without one is refused."""
    model = load(folder)
    if not isinstance(model, MultiTask) and run_settings(Path(folder).expanduser())[0] == "pooler":
        check_classifier(Path(folder), model)
    return model


def check_classifier(folder: Path, model: nn.Module) -> None:
    """Refuse a model without a trained classifier."""
    config: Any = model.config
    if supervision_of(model) is None and not holds_classifier(config):
        names = ", ".join(architectures_in(config)) or "model"
        raise InputError(f"{folder} holds a {names} without a trained classifier: name a finished run.")


def run_settings(folder: Path) -> tuple[str, int | None]:
    """The head and the longest input of a run of headwise; the usual head and None for other folders."""
    path = folder / RECORD
    if not path.is_file():
        return "pooler", None
    try:
        recipe = parse_json(path.read_text(encoding="utf-8"))["asked"]["recipe"]
        several = ", ".join(recipe.get("tasks", ()))
        settings = "" if several else str(recipe["head"]), int(recipe["data"]["max_length"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}): train again.") from error
    if several:
        raise InputError(f"{folder} has several tasks ({several}): expected a run on one.")
    return settings

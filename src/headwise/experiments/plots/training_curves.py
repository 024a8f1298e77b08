"""How a run went: its losses, its guides and its scores on validation, step by step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise import documents
from headwise.errors import InputError
from headwise.experiments import record

LOG = "log.jsonl"
EVALUATED = "eval_"
GUIDE = "guide/"
WEIGHT = "_weight"
# Of a guide: what is drawn, and how its name goes on in the log.
KINDS = {"raw": "", "weighted": "_weighted", "share": "_share"}

Entry = Mapping[str, Any]


def training_curves(folder: Path, model: str) -> list[dict[str, Any]]:
    """The series of a run: {model, group, name, kind, x, y}, x in optimiser steps.

    Groups are loss, guide:NAME (kinds raw, weighted and share) and validation (the main metric first). A loss is the
    mean over the steps since the last log. Values that are not finite are left out, and series without any.

    Args:
        folder: a finished run of `headwise train`, on one task or several.
        model: stands in every series.
    """
    content = record.read(folder)
    if not record.finished(content):
        raise InputError(f"{folder} holds a run that is not finished: go on with `headwise train ... --resume`.")
    log = [entry for entry in _read_log(folder) if "loss" in entry]
    found = [*_losses(log), *_guides(log), *_validation(folder, content["results"])]
    return [{"model": model, **each} for each in found if each["x"]]


def _read_log(folder: Path) -> list[Entry]:
    path = folder / LOG
    if not path.is_file():
        raise InputError(f"{path} is not there, so nothing is known of the steps: train again with `headwise train`.")
    entries: list[Entry] = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            entry = documents.parse(line, finite=False)
        except ValueError as error:
            raise _damaged(path, number, str(error)) from error
        if not isinstance(entry, dict) or not _is_number(entry.get("step")):
            raise _damaged(path, number, "expected an object with a step")
        entries.append(entry)
    return entries


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} could not be read ({error}): train again with `headwise train`.") from error


def _damaged(path: Path, line: int, reason: str) -> InputError:
    return InputError(f"{path}, line {line}, is damaged ({reason}): train again with `headwise train`.")


def _losses(log: Sequence[Entry]) -> list[dict[str, Any]]:
    """What the task asks for, and all that was trained on; where nothing is added, these are one and the same."""
    keys = dict.fromkeys(key for entry in log for key in entry)
    task = next((key for key in ("ssa/task_loss", "task_loss") if key in keys), "loss")
    named = {"task loss": task, "token loss": "ssa/token_loss"} | ({} if task == "loss" else {"whole loss": "loss"})
    return [_series(log, "loss", name, "raw", key) for name, key in named.items()]


def _guides(log: Sequence[Entry]) -> list[dict[str, Any]]:
    keys = dict.fromkeys(key for entry in log for key in entry if key.startswith(GUIDE))
    names = [key.removeprefix(GUIDE) for key in keys if f"{key}{WEIGHT}" in keys]
    return [
        _series(log, f"guide:{name}", name, kind, f"{GUIDE}{name}{ending}")
        for name in names
        for kind, ending in KINDS.items()
    ]


def _validation(folder: Path, happened: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        evaluations: list[Entry] = happened.get("evaluations") or []
        keys = dict.fromkeys(key for entry in evaluations for key in entry if key.startswith(EVALUATED))
        main = [f"{EVALUATED}{name}" for name in _main_metrics(happened)]
        ordered = sorted(keys, key=lambda key: main.index(key) if key in main else len(main))
        return [_series(evaluations, "validation", key.removeprefix(EVALUATED), "raw", key) for key in ordered]
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder / record.NAME} is damaged ({type(error).__name__}: {error}): train again."
        ) from error


def _main_metrics(happened: Mapping[str, Any]) -> list[str]:
    """That of the run; of several tasks then that of each."""
    return [happened["primary"], *(f"{task}/{each['primary']}" for task, each in happened.get("tasks", {}).items())]


def _series(entries: Iterable[Entry], group: str, name: str, kind: str, key: str) -> dict[str, Any]:
    points = [(entry["step"], entry[key]) for entry in entries if _is_number(entry.get(key))]
    return {
        "group": group,
        "name": name,
        "kind": kind,
        "x": [int(step) for step, _ in points],
        "y": [float(value) for _, value in points],
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# What runs are called where several stand side by side.


def names_apart(folders: Sequence[Path]) -> list[str]:
    """The names of folders, with as much of their parents as tells them apart."""
    parts = [folder.expanduser().absolute().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]

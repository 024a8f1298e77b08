"""The result files of head studies and analyses: NAME.json, with its arrays in NAME.safetensors and rows in NAME.csv.

Studies write to RUN/heads, analyses to RUN/analysis. Each file is complete or absent, and the JSON is written last.
A file is checked against SCHEMAS when it is read. This module does not import torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy
from numpy.typing import NDArray
from pydantic import Field, create_model
from safetensors import SafetensorError
from safetensors.numpy import load, save

from headwise import documents
from headwise.disk import disk_errors, folder_lock, save_content
from headwise.documents import Count, Document
from headwise.errors import InputError
from headwise.experiments import record
from headwise.text_formats import csv_text

FOLDER = "heads"
FORMAT = 1
ANALYSIS, IMPORTANCE, CURVE = "analysis", "importance", "prune-curve"
DISSOCIATION, SIMILARITY = "dissociation", "similarity"
# Errors of code that uses the content of a file that is damaged in a way no schema describes.
BROKEN = (KeyError, TypeError, ValueError, IndexError, AttributeError)

Arrays = Mapping[str, NDArray[Any]]

# -- writing -----------------------------------------------------------------------------------------------------------


@contextmanager
def new_results(run: Path, folder: Path, paths: Sequence[Path], *, overwrite: bool) -> Iterator[None]:
    """Lock a folder while the block writes results into it.

    Args:
        run: the run that the results are about; it must be finished.
        folder: the folder to lock.
        paths: the JSON files that the block writes.
        overwrite: whether they may exist.
    """
    record.finished_record(run)
    with folder_lock(folder):
        for path in paths:
            check_file(path)
            if path.exists() and not overwrite:
                raise InputError(f"{path} exists already: pass overwrite=True to replace it.")
        yield


def check_file(path: Path) -> None:
    """Refuse a folder in the place of a result."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, and a result is written to this name: remove it.")


def identity(run: Path) -> dict[str, Any]:
    """What identifies a run: its folder for people, and a hash of its record."""
    content = (run / record.NAME).read_bytes()
    return {"folder": str(run), "record": hashlib.sha256(content).hexdigest()}


def write_result(
    folder: Path,
    name: str,
    content: Mapping[str, Any],
    *,
    rows: Iterable[Mapping[str, Any]] = (),
    arrays: Arrays | None = None,
) -> list[Path]:
    """Write a result: NAME.safetensors and NAME.csv if it has arrays and rows, then NAME.json; returns the paths."""
    files: dict[str, str | bytes] = {}
    content, rows = {"format": FORMAT, "kind": name, **content}, list(rows)
    if arrays:
        data = save({key: numpy.ascontiguousarray(array) for key, array in arrays.items()})
        content["arrays"] = {"file": f"{name}.safetensors", "sha256": hashlib.sha256(data).hexdigest()}
        files[f"{name}.safetensors"] = data
    if rows:
        files[f"{name}.csv"] = csv_text(rows)
    files[f"{name}.json"] = json_text(content)
    with disk_errors(f"{folder} cannot be created", "choose another folder."):
        folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        save_content(folder / file, text)
    return [folder / file for file in files]


def json_text(content: Mapping[str, Any]) -> str:
    """JSON with one line per key, because one line per number would be too long to read."""
    parts = (
        f"  {json.dumps(key)}: {json.dumps(part, ensure_ascii=False, allow_nan=False)}" for key, part in content.items()
    )
    return "{\n" + ",\n".join(parts) + "\n}\n"


# -- reading -----------------------------------------------------------------------------------------------------------


def read_result(folder: Path, name: str, run: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """The content of NAME.json and its arrays, or None if there is no such file.

    A damaged file and a file about another run are errors.
    """
    path, fix = folder / f"{name}.json", _fix(name)
    if not path.is_file():
        return None
    content = documents.read(path, fix)
    if isinstance(content, dict) and (content.get("format"), content.get("kind")) != (FORMAT, name):
        raise InputError(f"{path} holds {content.get('kind')!r:.40} of format {content.get('format')!r:.20}: {fix}.")
    documents.check(content, SCHEMAS[name], path, fix)
    if content["run"]["record"] != identity(run)["record"]:
        raise InputError(f"{path} was made for another run ({content['run']['folder']}), not for {run}: {fix}.")
    try:
        for holds, reason in _CHECKS[name](content):
            if not holds:
                raise ValueError(reason)
        if not (arrays := content.get("arrays")):
            return content, {}
        data = (folder / arrays["file"]).read_bytes()
        if hashlib.sha256(data).hexdigest() != arrays["sha256"]:
            raise ValueError(f"{arrays['file']} has changed")
        return content, load(data)
    except (OSError, SafetensorError, *BROKEN) as error:
        raise damaged(folder, name, error) from error


def damaged(folder: Path, name: str, error: Exception) -> InputError:
    """The error to raise for a result that cannot be used."""
    reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return documents.damaged(folder / f"{name}.json", reason[:160], _fix(name))


def _fix(name: str) -> str:
    return "analyze the run again and replace it" if name == ANALYSIS else "measure it again and replace it"


# -- schemas -----------------------------------------------------------------------------------------------------------


def _object(**fields: Any) -> Any:
    """A JSON object with these keys and types; a tuple is a type and its default. Other keys are allowed."""
    kinds: dict[str, Any] = {name: kind if isinstance(kind, tuple) else (kind, ...) for name, kind in fields.items()}
    return create_model("Object", __base__=Document, **kinds)


def _result(**fields: Any) -> Any:
    arrays = _object(file=str, sha256=str) | None
    return _object(format=int, kind=str, run=_object(folder=str, record=str), arrays=(arrays, None), **fields)


# Lists and mappings of types that are variables, which type checkers do not know.
_LIST: Any = list
_MAP: Any = dict
_SIZE: Any = Annotated[int, Field(ge=1, le=100_000)]
_MATRIX = list[list[float | None]]
_SCORE = _object(row=_object(mean=float | None))  # the part of a D-score that pages show
_DISSOCIATION = {
    "row": _object(mean=float | None),
    "retained": _MATRIX,
    "interval": _object(low=_SCORE, high=_SCORE),
    "null": _MAP[str, _object(p=_SCORE | None) | None],
    "double_dissociation": _LIST[_object(tasks=list[str], holds=bool | None)],
    "undefined": dict[str, str],
}
_PAPER = _object(id=str, text=str, relevant=bool, rank=Count, score=float)
_EXAMPLE = _object(
    title=str,
    place=Count | None,
    texts=list[str],
    tokens=Annotated[list[str], Field(min_length=1)],
    sources=list[Annotated[int, Field(ge=-1, le=1)]],
    gold=str | None,
    prediction=str,
    probabilities=dict[str, float],
    token_scores=list[float | None] | None,
    pooled=list[bool] | None,
    threshold=float | None,
    wanted=str | None,
)
_MASK = _object(
    order=str,
    step=Count | None,
    pruned_for=str | None,
    repeat=Count | None,
    heads=list[Annotated[list[Count], Field(min_length=2, max_length=2)]],
    values=list[float],
)
SCHEMAS: dict[str, type[Document]] = {
    ANALYSIS: _result(
        task=str,
        name=str,
        split=str,
        examples=_SIZE,
        examples_key=str,
        tokenizer=str,
        max_length=_SIZE,
        labels=list[str],
        task_kind=Literal["classification", "regression", "ranking"],
        layers=_SIZE,
        heads=_SIZE,
        statistics=_MAP[str, _object(mean=list[list[float]], error=_MATRIX | None)],
        pattern=(_object(name=str) | None, None),
        answers=_object(predictions=list[str | float], gold=list[str | None], texts=list[list[str]]) | None,
        claims=_LIST[_object(id=str, text=str, papers=_LIST[_PAPER])] | None,
        kept=_LIST[_EXAMPLE],
    ),
    IMPORTANCE: _result(tasks=_MAP[str, _object(scores=list[list[float]])]),
    CURVE: _result(
        metrics=Annotated[dict[str, str], Field(min_length=1)],
        counts=list[Count],
        shape=Annotated[list[Annotated[int, Field(ge=1, le=10_000)]], Field(min_length=2, max_length=2)],
        settings=dict[str, Any],
        masks=_LIST[_MASK],
        importance=dict[str, dict[str, Any]],
    ),
    DISSOCIATION: _result(
        tasks=list[str],
        pruned_for=list[str],
        null_draws=_MAP[str, _object(masks=Count) | None],
        steps=_LIST[_object(percent=float | None, heads=Count, **_DISSOCIATION)],
        mean=_object(**_DISSOCIATION),
    ),
    SIMILARITY: _result(
        tasks=list[str],
        importance=_object(overlap=dict[str, _MATRIX], chance=dict[str, float]),
        gradients=_object(total=_MATRIX),
    ),
}


# What a schema cannot say: which parts must have the same size. A check is a condition, and what is wrong without it.
_Checks = Iterator[tuple[bool, str]]


def _same_length(name: str, values: Sequence[Any] | None, count: int, what: str) -> tuple[bool, str]:
    size = count if values is None else len(values)
    return size == count, f"{name} has {size} values for {count} {what}"


def _square(name: str, matrix: Sequence[Sequence[Any]], size: int) -> tuple[bool, str]:
    fits = len(matrix) == size and all(len(row) == size for row in matrix)
    return fits, f"{name} is not a matrix of {size} x {size}, one row and column for each task"


def _check_analysis(content: Mapping[str, Any]) -> _Checks:
    layers, heads = content["layers"], content["heads"]
    yield bool(content["statistics"]), "statistics is empty"
    for name, statistic in content["statistics"].items():
        for part in ("mean", "error"):
            grid = statistic[part]
            fits = grid is None or (len(grid) == layers and all(0 < len(row) <= heads for row in grid))
            yield fits, f"statistics.{name}.{part} does not have {layers} layers of {heads} heads"
    for name in ("predictions", "gold", "texts") if content["answers"] is not None else ():
        yield _same_length(f"answers.{name}", content["answers"][name], content["examples"], "examples")
    for number, example in enumerate(content["kept"]):
        for name in ("sources", "token_scores", "pooled"):
            yield _same_length(f"kept.{number}.{name}", example[name], len(example["tokens"]), "tokens")


def _check_importance(content: Mapping[str, Any]) -> _Checks:
    for task, each in content["tasks"].items():
        sizes = {len(row) for row in each["scores"]}
        reason = f"tasks.{task}.scores: the layers do not have the same number of heads, 1 or more"
        yield len(sizes) == 1 and 0 not in sizes, reason


def _check_curve(content: Mapping[str, Any]) -> _Checks:
    yield bool(content["masks"]), "masks is empty"
    (layers, heads), steps = content["shape"], len(content["counts"])
    for number, mask in enumerate(content["masks"]):
        yield _same_length(f"masks.{number}", mask["values"], len(content["metrics"]), "tasks")
        fits = all(layer < layers and head < heads for layer, head in mask["heads"])
        yield fits, f"masks.{number} silences a head that the model does not have"
        step = mask["step"]
        yield step is None or step < steps, f"masks.{number} belongs to step {step}, and there are {steps}"


def _check_dissociation(content: Mapping[str, Any]) -> _Checks:
    for task in content["pruned_for"]:
        yield task in content["tasks"], f"pruned_for names {task!r}, which is not one of the tasks"
    for part in (*content["steps"], content["mean"]):
        yield _square("retained", part["retained"], len(content["tasks"]))
        for name, null in part["null"].items():
            unknown = null is None or null["p"] is None
            yield unknown or content["null_draws"].get(name) is not None, f"null_draws.{name} is missing"


def _check_similarity(content: Mapping[str, Any]) -> _Checks:
    yield _square("gradients.total", content["gradients"]["total"], len(content["tasks"]))
    for share, matrix in content["importance"]["overlap"].items():
        yield _square(f"importance.overlap.{share}", matrix, len(content["tasks"]))
        float(share)
        yield share in content["importance"]["chance"], f"importance.chance.{share} is missing"


_CHECKS = {
    ANALYSIS: _check_analysis,
    IMPORTANCE: _check_importance,
    CURVE: _check_curve,
    DISSOCIATION: _check_dissociation,
    SIMILARITY: _check_similarity,
}

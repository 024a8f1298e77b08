"""What the questions about heads have in common: the labelled examples of a run's tasks, and the files of the answers.

Answers lie in RUN/heads. Each file is whole or not there, and the JSON, which says what belongs together, comes last.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from headwise import documents
from headwise.disk import folder_lock, save_content
from headwise.errors import DiskError, InputError
from headwise.experiments import record
from headwise.experiments.text_formats import csv_text

if TYPE_CHECKING:
    from headwise.data import Collator, Encoded
    from headwise.experiments.apply import Loaded, Source

FOLDER = "heads"
FORMAT = 1

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Examples:
    """The labelled examples of one task, ready for its model."""

    encoded: Encoded
    collate: Collator
    labels: NDArray[Any]
    """[n] numbers of classes, or what a regression should give."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.labels)


def labelled_examples(
    runs: Mapping[str, Loaded], split: str, source: Source, limit: int | None = None
) -> dict[str, Examples]:
    """The first examples of a split of every task; refuses what has no labels, or is no matter of single texts."""
    return {task: _examples(task, run, split, source, limit) for task, run in runs.items()}


def _examples(task: str, run: Loaded, split: str, source: Source, limit: int | None) -> Examples:
    from headwise.data import Collator, encode  # those who only read files need no torch
    from headwise.experiments.splits import read_split

    if run.task.kind == "ranking":
        raise InputError(
            "this run is a re-ranker, whose examples come in groups: its heads cannot be asked in this way; give a run "
            "of a classifier or a regression."
        )
    chosen = read_split(run.recipe, run.task, split, source.data or run.data, network=source.network)
    if limit is not None:
        chosen = chosen.subset(range(min(limit, len(chosen))))
    if not chosen.labelled:
        raise InputError(
            f"the {split} set of {task} has no labels, by which heads are judged: choose another split, such as "
            "validation."
        )
    data = run.recipe.data
    kind = numpy.float64 if run.task.kind == "regression" else numpy.int64
    return Examples(
        encode(chosen, run.tokenizer, data.max_length),
        Collator.of(run.tokenizer, run.task.kind, padding=data.padding, max_length=data.max_length),
        numpy.asarray(chosen.labels, dtype=kind),
    )


def several(tasks: Sequence[str], what: str) -> None:
    """Refuse a run of one task where tasks are compared."""
    if len(tasks) < 2:
        raise InputError(
            f"{what} compares tasks, and this run has one only ({', '.join(tasks)}): train several on one encoder, "
            "with `tasks:` in the recipe."
        )


# -- files -------------------------------------------------------------------------------------------------------------


@contextmanager
def answers_folder(run: Path, output: Path | None) -> Iterator[Path]:
    """Where answers go, locked for the block; refuses, before any work, what cannot be a folder to write into."""
    folder = run / FOLDER if output is None else output.expanduser()
    with folder_lock(folder):
        yield folder


def identity(run: Path) -> dict[str, Any]:
    """What tells one run from another: its folder for people, and a hash of its record."""
    content = (run / record.NAME).read_bytes()
    return {"folder": str(run), "record": hashlib.sha256(content).hexdigest()}


def write_answers(
    folder: Path,
    name: str,
    content: Mapping[str, Any],
    *,
    rows: Iterable[Mapping[str, Any]] = (),
    arrays: Arrays | None = None,
) -> list[Path]:
    """Write NAME.safetensors and NAME.csv if there is something for them, and NAME.json last; returns their paths."""
    paths, content = [], {"format": FORMAT, "kind": name, **content}
    rows = list(rows)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(f"{folder} could not be made: {error.strerror or error}.") from error
    if arrays:
        data = save({key: numpy.ascontiguousarray(array) for key, array in arrays.items()})
        content["arrays"] = {"file": f"{name}.safetensors", "sha256": hashlib.sha256(data).hexdigest()}
        paths.append(folder / f"{name}.safetensors")
        save_content(paths[-1], data)
    if rows:
        paths.append(folder / f"{name}.csv")
        save_content(paths[-1], csv_text(rows))
    paths.append(folder / f"{name}.json")
    save_content(paths[-1], json_text(content))
    return paths


def json_text(content: Mapping[str, Any]) -> str:
    """JSON with one line for each part: thousands of heads on lines of their own would be hard to read."""
    parts = (
        f"  {json.dumps(key)}: {json.dumps(part, ensure_ascii=False, allow_nan=False)}" for key, part in content.items()
    )
    return "{\n" + ",\n".join(parts) + "\n}\n"


class RunIdentity(documents.Document):
    """As `identity` gives it."""

    folder: str
    record: str


class ArraysFile(documents.Document):
    """The arrays beside an answer."""

    file: str
    sha256: str


class Answer(documents.Document):
    """What every answer says of itself; schemas of answers add what they hold."""

    format: int
    kind: str
    run: RunIdentity
    arrays: ArraysFile | None = None


def read_answers(
    folder: Path, name: str, run: Path, schema: type[Answer]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """NAME.json and its arrays; None if it is not there. Refuses damaged files, and those of another run."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    fix = again(name, run, folder)
    content = documents.read(path, fix)
    if isinstance(content, dict) and (content.get("format"), content.get("kind")) != (FORMAT, name):
        raise InputError(f"{path} holds {content.get('kind')!r:.40} of format {content.get('format')!r:.20}: {fix}.")
    documents.check(content, schema, path, fix)
    about = content["run"]
    if about["record"] != identity(run)["record"]:
        raise InputError(f"{path} was made for another run ({about['folder']}), not for {run}: {fix}.")
    try:
        return content, _read_arrays(folder, content["arrays"]) if content.get("arrays") else {}
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise damaged(name, run, folder, error) from error


def damaged(name: str, run: Path, folder: Path, error: Exception) -> InputError:
    """What to say of an answer that cannot be read."""
    reason = " ".join(str(error).split())[:120]
    return documents.damaged(folder / f"{name}.json", f"{type(error).__name__}: {reason}", again(name, run, folder))


def again(name: str, run: Path, folder: Path) -> str:
    """How to replace an answer."""
    if name == "analysis":
        return f"make it again with `headwise analyze {run} --overwrite`"
    elsewhere = "" if folder == run / FOLDER else f" --output {folder}"
    return f"make it again with `headwise heads {name} {run}{elsewhere}`"


def _read_arrays(folder: Path, about: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    data = (folder / about["file"]).read_bytes()
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise ValueError(f"{about['file']} is not the file that belongs to it")
    return dict(load(data))

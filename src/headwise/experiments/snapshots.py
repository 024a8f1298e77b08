"""The heads of a run over its training: one file, RUN/snapshots.safetensors, from the snapshots of a callback.

Shapes: S snapshots, M heads of all layers, T tokens. This module loads no torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from headwise import documents
from headwise.disk import write_atomically
from headwise.errors import InputError
from headwise.experiments import record

NAME = "snapshots.safetensors"
# Inside the work folder of an unfinished run; `training.checkpoints` writes there.
FOLDER = "snapshots"


@dataclass(frozen=True)
class HeadsOverTraining:
    """What was seen at each snapshot."""

    steps: NDArray[np.int64]
    similarity: NDArray[np.float32]
    """[S,M] mean cosine of each head with all others."""
    entropy: NDArray[np.float32]
    """[S,M]"""
    vectors: NDArray[np.float32]
    """[S,M,T] what each head looks at in one example; rows sum to one."""
    examples: int
    """How many the first two are means over."""


def join_snapshots(work: Path, run: Path, examples: int) -> None:
    """Put the snapshots of a finished training into one file; nothing if there are none."""
    steps, found = [], []
    for path in sorted((work / FOLDER).glob("step-*.safetensors")):
        steps.append(int(path.stem.removeprefix("step-")))
        try:
            found.append(load_file(path))
        except (OSError, SafetensorError) as error:
            raise documents.damaged(path, error, "delete the folder of the run and start it over") from error
    if found:
        arrays: dict[str, NDArray[Any]] = {name: np.stack([each[name] for each in found]) for name in found[0]}
        arrays["steps"] = np.array(steps, dtype=np.int64)
        about = {"headwise": json.dumps({"format": 1, "examples": examples})}
        write_atomically(run / NAME, save(arrays, metadata=about))


def read_snapshots(run: Path) -> HeadsOverTraining | None:
    """The snapshots of a run; None if it was trained without."""
    path = run / NAME
    if not path.is_file():
        return None
    try:
        with safe_open(path, "numpy") as file:
            about = documents.parse((file.metadata() or {})["headwise"])
        if about["format"] != 1:
            raise InputError(f"{path} has format {about['format']!r:.20}: this headwise reads format 1; train again.")
        arrays = load_file(path)
        each = arrays["vectors"].shape[:2] if arrays["vectors"].ndim == 3 else (-1, -1)  # [S,M]
        for name, shape in {"steps": each[:1], "similarity": each, "entropy": each}.items():
            if arrays[name].shape != shape:
                raise ValueError(f"{name} is of shape {list(arrays[name].shape)}, expected {list(shape)}")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("some values are not finite")
        return HeadsOverTraining(**arrays, examples=int(about["examples"]))
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise documents.damaged(path, str(reason), record.AGAIN) from error

"""The files of an analysis, RUN/analysis/analysis.json and analysis.safetensors, and the kept examples with their maps.

The JSON describes the data, the statistics and the predictions; the arrays are the maps of the kept examples. This
module does not import torch.

Shapes: N layers, H heads, M = N H, T tokens of an example, k kept keys of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.documents import plain
from headwise.errors import InputError
from headwise.experiments.head_studies.head_files import ANALYSIS, BROKEN, damaged, read_result
from headwise.text_formats import table_html

FOLDER = "analysis"

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

# -- the maps of an example, one byte for each weight ----------------------------------------------------------------


def to_bytes(weights: NDArray[Any]) -> Bytes:
    """Attention as bytes, on the root scale."""
    values: Bytes = np.rint(np.sqrt(np.clip(weights, 0.0, 1.0)) * 255).astype(np.uint8)
    return values


def from_bytes(values: Bytes) -> Floats:
    """The attention that the bytes stand for."""
    weights: Floats = np.square(values.astype(np.float32) / 255)
    return weights


def marked_cells(rows: Floats) -> NDArray[np.bool_]:
    """[T,T] of a pattern's map: the cells with at least half of the largest weight of their row."""
    cells: NDArray[np.bool_] = (rows > 0) & (rows >= rows.max(1, keepdims=True) / 2)
    return cells


@dataclass(frozen=True)
class ExampleMaps:
    """All maps of an example: complete, or the largest weights of each row."""

    values: Bytes
    """[N,H,T,T], or [N,H,T,k] with `keys`."""
    keys: NDArray[np.uint16] | None = None
    """[N,H,T,k] the keys of the weights, largest weight first; None if the maps are complete."""

    @property
    def exact(self) -> bool:
        """Whether the maps are complete."""
        return self.keys is None

    @property
    def heads(self) -> tuple[int, int]:
        """Layers, and heads of each."""
        return self.values.shape[0], self.values.shape[1]

    def head(self, layer: int, head: int) -> Floats:
        """[T,T]; zero where a weight was left out."""
        values = from_bytes(self.values[layer, head])
        if self.keys is None:
            return values
        weights = np.zeros((len(values), len(values)), dtype=np.float32)
        np.put_along_axis(weights, self.keys[layer, head].astype(np.int64), values, 1)
        return weights

    def largest(self, count: int) -> ExampleMaps:
        """The same with at most so many weights of each row; complete maps that are no larger stay complete."""
        if self.values.shape[3] <= count:
            return self
        if self.keys is not None:
            return ExampleMaps(self.values[..., :count], self.keys[..., :count])
        # A stable sort: the first of equal weights comes first, whatever the machine.
        order = np.argsort(-self.values.astype(np.int16), axis=3, kind="stable")[..., :count]
        return ExampleMaps(np.take_along_axis(self.values, order, 3), order.astype(np.uint16))


@dataclass(frozen=True)
class ExampleView:
    """One example as one model processes it; the fields of the JSON have its names."""

    title: str
    place: int | None
    """The index in the split; None if the example is not from the split."""
    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    sources: tuple[int, ...]
    """The text of each token, -1 for special tokens."""
    gold: str | None
    prediction: str
    probabilities: dict[str, float]
    maps: ExampleMaps
    mean_map: Floats
    """[T,T] mean over all heads and layers."""
    vectors: Floats
    """[M,T] how each head's attention is distributed over the tokens; rows sum to one."""
    token_scores: tuple[float | None, ...] | None = None
    """Of a run with SSA: P(token matters), None at special tokens."""
    pooled: tuple[bool, ...] | None = None
    threshold: float | None = None
    wanted: tuple[str, Floats] | None = None
    """The pattern that heads are compared with: its name, and its map [T,T]."""

    def head_map(self, layer: int, head: int) -> Floats:
        """[T,T]; of long texts only the largest weights of each row."""
        layers, heads = self.maps.heads
        if not (0 <= layer < layers and 0 <= head < heads):
            raise InputError(
                f"layer {layer}, head {head} is not there: the model has layers 0 to {layers - 1} and heads 0 to "
                f"{heads - 1}."
            )
        return self.maps.head(layer, head)


# -- the analysis ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Analysis:
    """What the heads of a run do."""

    content: Mapping[str, Any]
    """The content of analysis.json."""
    examples: list[ExampleView]

    def _repr_html_(self) -> str:
        """For notebooks: every statistic over all heads."""
        rows = []
        for name, grid in self.content["statistics"].items():
            values = [value for row in grid["mean"] for value in row]
            rows.append([name, mean_over_heads(grid), min(values), max(values)])
        title = f"Heads of {self.name}, over {self.content['examples']} examples of {self.content['split']}"
        return table_html(title, ["statistic", "mean over heads", "lowest head", "highest head"], rows)

    @property
    def name(self) -> str:
        """The name of the run."""
        return str(self.content["name"])

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(self.content["layers"])

    @property
    def heads(self) -> int:
        """The number of heads of each layer."""
        return int(self.content["heads"])


def mean_over_heads(grid: Mapping[str, Any]) -> float:
    """The mean of a statistic, as `content["statistics"]` has it."""
    values = [value for row in grid["mean"] for value in row]
    return float(sum(values) / len(values))


def analysis_folder(run: Path, task: str | None = None) -> Path:
    """The folder of the analysis of a run, or of one of its tasks."""
    return run / FOLDER if task is None else run / FOLDER / task


def read_analysis(run: Path, task: str | None = None) -> Analysis:
    """The analysis of a run, or of one of its tasks."""
    folder = analysis_folder(run, task)
    if not run.is_dir():
        raise InputError(f"{run} is no folder: expected the folder of a trained run.")
    result = read_result(folder, ANALYSIS, run)
    if result is None:
        tasks = sorted(path.parent.name for path in (run / FOLDER).glob(f"*/{ANALYSIS}.json"))
        if task is None and tasks:
            raise InputError(
                f"{run} was analysed task by task: give one, such as task={tasks[0]} ({', '.join(tasks)})."
            )
        of_task = "" if task is None else f" for task {task}"
        raise InputError(f"{run} has no saved arrays of its heads{of_task}: analyze the run first.")
    content, arrays = result
    try:
        return Analysis(content, unpack_examples(content, arrays))
    except BROKEN as error:
        raise damaged(folder, ANALYSIS, error) from error


# The fields of an example in the JSON; the others are arrays.
_DESCRIBED = (
    *("title", "place", "texts", "tokens", "sources", "gold", "prediction", "probabilities"),
    *("token_scores", "pooled", "threshold"),
)


def pack_examples(examples: Sequence[ExampleView]) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Examples as plain data, and their arrays by name."""
    described: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for number, view in enumerate(examples):
        pattern, cells = view.wanted or (None, None)
        described.append(plain({**{name: getattr(view, name) for name in _DESCRIBED}, "wanted": pattern}))
        parts = {
            "wanted": cells,
            "values": view.maps.values,
            "keys": view.maps.keys,
            "mean": view.mean_map,
            "vectors": view.vectors,
        }
        arrays |= {f"{number}/{name}": part for name, part in parts.items() if part is not None}
    return described, arrays


def unpack_examples(content: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[ExampleView]:
    """The kept examples of an analysis; arrays that do not fit its heads or their tokens are a ValueError."""
    views = []
    for number, each in enumerate(content["kept"]):
        title, tokens = each["title"], len(each["tokens"])
        values, keys = arrays[f"{number}/values"], arrays.get(f"{number}/keys")
        if values.dtype != np.uint8:
            raise ValueError(f"the maps of {title} are {values.dtype}, expected uint8")
        maps = (content["layers"], content["heads"], tokens, tokens if keys is None else values.shape[-1])
        shapes: dict[str, tuple[int, ...]] = {"values": maps, "mean": (tokens, tokens)}
        shapes |= {"vectors": (maps[0] * maps[1], tokens)} | ({} if keys is None else {"keys": maps})
        shapes |= {} if each["wanted"] is None else {"wanted": (tokens, tokens)}
        for name, shape in shapes.items():
            part = arrays[f"{number}/{name}"]
            if part.shape != shape:
                raise ValueError(f"the {name} of {title} are {list(part.shape)}, expected {list(shape)}")
            if not np.isfinite(part).all():
                raise ValueError(f"the {name} of {title} are not finite")
        if keys is not None and keys.size and int(keys.max()) >= tokens:
            raise ValueError(f"the keys of {title} are not below {tokens}, the number of its tokens")
        fields: dict[str, Any] = {
            name: tuple(each[name]) if isinstance(each[name], list) else each[name] for name in _DESCRIBED
        }
        fields |= {"maps": ExampleMaps(values, keys), "mean_map": arrays[f"{number}/mean"]}
        wanted = None if each["wanted"] is None else (each["wanted"], arrays[f"{number}/wanted"])
        views.append(ExampleView(**fields, vectors=arrays[f"{number}/vectors"], wanted=wanted))
    return views

"""The files of an analysis: RUN/analysis/analysis.json and analysis.safetensors.

The JSON tells what was looked at, the statistics and the answers; the arrays are the maps of the kept examples.

Shapes: N layers, H heads, T tokens, k kept keys of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.disk import folder_lock
from headwise.errors import InputError
from headwise.experiments.analysis.example_views import ExampleView
from headwise.experiments.analysis.expected_maps import ExampleMaps
from headwise.experiments.head_studies.head_files import damaged, read_answers, write_answers
from headwise.experiments.head_studies.head_schemas import AnalysisFile
from headwise.experiments.record import finished_record
from headwise.notebook import table_html

FOLDER = "analysis"
NAME = "analysis"


@dataclass(frozen=True)
class Analysis:
    """What the heads of a run do."""

    content: Mapping[str, Any]
    """All but the maps, as plain data."""
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
        """Of the run."""
        return str(self.content["name"])

    @property
    def layers(self) -> int:
        """How many the model has."""
        return int(self.content["layers"])

    @property
    def heads(self) -> int:
        """Of each layer."""
        return int(self.content["heads"])


def mean_over_heads(grid: Mapping[str, Any]) -> float:
    """Of a statistic, as `content["statistics"]` has it."""
    values = [value for row in grid["mean"] for value in row]
    return float(sum(values) / len(values))


def analysis_folder(run: Path, task: str | None = None) -> Path:
    """Where the analysis of a run lies, or that of one of its tasks."""
    return run / FOLDER if task is None else run / FOLDER / task


@contextmanager
def new_analysis(run: Path, task: str | None, *, overwrite: bool, by: str) -> Iterator[None]:
    """Lock RUN/analysis for the block that writes it; refuses, before any work, what must not be replaced.

    Args:
        run: a finished run.
        task: of a run on several tasks, which one; None for all.
        overwrite: whether an analysis that is there may be replaced.
        by: how the caller allows that.
    """
    tasks = finished_record(run)["results"].get("tasks")
    names: list[str | None] = [None] if tasks is None else [task] if task is not None else list(tasks)
    with folder_lock(run / FOLDER):
        for name in () if overwrite else names:
            path = analysis_folder(run, name) / f"{NAME}.json"
            if path.exists():
                raise InputError(f"{path} exists already: add {by} to replace this analysis.")
        yield


def write_analysis(
    folder: Path, content: Mapping[str, Any], examples: Sequence[ExampleView], rows: Sequence[Mapping[str, Any]]
) -> list[Path]:
    """Write an analysis; the JSON comes last, so what is there is whole."""
    described, arrays = pack_examples(examples)
    return write_answers(folder, NAME, {**content, "kept": described}, rows=rows, arrays=arrays)


def read_analysis(run: Path, task: str | None = None) -> Analysis:
    """The analysis of a run; one that is not there is told with the command that makes it."""
    folder = analysis_folder(run, task)
    if not run.is_dir():
        raise InputError(f"{run} is no folder: expected one that `headwise train` made.")
    found = read_answers(folder, NAME, run, AnalysisFile)
    if found is None:
        option = "" if task is None else f" --task {task}"
        tasks = sorted(path.parent.name for path in (run / FOLDER).glob(f"*/{NAME}.json"))
        if task is None and tasks:
            raise InputError(f"{run} was analysed task by task: choose one with --task ({', '.join(tasks)}).")
        raise InputError(f"{run} has no saved arrays of its heads: make them with `headwise analyze {run}{option}`.")
    content, arrays = found
    try:
        examples = unpack_examples(content["kept"], arrays)
        for view in examples:
            _check_arrays(view)
        return Analysis(content, examples)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise damaged(NAME, run, folder, error) from error


def check_heads(run: Path, analysis: Analysis, task: str | None = None) -> None:
    """Refuse an analysis whose maps are not of as many heads as it says."""
    for view in analysis.examples:
        if view.maps.heads != (analysis.layers, analysis.heads):
            found, said = (" x ".join(map(str, each)) for each in (view.maps.heads, (analysis.layers, analysis.heads)))
            error = ValueError(f"the maps of {view.title} are of {found} heads, expected {said}")
            raise damaged(NAME, run, analysis_folder(run, task), error)


def pack_examples(examples: Sequence[ExampleView]) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Examples as plain data, and their arrays by name."""
    described: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for number, view in enumerate(examples):
        described.append(
            {
                "title": view.title,
                "place": view.place,
                "texts": list(view.texts),
                "tokens": list(view.tokens),
                "sources": list(view.sources),
                "gold": view.gold,
                "prediction": view.prediction,
                "probabilities": view.probabilities,
                "token_scores": None if view.token_scores is None else list(view.token_scores),
                "pooled": None if view.pooled is None else list(view.pooled),
                "threshold": view.threshold,
                "wanted": None if view.wanted is None else view.wanted[0],
            }
        )
        if view.wanted is not None:
            arrays[f"{number}/wanted"] = view.wanted[1]
        arrays[f"{number}/values"] = view.maps.values
        if view.maps.keys is not None:
            arrays[f"{number}/keys"] = view.maps.keys
        arrays[f"{number}/mean"] = view.mean_map
        arrays[f"{number}/vectors"] = view.vectors
    return described, arrays


def unpack_examples(described: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]) -> list[ExampleView]:
    """The other way round."""
    return [_unpacked(number, each, arrays) for number, each in enumerate(described)]


def _check_arrays(view: ExampleView) -> None:
    """Refuse arrays of an example that do not belong together, or not to its tokens."""
    tokens, (layers, heads) = len(view.tokens), view.maps.heads
    shapes: dict[str, tuple[NDArray[Any], tuple[int, ...]]] = {
        "maps": (view.maps.values, (layers, heads, tokens, view.maps.values.shape[-1])),
        "mean map": (view.mean_map, (tokens, tokens)),
        "vectors": (view.vectors, (layers * heads, tokens)),
    }
    if view.maps.keys is None:
        shapes["maps"] = (view.maps.values, (layers, heads, tokens, tokens))
    else:
        shapes["keys"] = (view.maps.keys, view.maps.values.shape)
    if view.wanted is not None:
        shapes["pattern"] = (view.wanted[1], (tokens, tokens))
    for name, (array, shape) in shapes.items():
        if array.shape != shape:
            raise ValueError(f"the {name} of {view.title} are {list(array.shape)}, expected {list(shape)}")
        if not np.isfinite(array).all():
            raise ValueError(f"the {name} of {view.title} are not finite")
    if view.maps.keys is not None and view.maps.keys.size and int(view.maps.keys.max()) >= tokens:
        raise ValueError(f"the keys of {view.title} go beyond its {tokens} tokens")


def _unpacked(number: int, each: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ExampleView:
    values = arrays[f"{number}/values"]
    tokens = len(each["tokens"])
    if values.ndim != 4 or values.shape[2] != tokens or values.dtype != np.uint8:
        raise ValueError(f"the maps of example {number} are {list(values.shape)}, and it has {tokens} tokens")
    return ExampleView(
        title=str(each["title"]),
        place=each["place"],
        texts=tuple(each["texts"]),
        tokens=tuple(each["tokens"]),
        sources=tuple(each["sources"]),
        gold=each["gold"],
        prediction=str(each["prediction"]),
        probabilities=dict(each["probabilities"]),
        maps=ExampleMaps(values, arrays.get(f"{number}/keys")),
        mean_map=arrays[f"{number}/mean"],
        vectors=arrays[f"{number}/vectors"],
        token_scores=None if each["token_scores"] is None else tuple(each["token_scores"]),
        pooled=None if each["pooled"] is None else tuple(each["pooled"]),
        threshold=each["threshold"],
        wanted=None if each["wanted"] is None else (str(each["wanted"]), arrays[f"{number}/wanted"]),
    )

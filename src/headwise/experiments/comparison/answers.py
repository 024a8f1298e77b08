"""What systems answered to the same examples, in a form that tests can use.

Shapes: R resamples, M rows (systems times seeds), n examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.experiments.results import StoredRun
from headwise.metrics import METRICS, McNemar, bootstrap_means, bootstrap_scores, mcnemar
from headwise.training.material import MEAN

# By how much the number in a file may differ from that of its predictions.
TOLERANCE = 1e-4

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """A metric on one set of examples; the mean over several tasks has one part for each."""

    output: str
    """The split, or TASK/SPLIT."""
    metric: str


def parts_of(run: StoredRun, metric: str, split: str) -> tuple[Part, ...]:
    """What a metric is the mean of; nothing if the run does not keep its answers, or they do not give the metric."""
    if metric == MEAN and run.tasks:
        parts = tuple(Part(f"{task}/{split}", primary) for task, primary in run.tasks.items())
    else:
        task, _, name = metric.rpartition("/")
        parts = (Part(f"{task}/{split}" if task else split, name),)
    return parts if all(_known(run, part) for part in parts) else ()


def _known(run: StoredRun, part: Part) -> bool:
    output = run.outputs.get(part.output)
    if output is None:
        return False
    if output["kind"] == "ranking":
        return all(part.metric in each for each in output["per_query"].values())
    return part.metric in METRICS


def _asked_of(output: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """What must be the same for answers to be compared one by one."""
    ranking = output["kind"] == "ranking"
    return output["kind"], sorted(output["per_query"]) if ranking else output["gold"]


@dataclass(frozen=True, eq=False)
class Answers:
    """All runs of a block on one set of examples."""

    part: Part
    kind: str
    labels: NDArray[Any]
    """[n] what was right; empty for rankings."""
    rows: NDArray[Any]
    """[M,n] predictions; of rankings, the measure of every claim."""

    @classmethod
    def of(cls, runs: Sequence[StoredRun], part: Part) -> Answers:
        """From runs whose examples are the same."""
        outputs = [run.outputs[part.output] for run in runs]
        for run, output in zip(runs, outputs, strict=True):
            if _asked_of(output) != _asked_of(outputs[0]):
                raise InputError(
                    f"{run.path} and {runs[0].path} have different answers to find in {part.output}: leave one out."
                )
        first = outputs[0]
        if first["kind"] != "ranking":
            rows = np.array([output["predictions"] for output in outputs])
            return cls(part, first["kind"], np.array(first["gold"]), rows)._checked(runs)
        claims = sorted(first["per_query"])
        rows = np.array([[output["per_query"][claim][part.metric] for claim in claims] for output in outputs])
        return cls(part, first["kind"], np.array([]), rows)._checked(runs)

    def _checked(self, runs: Sequence[StoredRun]) -> Answers:
        """Refuse files whose predictions do not give the numbers that they name."""
        task, _, split = self.part.output.rpartition("/")
        name = f"{task}/{self.part.metric}" if task else self.part.metric
        for run, value in zip(runs, self.scores(), strict=True):
            told = run.metrics[split].get(name)
            if told is not None and abs(value - told) > TOLERANCE:
                raise InputError(
                    f"{run.path} says {name} {told:.4f} on {split}, but its answers give {value:.4f}: the file was "
                    "changed; run it again."
                )
        return self

    @property
    def examples(self) -> int:
        """How many."""
        return int(self.rows.shape[1])

    def scores(self) -> Values:
        """[M] the metric of every row."""
        if self.kind == "ranking":
            return np.asarray(self.rows.mean(1), dtype=np.float64)
        return np.array([METRICS[self.part.metric](row, self.labels) for row in self.rows])

    def resampled(self, resamples: int, seed: tuple[int, ...]) -> Values:
        """[R,M] the metric on resamples of the examples, the same for all rows."""
        if self.kind == "ranking":
            return bootstrap_means(self.rows, resamples=resamples, seed=seed)
        return bootstrap_scores(self.part.metric, self.rows, self.labels, resamples=resamples, seed=seed)

    def per_example(self) -> Values | None:
        """[M,n] values whose means are the metric, if it is such a mean."""
        if self.kind == "ranking":
            return np.asarray(self.rows, dtype=np.float64)
        return (self.rows == self.labels).astype(np.float64) if self.part.metric == "accuracy" else None

    def mcnemar(self, first: int, second: int) -> McNemar:
        """McNemar's test between two rows of classes."""
        return mcnemar(self.rows[first], self.rows[second], self.labels)

"""Tests by example: every system of a block against the baseline, on the same examples.

Seeds share their examples, so they are no further evidence about new ones: an example that is drawn counts in all seeds
alike. Where each seed holds out examples of its own, sets of seeds with the same examples are tested by themselves, and
their p-values put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.experiments.comparison.grouping import Group
from headwise.experiments.results import StoredRun
from headwise.metrics import (
    METRICS,
    BootstrapTest,
    McNemar,
    bootstrap_means,
    bootstrap_scores,
    bootstrap_test,
    mcnemar,
    twice_the_median,
)
from headwise.metrics.significance import paired_differences, randomisation_p
from headwise.training.arguments import MEAN

# What systems answered to the same examples, in a form that tests can use.


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


@dataclass(frozen=True)
class ExampleTest:
    """How a system differs from the baseline, judged by examples."""

    kind: str
    """classification, regression, ranking; mean for the mean over several tasks."""
    examples: int
    """How many; the fewest, where seeds have their own."""
    difference: float
    low: float | None
    """Lower end of the 95 % interval of the bootstrap; None where seeds have examples of their own."""
    high: float | None
    bootstrap_p: float
    randomisation_p: float | None
    """Swapping the systems' answers to single examples or claims; for accuracy and rankings."""
    mcnemar: Mapping[int, McNemar] | None
    """By seed; of classes."""
    mcnemar_p: float | None
    """Twice the median of the seeds'."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        seeds = None if self.mcnemar is None else {str(seed): each.as_data() for seed, each in self.mcnemar.items()}
        return {**self.__dict__, "mcnemar": seeds}


def by_example(group: Group, baseline: str, metric: str, split: str, *, resamples: int) -> dict[str, ExampleTest]:
    """Test every other system against the baseline; nothing if not all runs keep their answers.

    Args:
        group: the systems, with the same seeds.
        baseline: one of them.
        metric: what is compared.
        split: on which examples.
        resamples: of the bootstrap.
    """
    parts = parts_of(group.runs[0], metric, split)
    if not parts or any(parts_of(run, metric, split) != parts for run in group.runs):
        return {}
    sets = [_Set.of(group, seeds, parts, resamples) for seeds in _alike(group, parts)]
    systems = list(group.systems)
    first = systems.index(baseline)
    return {system: _test(sets, first, second) for second, system in enumerate(systems) if second != first}


@dataclass(frozen=True, eq=False)
class _Set:
    """Seeds with the same examples. Shapes: R resamples, Y systems, S seeds, n examples."""

    seeds: tuple[int, ...]
    kind: str
    examples: int
    scores: Values
    """[Y] the metric, mean over the seeds."""
    resampled: Values
    """[R,Y]"""
    per_example: Values | None
    """[Y,n] mean over the seeds, if the metric is a mean of such values."""
    answers: Answers | None
    """Of one set of examples; rows by system, then by seed."""

    @classmethod
    def of(cls, group: Group, seeds: Sequence[int], parts: Sequence[Part], resamples: int) -> _Set:
        runs = [own[seed] for own in group.systems.values() for seed in seeds]
        shape = len(group.systems), len(seeds)
        answers = [Answers.of(runs, part) for part in parts]
        draws = [
            each.resampled(resamples, (0, number)).reshape(resamples, *shape).mean(2)
            for number, each in enumerate(answers)
        ]
        single = answers[0] if len(answers) == 1 else None
        values = None if single is None else single.per_example()
        return cls(
            seeds=tuple(seeds),
            kind="mean" if single is None else single.kind,
            examples=sum(each.examples for each in answers),
            scores=np.mean([each.scores().reshape(shape).mean(1) for each in answers], axis=0),
            resampled=np.mean(draws, axis=0),
            per_example=None if values is None else values.reshape(*shape, -1).mean(1),
            answers=single,
        )

    def mcnemar(self, first: int, second: int) -> dict[int, McNemar] | None:
        """By seed, between two systems."""
        if self.answers is None or self.kind != "classification":
            return None
        count = len(self.seeds)
        return {
            seed: self.answers.mcnemar(first * count + place, second * count + place)
            for place, seed in enumerate(self.seeds)
        }

    def bootstrap(self, first: int, second: int) -> BootstrapTest:
        """Between two systems."""
        difference = float(self.scores[second] - self.scores[first])
        return bootstrap_test(difference, self.resampled[:, second] - self.resampled[:, first])

    def randomisation_p(self, first: int, second: int) -> float | None:
        """Between two systems."""
        if self.per_example is None:
            return None
        differences = paired_differences(self.per_example[first].tolist(), self.per_example[second].tolist())
        return randomisation_p(differences, np.random.default_rng([0, 1]))


def _test(sets: Sequence[_Set], first: int, second: int) -> ExampleTest:
    tests = [each.bootstrap(first, second) for each in sets]
    swaps = [p for each in sets if (p := each.randomisation_p(first, second)) is not None]
    seeds: dict[int, McNemar] = {}
    for each in sets:
        seeds |= each.mcnemar(first, second) or {}
    weights = [len(each.seeds) for each in sets]
    alone = len(sets) == 1
    return ExampleTest(
        kind=sets[0].kind,
        examples=min(each.examples for each in sets),
        difference=float(np.average([test.difference for test in tests], weights=weights)),
        low=tests[0].low if alone else None,
        high=tests[0].high if alone else None,
        bootstrap_p=twice_the_median([test.p for test in tests]),
        randomisation_p=twice_the_median(swaps) if swaps else None,
        mcnemar=dict(sorted(seeds.items())) if seeds else None,
        mcnemar_p=twice_the_median([test.p for test in seeds.values()]) if seeds else None,
    )


def _alike(group: Group, parts: Sequence[Part]) -> list[list[int]]:
    """The seeds of a block in sets that share their examples; within a seed all systems must."""
    sets: dict[tuple[str, ...], list[int]] = {}
    for seed in next(iter(group.systems.values())):
        hashes = {
            system: tuple(str(runs[seed].outputs[part.output]["examples"]) for part in parts)
            for system, runs in group.systems.items()
        }
        one, *others = hashes
        for other in others:
            if hashes[other] != hashes[one]:
                raise InputError(
                    f"{group.title}{one} and {other} were scored on different examples with seed {seed} (hash "
                    f"{', '.join(hashes[one])} and {', '.join(hashes[other])}): give runs that were scored on the same."
                )
        sets.setdefault(hashes[one], []).append(seed)
    return list(sets.values())

"""Tests by example: every system of a group against the baseline, on the same examples.

Seeds share their examples, so they are no further evidence about new ones: a drawn example counts in all seeds. Where
each seed holds out different examples, the seeds with the same examples are tested together, and the p-values of these
sets are combined.

Shapes: R resamples, Y systems, S seeds, n examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.experiments.comparison.grouping import Group
from headwise.experiments.record import StoredRun
from headwise.metrics import METRICS
from headwise.metrics.resampling import bootstrap_means, bootstrap_scores, bootstrap_test
from headwise.metrics.significance import McNemar, mcnemar, paired_differences, randomisation_p, twice_the_median

# The mean of the main metrics of several tasks, as records call it.
MEAN = "mean"
RANKING = "ranking"
# By how much a score in a file may differ from that of its predictions.
TOLERANCE = 1e-4

Values = NDArray[np.float64]


@dataclass(frozen=True)
class ExampleTest:
    """How a system differs from the baseline over examples."""

    kind: str
    """classification, regression, ranking; mean for the mean over several tasks."""
    examples: int
    """How many; the fewest, where seeds have different ones."""
    difference: float
    low: float | None
    """Lower end of the 95 % interval of the bootstrap; None where seeds have different examples."""
    high: float | None
    bootstrap_p: float
    randomisation_p: float | None
    """Swapping the systems' answers to single examples or claims; for accuracy and rankings."""
    mcnemar: Mapping[int, McNemar] | None
    """By seed; for classes."""
    mcnemar_p: float | None
    """Twice the median over the seeds."""


def example_tests(group: Group, baseline: str, metric: str, split: str, *, resamples: int) -> dict[str, ExampleTest]:
    """Test every other system against the baseline; nothing if not all runs keep their answers."""
    parts = _parts_of(group.runs[0], metric, split)
    if not parts or any(_parts_of(run, metric, split) != parts for run in group.runs):
        return {}
    sets = [_SeedSet(group, seeds, parts, resamples) for seeds in _seeds_by_examples(group, list(parts))]
    systems = list(group.systems)
    first = systems.index(baseline)
    return {system: _test(sets, first, second) for second, system in enumerate(systems) if second != first}


def _parts_of(run: StoredRun, metric: str, split: str) -> dict[str, str]:
    """The outputs that a metric is the mean of, each with its metric: one for each task of the mean over tasks.

    Nothing if the run does not keep these outputs, or they do not give the metric.
    """
    if metric == MEAN and run.tasks:
        parts = {f"{task}/{split}": primary for task, primary in run.tasks.items()}
    else:
        task, _, name = metric.rpartition("/")
        parts = {f"{task}/{split}" if task else split: name}
    for name, part in parts.items():
        output = run.outputs.get(name)
        if output is None:
            return {}
        known = [METRICS] if output["kind"] != RANKING else output["per_query"].values()
        if not all(part in each for each in known):
            return {}
    return parts


def _seeds_by_examples(group: Group, outputs: Sequence[str]) -> list[list[int]]:
    """The seeds in sets that share their examples; within a seed all systems must."""
    sets: dict[tuple[str, ...], list[int]] = {}
    for seed in next(iter(group.systems.values())):
        hashes = {
            system: tuple(str(runs[seed].outputs[output]["examples"]) for output in outputs)
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


class _SeedSet:
    """The answers of all systems with seeds that share their examples."""

    def __init__(self, group: Group, seeds: Sequence[int], parts: Mapping[str, str], resamples: int) -> None:
        self.seeds, self.examples = seeds, 0
        runs = [own[seed] for own in group.systems.values() for seed in seeds]  # by system, then by seed
        shape = len(group.systems), len(seeds)
        scores, draws = [], []
        for number, (output, metric) in enumerate(parts.items()):
            self.kind, self.labels, self.rows = _answers(runs, output, metric)
            if self.kind == RANKING:
                values = self.rows.mean(1)
                drawn = bootstrap_means(self.rows, resamples=resamples, seed=(0, number))
            else:
                values = np.array([METRICS[metric](row, self.labels) for row in self.rows])
                drawn = bootstrap_scores(metric, self.rows, self.labels, resamples=resamples, seed=(0, number))
            task, _, split = output.rpartition("/")
            name = f"{task}/{metric}" if task else metric
            for run, value in zip(runs, values, strict=True):
                recorded = run.metrics[split].get(name)
                if recorded is not None and abs(value - recorded) > TOLERANCE:
                    raise InputError(
                        f"{run.path} says {name} {recorded:.4f} on {split}, but its answers give {value:.4f}: the file "
                        "was changed; run it again."
                    )
            self.examples += self.rows.shape[1]
            scores.append(values.reshape(shape).mean(1))
            draws.append(drawn.reshape(resamples, *shape).mean(2))
        self.scores: Values = np.mean(scores, axis=0)  # [Y]
        self.resampled: Values = np.mean(draws, axis=0)  # [R,Y]
        # [Y,n] values whose means are the metric, if it is such a mean.
        self.per_example: Values | None = None
        if len(parts) > 1:
            self.kind = MEAN
        elif self.kind == RANKING or metric == "accuracy":
            each = self.rows if self.kind == RANKING else self.rows == self.labels
            self.per_example = each.astype(np.float64).reshape(*shape, -1).mean(1)


def _answers(runs: Sequence[StoredRun], output: str, metric: str) -> tuple[str, NDArray[Any], NDArray[Any]]:
    """Kind, labels [n] and predictions [Y*S,n] of runs; of rankings no labels, and the metric of every claim."""
    outputs = [run.outputs[output] for run in runs]
    questions = [(each["kind"], sorted(each["per_query"]) if "per_query" in each else each["gold"]) for each in outputs]
    for run, question in zip(runs, questions, strict=True):
        if question != questions[0]:
            raise InputError(
                f"{run.path} and {runs[0].path} have different answers to find in {output}: leave one out."
            )
    kind, gold = questions[0]
    if kind == RANKING:
        return kind, np.array([]), np.array([[each["per_query"][claim][metric] for claim in gold] for each in outputs])
    return kind, np.array(gold), np.array([each["predictions"] for each in outputs])


def _test(sets: Sequence[_SeedSet], first: int, second: int) -> ExampleTest:
    tests, swaps = [], []
    by_seed: dict[int, McNemar] = {}
    for each in sets:
        difference = float(each.scores[second] - each.scores[first])
        tests.append(bootstrap_test(difference, each.resampled[:, second] - each.resampled[:, first]))
        if each.kind == "classification":
            count = len(each.seeds)
            for index, seed in enumerate(each.seeds):
                before, after = (each.rows[system * count + index] for system in (first, second))
                by_seed[seed] = mcnemar(before, after, each.labels)
        if each.per_example is not None:
            differences = paired_differences(each.per_example[first].tolist(), each.per_example[second].tolist())
            swaps.append(randomisation_p(differences, np.random.default_rng([0, 1])))
    alone = len(sets) == 1
    return ExampleTest(
        kind=sets[0].kind,
        examples=min(each.examples for each in sets),
        difference=float(np.average([test.difference for test in tests], weights=[len(each.seeds) for each in sets])),
        low=tests[0].low if alone else None,
        high=tests[0].high if alone else None,
        bootstrap_p=twice_the_median([test.p for test in tests]),
        randomisation_p=twice_the_median(swaps) if swaps else None,
        mcnemar=dict(sorted(by_seed.items())) if by_seed else None,
        mcnemar_p=twice_the_median([test.p for test in by_seed.values()]) if by_seed else None,
    )

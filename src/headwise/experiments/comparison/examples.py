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

from headwise.errors import InputError
from headwise.experiments.comparison.answers import Answers, Part, Values, parts_of
from headwise.experiments.comparison.grouping import Group
from headwise.metrics import BootstrapTest, McNemar, bootstrap_test, twice_the_median
from headwise.metrics.significance import paired_differences, randomisation_p


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

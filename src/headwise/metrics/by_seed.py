"""Two systems that were trained with the same seeds: do they differ by more than seeds do?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headwise.metrics.power import detectable_effect
from headwise.metrics.significance import (
    RESAMPLES,
    mean_interval,
    paired_differences,
    paired_t_test_p,
    randomisation_p,
    sample_deviation,
)

# With so many seeds all ways to flip signs are tried: 2^13 is the last power that RESAMPLES has room for.
EXACT = int(math.log2(RESAMPLES))


@dataclass(frozen=True)
class SeedScores:
    """The scores of one system over its seeds."""

    values: tuple[float, ...]
    mean: float
    deviation: float | None
    """Standard deviation of the sample; None with one seed."""
    low: float | None
    """Lower end of the 95 % t interval of the mean; None with one seed."""
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> SeedScores:
        """From one score for each seed."""
        mean, deviation, half_width = mean_interval(np.asarray(values, dtype=np.float64))
        if math.isnan(deviation):
            return cls(tuple(values), mean, None, None, None)
        return cls(tuple(values), mean, deviation, mean - half_width, mean + half_width)

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self) | {"values": list(self.values)}


@dataclass(frozen=True)
class SeedTest:
    """How the second system differs from the first over the same seeds.

    With one seed there is a difference and nothing else. Where all differences are the same but not 0 there is no
    spread, and so no t-test, interval and effect.
    """

    seeds: int
    difference: float
    """Mean of second minus first."""
    deviation: float | None
    """Standard deviation of the differences."""
    low: float | None
    """Lower end of the 95 % t interval of the difference."""
    high: float | None
    t_test_p: float | None
    """Two-sided paired t-test."""
    permutation_p: float | None
    """Two-sided test by flipping the signs of differences: all ways with up to 13 seeds, 9,999 random ones beyond."""
    smallest_p: float | None
    """The smallest p-value that the permutation test can give with so many seeds."""
    effect: float | None
    """Cohen's d_z: mean of the differences / their standard deviation."""
    effect_corrected: float | None
    """The same without the bias of small samples (Hedges 1981); None below 3 seeds."""
    detectable: float | None
    """The smallest true difference that the t-test finds in 80 % of cases, with so many seeds and this deviation."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def paired_by_seed(first: Sequence[float], second: Sequence[float], *, seed: int = 0) -> SeedTest:
    """Compare two systems seed by seed.

    Args:
        first: [S] a score for every seed.
        second: [S] scores for the same seeds in the same order.
        seed: decides the random flips beyond 13 seeds.

    Returns:
        The test; positive differences speak for the second.
    """
    differences = paired_differences(first, second)
    count, mean, deviation = len(differences), float(differences.mean()), sample_deviation(differences)
    if count < 2:
        return SeedTest(count, mean, *[None] * 9)
    half_width = mean_interval(differences)[2] if deviation else 0.0
    spread = deviation > 0 or mean == 0
    effect = mean / deviation if deviation else (None if mean else 0.0)
    return SeedTest(
        seeds=count,
        difference=mean,
        deviation=deviation,
        low=mean - half_width if spread else None,
        high=mean + half_width if spread else None,
        t_test_p=paired_t_test_p(mean, deviation, count),
        permutation_p=randomisation_p(differences, np.random.default_rng([seed, 1])),
        smallest_p=smallest_permutation_p(count),
        effect=effect,
        effect_corrected=None if effect is None or count < 3 else effect * small_sample_factor(count - 1),
        detectable=detectable_effect(count) * deviation if deviation else None,
    )


def smallest_permutation_p(count: int) -> float:
    """The smallest two-sided p-value that flipping the signs of so many differences can give."""
    return 2.0 ** (1 - count) if count <= EXACT else 2 / (RESAMPLES + 1)


def small_sample_factor(freedom: int) -> float:
    """By how much Cohen's d is too large on average, with so many degrees of freedom, at least 2."""
    logarithm = math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2) - math.log(freedom / 2) / 2
    return math.exp(logarithm)

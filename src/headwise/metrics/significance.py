"""Whether systems differ by more than chance, over examples or claims and over seeds.

Shapes: N claims or examples, S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError
from headwise.metrics.resampling import AT_A_TIME, RESAMPLES, ROUNDING

# With so many seeds all ways to flip signs are tried: 2^13 is the last power that RESAMPLES has room for.
EXACT = int(math.log2(RESAMPLES))

Vector = NDArray[np.float64]


# -- over claims or examples -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class McNemar:
    """On which examples exactly one of two classifiers is right."""

    better: int
    """Examples that only the second has right."""
    worse: int
    """Examples that only the first has right."""
    p: float
    """Two-sided exact test: how unevenly a fair coin would share them out."""


def mcnemar(first: NDArray[Any], second: NDArray[Any], labels: NDArray[Any]) -> McNemar:
    """McNemar's exact test (1947) of predictions on the same examples.

    Args:
        first: [N] predicted classes.
        second: [N] those of the other classifier.
        labels: [N] the true classes.
    """
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    first, second, labels = np.asarray(first), np.asarray(second), np.asarray(labels)
    if not (first.shape == second.shape == labels.shape and labels.ndim == 1 and len(labels)):
        raise InputError(
            f"predictions of shape {first.shape} and {second.shape} and labels of shape {labels.shape}: expected three "
            "rows of the same length, at least 1."
        )
    before, after = first == labels, second == labels
    better, worse = int((after & ~before).sum()), int((before & ~after).sum())
    return McNemar(better, worse, float(binomtest(better, better + worse).pvalue) if better + worse else 1.0)


@dataclass(frozen=True)
class PairedTest:
    """How the second system differs from the first on the same claims."""

    difference: float
    """Mean of second minus first."""
    low: float
    """Lower end of the 95 % interval of the difference (percentile bootstrap over claims)."""
    high: float
    """Upper end."""
    p: float
    """Two-sided paired randomisation test: how often swapping the systems at random gives as large a difference."""
    t_test_p: float | None
    """Two-sided paired t-test; None if all differences are the same but not 0."""
    effect: float | None
    """Cohen's d_z: mean of the differences / their standard deviation; None as above."""
    better: int
    """Claims on which the second is better."""
    worse: int
    equal: int

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def paired_test(first: Sequence[float], second: Sequence[float], *, seed: int = 0) -> PairedTest:
    """Compare two systems that were measured on the same claims.

    The randomisation test assumes nothing about the values. Claims on which the systems are equal cannot change it, so
    it is exact as long as they differ on at most 13 claims, and uses 9,999 random swaps otherwise.

    Args:
        first: [N] a value for every claim.
        second: [N] values for the same claims in the same order.
        seed: decides the random swaps and the bootstrap; the same seed gives the same result.

    Returns:
        The test; positive differences speak for the second.
    """
    from scipy.stats import bootstrap

    differences = paired_differences(first, second)
    mean, _, t_test_p, effect = _t_test(differences)
    low = high = float(differences[0])
    if len(differences) > 1:
        interval = bootstrap(
            (differences,),
            np.mean,
            n_resamples=RESAMPLES,
            batch=max(1, AT_A_TIME // len(differences)),
            method="percentile",
            vectorized=True,
            rng=np.random.default_rng([seed, 0]),
        ).confidence_interval
        low, high = float(interval.low), float(interval.high)
    return PairedTest(
        difference=mean,
        low=low,
        high=high,
        p=randomisation_p(differences, np.random.default_rng([seed, 1])),
        t_test_p=t_test_p,
        effect=effect,
        better=int((differences > 0).sum()),
        worse=int((differences < 0).sum()),
        equal=int((differences == 0).sum()),
    )


def paired_differences(first: Sequence[float], second: Sequence[float]) -> Vector:
    """[N] second minus first; 0 where only rounding makes them differ."""
    before, after = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if before.ndim != 1 or before.shape != after.shape or not len(before):
        raise InputError(
            f"values of shape {before.shape} and {after.shape}: expected two rows of the same length, at least 1; a "
            "paired test needs both systems on the same claims."
        )
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise InputError("values that are not finite cannot be tested: leave their claims out of both systems.")
    rounding = ROUNDING * np.maximum(np.abs(before), np.abs(after))
    return np.where(np.abs(after - before) <= rounding, 0.0, after - before)


def randomisation_p(differences: Vector, random: np.random.Generator) -> float:
    """Two-sided p-value of flipping signs: over all ways up to 13 differences that are not 0, else over random ones."""
    from scipy.stats import permutation_test

    unequal = differences[differences != 0]
    if len(unequal) < 2:  # one difference is as large either way round
        return 1.0
    result = permutation_test(
        (unequal,),
        np.sum,  # of one sample, swapping the systems is flipping signs
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, AT_A_TIME // (2 * len(unequal))),
        rng=random,
    )
    return float(result.pvalue)


def _t_test(differences: Vector) -> tuple[float, float, float | None, float | None]:
    """Mean, standard deviation, two-sided p-value and Cohen's d_z of paired differences.

    Where only rounding makes the differences differ, the deviation is 0; p and d_z are then None, unless all are 0.
    """
    from scipy.special import stdtr  # type: ignore[import-untyped]

    count, mean = len(differences), float(differences.mean())
    deviation = float(differences.std(ddof=1)) if count > 1 else 0.0
    if deviation <= ROUNDING * abs(mean):
        return (mean, 0.0, None, None) if mean else (mean, 0.0, 1.0, 0.0)
    p = float(2 * stdtr(count - 1, -abs(mean) / deviation * np.sqrt(count)))
    return mean, deviation, p, mean / deviation


# -- several tests ---------------------------------------------------------------------------------------------------


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for several tests (Holm 1979), in the order given.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none may be below one before it, or above 1.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"p-values {list(p_values)}: expected numbers from 0 to 1.")
    if not len(values):
        return []
    from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

    return [float(value) for value in multipletests(values, method="holm")[1]]


def twice_the_median(p_values: Sequence[float]) -> float:
    """One p-value of several for the same question, valid whatever their dependence (Rüger 1978).

    Seeds share their examples, so their p-values are no independent evidence, and Fisher's method would be wrong. One
    p-value stays as it is.
    """
    if not p_values:
        raise InputError("no p-values to put together: give at least one.")
    return float(p_values[0]) if len(p_values) == 1 else min(1.0, 2 * float(np.median(p_values)))


# -- over seeds ------------------------------------------------------------------------------------------------------


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
        """Summarise one score for each seed."""
        from scipy.special import stdtrit

        count, mean = len(values), float(np.mean(values)) if values else math.nan
        if count < 2:
            return cls(tuple(values), mean, None, None, None)
        deviation = float(np.std(values, ddof=1))
        half_width = float(stdtrit(count - 1, 0.975)) * deviation / float(np.sqrt(count))
        return cls(tuple(values), mean, deviation, mean - half_width, mean + half_width)


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
    count, (mean, deviation, t_test_p, effect) = len(differences), _t_test(differences)
    if count < 2:
        return SeedTest(count, mean, *[None] * 9)
    interval, corrected = SeedScores.of(differences.tolist()), None
    if effect is not None and count > 2:
        half = (count - 1) / 2
        corrected = effect * math.exp(math.lgamma(half) - math.lgamma(half - 0.5) - math.log(half) / 2)
    return SeedTest(
        seeds=count,
        difference=mean,
        deviation=deviation,
        low=None if effect is None else interval.low,
        high=None if effect is None else interval.high,
        t_test_p=t_test_p,
        permutation_p=randomisation_p(differences, np.random.default_rng([seed, 1])),
        smallest_p=smallest_permutation_p(count),
        effect=effect,
        effect_corrected=corrected,
        detectable=detectable_effect(count) * deviation if deviation else None,
    )


def smallest_permutation_p(count: int) -> float:
    """The smallest two-sided p-value that flipping the signs of so many differences can give."""
    return 2.0 ** (1 - count) if count <= EXACT else 2 / (RESAMPLES + 1)


def detectable_effect(count: int) -> float:
    """The smallest true effect (mean / standard deviation) that a paired t-test at 5 % finds in 80 % of cases."""
    from statsmodels.stats.power import TTestPower  # type: ignore[import-untyped]

    return float(TTestPower().solve_power(nobs=count, alpha=0.05, power=0.8))

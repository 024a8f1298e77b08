"""Whether two systems differ by more than chance, judged claim by claim; and how sure a mean is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import InputError

RESAMPLES = 9_999
# Numbers held at a time while resampling: 16 MB.
AT_A_TIME = 2_000_000
# Values that differ by less than this part of them are the same but for rounding, as after means over seeds.
ROUNDING = 1e-12

Vector = NDArray[np.float64]


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
    differences = paired_differences(first, second)
    mean, deviation = float(differences.mean()), sample_deviation(differences)
    low, high = _interval(differences, np.random.default_rng([seed, 0]))
    return PairedTest(
        difference=mean,
        low=low,
        high=high,
        p=randomisation_p(differences, np.random.default_rng([seed, 1])),
        t_test_p=paired_t_test_p(mean, deviation, len(differences)),
        effect=mean / deviation if deviation else (None if mean else 0.0),
        better=int((differences > 0).sum()),
        worse=int((differences < 0).sum()),
        equal=int((differences == 0).sum()),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for having made several tests (Holm 1979), in the order given.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none may be below one before it, or above 1.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"p-values {list(p_values)}: expected numbers from 0 to 1.")
    order = np.argsort(values, kind="stable")
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)), 1.0)
    return [float(value) for value in corrected]


def mean_over_seeds(per_query: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Claim -> measure -> mean over seeds, so that a system of several seeds can be tested over claims.

    Claims, not seeds, are what a test resamples: seeds share their claims and are no further evidence about new ones.
    """
    if not per_query:
        raise InputError("no seeds to take the mean of: give the values of at least one.")
    first = per_query[0]
    for number, other in enumerate(per_query[1:], start=2):
        if different := first.keys() ^ other.keys():
            raise InputError(
                f"{len(different)} claims, such as {min(different)!r}, are in only one of seeds 1 and {number}: "
                "expected the same claims in all; score every seed with the same judgements."
            )
    return {
        claim: {name: float(np.mean([values[claim][name] for values in per_query])) for name in first[claim]}
        for claim in first
    }


def mean_interval(values: Vector) -> tuple[float, float, float]:
    """Mean, standard deviation of the sample and half of the 95 % t interval of the mean; NaN where too few."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    count = len(values)
    if count < 2:
        return (float(values[0]) if count else np.nan), np.nan, np.nan
    deviation = float(np.std(values, ddof=1))
    return float(np.mean(values)), deviation, float(stdtrit(count - 1, 0.975)) * deviation / float(np.sqrt(count))


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


def sample_deviation(differences: Vector) -> float:
    """Standard deviation of a sample; 0 where only rounding makes it differ from that."""
    deviation = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return deviation if deviation > ROUNDING * abs(float(differences.mean())) else 0.0


def _interval(differences: Vector, random: np.random.Generator) -> tuple[float, float]:
    count = len(differences)
    step = max(1, AT_A_TIME // count)
    means = [
        differences[random.integers(count, size=(min(step, RESAMPLES - done), count))].mean(1)  # [resamples]
        for done in range(0, RESAMPLES, step)
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return float(low), float(high)


def randomisation_p(differences: Vector, random: np.random.Generator) -> float:
    """Two-sided p-value of flipping signs: over all ways up to 13 differences that are not 0, else over random ones."""
    from scipy.stats import permutation_test  # type: ignore[import-untyped]

    unequal = differences[differences != 0]
    if len(unequal) < 2:  # one difference is as large either way round
        return 1.0
    outcome = permutation_test(
        (unequal,),
        np.sum,  # of one sample, swapping the systems is flipping signs
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, AT_A_TIME // (2 * len(unequal))),
        rng=random,
    )
    return float(outcome.pvalue)


def paired_t_test_p(mean: float, deviation: float, count: int) -> float | None:
    """Two-sided p-value of a t-test on differences; None if all are the same but not 0."""
    from scipy.special import stdtr

    if deviation == 0:
        return None if mean else 1.0
    return float(2 * stdtr(count - 1, -abs(mean) / deviation * np.sqrt(count)))

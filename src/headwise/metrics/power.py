"""What a paired t-test can find at all, given how much the differences scatter."""

from __future__ import annotations

import math

from headwise.errors import InputError

LEVEL = 0.05
POWER = 0.8


def t_test_power(effect: float, count: int, *, level: float = LEVEL) -> float:
    """How often a two-sided paired t-test finds a true effect.

    Args:
        effect: the true mean of the differences / their standard deviation.
        count: how many differences, at least 2.
        level: the p-value below which the test counts as passed.
    """
    from scipy.special import nctdtr, stdtrit  # type: ignore[import-untyped]

    if count < 2:
        raise InputError(f"a t-test on {count} differences: expected at least 2, since one has no spread.")
    freedom, shift = count - 1, abs(effect) * math.sqrt(count)
    critical = float(stdtrit(freedom, 1 - level / 2))
    wrong_side = float(nctdtr(freedom, shift, -critical))
    # Far out it is so small that its series breaks down.
    return 1 - float(nctdtr(freedom, shift, critical)) + (0.0 if math.isnan(wrong_side) else wrong_side)


def detectable_effect(count: int, *, level: float = LEVEL, power: float = POWER) -> float:
    """The smallest true effect (mean / standard deviation) that a paired t-test finds with the given power."""
    from scipy.optimize import brentq  # type: ignore[import-untyped]

    if not level < power < 1:
        raise InputError(f"power {power}: expected more than the level {level}, and less than 1.")
    highest = 1.0
    while t_test_power(highest, count, level=level) < power:
        highest *= 2
    return float(brentq(lambda effect: t_test_power(effect, count, level=level) - power, 0.0, highest, xtol=1e-10))

"""What the numbers of a comparison mean, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from headwise.experiments.comparison.tables import KINDS, Table

PAPER = (
    "The stars of arXiv 2204.02922 stand for the same levels of a t-test; it mentions no correction, and does not say "
    "whether more than one seed lay behind them."
)


def legend(tables: Sequence[Table], stars: str, baseline: str) -> tuple[str, ...]:
    """One sentence or two for each kind of number that is shown."""
    rows = [row for table in tables for row in table.rows]
    shown = [kind for kind in KINDS if any(kind in row.p for row in rows)]
    count = {kind: sum(kind in row.p for row in rows) for kind in shown}
    lines = [
        "Mean ± standard deviation over seeds, with the 95 % t interval of the mean.",
        f"Difference: the system minus {baseline}, seed by seed, with the 95 % t interval of its mean.",
    ]
    lines += [_words(kind, count[kind]) for kind in shown]
    if shown:
        lines.append("Holm: p corrected for all tests of the same kind that are shown together.")
    if "t" in shown:
        lines += [
            "d_z: mean of the differences / their standard deviation.",
            "MDE: the smallest true difference that the t-test finds in 80 % of cases, with so many seeds and this "
            "standard deviation of the differences.",
            _stars(stars, count["t"]),
            PAPER,
        ]
    else:
        lines.append("No stars: they stand for a t-test by seed, and there is none.")
    return tuple(lines)


def _words(kind: str, count: int) -> str:
    tests = f"{count} {'test' if count == 1 else 'tests'}"
    return {
        "t": f"t: two-sided paired t-test by seed; {tests}.",
        "permutation": f"flips: two-sided permutation test by seed, which flips the signs of the differences; {tests}.",
        "mcnemar": "McNemar: exact test on the examples that exactly one of two classifiers has right; over seeds, "
        f"twice the median of the seeds' p; {tests}.",
        "bootstrap": "bootstrap: paired, over examples; an example that is drawn counts in all seeds alike, since they "
        f"share their examples; {tests}.",
        "randomisation": "swaps: two-sided randomisation test, which swaps the systems on single examples or claims, "
        f"each the mean over seeds; {tests}.",
    }[kind]


def _stars(stars: str, count: int) -> str:
    how = f"corrected by Holm for {count} {'test' if count == 1 else 'tests'}" if stars == "holm" else "not corrected"
    return (
        f"Stars: * p < 0.05, ** p < 0.01 of the paired t-test by seed, {how}. They say that a system differs; the sign "
        "of the difference says which way."
    )

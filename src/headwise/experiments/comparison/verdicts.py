"""Verdicts on guides: one helps only if it beats the same recipe without it, and its own shuffled control."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwise.experiments.comparison.gather import RunTable
from headwise.experiments.comparison.grouping import SYSTEM, Group
from headwise.experiments.record import LABEL_KEYS, canonical
from headwise.experiments.sweeps.control_arms import ARM, GUIDES, SHUFFLED, before_shuffling, shuffled_guides
from headwise.metrics.significance import SeedTest, holm, paired_by_seed

if TYPE_CHECKING:
    from headwise.experiments.comparison.comparison import Table

HELPS = "helps"
NOT_SHOWN = "not shown to help"
LIKE_CONTROL = "not better than its control"
NO_CONTROL = "no control"
HURTS = "hurts"
LEVEL = 0.05
RUN_SHUFFLED = "run the shuffled arm (controls: true)"
NO_SHUFFLED = "the sweep has no shuffled arm of it, as a guide without a target has none"
LEGEND = (
    "Verdicts: a guide helps if it is better than the same recipe without it and than its control with shuffled "
    "targets, both by the paired t-test by seed at 5 %, corrected by Holm for {count}. An effect that would have been "
    "detected: in 80 % of cases, by one such test without correction."
)


@dataclass(frozen=True)
class Effect:
    """A guide minus one of its controls, seed by seed."""

    system: str
    """The control."""
    difference: float
    interval: tuple[float, float] | None
    """95 % t interval of the mean difference; None with one seed, or if the difference is the same for every seed."""
    p: float | None
    """Two-sided paired t-test."""
    holm: float | None
    """The same, corrected for all comparisons behind the verdicts that are shown together."""
    detectable: float | None
    """The smallest true difference that the test at 5 % finds in 80 % of cases."""

    @classmethod
    def of(cls, system: str, test: SeedTest) -> Effect:
        """Not corrected yet."""
        interval = None if test.low is None or test.high is None else (test.low, test.high)
        return cls(system, test.difference, interval, test.t_test_p, None, test.detectable)

    @property
    def better(self) -> bool:
        """Whether the guide is better than this control by more than chance."""
        return self.difference > 0 and self._differs

    @property
    def worse(self) -> bool:
        """Whether it is worse by more than chance."""
        return self.difference < 0 and self._differs

    @property
    def _differs(self) -> bool:
        return self.holm is not None and self.holm < LEVEL

    def as_data(self) -> dict[str, Any]:
        """Plain data, as JSON has it."""
        interval = None if self.interval is None else list(self.interval)
        return {**vars(self), "interval": interval}

    def bracket(self, *, percent: bool, lead: str = "", name: str = "95 % interval ") -> str:
        """The interval of the difference in brackets, or why there is none; p only where its correction decides."""
        if self.interval is None:
            return f"({lead}no test: one seed, or the same difference for every seed)"
        low, high = (number(end, percent=percent) for end in self.interval)
        corrected = self.p is not None and self.p < LEVEL and not self._differs
        after = f", p {self.holm:.2g} after Holm's correction" if corrected else ""
        return f"({lead}{name}{low} to {high}{after})"


@dataclass(frozen=True)
class Verdict:
    """What the runs show about the guides of one system, by one metric."""

    system: str
    within: Mapping[str, str]
    """The labels of the table that it belongs to."""
    metric: str
    guides: str
    """The names of its guides."""
    over_plain: Effect
    """Minus the same recipe without guides."""
    over_control: Effect | None
    """Minus the same recipe with shuffled targets; None if there are no such runs."""
    without_control: str = RUN_SHUFFLED
    """What to do, or to know, if there is no control."""
    verdict: str = field(init=False)
    """helps, not shown to help, not better than its control, no control, or hurts."""

    def __post_init__(self) -> None:
        """Judge by the corrected tests."""
        verdict = NOT_SHOWN
        if self.over_plain.worse:
            verdict = HURTS
        elif self.over_plain.better:
            control = self.over_control
            verdict = NO_CONTROL if control is None else HELPS if control.better else LIKE_CONTROL
        object.__setattr__(self, "verdict", verdict)

    def sentence(self, *, percent: bool = True) -> str:
        """The verdict for people.

        Args:
            percent: differences times 100, in points.
        """
        plain, control = self.over_plain, self.over_control
        difference = number(plain.difference, percent=percent, sign="+", unit=True)
        bracket = plain.bracket(percent=percent)
        name = self.system if any(map(str.isalpha, self.system)) else f"{self.guides} {self.system}"
        compared = f"{difference} compared with {plain.system} {bracket}"
        if self.verdict == HURTS:
            return f"{name} hurts: {compared}."
        if self.verdict == NOT_SHOWN:
            return f"{name} is not shown to help: {compared}{_detectable(plain, percent=percent)}."
        if control is None:
            return f"{name} beats {plain.system}: {difference} {bracket}; no control: {self.without_control}."
        beside = number(control.difference, percent=percent, sign="+")
        if self.verdict == HELPS:
            beside = f"{beside} over its shuffled control {control.bracket(percent=percent, name='')}"
            return f"{name} helps: {difference} over {plain.system} {bracket} and {beside}."
        bracket = plain.bracket(percent=percent, lead=f"{difference}, ")
        beside = control.bracket(percent=percent, lead=f"{beside}, ", name="")
        return (
            f"{name} beats {plain.system} {bracket} but not its shuffled control {beside}, so its target is not shown "
            f"to matter{_detectable(control, percent=percent, over=' over the control')}."
        )

    def as_data(self) -> dict[str, Any]:
        """Plain data, as JSON has it: differences over plain, and those over the control below `control`."""
        effect = self.over_plain.as_data()
        return {
            "system": self.system,
            "guides": self.guides,
            "within": dict(self.within),
            "metric": self.metric,
            "verdict": self.verdict,
            "plain": effect.pop("system"),
            **effect,
            "control": None if self.over_control is None else self.over_control.as_data(),
            "sentence": self.sentence(),
        }


def number(value: float, *, percent: bool, sign: str = "", unit: bool = False) -> str:
    """A difference of scores, in points with enough digits not to be 0."""
    if not percent:
        return format(value, f"{sign}.4f")
    points = 100 * value
    text = format(points, f"{sign}.1f" if abs(points) >= 0.095 or not points else f"{sign}.2g")
    return f"{text} points" if unit else text


def _detectable(effect: Effect, *, percent: bool, over: str = "") -> str:
    if effect.detectable is None:
        return ""
    return f"; an effect of {number(effect.detectable, percent=percent, unit=True)}{over} would have been detected"


# -- which runs belong together ----------------------------------------------------------------------------------------


def judge(compared: Sequence[tuple[Group, Table]], runs: RunTable) -> tuple[Verdict, ...]:
    """A verdict for every system with guides of every table, corrected by Holm over all of them.

    Args:
        compared: the tables, each with its runs.
        runs: where they are from.
    """
    systems = _systems_of_sweep(runs)
    verdicts = [verdict for group, table in compared for verdict in _verdicts(group, table, systems)]
    effects = [effect for each in verdicts for effect in (each.over_plain, each.over_control) if effect is not None]
    tested = {id(effect): effect.p for effect in effects if effect.p is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))

    def with_holm(effect: Effect) -> Effect:
        return replace(effect, holm=corrected.get(id(effect)))

    return tuple(
        replace(
            each,
            over_plain=with_holm(each.over_plain),
            over_control=None if each.over_control is None else with_holm(each.over_control),
        )
        for each in verdicts
    )


def control_columns(verdict: Verdict | None) -> dict[str, Any]:
    """The control of a system and the difference from it, for a row of a table of numbers."""
    control = None if verdict is None else verdict.over_control
    if control is None:
        return dict.fromkeys(("control", "control_difference", "control_low", "control_high", "control_p_holm"))
    low, high = control.interval or (None, None)
    names = {"control": control.system, "control_difference": control.difference}
    return {**names, "control_low": low, "control_high": high, "control_p_holm": control.holm}


def legend_of(verdicts: Sequence[Verdict]) -> list[str]:
    """What verdicts mean; nothing without any."""
    effects = [effect for each in verdicts for effect in (each.over_plain, each.over_control)]
    count = sum(effect is not None and effect.holm is not None for effect in effects)
    return [LEGEND.format(count="1 test" if count == 1 else f"{count} tests")] if verdicts else []


def _verdicts(group: Group, table: Table, systems: Collection[str] | None) -> Iterator[Verdict]:
    """Of the systems that have guides, none of them shuffled, and a plain twin: all else of the recipe is the same."""
    recipes = {system: next(iter(seeds.values())).recipe for system, seeds in group.systems.items()}
    rest = {system: _rest(recipe) for system, recipe in recipes.items()}
    guides = {system: recipe.get(GUIDES) or {} for system, recipe in recipes.items()}
    scores = {row.system: row.scores.values for row in table.rows}
    for row in table.rows:
        own = guides[row.system]
        twins = [system for system in recipes if system != row.system and rest[system] == rest[row.system]]
        plain = next((system for system in twins if not guides[system]), None)
        if not own or shuffled_guides(own) or plain is None:
            continue
        controls = [
            system
            for system in twins
            if shuffled_guides(guides[system]) and before_shuffling(guides[system]) == before_shuffling(own)
        ]
        control = max(controls, key=lambda system: len(shuffled_guides(guides[system])), default=None)
        no_arm = systems is not None and f"{row.system} ({SHUFFLED})" not in systems

        def minus(other: str, values: Sequence[float] = row.scores.values) -> Effect:
            return Effect.of(other, paired_by_seed(scores[other], values))

        yield Verdict(
            system=row.system,
            within=table.within,
            metric=table.metric,
            guides="+".join(own),
            over_plain=minus(plain),
            over_control=None if control is None else minus(control),
            without_control=NO_SHUFFLED if no_arm else RUN_SHUFFLED,
        )


def _systems_of_sweep(table: RunTable) -> set[str] | None:
    """The systems of a sweep that has a shuffled arm, also those without finished runs; None for other runs."""
    if table.manifest is None or SHUFFLED not in table.manifest.axes.get(ARM, {}).get("labels", ()):
        return None
    return {name for part in (table.runs, table.missing) if SYSTEM in part for name in part[SYSTEM]}


def _rest(recipe: Mapping[str, Any]) -> str:
    """All that decides a run but its guides and its seed."""
    return canonical({key: value for key, value in recipe.items() if key not in (*LABEL_KEYS, "seed", GUIDES)})

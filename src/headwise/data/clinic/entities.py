"""Who and what plays in three examples: the thing claimed about, its partner, and a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from headwise.data.clinic.lexicon import COUNTS, DOSES, MOMENTS, ONSETS, Lexicon

# Chance that comes out the same on every machine and Python.


Thing = TypeVar("Thing")


class Dice:
    """Draws made of `Random.random()` alone: of all of `random`, only this sequence is promised to stay as it is."""

    def __init__(self, seed: str) -> None:
        """The same seed, the same draws."""
        self._random = Random(seed)

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def chance(self, share: float) -> bool:
        """True in this share of the draws."""
        return self._random.random() < share

    def pick(self, things: Sequence[Thing]) -> Thing:
        """One of the things."""
        return things[self.whole(0, len(things) - 1)]

    def several(self, things: Sequence[Thing], count: int) -> list[Thing]:
        """Different places of `things`, in random order."""
        left = list(things)
        return [left.pop(self.whole(0, len(left) - 1)) for _ in range(count)]

    def shuffled(self, things: Sequence[Thing]) -> list[Thing]:
        """All the things, in random order."""
        return self.several(things, len(things))


@dataclass(frozen=True)
class Player:
    """A thing that notes speak of."""

    name: str
    site: str = ""
    values: tuple[str, str] = ("", "")
    """What it has when its number is 0 and 1, where that is not said by the frame itself."""
    bound: str = ""
    """What a claim compares the values with: the first lies above, the second below."""


@dataclass(frozen=True)
class Cast:
    """The players of one hypothesis and its three premises."""

    claimed: Player
    partner: Player
    """Stands beside the claimed one in the premise."""
    stand_in: Player
    """Takes the place of the claimed one in a premise that says nothing about it."""
    measure: str = ""


Casting = Callable[[Lexicon, Dice], Cast]


def _cast(names: tuple[str, ...], dice: Dice) -> Cast:
    claimed, partner, stand_in = (Player(name) for name in dice.several(names, 3))
    return Cast(claimed, partner, stand_in)


def _each(cast: Cast, change: Callable[[Player], Player]) -> Cast:
    return replace(cast, claimed=change(cast.claimed), partner=change(cast.partner), stand_in=change(cast.stand_in))


def _sharing(cast: Cast, values: tuple[str, ...], dice: Dice) -> Cast:
    first, second = dice.several(values, 2)
    return _each(cast, lambda player: replace(player, values=(first, second)))


def symptoms(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three symptoms."""
    return _cast(lexicon.symptoms, dice)


def diagnoses(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three diagnoses of different classes: within a class some exclude each other."""
    return _cast(tuple(dice.pick(members) for members in lexicon.classes.values()), dice)


def drugs(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three drugs."""
    return _cast(lexicon.drugs, dice)


def measures(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three measures."""
    return _cast(tuple(lexicon.measures), dice)


def sided_lesions(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three lesions, each on a site of its own."""
    sites = dice.several(lexicon.sites, 3)
    return _each(_cast(lexicon.lesions, dice), lambda player: replace(player, site=sites.pop()))


def placed_lesions(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three lesions and two sites."""
    return _sharing(_cast(lexicon.lesions, dice), lexicon.sites, dice)


def dosed_drugs(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three drugs and two doses."""
    return _sharing(_cast(lexicon.drugs, dice), DOSES, dice)


def dated_symptoms(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three symptoms and two times of onset."""
    return _sharing(_cast(lexicon.symptoms, dice), dice.pick(ONSETS), dice)


def counted_symptoms(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three symptoms, each with a bound and a number of episodes on either side of it."""

    def counted(player: Player) -> Player:
        bound = dice.whole(4, 8)
        above, below = bound + dice.whole(2, 4), bound - dice.whole(2, min(4, bound - 2))
        return replace(player, values=(COUNTS[above], COUNTS[below]), bound=COUNTS[bound])

    return _each(_cast(lexicon.bouts, dice), counted)


def read_measures(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three measures, each with a bound and a reading on either side of it."""

    def read(player: Player) -> Player:
        low, high = lexicon.measures[player.name]
        quarter = (high - low) // 4
        bound = dice.whole(low + quarter, high - quarter) // 5 * 5
        above, below = bound + dice.whole(quarter // 2, quarter), bound - dice.whole(quarter // 2, quarter)
        return replace(player, values=(str(above), str(below)), bound=str(bound))

    return _each(measures(lexicon, dice), read)


def people(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three people and what is measured in them."""
    return replace(_cast(lexicon.people, dice), measure=dice.pick(tuple(lexicon.measures)))


def moments(lexicon: Lexicon, dice: Dice) -> Cast:
    """Three moments and what is measured then."""
    return replace(_cast(MOMENTS, dice), measure=dice.pick(tuple(lexicon.measures)))


# One example of the task, with what it was made of.


LABELS = ("entailment", "neutral", "contradiction")
ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)


@dataclass(frozen=True)
class Fact:
    """What a premise says, or a hypothesis claims, about one thing."""

    about: str
    """The symptom, diagnosis, lesion, drug, measure, person or moment."""
    state: str
    """What is said: `absent`, `left`, `stopped`, `on Monday`, `131`, `above 120`, or that it is left open."""
    scope: str = ""
    """The body site of a lesion's side; the measure in which two people or moments differ."""
    partner: str = ""
    """The other person, moment or symptom of a comparison."""


@dataclass(frozen=True)
class ClinicExample:
    """A premise, a hypothesis, and how they relate."""

    premise: str
    hypothesis: str
    label: int
    """0 entailment, 1 neutral, 2 contradiction."""
    phenomenon: str
    kind: str
    """The kind within the phenomenon, such as `dose` of `drug`."""
    spans: tuple[tuple[int, int, int], ...]
    """The characters that decide, as (sentence, start, end); sentence 0 is the premise."""
    facts: tuple[Fact, ...]
    """All that the premise says."""
    claim: Fact
    """What the hypothesis says."""
    frames: tuple[str, str]
    """The sentence frames of premise and hypothesis."""


# What each premise of a triple says in the place that the claim asks about.


UNRELATED = 0.5
"""Share of the neutral examples about classes whose premise speaks of another class altogether."""


@dataclass(frozen=True)
class Role:
    """Who stands in the place, with which number, and whether that has to do with the claim."""

    player: Player
    number: int
    related: bool = True


Roles = dict[int, Role]
"""By label."""


def plain_roles(cast: Cast, dice: Dice, number: int) -> Roles:
    """The claimed one with the number of the claim, with the other number, or somebody else with any number."""
    return {
        ENTAILMENT: Role(cast.claimed, number),
        CONTRADICTION: Role(cast.claimed, 1 - number),
        NEUTRAL: Role(cast.stand_in, dice.whole(0, 1), related=False),
    }


def class_roles(lexicon: Lexicon, dice: Dice, number: int) -> tuple[Cast, Roles]:
    """Cast and roles for a claim about a diagnosis or a class of diagnoses.

    Who has the member has the class, who is free of the class is free of the member. The other way round nothing
    follows: so the premise of a neutral example says that a member is absent where the claim is about the class, or
    that the class is present where the claim is about a member.
    """
    name, elsewhere, third = dice.several(tuple(lexicon.classes), 3)
    whole, member = Player(name), Player(dice.pick(lexicon.classes[name]))
    of_class = dice.chance(0.5)
    has, free = Role(member, 0), Role(whole, 1)
    stand_in = Player(dice.pick((elsewhere, dice.pick(lexicon.classes[elsewhere]))))
    related = Role(member, 1) if of_class else Role(whole, 0)
    roles = {
        ENTAILMENT: free if number else has,
        CONTRADICTION: has if number else free,
        NEUTRAL: Role(stand_in, dice.whole(0, 1), related=False) if dice.chance(UNRELATED) else related,
    }
    partner = Player(dice.pick(lexicon.classes[third]))
    return Cast(whole if of_class else member, partner, stand_in), roles

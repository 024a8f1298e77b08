"""Who and what plays in three examples: the thing claimed about, its partner, and a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headwise.tasks.clinic.dice import Dice
from headwise.tasks.clinic.lexicon import COUNTS, DOSES, MOMENTS, ONSETS, Lexicon


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

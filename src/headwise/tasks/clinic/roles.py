"""What each premise of a triple says in the place that the claim asks about."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.tasks.clinic.cast import Cast, Player
from headwise.tasks.clinic.dice import Dice
from headwise.tasks.clinic.example import CONTRADICTION, ENTAILMENT, NEUTRAL
from headwise.tasks.clinic.lexicon import Lexicon

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

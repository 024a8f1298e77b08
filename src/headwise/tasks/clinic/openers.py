"""How notes begin: a few words that have nothing to do with the label."""

from __future__ import annotations

import re

from headwise.tasks.clinic.dice import Dice

WITHOUT = 0.6
"""Share of the notes without an opener."""
NUMBERS = {"age": (18, 95), "bed": (1, 40), "day": (2, 60), "entry": (2, 90), "ward": (1, 30)}
OPENERS = {
    "train": (
        "Day {day} on the ward.",
        "Bed {bed}, evening round.",
        "Aged {age}, day {day} of this stay.",
        "Entry {entry} by the night team.",
        "Ward {ward}, bed {bed}.",
        "Written by the team of ward {ward}.",
    ),
    "validation": (
        "Note {entry} of this stay.",
        "Evening on ward {ward}, aged {age}.",
        "Team of ward {ward}, bed {bed}.",
    ),
    "test": (
        "Ward {ward}, day {day}.",
        "Bed {bed}, by the evening team.",
        "Night round, entry {entry}.",
        "Aged {age}, in bed {bed}.",
    ),
}


def opener(split: str, dice: Dice) -> str:
    """An opener with a space after it, or nothing."""
    if dice.chance(WITHOUT):
        return ""
    return re.sub(r"\{(\w+)\}", lambda match: str(dice.whole(*NUMBERS[match[1]])), dice.pick(OPENERS[split])) + " "

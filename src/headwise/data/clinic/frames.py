"""Sentence frames: text with places for words, which knows where the words went that decide.

A frame such as `The patient [a:reports|denies] {a} but [b:reports|denies] {b}.` has

* slots: `{a}` is what the slot a is about (`{as}` its site), and
* cues: `[a:reports|denies]` is what is said about a. Its alternatives are numbered 0, 1, 2; the last one leaves the
  matter open. A cue with one alternative says the same for every number; a cue of two slots (`[ab:Neither]`) speaks
  of both and follows the first. In a cue `*` is the slot's own value, `~` its other one.

A pattern such as `01` is a choice of numbers for the slots a, b: here a is reported and b is denied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headwise.data.clinic.entities import Dice

# How notes begin: a few words that have nothing to do with the label.


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


OPEN = 2
"""The number of the alternative that does not decide."""

Pattern = tuple[int, ...]
Mark = tuple[str, bool, int, int]
"""The slots that some words speak of, whether the words are a cue, and where they stand."""

_PIECE = re.compile(r"\[(?P<owners>\w+):(?P<cue>[^\]]*)\]|\{(?P<slot>\w+)\}|(?P<literal>[^\[{]+)")
_SENTENCE_START = re.compile(r"(^|\. )([a-z])")
_ALL = "00 01 10 11"


@dataclass(frozen=True)
class Filling:
    """What goes into a slot: words for `{a}` and `{as}`, the number of the cue, and the values for `*` and `~`."""

    name: str
    number: int = 0
    site: str = ""
    own: str = ""
    other: str = ""


@dataclass(frozen=True)
class Written:
    """A frame with its slots filled."""

    text: str
    marks: tuple[Mark, ...]

    def spans(self, slots: str, *, cues: bool = True) -> list[tuple[int, int]]:
        """Where the words stand that speak of any of these slots, with or without the cues."""
        return [
            (start, end) for owners, cue, start, end in self.marks if set(owners) & set(slots) and (cues or not cue)
        ]


@dataclass(frozen=True)
class Frame:
    """One sentence frame, and the patterns in which it makes sense."""

    text: str
    patterns: tuple[Pattern, ...]
    pieces: tuple[tuple[str, tuple[str, ...]], ...] = field(repr=False, compare=False)

    @property
    def cues(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Every cue as the slots that it speaks of and its alternatives."""
        return ((kind[1:], words) for kind, words in self.pieces if kind.startswith("["))

    def write(self, fillings: Mapping[str, Filling], opener: str = "") -> Written:
        """The sentence, after `opener`; fillings by slot."""
        parts = [opener]
        marks = []
        length = len(opener)
        for kind, words in self.pieces:
            owners = kind[1:]
            filling = fillings[owners[0]] if owners else None
            part = words[0] if filling is None else _fill(kind, words, filling)
            if filling is not None:
                cue = kind[0] == "["
                marks.append((owners if cue else owners[0], cue, length, length + len(part)))
            parts.append(part)
            length += len(part)
        # Upper case has as many letters, so the marks stay right.
        text = _SENTENCE_START.sub(lambda match: match[1] + match[2].upper(), "".join(parts))
        return Written(text, tuple(marks))


@dataclass(frozen=True)
class Templates:
    """The frames of one split: for the premise, and for what the hypothesis claims about the slot x."""

    premises: tuple[Frame, ...]
    claims: tuple[Frame, ...]


def templates(premises: str, claims: str) -> Templates:
    """Templates from blocks of lines."""
    return Templates(frames(premises), frames(claims))


def frames(block: str) -> tuple[Frame, ...]:
    """Frames from lines `patterns :: text`; without patterns, a frame of the one slot x for both numbers."""
    return tuple(_frame(line.strip()) for line in block.strip().splitlines())


def reading(frame: Frame, number: int) -> list[tuple[Pattern, int]]:
    """The patterns of the frame in which a slot has this number, each with the slot's place."""
    return [(pattern, place) for pattern in frame.patterns for place, entry in enumerate(pattern) if entry == number]


def _frame(line: str) -> Frame:
    numbers, _, text = line.rpartition(" :: ")
    patterns = numbers.replace("all", _ALL).split() or ["0", "1"]
    return Frame(text, tuple(tuple(map(int, pattern)) for pattern in patterns), tuple(_pieces(text)))


def _pieces(text: str) -> Iterable[tuple[str, tuple[str, ...]]]:
    for match in _PIECE.finditer(text):
        if match["slot"]:
            yield "{" + match["slot"], ()
        elif match["owners"]:
            yield "[" + match["owners"], tuple(match["cue"].split("|"))
        else:
            yield "", (match["literal"],)


def _fill(kind: str, words: tuple[str, ...], filling: Filling) -> str:
    if kind[0] == "{":
        return filling.site if kind[2:] == "s" else filling.name
    cue = words[0] if len(words) == 1 else words[filling.number]
    return cue.replace("*", filling.own).replace("~", filling.other)

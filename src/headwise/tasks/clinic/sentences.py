"""Writes a premise or a hypothesis, and notes what it says."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.tasks.clinic.cast import Cast, Player
from headwise.tasks.clinic.dice import Dice
from headwise.tasks.clinic.example import Fact
from headwise.tasks.clinic.frames import OPEN, Filling, Frame, Pattern, Written, reading
from headwise.tasks.clinic.kinds import Kind
from headwise.tasks.clinic.openers import opener
from headwise.tasks.clinic.roles import Role

AGREEING = 0.75
"""Share of the premises that say the same of all that they speak of."""


@dataclass(frozen=True)
class Premise:
    """A premise and what it says."""

    frame: Frame
    written: Written
    facts: tuple[Fact, ...]
    met: str
    """The slot that speaks of what is claimed; empty when none does."""


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis and what it claims."""

    frame: Frame
    written: Written
    claim: Fact


def write_premise(kind: Kind, split: str, cast: Cast, role: Role, dice: Dice) -> Premise:
    """A premise with the role in one slot and the partner in the other, if there is another.

    An unrelated role gives way to the claimed one itself where the frame has a slot that leaves the matter open.
    """
    frame, pattern, place = _pick_frame(kind, split, role.number, dice)
    numbers = dict(zip("ab", pattern, strict=False))
    met = "ab"[place]
    players = {slot: role.player if slot == met else cast.partner for slot in numbers}
    if not role.related:
        met = next((slot for slot, number in numbers.items() if number == OPEN), "")
        players = {slot: cast.claimed if slot == met else cast.partner for slot in numbers} if met else players
    written = frame.write(
        {"m": Filling(cast.measure), **{slot: _filling(players[slot], number) for slot, number in numbers.items()}},
        opener(split, dice),
    )
    names = [player.name for player in players.values()]
    facts = tuple(
        Fact(
            about=players[slot].name,
            state=kind.states[number] or players[slot].values[number],
            scope=players[slot].site or cast.measure,
            partner=names[slot == "a"] if kind.paired else "",
        )
        for slot, number in numbers.items()
    )
    return Premise(frame, written, facts, met)


def _pick_frame(kind: Kind, split: str, number: int, dice: Dice) -> tuple[Frame, Pattern, int]:
    """A frame with a slot of this number; in many premises the other slot, if there is one, has it too."""
    readings = {frame: reading(frame, number) for frame in kind.templates[split].premises}
    if dice.chance(AGREEING):
        agreeing = {
            frame: [(pattern, place) for pattern, place in found if set(pattern) == {number}]
            for frame, found in readings.items()
        }
        readings = agreeing if any(agreeing.values()) else readings
    frame = dice.pick([frame for frame, found in readings.items() if found])
    return frame, *dice.pick(readings[frame])


def write_hypothesis(kind: Kind, split: str, cast: Cast, number: int, dice: Dice) -> Hypothesis:
    """A claim about the claimed one, with this number."""
    frame = dice.pick(kind.templates[split].claims)
    claimed, bound = cast.claimed, cast.claimed.bound
    fillings = {
        "m": Filling(cast.measure),
        "x": Filling(claimed.name, number, claimed.site, bound or claimed.values[number]),
        "y": Filling(cast.partner.name),
    }
    side = f"{('above', 'below')[number]} {bound}"
    claim = Fact(
        about=claimed.name,
        state=side if bound else kind.states[number] or claimed.values[number],
        scope=claimed.site or cast.measure,
        partner=cast.partner.name if kind.paired else "",
    )
    return Hypothesis(frame, frame.write(fillings), claim)


def deciding_spans(kind: Kind, premise: Premise, hypothesis: Hypothesis) -> tuple[tuple[int, int, int], ...]:
    """Where the words stand that decide: the claim and what it meets, or the names that differ if it meets nothing."""
    if premise.met:
        first = premise.written.spans("ab" if kind.paired else premise.met)
        second = hypothesis.written.spans("xy")
    else:
        first = premise.written.spans("ab", cues=False)
        second = hypothesis.written.spans("x", cues=False)
    return (*((0, *span) for span in first), *((1, *span) for span in second))


def _filling(player: Player, number: int) -> Filling:
    if number == OPEN:
        return Filling(player.name, number, player.site)
    return Filling(player.name, number, player.site, player.values[number], player.values[1 - number])

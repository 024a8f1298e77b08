"""From words and frames to examples.

Three examples share a hypothesis, one for each label: the hypothesis alone tells nothing. The words of the premise tell
a part, since most claims affirm and most premises speak of one state: a small encoder finds its way in by them. The
rest is in how the words of both go together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from headwise.errors import InputError
from headwise.tasks.clinic.dice import Dice
from headwise.tasks.clinic.example import LABELS, ClinicExample
from headwise.tasks.clinic.kinds import KINDS, PHENOMENA, Kind
from headwise.tasks.clinic.lexicon import LEXICONS
from headwise.tasks.clinic.roles import class_roles, plain_roles
from headwise.tasks.clinic.sentences import deciding_spans, write_hypothesis, write_premise

PATIENCE = 200
AFFIRMED = 0.9
"""Share of the hypotheses that claim the first of a kind's two states, such as that a finding is present."""
"""How many triples in a row may be repetitions before the words count as used up."""


def generate(split: str, size: int, seed: int) -> tuple[ClinicExample, ...]:
    """The first `size` examples of a split: more are a continuation of fewer."""
    return tuple(islice(_stream(split, Dice(f"clinic {split} {seed}")), size))


def _stream(split: str, dice: Dice) -> Iterator[ClinicExample]:
    """Examples without repetition; each three in a row have the three labels."""
    seen: set[tuple[str, str]] = set()
    while True:
        chunk = [_fresh(phenomenon, split, dice, seen) for phenomenon, count in PHENOMENA.items() for _ in range(count)]
        # A column for each label, in an order of its own: the three of one hypothesis rarely follow each other.
        columns = [[triple[label] for triple in dice.shuffled(chunk)] for label in range(len(LABELS))]
        yield from chain.from_iterable(dice.shuffled(row) for row in zip(*columns, strict=True))


def _fresh(phenomenon: str, split: str, dice: Dice, seen: set[tuple[str, str]]) -> list[ClinicExample]:
    kinds = [kind for kind in KINDS for _ in range(kind.share) if kind.phenomenon == phenomenon]
    for _ in range(PATIENCE):
        triple = _triple(dice.pick(kinds), split, dice)
        keys = {(example.premise, example.hypothesis) for example in triple}
        alike = any(premise == hypothesis for premise, hypothesis in keys)
        if len(keys) == len(triple) and not alike and not keys & seen:
            seen |= keys
            return triple
    raise InputError(f"task clinic: the words of {split} are used up after {len(seen)} examples; ask for fewer.")


def _triple(kind: Kind, split: str, dice: Dice) -> list[ClinicExample]:
    """A hypothesis with a premise for each label, in the order of the labels."""
    number = int(not dice.chance(AFFIRMED))
    if kind.casting is None:
        cast, roles = class_roles(LEXICONS[split], dice, number)
    else:
        cast = kind.casting(LEXICONS[split], dice)
        roles = plain_roles(cast, dice, number)
    hypothesis = write_hypothesis(kind, split, cast, number, dice)
    triple = []
    for label in range(len(LABELS)):
        premise = write_premise(kind, split, cast, roles[label], dice)
        triple.append(
            ClinicExample(
                premise=premise.written.text,
                hypothesis=hypothesis.written.text,
                label=label,
                phenomenon=kind.phenomenon,
                kind=kind.name,
                spans=deciding_spans(kind, premise, hypothesis),
                facts=premise.facts,
                claim=hypothesis.claim,
                frames=(premise.frame.text, hypothesis.frame.text),
            )
        )
    return triple

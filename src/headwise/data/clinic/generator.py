"""From words and templates to examples.

Three examples share a hypothesis, one for each label: the hypothesis alone says nothing about the label. The words of
the premise say a part, since most claims affirm and most premises speak of one state: a small encoder finds its way in
by them. The rest is in how the words of both go together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from random import Random
from typing import Any, NamedTuple, TypeVar

from headwise.data.clinic.sentence_templates import (
    OPEN,
    Filling,
    Kind,
    Mark,
    Template,
    kinds,
    load_yaml,
    phenomena,
    spans,
)
from headwise.errors import InputError

LABELS = ("entailment", "neutral", "contradiction")
ENTAILMENT, NEUTRAL, CONTRADICTION = range(3)
AFFIRMED = 0.9
"""Share of the hypotheses that claim the first of a kind's two states, such as that a finding is present."""
AGREEING = 0.75
"""Share of the premises that say the same of all that they speak of."""
UNRELATED = 0.5
"""Share of the neutral examples about classes whose premise speaks of another class altogether."""
UNOPENED = 0.6
"""Share of the notes that begin without an opening."""
OPENING_NUMBERS = {"age": (18, 95), "bed": (1, 40), "day": (2, 60), "entry": (2, 90), "ward": (1, 30)}
PATIENCE = 200
"""How many triples in a row may be repetitions before the words count as used up."""

Item = TypeVar("Item")
Lexicon = Mapping[str, Any]


class Rng:
    """Draws made of `Random.random()` alone: of all of `random`, only this sequence is promised to stay as it is."""

    def __init__(self, seed: str) -> None:
        """The same seed gives the same draws on every machine."""
        self._random = Random(seed)

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def chance(self, share: float) -> bool:
        """True in this share of the draws."""
        return self._random.random() < share

    def choice(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.integer(0, len(items) - 1)]

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """Items at different positions, in random order."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in range(count)]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """All the items, in random order."""
        return self.sample(items, len(items))


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
    templates: tuple[str, str]
    """The sentence templates of premise and hypothesis."""


@dataclass(frozen=True)
class Entity:
    """A thing that notes speak of."""

    name: str
    site: str = ""
    values: tuple[str, str] = ("", "")
    """What it has when its number is 0 and 1, where the template does not say it."""
    bound: str = ""
    """What a claim compares the values with: the first lies above, the second below."""


class Entities(NamedTuple):
    """The entities of one hypothesis and its three premises."""

    claimed: Entity
    partner: Entity
    """Is named beside the claimed one in the premise."""
    substitute: Entity
    """Replaces the claimed one in a premise that says nothing about it."""
    measure: str = ""


class Role(NamedTuple):
    """What a premise says: about which entity, with which number, and whether that has to do with the claim."""

    entity: Entity
    number: int
    related: bool = True


def lexicon_of(split: str) -> Lexicon:
    """The words of a split, with those that all splits share."""
    words = load_yaml("lexicon.yaml")
    return {**words["shared"], **words[split]}


def generate(split: str, size: int, seed: int) -> tuple[ClinicExample, ...]:
    """The first `size` examples of a split: more are a continuation of fewer."""
    return tuple(islice(_stream(split, Rng(f"clinic {split} {seed}")), size))


def _stream(split: str, rng: Rng) -> Iterator[ClinicExample]:
    """Examples without repetition; each three in a row have the three labels."""
    seen: set[tuple[str, str]] = set()
    lexicon, shares = lexicon_of(split), phenomena()
    shared = {name: [kind for kind in kinds() for _ in range(kind.share) if kind.phenomenon == name] for name in shares}
    while True:
        chunk = []
        for phenomenon in (name for name, count in shares.items() for _ in range(count)):
            for _ in range(PATIENCE):
                triple = _triple(rng.choice(shared[phenomenon]), split, lexicon, rng)
                keys = {(example.premise, example.hypothesis) for example in triple}
                alike = any(premise == hypothesis for premise, hypothesis in keys)
                if len(keys) == len(triple) and not alike and not keys & seen:
                    break
            else:
                raise InputError(
                    f"task clinic: the words of {split} are used up after {len(seen)} examples; use a smaller size."
                )
            seen |= keys
            chunk.append(triple)
        # A column for each label, each in another order: the three of one hypothesis rarely follow each other.
        columns = [[triple[label] for triple in rng.shuffled(chunk)] for label in range(len(LABELS))]
        yield from chain.from_iterable(rng.shuffled(row) for row in zip(*columns, strict=True))


def _triple(kind: Kind, split: str, lexicon: Lexicon, rng: Rng) -> list[ClinicExample]:
    """A hypothesis with a premise for each label, in the order of the labels."""
    number = int(not rng.chance(AFFIRMED))
    if kind.entities is None:
        entities, roles = _class_roles(lexicon, rng, number)
    else:
        entities = _draw_entities(kind, lexicon, rng)
        roles = {
            ENTAILMENT: Role(entities.claimed, number),
            CONTRADICTION: Role(entities.claimed, 1 - number),
            NEUTRAL: Role(entities.substitute, rng.integer(0, 1), related=False),
        }
    template = rng.choice(kind.claims[split])
    hypothesis, marks, claim = _write_claim(kind, template, entities, number)
    triple = []
    for label in range(len(LABELS)):
        used, premise, premise_marks, facts, met = _write_premise(kind, split, lexicon, entities, roles[label], rng)
        # What decides is the claim and what it meets, or the names that differ if it meets nothing.
        if met:
            deciding = spans(premise_marks, "ab" if kind.paired else met), spans(marks, "xy")
        else:
            deciding = spans(premise_marks, "ab", cues=False), spans(marks, "x", cues=False)
        triple.append(
            ClinicExample(
                premise=premise,
                hypothesis=hypothesis,
                label=label,
                phenomenon=kind.phenomenon,
                kind=kind.name,
                spans=tuple((sentence, *span) for sentence, found in enumerate(deciding) for span in found),
                facts=facts,
                claim=claim,
                templates=(used.text, template.text),
            )
        )
    return triple


def _draw_entities(kind: Kind, lexicon: Lexicon, rng: Rng) -> Entities:
    """Three different entities with what the kind needs to know about them."""
    words = lexicon[str(kind.entities)]
    if kind.entities == "classes":  # one diagnosis of each class: within a class some exclude each other
        words = [rng.choice(members) for members in words.values()]
    sites = rng.sample(lexicon["sites"], 3) if kind.values == "side" else []
    drawn = [Entity(name) for name in rng.sample(list(words), 3)]
    if kind.values == "side":
        drawn = [replace(entity, site=sites.pop()) for entity in drawn]
    elif kind.values in ("sites", "doses", "onsets"):  # all three have one of two values
        values = rng.choice(lexicon["onsets"]) if kind.values == "onsets" else lexicon[kind.values]
        first, second = rng.sample(values, 2)
        drawn = [replace(entity, values=(first, second)) for entity in drawn]
    elif kind.values == "count":
        counts = lexicon["counts"]
        for index, entity in enumerate(drawn):
            bound = rng.integer(4, 8)
            above, below = bound + rng.integer(2, 4), bound - rng.integer(2, min(4, bound - 2))
            drawn[index] = replace(entity, values=(counts[above], counts[below]), bound=counts[bound])
    elif kind.values == "reading":
        for index, entity in enumerate(drawn):
            low, high = lexicon["measures"][entity.name]
            quarter = (high - low) // 4
            bound = rng.integer(low + quarter, high - quarter) // 5 * 5
            above, below = bound + rng.integer(quarter // 2, quarter), bound - rng.integer(quarter // 2, quarter)
            drawn[index] = replace(entity, values=(str(above), str(below)), bound=str(bound))
    claimed, partner, substitute = drawn
    measure = rng.choice(list(lexicon["measures"])) if kind.values == "measure" else ""
    return Entities(claimed, partner, substitute, measure)


def _class_roles(lexicon: Lexicon, rng: Rng, number: int) -> tuple[Entities, dict[int, Role]]:
    """Entities and roles for a claim about a diagnosis or a class of diagnoses.

    Who has the member has the class, who is free of the class is free of the member. The other way round nothing
    follows: so the premise of a neutral example says that a member is absent where the claim is about the class, or
    that the class is present where the claim is about a member.
    """
    classes = lexicon["classes"]
    name, elsewhere, third = rng.sample(list(classes), 3)
    whole, member = Entity(name), Entity(rng.choice(classes[name]))
    of_class = rng.chance(0.5)
    has, free = Role(member, 0), Role(whole, 1)
    substitute = Entity(rng.choice((elsewhere, rng.choice(classes[elsewhere]))))
    related = Role(member, 1) if of_class else Role(whole, 0)
    roles = {
        ENTAILMENT: free if number else has,
        CONTRADICTION: has if number else free,
        NEUTRAL: Role(substitute, rng.integer(0, 1), related=False) if rng.chance(UNRELATED) else related,
    }
    partner = Entity(rng.choice(classes[third]))
    return Entities(whole if of_class else member, partner, substitute), roles


def _write_premise(
    kind: Kind, split: str, lexicon: Lexicon, entities: Entities, role: Role, rng: Rng
) -> tuple[Template, str, list[Mark], tuple[Fact, ...], str]:
    """A premise with the role in one slot and the partner in the other, if there is another.

    An unrelated role gives way to the claimed entity where the template has a slot that leaves the matter open.

    Returns:
        Its template, text, marks and facts, and the slot that speaks of what is claimed, empty when none does.
    """
    template, pattern, slot = _choose_template(kind.premises[split], role.number, rng)
    numbers = dict(zip("ab", pattern, strict=False))
    met = named_slot = "ab"[slot]
    named = role.entity
    if not role.related:
        met = next((slot for slot, number in numbers.items() if number == OPEN), "")
        if met:
            named_slot, named = met, entities.claimed
    filled = {slot: named if slot == named_slot else entities.partner for slot in numbers}
    fillings = {"m": Filling(entities.measure)}
    for slot_name, number in numbers.items():
        entity = filled[slot_name]
        values = ("", "") if number == OPEN else (entity.values[number], entity.values[1 - number])
        fillings[slot_name] = Filling(entity.name, number, entity.site, *values)
    text, marks = template.fill(fillings, _opening(lexicon["openings"], rng))
    names = [entity.name for entity in filled.values()]
    facts = tuple(
        Fact(
            about=filled[slot].name,
            state=kind.states[number] or filled[slot].values[number],
            scope=filled[slot].site or entities.measure,
            partner=names[slot == "a"] if kind.paired else "",
        )
        for slot, number in numbers.items()
    )
    return template, text, marks, facts, met


def _choose_template(templates: Sequence[Template], number: int, rng: Rng) -> tuple[Template, tuple[int, ...], int]:
    """A template with a slot of this number; in many premises the other slot, if there is one, has it too."""
    readings = [(template, template.readings(number)) for template in templates]
    if rng.chance(AGREEING):
        agreeing = [(each, [found for found in all_of if set(found[0]) == {number}]) for each, all_of in readings]
        readings = agreeing if any(found for _, found in agreeing) else readings
    template, found = rng.choice([each for each in readings if each[1]])
    return template, *rng.choice(found)


def _opening(openings: Sequence[str], rng: Rng) -> str:
    """A few words that have nothing to do with the label, with a space after them; often none."""
    if rng.chance(UNOPENED):
        return ""
    opening = rng.choice(openings)
    return re.sub(r"\{(\w+)\}", lambda match: str(rng.integer(*OPENING_NUMBERS[match[1]])), opening) + " "


def _write_claim(kind: Kind, template: Template, entities: Entities, number: int) -> tuple[str, list[Mark], Fact]:
    """The text and the marks of a hypothesis about the claimed entity, and what it claims."""
    claimed = entities.claimed
    value = claimed.bound or claimed.values[number]
    fillings = {
        "m": Filling(entities.measure),
        "x": Filling(claimed.name, number, claimed.site, value),
        "y": Filling(entities.partner.name),
    }
    claim = Fact(
        about=claimed.name,
        state=f"{('above', 'below')[number]} {value}" if claimed.bound else kind.states[number] or value,
        scope=claimed.site or entities.measure,
        partner=entities.partner.name if kind.paired else "",
    )
    return *template.fill(fillings), claim

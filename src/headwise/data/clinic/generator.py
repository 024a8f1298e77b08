"""From words and sentence templates to examples. See lexicon.yaml and templates.yaml.

Three examples share a hypothesis, one for each label: the hypothesis alone says nothing about the label. The words of
the premise say a part, since most claims affirm and most premises speak of one state: a small encoder finds its way in
by them. The rest is in how the words of both go together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

import yaml

from headwise.errors import InputError

LABELS = ("entailment", "neutral", "contradiction")
SPLITS = ("train", "validation", "test")
OPEN = 2
"""The number of the alternative that leaves the matter open."""
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

_PIECE = re.compile(r"\[(?P<slots>\w+):(?P<cue>[^\]]*)\]|\{(?P<slot>\w+)\}|(?P<text>[^\[{]+)")

Item = TypeVar("Item")
Lexicon = Mapping[str, Any]


class Rng(Random):
    """Draws made of `random()` alone: of all of `Random`, only this sequence is promised to stay as it is."""

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.integer(0, len(items) - 1)]

    def shuffled(self, items: Sequence[Item], count: int | None = None) -> list[Item]:
        """Items at different positions, in random order; all of them unless a count is given."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in range(len(left) if count is None else count)]


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


class Entity(NamedTuple):
    """A thing that notes speak of."""

    name: str
    site: str = ""
    values: tuple[str, str, str] = ("", "", "")
    """What it has when its number is 0 and 1, where the template does not say it; nothing where it is left open."""
    bound: str = ""
    """What a claim compares the values with: the first lies above, the second below."""


@dataclass(frozen=True)
class Template:
    """One sentence with slots, and the patterns in which it makes sense: the numbers of its slots a and b."""

    text: str
    patterns: tuple[tuple[int, ...], ...]
    pieces: tuple[tuple[str, tuple[str, ...]], ...]
    """Slots and words: a cue has both, a slot has no words, and plain text has no slots."""

    @classmethod
    def parse(cls, line: str) -> Template:
        """A template from a line `patterns :: text`; without patterns, one of the slot x for the numbers 0 and 1."""
        numbers, _, text = line.strip().rpartition(" :: ")
        patterns = numbers.replace("all", "00 01 10 11").split() or ["0", "1"]
        pieces: list[tuple[str, tuple[str, ...]]] = []
        for match in _PIECE.finditer(text):
            if match["slot"]:
                pieces.append((match["slot"], ()))
            elif match["slots"]:
                pieces.append((match["slots"], tuple(match["cue"].split("|"))))
            else:
                pieces.append(("", (match["text"],)))
        return cls(text, tuple([tuple(map(int, pattern)) for pattern in patterns]), tuple(pieces))

    def fill(
        self,
        fillings: Mapping[str, tuple[Entity, int]],
        sentence: int,
        deciding: str,
        *,
        cues: bool = True,
        opening: str = "",
    ) -> tuple[str, list[tuple[int, int, int]]]:
        """The sentence, and where its words are that speak of a deciding slot, as `ClinicExample.spans`.

        Args:
            fillings: by slot, the entity that it names, and the number of its cue.
            sentence: the number of the sentence in its example.
            deciding: the slots that decide.
            cues: whether cues count among the words that speak of a slot, or only names.
            opening: what comes before the sentence.
        """
        text, spans = opening, []
        for slots, words in self.pieces:
            if not slots:
                text += words[0]
                continue
            entity, number = fillings[slots[0]]
            if words:
                part = words[0] if len(words) == 1 else words[number]
                # Of two values the other one; of a matter left open, nothing.
                part = part.replace("*", entity.values[number]).replace("~", entity.values[1 - number])
            else:
                part = entity.site if slots[1:] == "s" else entity.name
            if set(slots if words else slots[0]) & set(deciding) and (cues or not words):
                spans.append((sentence, len(text), len(text) + len(part)))
            text += part
        # Upper case has as many letters, so the spans stay right.
        return re.sub(r"(^|\. )([a-z])", lambda match: match[1] + match[2].upper(), text), spans


@dataclass(frozen=True, eq=False)
class Kind:
    """One way to make examples of a phenomenon, such as `dose` of `drug`."""

    name: str
    phenomenon: str
    premises: Mapping[str, Sequence[Template]]
    """By split."""
    claims: Mapping[str, Sequence[Template]]
    states: Sequence[str]
    """What the numbers 0, 1 and 2 of the templates mean; empty where the entity's value says it."""
    entities: str | None = None
    """Which words of the lexicon the slots name; None for diagnoses and their classes, which depend on the label."""
    values: str | None = None
    """What the values of the slots are."""
    share: int = 1
    """How often, among the kinds of the phenomenon."""
    paired: bool = False
    """Whether a fact always is about two entities."""

    def fact(self, entity: Entity, number: int, measure: str, partner: str) -> Fact:
        """What a cue of this number says about an entity."""
        state = self.states[number] or entity.values[number]
        return Fact(entity.name, state, entity.site or measure, partner if self.paired else "")


@cache
def load_yaml(name: str) -> Any:
    """The content of a data file of this folder."""
    return yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds of examples."""
    every = []
    for name, content in load_yaml("templates.yaml")["kinds"].items():
        fields: dict[str, Any] = {"premises": {}, "claims": {}}
        for key, value in content.items():
            if key in SPLITS:
                for part, lines in value.items():
                    fields[part][key] = [Template.parse(line) for line in lines.splitlines()]
            else:
                fields[key] = value
        every.append(Kind(name, **fields))
    return tuple(every)


@lru_cache(maxsize=6)
def generate(split: str, size: int, seed: int) -> tuple[ClinicExample, ...]:
    """The first `size` examples of a split, without repetition; each three in a row have the three labels.

    More examples are a continuation of fewer.
    """
    rng, words = Rng(f"clinic {split} {seed}"), load_yaml("lexicon.yaml")
    lexicon: Lexicon = {**words["shared"], **words[split]}
    shared: dict[str, list[Kind]] = {}
    for kind in kinds():
        shared.setdefault(kind.phenomenon, []).extend([kind] * kind.share)
    seen: set[tuple[str, str]] = set()
    examples: list[ClinicExample] = []
    while len(examples) < size:
        triples = []
        for phenomenon, count in load_yaml("templates.yaml")["phenomena"].items():
            for _ in range(count):
                for _ in range(PATIENCE):
                    triple = _triple(rng.pick(shared[phenomenon]), split, lexicon, rng)
                    pairs = {(example.premise, example.hypothesis) for example in triple}
                    hypothesis = triple[0].hypothesis  # of all three
                    if len(pairs) == len(triple) and not pairs & seen and (hypothesis, hypothesis) not in pairs:
                        break
                else:
                    raise InputError(
                        f"task clinic: the words of {split} are used up after {len(seen)} examples; use a smaller size."
                    )
                seen |= pairs
                triples.append(triple)
        # A column for each label, each in another order: the three of one hypothesis rarely follow each other.
        columns = []
        for label in range(len(LABELS)):
            columns.append([triple[label] for triple in rng.shuffled(triples)])
        for row in zip(*columns, strict=True):
            examples += rng.shuffled(row)
    return tuple(examples[:size])


def _triple(kind: Kind, split: str, lexicon: Lexicon, rng: Rng) -> list[ClinicExample]:
    """A hypothesis with a premise for each label, in the order of the labels."""
    number = int(rng.random() >= AFFIRMED)
    # For each label the entity that the premise speaks of, its number, and whether it has to do with the claim.
    if kind.entities is None:
        claimed, partner, topics = _draw_classes(lexicon, rng, number)
        measure = ""
    else:
        claimed, partner, substitute = _draw_entities(kind, lexicon, rng)
        measure = rng.pick(list(lexicon["measures"])) if kind.values == "measure" else ""
        unrelated = (substitute, rng.integer(0, 1), False)
        topics = [(claimed, number, True), unrelated, (claimed, 1 - number, True)]
    template = rng.pick(kind.claims[split])
    claim = kind.fact(claimed, number, measure, partner.name)
    stated = claimed
    if claimed.bound:
        claim = Fact(claim.about, f"{('above', 'below')[number]} {claimed.bound}", claim.scope, claim.partner)
        stated = claimed._replace(values=(claimed.bound, claimed.bound, ""))
    fillings = {"m": (Entity(measure), 0), "x": (stated, number), "y": (partner, 0)}
    triple = []
    for label, (entity, premise_number, related) in enumerate(topics):
        used, pattern, slot = _pick_premise(kind.premises[split], premise_number, rng)
        if not related and OPEN in pattern:
            # An unrelated entity gives way to the claimed one where a slot leaves the matter open.
            slot, entity, related = pattern.index(OPEN), claimed, True
        named = [entity if index == slot else partner for index in range(len(pattern))]
        filled = dict(zip("ab", zip(named, pattern, strict=True), strict=False))
        opening = ""
        if rng.random() >= UNOPENED:  # words that have nothing to do with the label
            opening = rng.pick(lexicon["openings"]) + " "
            opening = re.sub(r"\{(\w+)\}", lambda match: str(rng.integer(*OPENING_NUMBERS[match[1]])), opening)
        # What decides is the claim and what it meets, or the names that differ if it meets nothing.
        deciding = "ab" if kind.paired or not related else "ab"[slot]
        measured = {"m": fillings["m"], **filled}
        premise, spans = used.fill(measured, 0, deciding, cues=related, opening=opening)
        hypothesis, claim_spans = template.fill(fillings, 1, "xy" if related else "x", cues=related)
        # With the other of two as the partner, if the kind compares them.
        facts = [kind.fact(*filled[slot], measure, each.name) for slot, each in zip(filled, named[::-1], strict=True)]
        triple.append(
            ClinicExample(
                premise=premise,
                hypothesis=hypothesis,
                label=label,
                phenomenon=kind.phenomenon,
                kind=kind.name,
                spans=(*spans, *claim_spans),
                facts=tuple(facts),
                claim=claim,
                templates=(used.text, template.text),
            )
        )
    return triple


def _draw_entities(kind: Kind, lexicon: Lexicon, rng: Rng) -> list[Entity]:
    """Three entities with what the kind needs to know about them.

    They are the claimed one, its partner in the premise, and a substitute for a premise that says nothing about it.
    """
    words = lexicon[str(kind.entities)]
    if kind.entities == "classes":  # one diagnosis of each class: within a class some exclude each other
        words = [rng.pick(members) for members in words.values()]
    sites = rng.shuffled(lexicon["sites"], 3) if kind.values == "side" else []
    names = rng.shuffled(list(words), 3)
    values: list[str] = []
    if kind.values in ("sites", "doses", "onsets"):  # all three have one of two values
        choice = rng.pick(lexicon["onsets"]) if kind.values == "onsets" else lexicon[kind.values]
        values = rng.shuffled(choice, 2)
    drawn = []
    for name in names:
        entity = Entity(name)
        if sites:
            entity = Entity(name, site=sites.pop())
        elif values:
            entity = Entity(name, values=(values[0], values[1], ""))
        elif kind.values == "count":
            counts, middle = lexicon["counts"], rng.integer(4, 8)
            above, below = middle + rng.integer(2, 4), middle - rng.integer(2, min(4, middle - 2))
            entity = Entity(name, values=(counts[above], counts[below], ""), bound=counts[middle])
        elif kind.values == "reading":
            low, high = lexicon["measures"][name]
            quarter = (high - low) // 4
            middle = rng.integer(low + quarter, high - quarter) // 5 * 5
            above, below = middle + rng.integer(quarter // 2, quarter), middle - rng.integer(quarter // 2, quarter)
            entity = Entity(name, values=(str(above), str(below), ""), bound=str(middle))
        drawn.append(entity)
    return drawn


def _draw_classes(lexicon: Lexicon, rng: Rng, number: int) -> tuple[Entity, Entity, list[tuple[Entity, int, bool]]]:
    """What is claimed, its partner and what premises speak of, for a diagnosis or a class of diagnoses.

    Who has the member has the class, who is free of the class is free of the member. The other way round nothing
    follows: so the premise of a neutral example says that a member is absent where the claim is about the class, or
    that the class is present where the claim is about a member.
    """
    classes = lexicon["classes"]
    name, elsewhere, third = rng.shuffled(list(classes), 3)
    whole, member = Entity(name), Entity(rng.pick(classes[name]))
    of_class = rng.random() < 0.5
    substitute = Entity(rng.pick((elsewhere, rng.pick(classes[elsewhere]))))
    neutral = (member, 1, True) if of_class else (whole, 0, True)
    if rng.random() < UNRELATED:
        neutral = (substitute, rng.integer(0, 1), False)
    has, free = (member, 0, True), (whole, 1, True)
    topics = [free, neutral, has] if number else [has, neutral, free]
    return whole if of_class else member, Entity(rng.pick(classes[third])), topics


def _pick_premise(templates: Sequence[Template], number: int, rng: Rng) -> tuple[Template, tuple[int, ...], int]:
    """A template, a pattern of it, and a slot that has this number; in many premises the other slot has it too."""
    readings, agreeing = [], []
    for template in templates:
        pairs = [(pattern, slot) for pattern in template.patterns for slot, n in enumerate(pattern) if n == number]
        same = [(pattern, slot) for pattern, slot in pairs if set(pattern) == {number}]
        readings += [(template, pairs)] if pairs else []
        agreeing += [(template, same)] if same else []
    if rng.random() < AGREEING and agreeing:
        readings = agreeing
    template, pairs = rng.pick(readings)
    return template, *rng.pick(pairs)

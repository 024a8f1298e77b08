"""From words and frames to examples.

Three examples share a hypothesis, one for each label: the hypothesis alone tells nothing. The words of the premise tell
a part, since most claims affirm and most premises speak of one state: a small encoder finds its way in by them. The
rest is in how the words of both go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headwise.data.clinic import entities as cast
from headwise.data.clinic.entities import (
    LABELS,
    Cast,
    ClinicExample,
    Dice,
    Fact,
    Player,
    Role,
    class_roles,
    plain_roles,
)
from headwise.data.clinic.frames import OPEN, Filling, Frame, Pattern, Templates, Written, opener, reading
from headwise.data.clinic.lexicon import LEXICONS
from headwise.data.clinic.templates import drugs, findings, measures, sites, times
from headwise.data.task import described
from headwise.errors import InputError, choices

if TYPE_CHECKING:
    from headwise.data import Split


# The kinds of examples: which phenomenon, who plays, what the numbers of the frames mean.


@dataclass(frozen=True)
class Kind:
    """One way to make examples of a phenomenon."""

    phenomenon: str
    name: str
    casting: cast.Casting | None
    """None for diagnoses and their classes, whose players depend on the label."""
    templates: Mapping[str, Templates]
    """By split."""
    states: tuple[str, str, str]
    """What the numbers 0, 1 and 2 of the frames mean; empty where the player's value says it."""
    share: int = 1
    """How often, among the kinds of the phenomenon."""

    @property
    def paired(self) -> bool:
        """Whether a fact always is about two."""
        return self.name in {"order", "people", "moment"}


_HAS = ("present", "absent")
KINDS = (
    Kind("negation", "negation", cast.symptoms, findings.NEGATION, (*_HAS, "in a relative")),
    Kind("uncertainty", "uncertainty", cast.diagnoses, findings.UNCERTAINTY, (*_HAS, "possible")),
    Kind("hypernym", "class", None, findings.HYPERNYM, (*_HAS, "")),
    Kind("site", "side", cast.sided_lesions, sites.SIDE, ("left", "right", "one side"), share=2),
    Kind("site", "place", cast.placed_lesions, sites.PLACE, ("", "", "not recorded")),
    Kind("drug", "status", cast.drugs, drugs.STATUS, ("started", "stopped", "discussed")),
    Kind("drug", "change", cast.drugs, drugs.CHANGE, ("raised", "lowered", "under review")),
    Kind("drug", "dose", cast.dosed_drugs, drugs.DOSE, ("", "", "not recorded")),
    Kind("time", "onset", cast.dated_symptoms, times.ONSET, ("", "", "not known"), share=2),
    Kind("time", "order", cast.symptoms, times.ORDER, ("earlier", "later", "")),
    Kind("comparison", "trend", cast.measures, measures.TREND, ("up", "down", "not repeated"), share=4),
    Kind("comparison", "people", cast.people, measures.PEOPLE, ("higher", "lower", "")),
    Kind("comparison", "moment", cast.moments, measures.MOMENT, ("higher", "lower", "")),
    Kind("quantity", "reading", cast.read_measures, measures.READING, ("", "", "pending")),
    Kind("quantity", "count", cast.counted_symptoms, measures.COUNT, ("", "", "not counted")),
)
PHENOMENA = {
    "negation": 4,
    "uncertainty": 3,
    "hypernym": 2,
    "site": 2,
    "drug": 3,
    "time": 1,
    "comparison": 2,
    "quantity": 1,
}
"""How often each comes in a chunk of the stream."""


# Writes a premise or a hypothesis, and notes what it says.


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


# The task `clinic` as the rest of the library sees it.


SIZES = {"train": 3600, "validation": 600, "test": 1200}


@dataclass(frozen=True)
class ClinicTask:
    """Natural-language inference on ward notes that we make up, with the words that decide each label."""

    sizes: Mapping[str, int] = field(default_factory=lambda: dict(SIZES))
    """Examples per split."""
    seed: int = 0
    """Another seed, other notes from the same words and frames."""

    name: ClassVar[str] = "clinic"
    description: ClassVar[str] = (
        "Does a made-up ward note entail, leave open or contradict a sentence? Negation, uncertainty, classes, sites, "
        "drugs, times, comparisons and quantities; each split has words and sentence frames of its own."
    )
    source: ClassVar[str] = "generated by headwise; nothing to download"
    kind: ClassVar[str] = "classification"
    labels: ClassVar[tuple[str, ...]] = LABELS
    sentences: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro_precision", "macro_recall", "macro_f1")
    primary: ClassVar[str] = "accuracy"
    splits: ClassVar[tuple[str, ...]] = tuple(SIZES)

    def examples(self, split: str) -> tuple[ClinicExample, ...]:
        """The examples of a split with all that is known about them."""
        if split not in self.splits:
            raise InputError(f"task clinic has no split {split!r}: {choices(str(split), self.splits)}.")
        return _examples(split, self.sizes[split], self.seed)

    def available(self, root: Path | None) -> tuple[str, ...]:
        """All splits: they are made, not read."""
        return self.splits

    def read(self, split: str, root: Path | None = None, *, network: bool = False) -> Split:
        """The texts, labels and deciding spans of a split; needs neither files nor the network."""
        from headwise.data import Split

        examples = self.examples(split)
        return Split(
            texts=tuple((example.premise, example.hypothesis) for example in examples),
            labels=tuple(example.label for example in examples),
            spans=tuple(example.spans for example in examples),
        )

    def read_file(self, path: Path, *, labelled: bool) -> Split:
        """Examples from a file with the columns sentence1 (the note), sentence2 and, if labelled, label."""
        from headwise.data import build_task

        options = {"labels": list(self.labels)}
        return build_task("pairs", options).read_file(path, labelled=labelled)

    def describe(self) -> dict[str, Any]:
        """What the task is, as plain data."""
        own = {"sizes": dict(self.sizes), "seed": self.seed, "phenomena": list(PHENOMENA)}
        return described(self) | own


def clinic_task(options: Mapping[str, Any]) -> ClinicTask:
    """The task from its options: `sizes` (examples per split) and `seed`."""
    for option in options:
        if option not in {"sizes", "seed"}:
            raise InputError(f"unknown option {option!r} of task clinic: {choices(str(option), ['sizes', 'seed'])}.")
    seed = options.get("seed", 0)
    if not _is_whole(seed):
        raise InputError(f"seed {seed!r} of task clinic: expected a whole number, such as 0.")
    return ClinicTask(_checked_sizes(options.get("sizes", {})), seed)


def _checked_sizes(sizes: object) -> dict[str, int]:
    if not isinstance(sizes, Mapping):
        raise InputError(f"sizes {sizes!r} of task clinic: expected whole numbers by split, such as {SIZES}.")
    for split, size in sizes.items():
        if split not in SIZES:
            raise InputError(f"sizes of task clinic name the unknown split {split!r}: {choices(str(split), SIZES)}.")
        if not _is_whole(size) or size < 1:
            raise InputError(f"size {size!r} of split {split!r} of task clinic: expected a whole number from 1 up.")
    return {**SIZES, **sizes}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@lru_cache(maxsize=6)
def _examples(split: str, size: int, seed: int) -> tuple[ClinicExample, ...]:
    return generate(split, size, seed)

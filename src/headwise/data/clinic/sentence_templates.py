"""Sentence templates: text with slots, which knows where the words went that decide. See templates.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

OPEN = 2
"""The number of the alternative that leaves the matter open."""

SPLITS = ("train", "validation", "test")

Pattern = tuple[int, ...]
"""The numbers of the slots a and b."""


@cache
def load_yaml(name: str) -> Any:
    """The content of a data file of this folder."""
    return yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))


class Filling(NamedTuple):
    """What goes into a slot: words for `{a}` and `{as}`, the number of the cue, and the values for `*` and `~`."""

    name: str
    number: int = 0
    site: str = ""
    value: str = ""
    other: str = ""


class Mark(NamedTuple):
    """Where some words of a sentence are, and the slots that they speak of."""

    slots: str
    is_cue: bool
    start: int
    end: int


class Piece(NamedTuple):
    """A part of a template: a `slot`, a `cue` with its alternatives, or plain `text`."""

    kind: str
    slots: str
    words: tuple[str, ...]


_PIECE = re.compile(r"\[(?P<slots>\w+):(?P<cue>[^\]]*)\]|\{(?P<slot>\w+)\}|(?P<text>[^\[{]+)")


@dataclass(frozen=True)
class Template:
    """One sentence, and the patterns in which it makes sense."""

    text: str
    patterns: tuple[Pattern, ...]
    pieces: tuple[Piece, ...]

    @classmethod
    def parse(cls, line: str) -> Template:
        """A template from a line `patterns :: text`; without patterns, one of the slot x for the numbers 0 and 1."""
        numbers, _, text = line.strip().rpartition(" :: ")
        patterns = numbers.replace("all", "00 01 10 11").split() or ["0", "1"]
        pieces = []
        for match in _PIECE.finditer(text):
            if match["slot"]:
                pieces.append(Piece("slot", match["slot"], ()))
            elif match["slots"]:
                pieces.append(Piece("cue", match["slots"], tuple(match["cue"].split("|"))))
            else:
                pieces.append(Piece("text", "", (match["text"],)))
        return cls(text, tuple(tuple(map(int, pattern)) for pattern in patterns), tuple(pieces))

    def readings(self, number: int) -> list[tuple[Pattern, int]]:
        """The patterns in which a slot has this number, each with the index of the slot."""
        return [(pattern, slot) for pattern in self.patterns for slot, each in enumerate(pattern) if each == number]

    def fill(self, fillings: Mapping[str, Filling], opening: str = "") -> tuple[str, list[Mark]]:
        """The sentence after `opening`, and where the words of its slots and cues are; fillings by slot."""
        text, marks = opening, []
        for kind, slots, words in self.pieces:
            if kind == "text":
                text += words[0]
                continue
            filling = fillings[slots[0]]
            if kind == "cue":
                part = words[0] if len(words) == 1 else words[filling.number]
                part = part.replace("*", filling.value).replace("~", filling.other)
            else:
                part = filling.site if slots[1:] == "s" else filling.name
            marks.append(Mark(slots if kind == "cue" else slots[0], kind == "cue", len(text), len(text) + len(part)))
            text += part
        # Upper case has as many letters, so the marks stay right.
        return re.sub(r"(^|\. )([a-z])", lambda match: match[1] + match[2].upper(), text), marks


def spans(marks: list[Mark], slots: str, *, cues: bool = True) -> list[tuple[int, int]]:
    """Where the words are that speak of any of these slots, with or without the cues."""
    return [(mark.start, mark.end) for mark in marks if set(mark.slots) & set(slots) and (cues or not mark.is_cue)]


@dataclass(frozen=True, eq=False)
class Kind:
    """One way to make examples of a phenomenon, such as `dose` of `drug`."""

    name: str
    phenomenon: str
    premises: Mapping[str, tuple[Template, ...]]
    """By split."""
    claims: Mapping[str, tuple[Template, ...]]
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


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds of examples."""
    found = []
    for name, content in load_yaml("templates.yaml")["kinds"].items():
        fields = {key: value for key, value in content.items() if key not in SPLITS}
        for part in ("premises", "claims"):
            lines = {split: content[split][part].splitlines() for split in SPLITS}
            fields[part] = {split: tuple(map(Template.parse, lines[split])) for split in SPLITS}
        found.append(Kind(name, **fields))
    return tuple(found)


def phenomena() -> dict[str, int]:
    """How often each phenomenon comes in a chunk of the stream."""
    return dict(load_yaml("templates.yaml")["phenomena"])

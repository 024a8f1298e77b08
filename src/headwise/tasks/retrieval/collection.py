"""A collection: documents to search, claims to search for, and which document answers which claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Claim -> document -> grade; above 0 is an answer.
Qrels = Mapping[str, Mapping[str, int]]
# Claim -> document -> score, the best first.
Run = Mapping[str, Mapping[str, float]]
# Told how much is done, of how much; 0 where nobody knows.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Document:
    """A paper: its title may be empty, its text may not."""

    id: str
    title: str
    text: str

    @property
    def whole(self) -> str:
        """Title and text, which is what is searched and what a re-ranker reads."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True)
class GivenPair:
    """A pair of a claim and a text that comes with the data, such as a row of Cross-genre-IR."""

    claim: str
    document: str
    text: str
    relevant: bool


@dataclass(frozen=True)
class Collection:
    """Claims and judgements in memory, documents streamed from their files as often as they are asked for."""

    name: str
    layout: str
    """How the files are written: beir, scifact or cross-genre."""
    files: tuple[Path, ...]
    """The files that hold the documents: their content decides whether an index can be used again."""
    documents: Callable[[], Iterator[Document]]
    claims: Mapping[str, str]
    """Id -> text."""
    qrels: Mapping[str, Qrels]
    """Split -> judgements; claims without a document above 0 are in none of them."""
    places: Mapping[str, Path] = field(default_factory=dict)
    """Split -> the file its judgements come from, for messages."""
    given: Mapping[str, Callable[[], Iterator[GivenPair]]] = field(default_factory=dict)
    """Split -> pairs that the data brings along, if any."""
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Split -> all its claims, judged or not, where the data say so: none of them may be trained on for another."""
    notes: tuple[str, ...] = ()
    """What was left out, for the log."""

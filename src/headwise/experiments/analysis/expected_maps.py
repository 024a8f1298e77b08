"""What a pattern wants the maps of examples to look like: an outline over what they are, and how far they follow it.

Of a run that was guided to a pattern it is that pattern, be it fixed (first, next, ...) or knowledge (pmi, dependency,
...); of any run it may be one that the user names. Knowledge about words is worked out anew for the examples that are
looked at, from the same sources and the same training texts as in training.

Shapes: T tokens of an example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy
import numpy as np
import torch
from numpy.typing import NDArray

from headwise.data import Encoded
from headwise.errors import HeadwiseError, InputError, StateError
from headwise.experiments.apply import Loaded, Source
from headwise.experiments.gather_knowledge import embeddings_of
from headwise.experiments.head_studies.head_importance import check_marks
from headwise.experiments.splits import read_split
from headwise.guides import build
from headwise.guides.match import Match
from headwise.heads.statistics import Marks
from headwise.patterns import Pattern, Tokens, build_pattern, find_marks, mark_ids, refuse_named_code
from headwise.patterns.base import Builder, Knowledge, Resources, Texts, WordMatrix, digest, options_of
from headwise.patterns.parallel import Processes, cores
from headwise.training import Listener, Need, Silence
from headwise.training.word_knowledge import WithKnowledge

# The maps of one example in little room: one byte for each weight, and of long texts the largest of each row only.


Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def to_bytes(weights: NDArray[Any]) -> Bytes:
    """Attention on the root scale."""
    found: Bytes = np.rint(np.sqrt(np.clip(weights, 0.0, 1.0)) * 255).astype(np.uint8)
    return found


def from_bytes(values: Bytes) -> Floats:
    """The attention that the bytes stand for."""
    found: Floats = np.square(values.astype(np.float32) / 255)
    return found


@dataclass(frozen=True)
class ExampleMaps:
    """All maps of an example, whole or the largest weights of each row."""

    values: Bytes
    """[N,H,T,T], or [N,H,T,k] beside `keys`."""
    keys: NDArray[np.uint16] | None = None
    """[N,H,T,k] where the kept weights stand, largest weight first; None if all are there."""

    @property
    def exact(self) -> bool:
        """Whether nothing was left out."""
        return self.keys is None

    @property
    def heads(self) -> tuple[int, int]:
        """Layers, and heads of each."""
        return self.values.shape[0], self.values.shape[1]

    def head(self, layer: int, head: int) -> Floats:
        """[T,T]; zero where a weight was left out."""
        values = from_bytes(self.values[layer, head])
        if self.keys is None:
            return values
        tokens = len(values)
        found = np.zeros((tokens, tokens), dtype=np.float32)
        np.put_along_axis(found, self.keys[layer, head].astype(np.int64), values, 1)
        return found

    def largest(self, count: int) -> ExampleMaps:
        """With at most so many weights of each row; those that are whole stay so if they are no larger."""
        if self.values.shape[3] <= count:
            return self
        if self.keys is not None:
            return ExampleMaps(self.values[..., :count], self.keys[..., :count])
        # The first of equal weights comes first, whatever the machine.
        order = np.argsort(-self.values.astype(np.int16), axis=3, kind="stable")[..., :count]
        return ExampleMaps(np.take_along_axis(self.values, order, 3), order.astype(np.uint16))


# Which text each token of an example is of.


def sources_of(encoded: Encoded, place: int) -> numpy.ndarray:
    """[T] the text of each token of an example, -1 for special tokens."""
    if encoded.sources is None:
        raise StateError("the examples were encoded without offsets: this is a fault of headwise, please report it.")
    part: numpy.ndarray = encoded.sources[encoded.starts[place] : encoded.starts[place + 1]]
    return part


# Knowledge is worked out for so many examples at a time, between which progress is shown.
STRETCH = 100
Marked = NDArray[np.bool_]


@dataclass(frozen=True)
class WantedPattern:
    """A pattern, and what is needed to tell what it wants of a text."""

    name: str
    """The pattern, and where it was wanted."""
    pattern: Pattern
    known: Mapping[str, tuple[int, ...]]
    """Ids of separators and full stops."""
    resources: Resources = Resources()
    corpus: Sequence[Texts] = ()
    """The training texts, for knowledge that counts words in them."""
    special_rows: bool = True
    """Whether special tokens, too, should look where it says."""
    asked: bool = False
    """Whether somebody asked for it: then it is an error if it cannot be worked out."""

    def identity(self) -> dict[str, Any]:
        """Tells whether two analyses held heads against the same."""
        found: dict[str, Any] = {"name": self.pattern.name, "options": options_of(self.pattern)}
        if isinstance(self.pattern, Knowledge):
            found["sources"] = digest([self.pattern.fingerprint(self.resources), [list(each) for each in self.corpus]])
        return found

    def of(self, texts: Sequence[Texts], encoded: Encoded, listener: Listener | None = None) -> WantedMaps | None:
        """What it wants of these examples, which were encoded with offsets; None, and told, if nobody can know."""
        listener = listener or Silence()
        try:
            return self._maps(texts, encoded, listener)
        except HeadwiseError as error:
            if self.asked:
                raise
            listener.tell(f"what the pattern {self.pattern.name} wants is not shown: {error}")
            return None

    def _maps(self, texts: Sequence[Texts], encoded: Encoded, listener: Listener) -> WantedMaps:
        if not isinstance(self.pattern, Knowledge):
            return WantedMaps(self, encoded, encoded)
        matrices: list[WordMatrix] = []
        listener.start(f"knowledge {self.pattern.name}", len(texts))
        try:
            for start in range(0, len(texts), STRETCH):
                matrices += self._builder(texts[start : start + STRETCH])
                listener.advance(len(matrices))
        finally:
            listener.end()
        need = Need("analysis", self.pattern, "map")
        return WantedMaps(self, encoded, WithKnowledge(encoded, {self.pattern.key: matrices}, [need]))

    @cached_property
    def _builder(self) -> Builder:
        """Made once: it may count all training texts, or load a parser."""
        if not isinstance(self.pattern, Knowledge):
            raise InputError(f"{self.pattern.name} is not made of knowledge.")
        return self.pattern.builder(self.corpus, self.resources, Processes(cores()))


@dataclass(frozen=True)
class WantedMaps:
    """What a pattern wants of each of some examples."""

    wanted: WantedPattern
    _encoded: Encoded
    _data: Any
    """The same with its knowledge, if it needs any."""

    def rows(self, place: int) -> Floats:
        """[T,T] where the attention of an example should go; rows without a wish are zero."""
        item, pattern = self._data[place], self.wanted.pattern
        ids = torch.as_tensor(item["input_ids"])[None]
        knowledge = {entry: torch.from_numpy(array)[None] for entry, array in item.get("knowledge", {}).items()}
        marks = find_marks(ids, self.wanted.known, set(pattern.marks))
        target = pattern.target(Tokens(torch.ones_like(ids, dtype=torch.bool), marks, knowledge))
        rows = np.array(target.rows[0].float().numpy(), dtype=np.float32)
        if not self.wanted.special_rows:
            rows[sources_of(self._encoded, place) < 0] = 0
        return rows

    def marked(self, place: int) -> Marked:
        """[T,T] True where it wants most."""
        return marked_cells(self.rows(place))


def marked_cells(rows: Floats) -> Marked:
    """[T,T] the cells with at least half of the largest wish of their row."""
    found: Marked = (rows > 0) & (rows >= rows.max(1, keepdims=True) / 2)
    return found


def wanted_pattern(
    run: Loaded, chosen: Pattern | None = None, source: Source | None = None, listener: Listener | None = None
) -> WantedPattern | None:
    """The pattern that was asked for, or the first one that the run was guided to; None if there is none.

    What is missing for a pattern that was asked for is an error. For one of the run's own it is told, and the run is
    looked at without. Asked once, since it looks through the whole vocabulary.
    """
    source = source or Source()
    if chosen is not None:
        return replace(_pattern(run, chosen, chosen.name, source), asked=True)
    for name, options in run.recipe.guides.items():
        guide = build(name, **options)
        if not isinstance(guide, Match):
            continue
        try:
            # What tokens receive in all says less than a map: many maps have the same.
            how = "guided" if guide.on == "map" else "as a map; guided on what tokens receive"
            where = f"{guide.pattern.name} ({how}: layers {guide.layers}, heads {guide.heads})"
            return replace(_pattern(run, guide.pattern, where, source), special_rows=guide.special_tokens)
        except HeadwiseError as error:
            (listener or Silence()).tell(f"what guide {name} wanted is not shown: {error}")
    return None


def pattern_of_analysis(run: Loaded, content: Mapping[str, Any], listener: Listener) -> WantedPattern | None:
    """The pattern that an analysis held the heads of a run against, so that more examples are held against the same."""
    own = wanted_pattern(run, listener=listener)
    if "pattern" not in content:  # an older headwise wrote none
        return own
    about = content["pattern"]
    if about is None:
        return None
    try:
        if own is not None and own.identity() == about:
            return own
        pattern = build_pattern({"name": about["name"], **about["options"]})
        refuse_named_code(pattern, "analysis.json, pattern")
        return _pattern(run, pattern, about["name"], Source())
    except HeadwiseError as error:
        listener.tell(f"what the pattern {about['name']} wants is not shown: {error}")
        return None


def _pattern(run: Loaded, pattern: Pattern, name: str, source: Source) -> WantedPattern:
    known = mark_ids(run.tokenizer) if pattern.marks else {}
    check_marks(pattern, known)
    if not isinstance(pattern, Knowledge):
        return WantedPattern(name, pattern, known)
    # The training texts and the files beside them, wherever the examples come from.
    data = run.data if run.data is not None and run.data.exists() else source.data or run.data
    own = getattr(pattern, "source", None) == "embeddings"
    resources = Resources(data, embeddings_of(run.recipe, network=source.network) if own else None)
    pattern.fingerprint(resources)  # refuses what is missing
    corpus: Sequence[Texts] = ()
    if pattern.from_corpus:
        corpus = read_split(run.recipe, run.task, "train", data, network=source.network).texts
    return WantedPattern(name, pattern, known, resources, corpus)


# Which tokens of a batch are special, and which text the others are of.


def marks_of(
    encoded: Encoded, places: Sequence[int], attention_mask: torch.Tensor, wanted: WantedMaps | None = None
) -> Marks:
    """The marks of a batch that holds the examples at these places, and the cells that a pattern wants of each."""
    valid = attention_mask != 0
    texts = torch.full(valid.shape, -1, dtype=torch.long)
    flat = numpy.concatenate([sources_of(encoded, place) for place in places])
    texts[valid.cpu()] = torch.from_numpy(flat.astype(numpy.int64))  # row by row, as the batch was filled
    texts = texts.to(valid.device)
    cells = None if wanted is None else _cells(valid.cpu(), [wanted.marked(place) for place in places]).to(valid.device)
    return Marks(valid, valid & (texts < 0), texts, cells)


def _cells(valid: torch.Tensor, marked: Sequence[numpy.ndarray]) -> torch.Tensor:
    """[B,K,K] the cells of every example at its tokens, on whatever side the padding is."""
    cells = torch.zeros(*valid.shape, valid.shape[1], dtype=torch.bool)
    for example, (tokens, each) in enumerate(zip(valid, marked, strict=True)):
        cells[example, tokens.unsqueeze(1) & tokens.unsqueeze(0)] = torch.from_numpy(each).flatten()
    return cells

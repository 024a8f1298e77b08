"""Pairs of a claim and a paper, for training and validating a re-ranker.

Each function gives a `Split` of (claim, paper) texts with the label 1.0 (an answer) or 0.0, grouped by claim. A paper
in many pairs is one string, so that pairs need little more memory than the papers in them.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice

import numpy as np

from headwise.data.examples import Split
from headwise.errors import InputError
from headwise.retrieval.collections import GivenPair, Qrels, Run

# Passages of an abstract: a few consecutive sentences.


# What ends a sentence, with the quotation marks and brackets that close after it, before a likely beginning.
END = re.compile(r"([.!?])[\"'\u201d\u2019)\]]*(?=\s+[\"'\u201c\u2018(\[]*[A-Z0-9\u0370-\u03ff])")
# Letters with dots between them: e.g, i.e, U.S. A number such as 0.05 is none of these and may end a sentence.
DOTTED = re.compile(r"[^\W\d_](\.[^\W\d_])+")
ABBREVIATIONS = frozenset(
    "al approx ca cf ch co corp dept dr ed eds eq eqs esp est etc ex fig figs inc jr ltd mr mrs ms nos pp prof ref "
    "refs resp sect sp spp sr st subsp suppl tab var viz vol vols vs".split()
)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, by rules.

    A full stop ends one if white space and a capital, a digit or a Greek letter follow, unless it belongs to an
    abbreviation ("et al.", "e.g.", "Fig.") or an initial ("J. Smith"). Where the rules err, two sentences stay one.
    """
    parts, start = [], 0
    for match in END.finditer(text):
        if match.group(1) != "." or not _abbreviated(text[start : match.start()]):
            parts.append(text[start : match.end()].strip())
            start = match.end()
    return [part for part in [*parts, text[start:].strip()] if part]


def _abbreviated(before: str) -> bool:
    word = re.split(r"[\s(\[/-]", before)[-1]
    initial = len(word) == 1 and word.isalpha()
    return bool(initial or DOTTED.fullmatch(word) or word.lower() in ABBREVIATIONS)


def passages(text: str, count: int, random: np.random.Generator, *, sentences: int = 3) -> list[str]:
    """Up to `count` different passages of a text, in the text's order, drawn from all runs of that many sentences.

    None is the whole text: of a text of n sentences a passage has at most n - 1, and one sentence has none.
    """
    if count < 0 or sentences < 1:
        raise InputError(
            f"passages: expected a count of 0 or more and 1 or more sentences in each, got {count} and {sentences}; "
            "0 passages switches them off."
        )
    parts = split_sentences(text)
    size = min(sentences, len(parts) - 1)
    if size < 1:
        return []
    # A sentence may be said twice, and so may a passage.
    windows = list(dict.fromkeys(" ".join(parts[start : start + size]) for start in range(len(parts) - size + 1)))
    drawn = random.permutation(len(windows))[:count]
    return [windows[place] for place in sorted(drawn)]


logger = logging.getLogger(__name__)
TextOf = Callable[[str], str]


@dataclass(frozen=True)
class PairOptions:
    """How many pairs each claim gets."""

    negatives: int = 10
    """Papers that are no answer, drawn at random from the best candidates."""
    passages: int = 0
    """Further answers: parts of every paper that is one."""
    depth: int = 100
    """How many of the best candidates to draw from; where that is too few, the corpus gives the rest."""

    def __post_init__(self) -> None:
        """Refuse numbers that leave nothing to learn from."""
        for name, least in (("negatives", 1), ("passages", 0), ("depth", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name}: expected a whole number of {least} or more, got {value!r}; change it.")


def training_pairs(
    claims: Mapping[str, str],
    qrels: Qrels,
    candidates: Run,
    text_of: TextOf,
    options: PairOptions,
    *,
    seed: int,
    more: Sequence[str] = (),
) -> Split:
    """For every claim its answers, passages of them, and papers that are no answer, in this order.

    Papers that are no answer are drawn without replacement from the best `depth` candidates, then from the ids in
    `more` (all of the corpus) while there are too few; neither an answer nor a paper with the text of one is taken.
    So a claim without candidates has its pairs from `more`; one that is left without a single paper is left out, as
    are claims without an answer. What is drawn depends on the seed, the claim's id, its answers and its candidates,
    not on the other claims; asking for more negatives or passages keeps those that were there.
    """
    _check(claims, qrels, "judgements", seed)
    document, pairs = _held_once(text_of), _Pairs()
    for claim in (claim for claim in claims if claim in qrels):
        answers = {name: document(name) for name, grade in qrels[claim].items() if grade > 0}
        parts = [
            part
            for name, text in answers.items()
            for part in passages(text, options.passages, _random(seed, "passages", claim, name))
        ]
        drawn = _drawn(candidates.get(claim, {}), options.depth, more, _random(seed, "negatives", claim))
        others = _others(map(document, drawn), answers.values())
        pairs.add(claim, claims[claim], [*answers.values(), *parts], list(islice(others, options.negatives)))
    return pairs.split()


def given_pairs(
    pairs: Iterable[GivenPair], claims: Mapping[str, str], options: PairOptions | None = None, *, seed: int = 0
) -> Split:
    """The pairs that data brings along, for the claims (id -> text) that are wanted.

    For every claim the answers come first, then at most `options.negatives` others, drawn by the seed and the
    claim's id; `options.passages` plays no part, since what is given may be passages already. A text that is given
    twice for a claim counts once, and as an answer if it is one of them. Claims without an answer or without another
    text are left out.
    """
    _check(claims, (), "pairs", seed)
    most = (options or PairOptions()).negatives
    known: dict[str, str] = {}
    rows: dict[str, dict[str, bool]] = {claim: {} for claim in claims}
    for pair in pairs:
        if pair.claim in rows:
            text = known.setdefault(pair.text, pair.text)
            rows[pair.claim][text] = rows[pair.claim].get(text, False) or pair.relevant
    found = _Pairs()
    for claim, texts in rows.items():
        others = [text for text, relevant in texts.items() if not relevant]
        drawn = islice(_shuffled(others, _random(seed, "negatives", claim)), most)
        found.add(claim, claims[claim], [text for text, relevant in texts.items() if relevant], list(drawn))
    return found.split()


def candidate_pairs(claims: Mapping[str, str], run: Run, qrels: Qrels, text_of: TextOf) -> Split:
    """Every candidate of every claim in the order of the run: what a re-ranker is validated on."""
    _check(claims, run, "candidates", 0)
    document = _held_once(text_of)
    rows = [(claim, name) for claim, names in run.items() for name in names]
    if not rows:
        raise InputError(f"no pairs: {len(run)} claims without a candidate; search for candidates first.")
    labels = tuple(float(qrels.get(claim, {}).get(name, 0) > 0) for claim, name in rows)
    texts = tuple((claims[claim], document(name)) for claim, name in rows)
    return Split(texts, labels, groups=tuple(claim for claim, _ in rows))


@dataclass
class _Pairs:
    """A split under construction."""

    texts: list[tuple[str, str]] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    one_sided: int = 0

    def add(self, claim: str, text: str, answers: Sequence[str], others: Sequence[str]) -> None:
        # Where all have one label there is nothing to rank, and a softmax over them has no gradient.
        if not answers or not others:
            self.one_sided += 1
            return
        self.texts += [(text, document) for document in (*answers, *others)]
        self.labels += [1.0] * len(answers) + [0.0] * len(others)
        self.groups += [claim] * (len(answers) + len(others))

    def split(self) -> Split:
        if not self.texts:
            raise InputError(
                f"no pairs to train on: expected claims with an answer and another paper, got {self.one_sided} "
                "without; check that claims, judgements and candidates have the same ids."
            )
        if self.one_sided:
            logger.warning("pairs: left out %d claims without an answer or without another paper", self.one_sided)
        return Split(tuple(self.texts), tuple(self.labels), groups=tuple(self.groups))


def _check(claims: Mapping[str, str], named: Iterable[str], where: str, seed: int) -> None:
    if seed < 0:
        raise InputError(f"seed: expected 0 or more, got {seed}; give another.")
    missing = [claim for claim in named if claim not in claims]
    if missing:
        raise InputError(
            f"the {where} name the claim {missing[0]!r} ({len(missing)} in all), which has no text: expected one of "
            f"the {len(claims)} claims; add it, or leave it out of the {where}."
        )


def _held_once(text_of: TextOf) -> TextOf:
    def document(name: str) -> str:
        try:
            return text_of(name)
        except KeyError:
            raise InputError(
                f"the document {name!r} is not in the corpus: expected one of its ids; add it, or leave it out of the "
                "judgements and candidates."
            ) from None

    return cache(document)


def _random(seed: int, *names: str) -> np.random.Generator:
    """A generator of its own for each claim and purpose, so that none changes with what is drawn for another."""
    digest = hashlib.sha256(repr(names).encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:16], "big")])


def _drawn(candidates: Iterable[str], depth: int, more: Sequence[str], random: np.random.Generator) -> Iterator[str]:
    best = list(islice(candidates, depth))
    tried = set(best)
    return chain(_shuffled(best, random), (name for name in _shuffled(more, random) if name not in tried))


def _others(texts: Iterable[str], answers: Iterable[str]) -> Iterator[str]:
    """The texts that are not an answer, be it under another id."""
    plain = {_plain(answer) for answer in answers}
    return (text for text in texts if _plain(text) not in plain)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _shuffled(names: Sequence[str], random: np.random.Generator) -> Iterator[str]:
    """The names in random order, at the cost of those that are asked for: a corpus has hundreds of thousands."""
    moved: dict[int, int] = {}
    for place in range(len(names)):
        drawn = int(random.integers(place, len(names)))
        yield names[moved.get(drawn, drawn)]
        moved[drawn] = moved.get(place, place)

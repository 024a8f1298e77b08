"""Pairs of a claim and a paper, for training and validating a re-ranker.

Each function returns `Pairs`, a split of (claim, paper) texts with the label 1.0 (an answer) or 0.0, grouped by claim.
A paper in many pairs is one string, so that pairs need little more memory than the papers in them.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice

import numpy as np

from headwise.data.examples import Split
from headwise.data.near_duplicates import folded
from headwise.errors import InputError
from headwise.retrieval.collections import Document, GivenPair, Qrels, Run

logger = logging.getLogger(__name__)
TextOf = Callable[[str], str]
# Of a passage.
SENTENCES = 3
# What ends a sentence, with the quotation marks and brackets that close after it, before a likely beginning.
END = re.compile(r"([.!?])[\"'\u201d\u2019)\]]*(?=\s+[\"'\u201c\u2018(\[]*[A-Z0-9\u0370-\u03ff])")
# Letters with dots between them: e.g, i.e, U.S. A number such as 0.05 is none of these and may end a sentence.
DOTTED = re.compile(r"[^\W\d_](\.[^\W\d_])+")
ABBREVIATIONS = frozenset(
    "al approx ca cf ch co corp dept dr ed eds eq eqs esp est etc ex fig figs inc jr ltd mr mrs ms nos pp prof ref "
    "refs resp sect sp spp sr st subsp suppl tab var viz vol vols vs".split()
)


@dataclass(frozen=True)
class Pairs(Split):
    """Pairs of a claim and a paper."""

    papers: tuple[str, ...] = ()
    """The id of each pair's paper; of a passage, that of its paper. Pairs that come with the data have none."""


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, by rules.

    A full stop ends one if white space and a capital, a digit or a Greek letter follow, unless it belongs to an
    abbreviation ("et al.", "e.g.", "Fig.") or an initial ("J. Smith"). Where the rules err, two sentences stay one.
    """
    parts, start = [], 0
    for match in END.finditer(text):
        word = re.split(r"[\s(\[/-]", text[start : match.start()])[-1]
        initial = len(word) == 1 and word.isalpha()
        abbreviated = initial or DOTTED.fullmatch(word) or word.lower() in ABBREVIATIONS
        if match.group(1) != "." or not abbreviated:
            parts.append(text[start : match.end()].strip())
            start = match.end()
    return [part for part in [*parts, text[start:].strip()] if part]


def draw_passages(text: str, count: int, random: np.random.Generator) -> list[str]:
    """Up to `count` different passages of a text, in the text's order, drawn from all runs of three sentences.

    None is the whole text: of a text of n sentences a passage has at most n - 1, and one sentence has none.
    """
    parts = split_sentences(text)
    size = min(SENTENCES, len(parts) - 1)
    if size < 1:
        return []
    # A sentence may occur twice, and so may a passage.
    windows = list(dict.fromkeys(" ".join(parts[start : start + size]) for start in range(len(parts) - size + 1)))
    return [windows[index] for index in sorted(random.permutation(len(windows))[:count])]


def training_pairs(
    claims: Mapping[str, str],
    qrels: Qrels,
    candidates: Run,
    text_of: TextOf,
    *,
    seed: int,
    negatives: int = 10,
    passages: int = 0,
    depth: int = 100,
    more: Sequence[str] = (),
) -> Pairs:
    """For every claim its answers, passages of them, and papers that are no answer, in this order.

    Papers that are no answer are drawn without replacement from the best `depth` candidates, then from the ids in
    `more` (all of the corpus) while there are too few; neither an answer nor a paper with the text of one is taken.
    So a claim without candidates has its pairs from `more`; one that is left without a single paper is left out, as
    are claims without an answer. What is drawn depends on the seed, the claim's id, its answers and its candidates,
    not on the other claims; more negatives or passages keep those of fewer.

    Args:
        claims: id -> text.
        qrels: their judgements.
        candidates: of each claim, the best first.
        text_of: the text of a paper, by its id.
        seed: decides what is drawn.
        negatives: papers that are no answer, for each claim.
        passages: further answers: so many parts of every paper that is one.
        depth: how many of the best candidates to draw from.
        more: ids to draw from where that is too few.
    """
    _check(claims, qrels, "judgements", seed)
    document, groups = _cached(text_of), {}
    for claim in (claim for claim in claims if claim in qrels):
        answers = {name: document(name) for name, grade in qrels[claim].items() if grade > 0}
        parts = [
            (name, part)
            for name, text in answers.items()
            for part in draw_passages(text, passages, _random(seed, "passages", claim, name))
        ]
        random, best = _random(seed, "negatives", claim), list(islice(candidates.get(claim, {}), depth))
        tried, texts_of_answers = set(best), {folded(text) for text in answers.values()}
        rest = (name for name in _shuffled(more, random) if name not in tried)
        drawn = ((name, document(name)) for name in chain(_shuffled(best, random), rest))
        others = (each for each in drawn if folded(each[1]) not in texts_of_answers)  # an answer may have another id
        groups[claim] = ([*answers.items(), *parts], list(islice(others, negatives)))
    return _split(claims, groups)


def given_pairs(pairs: Iterable[GivenPair], claims: Mapping[str, str], *, negatives: int = 10, seed: int = 0) -> Pairs:
    """The labelled pairs of the data, for these claims (id -> text).

    For every claim the answers come first, then at most `negatives` others, drawn by the seed and the claim's id. A
    text that occurs twice for a claim counts once, and as an answer if one of the two is. Claims without an answer or
    without another text are left out.
    """
    _check(claims, (), "pairs", seed)
    known: dict[str, str] = {}
    rows: dict[str, dict[str, bool]] = {claim: {} for claim in claims}
    for pair in pairs:
        if pair.claim in rows:
            text = known.setdefault(pair.text, pair.text)
            rows[pair.claim][text] = rows[pair.claim].get(text, False) or pair.relevant
    groups = {}
    for claim, texts in rows.items():
        others = [text for text, relevant in texts.items() if not relevant]
        drawn = islice(_shuffled(others, _random(seed, "negatives", claim)), negatives)
        answers = [text for text, relevant in texts.items() if relevant]
        groups[claim] = ([("", text) for text in answers], [("", text) for text in drawn])
    return replace(_split(claims, groups), papers=())


def candidate_pairs(claims: Mapping[str, str], run: Run, qrels: Qrels, text_of: TextOf) -> Pairs:
    """Every candidate of every claim in the order of the run: what a re-ranker is validated on."""
    _check(claims, run, "candidates", 0)
    document = _cached(text_of)
    rows = [(claim, name) for claim, names in run.items() for name in names]
    if not rows:
        raise InputError(f"no pairs: {len(run)} claims without a candidate; search for candidates first.")
    labels = tuple(float(qrels.get(claim, {}).get(name, 0) > 0) for claim, name in rows)
    texts = tuple((claims[claim], document(name)) for claim, name in rows)
    return Pairs(texts, labels, groups=tuple(claim for claim, _ in rows), papers=tuple(name for _, name in rows))


def title_pairs(
    documents: Iterable[Document], run: Run, abstract_of: TextOf, *, seed: int, negatives: int = 10, depth: int = 100
) -> Pairs:
    """Pairs without labels: each title with its abstract, and with abstracts of papers that are alike.

    A group is named by the paper's id.

    Args:
        documents: the papers whose titles are taken.
        run: the candidates of each title, by the paper's id, the best first; the paper itself is left out.
        abstract_of: the text of a paper without its title.
        seed: decides what is drawn.
        negatives: other abstracts for each title.
        depth: how many of the best candidates to draw from.
    """
    titles = {each.id: each.title for each in documents}
    return training_pairs(
        titles,
        {name: {name: 1} for name in titles},
        run,
        abstract_of,
        seed=seed,
        negatives=negatives,
        depth=depth,
    )


# Claim -> the answers and the others, as id and text.
_Groups = Mapping[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]]


def _split(claims: Mapping[str, str], groups: _Groups) -> Pairs:
    """The pairs of all claims that have both answers and other papers: a softmax over one label has no gradient."""
    both = {claim: group for claim, group in groups.items() if all(group)}
    left_out = len(groups) - len(both)
    if not both:
        raise InputError(
            f"no pairs to train on: expected claims with an answer and another paper, got {left_out} without; check "
            "that claims, judgements and candidates have the same ids."
        )
    if left_out:
        logger.warning("pairs: left out %d claims without an answer or without another paper", left_out)
    rows = [
        (claim, name, text, label)
        for claim, (answers, others) in both.items()
        for part, label in ((answers, 1.0), (others, 0.0))
        for name, text in part
    ]
    return Pairs(
        tuple((claims[claim], text) for claim, _, text, _ in rows),
        tuple(label for *_, label in rows),
        groups=tuple(claim for claim, *_ in rows),
        papers=tuple(name for _, name, *_ in rows),
    )


def _check(claims: Mapping[str, str], named: Iterable[str], where: str, seed: int) -> None:
    if seed < 0:
        raise InputError(f"seed: expected 0 or more, got {seed}; give another.")
    missing = [claim for claim in named if claim not in claims]
    if missing:
        raise InputError(
            f"the {where} name the claim {missing[0]!r} ({len(missing)} in all), which has no text: expected one of "
            f"the {len(claims)} claims; add it, or leave it out of the {where}."
        )


def _cached(text_of: TextOf) -> TextOf:
    """The same function, but with one string for each document."""

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
    """A separate generator for each claim and purpose, so that none changes with what is drawn for another."""
    digest = hashlib.sha256(repr(names).encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:16], "big")])


def _shuffled(names: Sequence[str], random: np.random.Generator) -> Iterator[str]:
    """The names in random order, one draw for each that is taken: a corpus has hundreds of thousands."""
    moved: dict[int, int] = {}
    for position in range(len(names)):
        drawn = int(random.integers(position, len(names)))
        yield names[moved.get(drawn, drawn)]
        moved[drawn] = moved.get(position, position)

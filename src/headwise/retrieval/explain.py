"""Which words of a paper a claim looks at: where the model looks, which is no proof of why it decides.

With the attention A of M heads (all heads of the chosen layers), the tokens C of the claim, and the tokens of a word w:

    mass(w)  = 1 / (M |C|) * sum over heads, q in C and k in w of A[q,k]
    share(w) = mass(w) / (sum of mass over all words of the paper)

A word of the claim, with tokens U, has the same with U instead of C, and is told with the paper's word that has its
largest share. Words are those of `headwise.patterns.align` that hold a letter or a digit, parted at hyphens as in the
search. Special tokens and punctuation are no words: what the claim gives to special tokens is told beside the shares.

Two things to keep in mind: a word of many tokens gathers more than one of few, and most classifiers read the first
token only, so what the claim's tokens look at in the last layer is seen here but does not change the score.

Shapes: H heads of a layer, T tokens of the pair, C of them of the claim, W words with tokens, P of them of the paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headwise.attention import capture
from headwise.attention.passes import Layers
from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import InputError
from headwise.patterns.align import words, words_of_tokens
from headwise.training.predict import evaluating

# Where a token comes from, as `Encoded.sources` says it.
CLAIM, PAPER, SPECIAL = 0, 1, -1
_NO_HYPHEN = re.compile("[^-‐‑]+")
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Word:
    """A word of the paper, by its characters, and its share of the claim's attention."""

    start: int
    end: int
    """One after its last character."""
    text: str
    share: float


@dataclass(frozen=True)
class Link:
    """A word of the claim, and the word of the paper that it looks at most."""

    start: int
    end: int
    text: str
    strongest: Word
    """Its share is that of this word of the claim."""


@dataclass(frozen=True)
class Explanation:
    """Where a claim's attention goes."""

    claim: str
    text: str
    """Title and text of the paper: what the places of its words refer to."""
    words: tuple[Word, ...]
    """The words of the paper that the model read, in their order; their shares sum to 1."""
    links: tuple[Link, ...]
    special_share: float
    """Part of the claim's attention that special tokens took, such as [CLS] and [SEP]."""
    claim_share: float
    """Part that stayed within the claim."""
    paper_share: float
    """Part that went to the paper, punctuation included: the shares of its words are shares of this."""
    truncated: bool
    """Whether the pair was longer than the model reads."""
    read: int
    """How many characters of the paper the model read."""
    layers: tuple[int, ...]

    def strongest(self, count: int = 10) -> list[Word]:
        """The words with the largest shares, the largest first, the first of equals before the others."""
        return sorted(self.words, key=lambda word: -word.share)[:count]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, as JSON takes them."""
        return asdict(self)


def explain(
    model: nn.Module, tokenizer: Any, claim: str, text: str, *, max_length: int, layers: Layers = "all"
) -> Explanation:
    """Share a claim's attention out over the words of a paper; the formula stands at the top of this file.

    Args:
        model: a re-ranker, or any encoder that headwise can look into; its mode is restored afterwards.
        tokenizer: its fast tokenizer.
        claim: the first text of the pair.
        text: the second one, title and text of a paper.
        max_length: tokens that the model reads, as for its scores; the longer text is cut first.
        layers: "all", "first:N", "last:N", a number or numbers.
    """
    pair = _Pair(claim, text, tokenizer, max_length)
    seen, shown = _attention(model, tokenizer, pair, layers)  # [C,T]
    means = seen.mean(0)  # [T]
    to_words = seen @ pair.belongs[:, pair.origin == PAPER]  # [C,P]
    return Explanation(
        claim=claim,
        text=text,
        words=pair.words_of_paper(to_words.mean(0)),
        links=_links(pair, to_words),
        special_share=float(means[pair.sources == SPECIAL].sum()),
        claim_share=float(means[pair.sources == CLAIM].sum()),
        paper_share=float(means[pair.sources == PAPER].sum()),
        truncated=bool(pair.encoded.truncated),
        read=int(pair.offsets[pair.sources == PAPER, 1].max()),
        layers=shown,
    )


class _Pair:
    """A claim and a paper as tokens, and which words these belong to."""

    def __init__(self, claim: str, text: str, tokenizer: Any, max_length: int) -> None:
        self.encoded = encode(Split(((claim, text),), (None,)), tokenizer, max_length, offsets=True)
        self.offsets, self.sources = _places(self.encoded)  # [T,2], [T]
        spans = np.array([*_stretches(claim, CLAIM), *_stretches(text, PAPER)], np.int32).reshape(-1, 3)
        of_tokens = words_of_tokens(self.offsets, self.sources, spans)  # [T]
        present = np.unique(of_tokens[of_tokens >= 0])  # [W] the others were cut off
        self.spans = spans[present]  # [W,3]
        self.origin = self.spans[:, 0]  # [W]
        self.belongs = of_tokens[:, None] == present  # [T,W]
        self._texts = (claim, text)
        self._check(max_length)

    def words_of_paper(self, mass: NDArray[np.float64]) -> tuple[Word, ...]:
        """The words of the paper with their shares of a mass, [P]."""
        shares = mass / max(mass.sum(), TINY)
        return tuple(Word(*place, share) for place, share in zip(self.places(PAPER), shares.tolist(), strict=True))

    def places(self, number: int) -> list[tuple[int, int, str]]:
        """Start, end and text of the words of the claim or of the paper."""
        text = self._texts[number]
        return [(start, end, text[start:end]) for start, end in self.spans[self.origin == number, 1:].tolist()]

    def _check(self, max_length: int) -> None:
        counts = [int((self.origin == number).sum()) for number in (CLAIM, PAPER)]
        if not all(counts):
            raise InputError(
                f"{counts[CLAIM]} words of the claim and {counts[PAPER]} of the paper are among the {max_length} "
                "tokens that the model reads: expected some of both; use longer texts, or a larger max_length."
            )


def _places(encoded: Encoded) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    if encoded.offsets is None or encoded.sources is None:
        raise InputError("the tokens have no places in their texts: encode them with offsets.")
    return encoded.offsets, encoded.sources


def _stretches(text: str, number: int) -> Iterator[tuple[int, int, int]]:
    """The words of a text: its number, first character, and the one after the last."""
    for start, end in words(text):
        for part in _NO_HYPHEN.finditer(text, start, end):
            if any(map(str.isalnum, part[0])):  # no punctuation
                yield number, *part.span()


def _attention(
    model: nn.Module, tokenizer: Any, pair: _Pair, layers: Layers
) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """[C,T] what the claim's tokens give to all tokens, the mean over heads and layers; and which layers."""
    inputs = Collator.of(tokenizer, "ranking")([pair.encoded[0]])
    device = next(model.parameters()).device
    rows = torch.as_tensor(pair.sources == CLAIM)
    with evaluating(model), torch.inference_mode(), capture(model, layers, what="map") as record:
        model(**{name: tensor.to(device) for name, tensor in inputs.items()})
        # Only the claim's rows are made precise: all maps of a large model in double would fill the memory.
        means = [record[layer][0].cpu()[:, rows].double().mean(0) for layer in record]
    return torch.stack(means).mean(0).numpy(), tuple(record)


def _links(pair: _Pair, to_words: NDArray[np.float64]) -> tuple[Link, ...]:
    """Each word of the claim with the word of the paper that its tokens, rows of `to_words` [C,P], look at most."""
    belongs = pair.belongs[pair.sources == CLAIM][:, pair.origin == CLAIM]  # [C,W-P]
    masses = belongs.T @ to_words  # [W-P,P]
    return tuple(
        Link(*place, pair.words_of_paper(mass)[int(mass.argmax())])
        for place, mass in zip(pair.places(CLAIM), masses, strict=True)
    )

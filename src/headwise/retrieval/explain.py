"""Which words of a paper a claim attends to: this is where the model looks, and no proof of why it decides.

With the attention A of M heads (all heads of the layers used), the tokens C of the claim, and the tokens of a word w:

    mass(w)  = 1 / (M |C|) * sum over heads, q in C and k in w of A[q,k]
    share(w) = mass(w) / (sum of mass over all words of the paper)

A word of the claim, with tokens U, has the same with U instead of C, and is shown with the paper's word that has its
largest share. Words are those of `headwise.patterns.align` that hold a letter or a digit, split at hyphens as in the
search. Special tokens and punctuation are no words: the part that special tokens receive is reported separately.

Two things to keep in mind: a word of many tokens receives more than one of few, and most classifiers read the first
token only, so what the claim's tokens attend to in the last layer is shown here but does not change the score.

Shapes: T tokens of the pair, C of them of the claim, W words with tokens, P of them of the paper.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headwise.attention import capture
from headwise.attention.passes import Layers
from headwise.data import Collator, Split, encode
from headwise.errors import InputError
from headwise.patterns.align import words, words_of_tokens
from headwise.training.predict import evaluating

# Where a token comes from, as in `Encoded.sources`.
CLAIM, PAPER, SPECIAL = 0, 1, -1
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
    """A word of the claim, and the word of the paper that it attends to most."""

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
    """Title and text of the paper: what the characters of its words refer to."""
    words: tuple[Word, ...]
    """The words of the paper that the model read, in their order; their shares sum to 1."""
    links: tuple[Link, ...]
    special_share: float
    """Part of the claim's attention that special tokens received, such as [CLS] and [SEP]."""
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


def explain(
    model: nn.Module, tokenizer: Any, claim: str, text: str, *, max_length: int, layers: Layers = "all"
) -> Explanation:
    """Share a claim's attention out over the words of a paper, by the formula at the top of this file.

    Args:
        model: a re-ranker, or any encoder that headwise can look into; its mode is restored afterwards.
        tokenizer: its fast tokenizer.
        claim: the first text of the pair.
        text: the second one, title and text of a paper.
        max_length: tokens that the model reads, as for its scores; the longer text is cut first.
        layers: "all", "first:N", "last:N", a number or numbers.
    """
    encoded = encode(Split(((claim, text),), (None,)), tokenizer, max_length, offsets=True)
    offsets, sources = encoded.offsets, encoded.sources  # [T,2], [T]
    if offsets is None or sources is None:
        raise InputError("the tokens have no offsets in their texts: use a fast tokenizer.")
    spans = np.array([*_spans(claim, CLAIM), *_spans(text, PAPER)], np.int32).reshape(-1, 3)
    word_of_token = words_of_tokens(offsets, sources, spans)  # [T]
    present = np.unique(word_of_token[word_of_token >= 0])  # [W]; the others were cut off
    spans, belongs = spans[present], word_of_token[:, None] == present  # [W,3], [T,W]
    of_claim, of_paper = spans[:, 0] == CLAIM, spans[:, 0] == PAPER
    if not of_claim.any() or not of_paper.any():
        raise InputError(
            f"{of_claim.sum()} words of the claim and {of_paper.sum()} of the paper are among the {max_length} tokens "
            "that the model reads: expected some of both; use longer texts, or a larger max_length."
        )
    inputs = Collator.of(tokenizer, "ranking")([encoded[0]])
    device, rows = next(model.parameters()).device, torch.as_tensor(sources == CLAIM)
    with evaluating(model), torch.inference_mode(), capture(model, layers, what="map") as record:
        model(**{name: tensor.to(device) for name, tensor in inputs.items()})
        # Only the claim's rows in double: all maps of a large model would fill the memory.
        means = [record[layer][0].cpu()[:, rows].double().mean(0) for layer in record]
    attention = torch.stack(means).mean(0).numpy()  # [C,T] the mean over heads and layers
    to_words = attention @ belongs[:, of_paper]  # [C,P]

    def paper_words(mass: NDArray[np.float64]) -> tuple[Word, ...]:
        shares = (mass / max(mass.sum(), TINY)).tolist()
        parts = zip(spans[of_paper, 1:].tolist(), shares, strict=True)
        return tuple(Word(start, end, text[start:end], share) for (start, end), share in parts)

    masses = belongs[sources == CLAIM][:, of_claim].T @ to_words  # [W-P,P]
    links = [
        Link(start, end, claim[start:end], paper_words(mass)[int(mass.argmax())])
        for (start, end), mass in zip(spans[of_claim, 1:].tolist(), masses, strict=True)
    ]
    received = attention.mean(0)  # [T]
    special, own, paper = (float(received[sources == kind].sum()) for kind in (SPECIAL, CLAIM, PAPER))
    return Explanation(
        claim=claim,
        text=text,
        words=paper_words(to_words.mean(0)),
        links=tuple(links),
        special_share=special,
        claim_share=own,
        paper_share=paper,
        truncated=bool(encoded.truncated),
        read=int(offsets[sources == PAPER, 1].max()),
        layers=tuple(record),
    )


def _spans(text: str, source: int) -> list[tuple[int, int, int]]:
    """The words of a text: its source, first character, and the one after the last."""
    parts = [part for start, end in words(text) for part in re.compile("[^-‐‑]+").finditer(text, start, end)]
    return [(source, *part.span()) for part in parts if any(map(str.isalnum, part[0]))]  # no punctuation

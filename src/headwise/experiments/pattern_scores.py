"""Which patterns the heads of a trained model follow on the examples of a split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from headwise.attention import AttentionRecord, capture
from headwise.errors import InputError
from headwise.heads import PatternScores, PatternSummary
from headwise.patterns import Pattern, Tokens, find_marks, mark_ids
from headwise.tasks import Collator, Encoded, Split, encode
from headwise.training.predict import evaluating

# All maps of a batch are held at once: what they may take of memory, and how many examples they are at most.
MAP_BYTES = 2**28
LARGEST_BATCH = 32


def pattern_scores(
    model: nn.Module,
    tokenizer: Any,
    split: Split,
    patterns: Sequence[Pattern],
    *,
    max_length: int,
    batch: int | None = None,
    after_batch: Callable[[int], None] | None = None,
) -> PatternSummary:
    """How well every head follows each pattern, over all examples of a split.

    Args:
        model: the classifier; its mode is restored afterwards.
        tokenizer: its tokenizer, which also tells separators and full stops.
        split: the examples.
        patterns: fixed patterns, each once.
        max_length: the longest example in tokens.
        batch: examples at a time; None for as many as keep the maps small.
        after_batch: told how many examples are done.
    """
    scores, known = PatternScores(patterns), mark_ids(tokenizer)
    for pattern in patterns:
        check_marks(pattern, known)
    encoded = encode(split, tokenizer, max_length)
    collate = Collator.of(tokenizer, "classification", padding="dynamic", max_length=max_length)
    done = 0
    with evaluating(model), torch.inference_mode(), capture(model, what="map") as record:
        for inputs in _batches(model, encoded, collate, batch or _fitting(len(record.maps), encoded)):
            model(**inputs)
            scores.add(record, _tokens(record, inputs["input_ids"], patterns, known))
            done += len(inputs["input_ids"])
            if after_batch is not None:
                after_batch(done)
    return scores.result()


def missing_marks(pattern: Pattern, known: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The kinds of tokens that a pattern must be told of, but nobody knows."""
    return [kind for kind in pattern.marks if kind not in known]


def check_marks(pattern: Pattern, known: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a pattern that must be told of tokens that nobody knows."""
    if lacking := missing_marks(pattern, known):
        raise InputError(
            f"pattern {pattern.name} needs to know each {lacking[0]}, of which the vocabulary of this tokenizer has "
            "none: leave it out."
        )


def _batches(model: nn.Module, encoded: Encoded, collate: Collator, batch: int) -> Iterator[dict[str, Tensor]]:
    """Examples of similar length together, the longest first, so that little is padding."""
    order = numpy.argsort(-encoded.lengths, kind="stable")
    device = next(model.parameters()).device
    for start in range(0, len(order), batch):
        inputs = collate([encoded[int(index)] for index in order[start : start + batch]])
        inputs.pop("labels", None)
        yield {name: tensor.to(device) for name, tensor in inputs.items()}


def _fitting(heads: int, encoded: Encoded) -> int:
    """How many examples give maps of no more than MAP_BYTES."""
    each = heads * int(encoded.lengths.max()) ** 2 * torch.float32.itemsize
    return max(1, min(LARGEST_BATCH, MAP_BYTES // each))


def _tokens(
    record: AttentionRecord, ids: Tensor, patterns: Sequence[Pattern], known: Mapping[str, tuple[int, ...]]
) -> Tokens:
    wanted = {kind for pattern in patterns for kind in pattern.marks}
    return Tokens(valid=record.valid, marks=find_marks(ids, known, wanted))

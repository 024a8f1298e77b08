"""`heads patterns`: which patterns the heads of a run follow on the examples of a split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

from headwise.attention import capture
from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import InputError
from headwise.experiments.apply import Source, load_run
from headwise.experiments.splits import read_split
from headwise.heads import PatternScores, PatternSummary
from headwise.patterns import PATTERNS, Pattern, Tokens, build_pattern, find_marks, mark_ids
from headwise.patterns.base import Knowledge
from headwise.training import Listener, Silence
from headwise.training.predict import evaluating

# All maps of a batch are in memory at once: their largest size in bytes, and the largest number of examples.
MAP_BYTES = 2**28
LARGEST_BATCH = 32


def check_marks(pattern: Pattern, known: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a pattern that needs a kind of token, such as full stops, that the tokenizer does not have."""
    if missing := [kind for kind in pattern.marks if kind not in known]:
        raise InputError(
            f"pattern {pattern.name} needs to know each {missing[0]}, of which the vocabulary of this tokenizer has "
            "none: leave it out."
        )


def batch_inputs(model: nn.Module, collate: Collator, encoded: Encoded, indices: Sequence[int]) -> dict[str, Any]:
    """A batch of some examples without labels, on the model's device."""
    batch = collate([encoded[index] for index in indices])
    device = next(model.parameters()).device
    return {name: tensor.to(device) for name, tensor in batch.items() if name != "labels"}


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
        tokenizer: its tokenizer, which also identifies separators and full stops.
        split: the examples.
        patterns: fixed patterns, each once.
        max_length: the longest example in tokens.
        batch: examples at a time; None for as many as keep the maps small.
        after_batch: called with the number of examples that are done.
    """
    scores, known = PatternScores(patterns), mark_ids(tokenizer)
    for pattern in patterns:
        check_marks(pattern, known)
    kinds = {kind for pattern in patterns for kind in pattern.marks}
    encoded = encode(split, tokenizer, max_length)
    collate = Collator.of(tokenizer, "classification", padding="dynamic", max_length=max_length)
    order = numpy.argsort(-encoded.lengths, kind="stable")  # examples of similar length together
    with evaluating(model), torch.inference_mode(), capture(model, what="map") as record:
        if batch is None:
            size = len(record.maps) * int(encoded.lengths.max()) ** 2 * torch.float32.itemsize
            batch = max(1, min(LARGEST_BATCH, MAP_BYTES // size))
        for start in range(0, len(order), batch):
            inputs = batch_inputs(model, collate, encoded, order[start : start + batch].tolist())
            model(**inputs)
            scores.add(record, Tokens(valid=record.valid, marks=find_marks(inputs["input_ids"], known, kinds)))
            if after_batch is not None:
                after_batch(min(start + batch, len(order)))
    return scores.result()


def study_patterns(
    folder: Path,
    split: str,
    source: Source,
    *,
    pattern: Sequence[str] = (),
    task: str | None = None,
    limit: int = 200,
    batch: int | None = None,
    progress: Listener | None = None,
) -> PatternSummary:
    """Score the heads of a run against fixed patterns.

    Args:
        folder: a finished run.
        split: a split of its task.
        source: the location of the data.
        pattern: names of patterns; all that the tokenizer allows if empty.
        task: one task of a run on several.
        limit: the number of examples, from the first.
        batch: examples at a time.
        progress: shows how far it is.
    """
    progress = progress or Silence()
    fixed = [name for name, kind in PATTERNS.items() if not issubclass(kind, Knowledge)]
    for name in pattern:
        if issubclass(PATTERNS[name], Knowledge):
            raise InputError(
                f"pattern={name} is built from knowledge, and only fixed patterns can be detected: choose from "
                f"{', '.join(sorted(fixed))}."
            )
    run = load_run(folder, task)
    examples = read_split(run.recipe, run.task, split, source.data or run.data, network=source.network)
    examples = examples.subset(range(min(limit, len(examples))))
    patterns = [build_pattern(name) for name in dict.fromkeys(pattern or fixed)]
    if not pattern:
        known = mark_ids(run.tokenizer)
        for each in [each for each in patterns if not set(each.marks) <= known.keys()]:
            progress.log(f"left out {each.name}: the tokenizer has no {' or '.join(each.marks)}")
            patterns.remove(each)
    progress.start(run.recipe.name, len(examples))
    length = run.recipe.data.max_length
    scores = pattern_scores(
        run.model, run.tokenizer, examples, patterns, max_length=length, batch=batch, after_batch=progress.advance
    )
    progress.end()
    return scores

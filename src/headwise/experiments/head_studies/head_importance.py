"""How much each task of a run needs each head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.attention import AttentionRecord, capture
from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import InputError, choices
from headwise.experiments.apply import Loaded, RunTasks, Source
from headwise.experiments.head_studies.head_files import Examples, identity, labelled_examples
from headwise.heads import PatternScores, PatternSummary
from headwise.heads.importance import GRANULARITIES, NORMALISATIONS, HeadImportance
from headwise.heads.pruning import ranked_heads
from headwise.heads.task_similarity import importance_similarity
from headwise.patterns import Pattern, Tokens, find_marks, mark_ids
from headwise.training import Listener
from headwise.training.iat_training import importance_on
from headwise.training.predict import evaluating

# Which patterns the heads of a trained model follow on the examples of a split.


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


NAME = "importance"


@dataclass(frozen=True)
class ImportanceSettings:
    """How importance is estimated."""

    granularity: str = "sample"
    normalise: str = "none"
    examples: int = 10_000
    """At most so many, a seeded choice."""
    split: str = "train"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown names before any work."""
        for option, value, known in (
            ("--granularity", self.granularity, GRANULARITIES),
            ("--normalise", self.normalise, NORMALISATIONS),
        ):
            if value not in known:
                raise InputError(f"{option} {value}: {choices(value, known)}.")


def run_importance(
    runs: Mapping[str, Loaded], settings: ImportanceSettings, source: Source, listener: Listener
) -> dict[str, HeadImportance]:
    """The importance of all heads for each task; all data are read before the first is measured."""
    found = labelled_examples(runs, settings.split, source)
    return {task: task_importance(task, runs[task], examples, settings, listener) for task, examples in found.items()}


def task_importance(
    task: str,
    run: Loaded,
    examples: Examples,
    settings: ImportanceSettings,
    listener: Listener,
    mask: NDArray[numpy.bool_] | None = None,
) -> HeadImportance:
    """The importance of all heads for one task, with the heads of a mask silenced."""
    without = "" if mask is None else f" without {int(mask.sum())} heads"
    listener.start(f"importance for {task}{without}", min(len(examples), settings.examples))
    found = importance_on(
        run.model,
        examples.encoded,
        examples.collate,
        granularity=settings.granularity,
        normalise=settings.normalise,
        examples=settings.examples,
        seed=settings.seed,
        mask=mask,
        after_batch=listener.advance,
    )
    listener.end()
    return found


def importance_content(
    tasks: RunTasks, settings: ImportanceSettings, found: Mapping[str, HeadImportance]
) -> dict[str, Any]:
    """Plain data, ready for JSON; of several tasks also how far they need the same heads."""
    scores = {task: each.scores for task, each in found.items()}
    between = {"similarity": importance_similarity(scores).as_dict()} if len(found) > 1 else {}
    return {
        "run": identity(tasks.folder),
        "settings": asdict(settings),
        "tasks": {task: each.as_dict() for task, each in found.items()},
        **between,
    }


def importance_rows(found: Mapping[str, HeadImportance]) -> Iterator[dict[str, Any]]:
    """One row for each task and head, in the order of the heads; rank 1 is the most important."""
    for task, each in found.items():
        ranks = {head: rank for rank, head in enumerate(ranked_heads(each.scores), start=1)}
        for layer, head in numpy.ndindex(*each.scores.shape):
            width = None if each.half_width is None else float(each.half_width[layer, head])
            yield {
                "task": task,
                "layer": layer,
                "head": head,
                "score": float(each.scores[layer, head]),
                "half_width": width,
                "rank": ranks[layer, head],
            }

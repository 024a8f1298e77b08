"""What the heads of a trained model do on some examples, and how much each token matters to one trained with SSA.

Shapes: T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.attention import capture
from headwise.data import Collator, Split, encode
from headwise.errors import InputError
from headwise.experiments.apply import Loaded
from headwise.heads import HeadStatistics, HeadSummary, head_vectors, mean_map, principal_components
from headwise.ssa import supervision_of


@dataclass(frozen=True)
class View:
    """One example as the figures show it."""

    tokens: list[str]
    mean_map: list[list[float]]
    """[T][T] mean over all heads and layers."""
    points: list[list[float]]
    """[M][2] principal components of all heads' received attention."""
    explained: list[float]
    layers: list[int]
    """The layer of each point."""


def head_summary(model: nn.Module, tokenizer: Any, split: Split, *, max_length: int, batch: int = 32) -> HeadSummary:
    """Statistics over all examples of a split; deciding tokens count if the split has spans."""
    encoded = encode(split, tokenizer, max_length, spans=split.spans is not None)
    collate = Collator.of(tokenizer, "classification", padding="dynamic", max_length=max_length)
    statistics = HeadStatistics()
    model.eval()
    with torch.inference_mode(), capture(model) as record:
        for start in range(0, len(encoded), batch):
            indices = range(start, min(start + batch, len(encoded)))
            inputs = collate([encoded[index] for index in indices])
            inputs.pop("labels", None)
            model(**inputs)
            deciding = None
            if encoded.deciding is not None:
                deciding = torch.zeros(inputs["input_ids"].shape, dtype=torch.bool)  # [B,K]
                for row, index in enumerate(indices):
                    flags = torch.as_tensor(encoded.deciding[index])
                    deciding[row, : len(flags)] = flags
            statistics.add(record, deciding)
    return statistics.result()


def view(model: nn.Module, tokenizer: Any, split: Split, example: int, *, max_length: int) -> View:
    """One example for the figures."""
    encoded = encode(split.subset([example]), tokenizer, max_length)
    inputs = Collator.of(tokenizer, "classification", padding="dynamic", max_length=max_length)([encoded[0]])
    inputs.pop("labels", None)
    model.eval()
    with torch.inference_mode():
        with capture(model) as received:
            model(**inputs)
        with capture(model, what="map") as maps:
            model(**inputs)
    points, explained = principal_components(head_vectors(received, 0))
    return View(
        tokens=tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()),
        mean_map=mean_map(maps, 0).tolist(),
        points=points.tolist(),
        explained=explained.tolist(),
        layers=[layer for layer, _ in received.maps],
    )


# How a tokenizer marks words, by its decoder.
SPELLINGS = {"WordPiece": "wordpiece", "ByteLevel": "bytes", "Metaspace": "sentencepiece"}


@dataclass(frozen=True)
class TokenScores:
    """The tokens of a text or a pair, their scores, and what the model says of the whole."""

    tokens: tuple[str, ...]
    """As the tokenizer writes them."""
    scores: tuple[float | None, ...]
    """P(token matters); None for tokens that are no text, such as [SEP]."""
    kept: tuple[bool, ...]
    """Which are pooled, or would be."""
    segments: tuple[int, ...]
    """Which text each is of, from 0; what frames a text has its number."""
    prediction: str
    probabilities: dict[str, float]
    threshold: float | None
    """Of pooling; None where the model does not pool."""
    cut: bool
    """Whether the text was longer than the model takes."""
    spelling: str | None
    """How the tokenizer marks words; None if it is not known for that."""
    offsets: tuple[tuple[int, int], ...]
    """The first character of each token in its text and the one after its last; (0, 0) for those that are no text."""


def token_scores(run: Loaded, folder: Path, text: str, pair: str | None) -> TokenScores:
    """Score the tokens of one text, or of a pair.

    Args:
        run: a finished run.
        folder: its folder, for messages.
        text: the text, or the first of two.
        pair: the second text, for tasks of two.
    """
    model: Any = run.model
    supervision = supervision_of(model)
    if supervision is None:
        raise InputError(
            f"{folder} was trained without SSA, so its tokens have no scores: train with `ssa: {{model: hybrid}}` in "
            "the recipe."
        )
    sentences = run.task.sentences
    if sentences == 2 and pair is None:
        raise InputError(f"this run was trained on pairs (task {run.task.name}): give the second text (pair=...).")
    if sentences == 1 and pair is not None:
        raise InputError(f"this run was trained on single texts (task {run.task.name}): leave out pair=... .")
    length = run.recipe.data.max_length
    split = Split(((text,) if pair is None else (text, pair),), (None,))
    encoded = encode(split, run.tokenizer, length, offsets=True)
    collate = Collator.of(run.tokenizer, run.task.kind, max_length=length)
    device = next(model.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in collate([encoded[0]]).items()}
    with torch.inference_mode():
        output = model(**batch, output_ssa=True)
    eligible = supervision.text.eligible(batch["input_ids"], batch["attention_mask"])[0].tolist()  # [T]
    if not any(eligible):
        raise InputError("the text holds no token of text: give at least one word (text=...).")
    scores, kept = output["ssa_scores"][0].tolist(), output["ssa_kept"][0].tolist()
    segments, current = [], 0
    for source in [] if encoded.sources is None else encoded.sources.tolist():
        current = source if source >= 0 else current  # a frame belongs to the text before it, the first to the first
        segments.append(current)
    prediction, probabilities = run.answer(output.logits[0].float().cpu().numpy())
    return TokenScores(
        tokens=tuple(run.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())),
        scores=tuple(round(score, 6) if real else None for score, real in zip(scores, eligible, strict=True)),
        kept=tuple(bool(each) for each in kept),
        segments=tuple(segments),
        prediction=prediction,
        probabilities=probabilities,
        threshold=supervision.threshold(output["ssa_scores"][0], output["ssa_kept"][0]),
        cut=encoded.truncated > 0,
        spelling=SPELLINGS.get(type(run.tokenizer.backend_tokenizer.decoder).__name__),
        offsets=tuple((start, end) for start, end in ([] if encoded.offsets is None else encoded.offsets.tolist())),
    )

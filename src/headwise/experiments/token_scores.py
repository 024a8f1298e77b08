"""How much each token of a text matters to a run that was trained with SSA.

Shapes: T tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save
from torch import Tensor, nn

from headwise import documents
from headwise.attention import capture
from headwise.data import Collator, Encoded, Split, encode
from headwise.disk import write_atomically
from headwise.errors import InputError
from headwise.experiments import record
from headwise.experiments.apply import Loaded
from headwise.heads import HeadStatistics, HeadSummary, head_vectors, mean_map, principal_components
from headwise.ssa import supervision_of
from headwise.training.checkpoints import SNAPSHOTS

# What the heads of a trained model do on some examples: numbers for a table, arrays for figures.


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
            statistics.add(record, _deciding(encoded, indices, inputs["input_ids"].shape[1]))
    return statistics.result()


def view(model: nn.Module, tokenizer: Any, split: Split, example: int, *, max_length: int) -> View:
    """One example for the figures."""
    encoded = encode(split.subset([example]), tokenizer, max_length)
    collate = Collator.of(tokenizer, "classification", padding="dynamic", max_length=max_length)
    inputs = collate([encoded[0]])
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


def _deciding(encoded: Encoded, indices: range, length: int) -> Tensor | None:
    """[B,K] True at tokens that decide the label."""
    if encoded.deciding is None:
        return None
    mask = torch.zeros(len(indices), length, dtype=torch.bool)
    for row, index in enumerate(indices):
        flags = torch.as_tensor(encoded.deciding[index])
        mask[row, : len(flags)] = flags
    return mask


# The heads of a run over its training, as `training/snapshots.py` saw them: one file, RUN/snapshots.safetensors.


NAME = "snapshots.safetensors"


@dataclass(frozen=True)
class HeadsOverTraining:
    """What was seen at each snapshot."""

    steps: NDArray[np.int64]
    similarity: NDArray[np.float32]
    """[S,M] mean cosine of each head with all others."""
    entropy: NDArray[np.float32]
    """[S,M]"""
    vectors: NDArray[np.float32]
    """[S,M,T] what each head looks at in one example; rows sum to one."""
    examples: int
    """How many the first two are means over."""


def join_snapshots(work: Path, run: Path, examples: int) -> None:
    """Put the snapshots of a finished training into one file; nothing if there are none."""
    paths = sorted((work / SNAPSHOTS).glob("step-*.safetensors"))
    if not paths:
        return
    found = [_snapshot(path) for path in paths]
    arrays: dict[str, NDArray[Any]] = {name: np.stack([each[name] for each in found]) for name in found[0]}
    arrays["steps"] = np.array([int(path.stem.removeprefix("step-")) for path in paths], dtype=np.int64)
    about = {"headwise": json.dumps({"format": 1, "examples": examples})}
    write_atomically(run / NAME, save(arrays, metadata=about))


def _snapshot(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise documents.damaged(path, error, "delete the folder of the run and start it over") from error


def read_snapshots(run: Path) -> HeadsOverTraining | None:
    """The snapshots of a run; None if it was trained without."""
    path = run / NAME
    if not path.is_file():
        return None
    try:
        with safe_open(path, "numpy") as file:
            about = documents.parse((file.metadata() or {})["headwise"])
        arrays = load_file(path)
        if about["format"] != 1:
            raise InputError(f"{path} has format {about['format']!r:.20}: this headwise reads format 1; train again.")
        found = HeadsOverTraining(
            steps=arrays["steps"],
            similarity=arrays["similarity"],
            entropy=arrays["entropy"],
            vectors=arrays["vectors"],
            examples=int(about["examples"]),
        )
        _check(found)
        return found
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        if isinstance(error, InputError):
            raise
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise documents.damaged(path, str(reason), record.AGAIN) from error


def _check(found: HeadsOverTraining) -> None:
    """Refuse arrays that do not belong together."""
    snapshots, heads = found.vectors.shape[:2] if found.vectors.ndim == 3 else (-1, -1)
    shapes = {"steps": (snapshots,), "similarity": (snapshots, heads), "entropy": (snapshots, heads)}
    for name, shape in shapes.items():
        if getattr(found, name).shape != shape:
            raise ValueError(f"{name} is of shape {list(getattr(found, name).shape)}, expected {list(shape)}")
    if not all(np.isfinite(getattr(found, name)).all() for name in ("vectors", "similarity", "entropy")):
        raise ValueError("some values are not finite")


# What the decoder of a tokenizer tells of how it writes its tokens.
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
    split, length = Split((_texts(run, text, pair),), (None,)), run.recipe.data.max_length
    encoded = encode(split, run.tokenizer, length, offsets=True)
    collate = Collator.of(run.tokenizer, run.task.kind, max_length=length)
    device = next(model.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in collate([encoded[0]]).items()}
    with torch.inference_mode():
        output = model(**batch, output_ssa=True)
    eligible = supervision.text.eligible(batch["input_ids"], batch["attention_mask"])[0].tolist()  # [T]
    if not any(eligible):
        raise InputError("--text holds no token of text: give at least one word.")
    scores, kept = output["ssa_scores"][0].tolist(), output["ssa_kept"][0].tolist()
    prediction, probabilities = run.answer(output.logits[0].float().cpu().numpy())
    return TokenScores(
        tokens=tuple(run.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())),
        scores=tuple(round(score, 6) if real else None for score, real in zip(scores, eligible, strict=True)),
        kept=tuple(bool(each) for each in kept),
        segments=_segments(encoded),
        prediction=prediction,
        probabilities=probabilities,
        threshold=supervision.options.attention_threshold if supervision.pools else None,
        cut=encoded.truncated > 0,
        spelling=SPELLINGS.get(type(run.tokenizer.backend_tokenizer.decoder).__name__),
    )


def _texts(run: Loaded, text: str, pair: str | None) -> tuple[str, ...]:
    wanted = run.task.sentences
    if wanted == 2 and pair is None:
        raise InputError(f"this run was trained on pairs (task {run.task.name}): give the second text with --pair.")
    if wanted == 1 and pair is not None:
        raise InputError(f"this run was trained on single texts (task {run.task.name}): leave --pair out.")
    return (text,) if pair is None else (text, pair)


def _segments(encoded: Encoded) -> tuple[int, ...]:
    """[T] the text of each token; a frame belongs to the text before it, the first one to the first text."""
    found, current = [], 0
    for source in [] if encoded.sources is None else encoded.sources.tolist():
        current = source if source >= 0 else current
        found.append(current)
    return tuple(found)

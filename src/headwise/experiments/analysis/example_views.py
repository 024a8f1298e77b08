"""Single examples as a page shows them: tokens, answers, and the maps of every head.

Shapes: N layers, H heads, M = N H, T tokens of the example.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headwise.attention import capture, encoder_of, family_of, gate
from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import InputError
from headwise.experiments.analysis.expected_maps import (
    ExampleMaps,
    Floats,
    WantedMaps,
    WantedPattern,
    sources_of,
    to_bytes,
)
from headwise.experiments.apply import Loaded
from headwise.ssa import supervision_of
from headwise.training.predict import evaluating

# Whole maps of longer texts are kept of the first few only: at 512 tokens and 144 heads one takes 38 MB.
WHOLE_TOKENS = 128
WHOLE_LONG = 2
KEPT = 32


@dataclass(frozen=True)
class ExampleView:
    """One example as one model sees it."""

    title: str
    place: int | None
    """In its split, from 0; None if it is not of the split."""
    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    sources: tuple[int, ...]
    """The text of each token, -1 for special tokens."""
    gold: str | None
    prediction: str
    probabilities: dict[str, float]
    maps: ExampleMaps
    mean_map: Floats
    """[T,T] mean over all heads and layers."""
    vectors: Floats
    """[M,T] how each head's attention is shared out over the tokens; rows sum to one."""
    token_scores: tuple[float | None, ...] | None = None
    """Of a run with SSA: P(token matters), None at special tokens."""
    pooled: tuple[bool, ...] | None = None
    threshold: float | None = None
    wanted: tuple[str, Floats] | None = None
    """Of a run that was guided to a pattern, or held against one: its name, and the map [T,T] that it wants."""

    def head_map(self, layer: int, head: int) -> Floats:
        """[T,T]; of long texts only the largest weights of each row are there."""
        layers, heads = self.maps.heads
        if not (0 <= layer < layers and 0 <= head < heads):
            raise InputError(
                f"layer {layer}, head {head} is not there: the model has layers 0 to {layers - 1} and heads 0 to "
                f"{heads - 1}."
            )
        return self.maps.head(layer, head)


def view_examples(
    run: Loaded,
    split: Split,
    titles: Sequence[str],
    places: Sequence[int | None],
    *,
    whole: Collection[int] = (),
    wanted: WantedPattern | None = None,
    silenced: Sequence[tuple[int, int]] = (),
) -> list[ExampleView]:
    """Look at every example of a split.

    Args:
        run: a finished run.
        split: the examples to look at.
        titles: of each.
        places: of each in the split that it was taken from, None if it was typed or read from a file.
        whole: places of examples that keep their whole maps however long they are; else the first few long ones do.
        wanted: a pattern that the maps are held against.
        silenced: heads whose outputs count for nothing, as (layer, head).
    """
    encoded = encode(split, run.tokenizer, run.recipe.data.max_length, offsets=True)
    collate = Collator.of(run.tokenizer, run.task.kind, max_length=run.recipe.data.max_length)
    targets = None if wanted is None else wanted.of(split.texts, encoded)
    views = []
    long = 0
    for number, (title, place) in enumerate(zip(titles, places, strict=True)):
        tokens = int(encoded.lengths[number])
        keep = tokens <= WHOLE_TOKENS or place in whole or (not whole and long < WHOLE_LONG)
        long += tokens > WHOLE_TOKENS
        with _without(run.model, silenced):
            view = _view(run, split, encoded, collate, number, title=title, place=place, whole=keep, wanted=targets)
        views.append(view)
    return views


@contextmanager
def _without(model: nn.Module, heads: Sequence[tuple[int, int]]) -> Iterator[None]:
    """For the time of the block, these heads are silent."""
    if not heads:
        yield
        return
    shape = layers, per_layer = family_of(encoder_of(model)).shape
    for layer, head in heads:
        if not (0 <= layer < layers and 0 <= head < per_layer):
            raise InputError(
                f"layer {layer}, head {head} cannot be switched off: the model has layers 0 to {layers - 1} and heads "
                f"0 to {per_layer - 1}."
            )
    gates = torch.ones(shape, device=next(model.parameters()).device)
    gates[tuple(zip(*heads, strict=True))] = 0.0
    with gate(model, gates):
        yield


def _view(
    run: Loaded,
    split: Split,
    encoded: Encoded,
    collate: Collator,
    number: int,
    *,
    title: str,
    place: int | None,
    whole: bool,
    wanted: WantedMaps | None,
) -> ExampleView:
    model: Any = run.model
    inputs = collate([encoded[number]])
    inputs.pop("labels", None)
    device = next(model.parameters()).device
    inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    supervision = supervision_of(model)
    more = {} if supervision is None else {"output_ssa": True}
    seen = _Seen()
    with evaluating(model), torch.inference_mode(), capture(model, what="map", digest=seen.digest):
        output = model(**inputs, **more)
    prediction, probabilities = run.answer(output.logits[0].float().cpu().numpy())
    sources = sources_of(encoded, number).tolist()
    maps = ExampleMaps(np.stack(seen.maps))
    view = ExampleView(
        title=title,
        place=place,
        texts=split.texts[number],
        tokens=tuple(run.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())),
        sources=tuple(sources),
        gold=gold_of(run, split.labels[number]),
        prediction=prediction,
        probabilities=probabilities,
        maps=maps if whole else maps.largest(KEPT),
        mean_map=seen.mean(),
        vectors=np.concatenate(seen.vectors),
        wanted=None if wanted is None else (wanted.wanted.name, wanted.rows(number)),
    )
    if supervision is None:
        return view
    scores, kept = output["ssa_scores"][0].tolist(), output["ssa_kept"][0].tolist()
    return replace(
        view,
        token_scores=tuple(
            None if source < 0 else round(score, 4) for score, source in zip(scores, sources, strict=True)
        ),
        pooled=tuple(bool(each) for each in kept),
        threshold=supervision.options.attention_threshold if supervision.pools else None,
    )


class _Seen:
    """Takes the maps of one example layer by layer, each in one byte for a weight."""

    def __init__(self) -> None:
        self.maps: list[NDArray[np.uint8]] = []
        self.vectors: list[Floats] = []
        self._sum: Tensor | None = None
        self._heads = 0

    def digest(self, layer: int, rows: slice, maps: Tensor) -> Tensor:
        """Keep what is needed; `maps` are [1,H,T,T]."""
        weights = maps[0].detach().float().cpu()
        self.maps.append(to_bytes(weights.numpy()))
        received = weights.sum(1)
        self.vectors.append((received / received.sum(1, keepdim=True).clamp_min(1e-30)).numpy())
        total = weights.double().sum(0)
        self._sum = total if self._sum is None else self._sum + total
        self._heads += len(weights)
        return maps.new_zeros(maps.shape[:2])

    def mean(self) -> Floats:
        """[T,T] mean over all heads."""
        if self._sum is None:
            raise InputError("no attention was seen: the model has no layer that headwise can watch.")
        mean: Floats = (self._sum / self._heads).float().numpy()
        return mean


def gold_of(run: Loaded, label: float | int | None) -> str | None:
    """The label as people write it; None where there is none."""
    if label is None:
        return None
    if run.task.kind == "ranking":
        return "relevant" if label else "not relevant"
    return run.labels[int(label)] if run.labels else f"{float(label):g}"


def spread(count: int, wanted: int, also: Sequence[int], split: str) -> list[int]:
    """Places of so many examples, spread evenly over a split of `count`, and the ones asked for."""
    for place in also:
        if not 0 <= place < count:
            raise InputError(f"--pick {place}: of the {split} set the examples 0 to {count - 1} are looked at.")
    wanted = min(wanted, count)
    even = {round(number * (count - 1) / max(wanted - 1, 1)) for number in range(wanted)}
    return sorted(even | set(also))


def check_texts(run: Loaded, texts: Sequence[str]) -> tuple[str, ...]:
    """Texts that somebody typed, or a sentence about what is wrong with them."""
    wanted = run.task.sentences
    if len(texts) != wanted:
        raise InputError(f"{len(texts)} texts were given, and {run.task.name} has {wanted}: give as many.")
    if any(not run.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts):
        raise InputError("a text is empty, or has nothing that the model can read: write at least one word.")
    return tuple(texts)

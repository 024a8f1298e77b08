"""How alike tasks are, by the gradients of their losses in the encoder that they share and by the heads they need.

Shapes: N layers, H heads, T tasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from headwise.attention import encoder_of
from headwise.attention.families import head_weights
from headwise.attention.seam import keep_from_model
from headwise.documents import plain
from headwise.errors import InputError, choices
from headwise.heads.dissociation import Values
from headwise.heads.gradients import examples_of, loss_of, no_trace, prepared_batches
from headwise.heads.importance import SHARES, jaccard
from headwise.heads.pruning import top_heads
from headwise.metrics import score

# -- by gradients ----------------------------------------------------------------------------------------------------

# Numbers of each gradient that are compared at a time.
AT_A_TIME = 1_000_000
# encoder.layer.3.attention...: what most families call their layers.
_LAYER = re.compile(r"(?:^|\.)layers?\.(\d+)\.")
_PARTS = ("encoder", "attention")

Groups = dict[str, list[nn.Parameter]]


@dataclass(frozen=True, eq=False)
class GradientCosines:
    """How far the losses of tasks pull the shared parameters in the same direction."""

    tasks: tuple[str, ...]
    parts: str
    """Which parameters."""
    examples: tuple[int, ...]
    """[T] how many examples of each task."""
    total: Values
    """[T,T] cosine between the gradients of the mean losses."""
    ceiling: Values
    """[T] cosine between two halves of one task's examples. Where it is low, a gradient is mostly noise, and so is
    the task's cosine with others."""
    groups: dict[str, dict[str, Values]]
    """For each layer, and for what is in none, its `cosine` and `ceiling`; NaN where a gradient is 0."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; null where there is no number."""
        return plain(self)


def gradient_cosines(
    models: Mapping[str, nn.Module],
    data: Mapping[str, Iterable[Mapping[str, Any]]],
    *,
    parts: str = "encoder",
    after_batch: Callable[[str, int], None] | None = None,
) -> GradientCosines:
    """Compare the gradients of tasks with respect to the encoder that they share.

    A gradient is that of the mean loss over all examples, so it does not depend on batch size or order. It is taken in
    evaluation mode, where dropout adds no noise. Every other example belongs to one half, for the ceiling. The models
    are left as they were: modes, requires_grad, gradients and random state. Frozen parameters take no part. Two
    gradients per task are held in memory.

    Args:
        models: a classifier by task, all on one and the same encoder.
        data: batches by task, such as a DataLoader gives: tensors by name, "labels" among them.
        parts: "encoder" for all of the encoder's parameters, "attention" for those of the heads only: query, key, value
            and output projections.
        after_batch: called with the task and the number of its examples that are done.

    Returns:
        The cosines, in total and layer by layer.
    """
    if len(models) < 2:
        raise InputError(f"models of {', '.join(models) or 'no task'}: similarity needs two tasks or more.")
    if missing := sorted(models.keys() ^ data.keys()):
        raise InputError(f"tasks {', '.join(missing)} have a model or data only: expected both for every task.")
    shared = [
        (name, parameter)
        for name, group in shared_parameters(models, parts).items()
        for parameter in group
        if parameter.requires_grad
    ]
    if not shared:
        raise InputError(
            "all of the shared encoder is frozen, so it has no gradient: set requires_grad on its parameters."
        )
    gradients: list[list[Tensor]] = []  # [2T] a half of a task each
    examples = []
    for task, model in models.items():
        with no_trace(model):
            halves, count = _half_gradients(task, model, data[task], [each for _, each in shared], after_batch)
        if count < 2:
            raise InputError(f"task {task} has {count} examples: gradients of two halves need two or more.")
        for half in halves:
            length = sum(float(torch.linalg.vector_norm(gradient)) for gradient in half)
            if not np.isfinite(length):
                raise InputError(f"the gradient of task {task} is not finite: has training diverged?")
            if length == 0:
                raise InputError(
                    f"the loss of task {task} has no gradient in the shared encoder: is the encoder cut off from it?"
                )
        gradients += halves
        examples.append(count)
    # By group: [2T,2T] the products of all half gradients with each other.
    grams = {name: np.zeros((len(gradients), len(gradients))) for name, _ in shared}
    for index, (name, parameter) in enumerate(shared):
        for at in range(0, parameter.numel(), AT_A_TIME):
            some = torch.stack([half[index].flatten()[at : at + AT_A_TIME] for half in gradients]).cpu().double()
            grams[name] += (some @ some.T).numpy()
    whole = _cosines(np.sum(list(grams.values()), axis=0))
    groups = {name: _cosines(gram) for name, gram in grams.items()}
    return GradientCosines(tuple(models), parts, tuple(examples), whole["cosine"], whole["ceiling"], groups)


def shared_parameters(models: Mapping[str, nn.Module], parts: str) -> Groups:
    """The parameters that all tasks share, by layer; what lies in no layer (such as embeddings) by its own name."""
    if parts not in _PARTS:
        raise InputError(f"parts {parts!r}: {choices(str(parts), _PARTS)}.")
    first, *others = models
    encoder = encoder_of(models[first]).base_model
    for task in others:
        if encoder_of(models[task]).base_model is not encoder:
            raise InputError(
                f"tasks {first} and {task} have an encoder each: gradients can be compared on a shared encoder only; "
                "train the tasks together."
            )
    if parts == "attention":
        # One matrix may hold several parts (query, key and value): it counts once.
        return {
            f"layer {layer.layer}": list({id(part.parameter): part.parameter for part in layer.parts}.values())
            for layer in head_weights(encoder)
        }
    groups: Groups = {}
    for name, parameter in encoder.named_parameters():
        layer = _LAYER.search(name)
        groups.setdefault(f"layer {layer[1]}" if layer else name.partition(".")[0], []).append(parameter)
    return groups


def _half_gradients(
    task: str,
    model: nn.Module,
    data: Iterable[Any],
    parameters: list[nn.Parameter],
    after_batch: Callable[[str, int], None] | None,
) -> tuple[list[list[Tensor]], int]:
    """The gradient of the summed loss over the even and over the odd examples, and how many examples there were."""
    halves = [[torch.zeros_like(each, dtype=torch.float32) for each in parameters] for _ in range(2)]
    count, device = 0, parameters[0].device
    for batch in prepared_batches(data, device):
        size = len(batch["input_ids"])
        for half, sums in enumerate(halves):
            rows = slice((count + half) % 2, size, 2)
            examples = examples_of(batch, rows, device)
            if not len(examples["input_ids"]):
                continue
            keep_from_model(model, examples)
            loss = loss_of(model, examples) * len(examples["input_ids"])  # the loss is a mean over the batch
            if not loss.requires_grad:
                continue
            for total, gradient in zip(sums, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
                if gradient is not None:
                    total += gradient
        count += size
        if after_batch is not None:
            after_batch(task, count)
    return halves, count


def _cosines(gram: Values) -> dict[str, Values]:
    """[T,T] between whole gradients, and the ceiling [T] between the two halves of each."""
    tasks = len(gram) // 2
    whole = gram.reshape(tasks, 2, tasks, 2).sum((1, 3))
    return {"cosine": _unit(whole), "ceiling": np.diagonal(_unit(gram), 1)[::2]}


def _unit(gram: Values) -> Values:
    """Products of vectors as cosines; NaN for vectors of length 0."""
    gram = (gram + gram.T) / 2  # its two halves were summed in different orders
    length = np.sqrt(np.diagonal(gram))
    below = np.outer(length, length)
    cosines = np.divide(gram, below, out=np.full(gram.shape, np.nan), where=below > 0)
    return np.asarray(np.clip(cosines, -1.0, 1.0))


# -- by the importance of heads --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ImportanceSimilarity:
    """How far tasks need the same heads."""

    tasks: tuple[str, ...]
    pearson: Values
    """[T,T] correlation of importance over all heads; 0 with a task for which all heads are equal."""
    spearman: Values
    """[T,T] the same, of ranks."""
    overlap: dict[float, Values]
    """Share of heads -> [T,T] Jaccard overlap of the tasks' most important heads, |both| / |either|."""
    chance: dict[float, float]
    """Share of heads -> the overlap to expect of heads chosen at random."""
    per_layer: dict[float, NDArray[np.int64]]
    """Share of heads -> [T,N] how many of a task's most important heads each layer has."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return plain(self)


def importance_similarity(scores: Mapping[str, ArrayLike], *, shares: Sequence[float] = SHARES) -> ImportanceSimilarity:
    """Compare the importance of heads between tasks.

    Args:
        scores: importance [N,H] of the same heads by task.
        shares: which shares of all heads to call important; those that mean no head are left out.

    Returns:
        Correlations and overlaps between all tasks.
    """
    values = {task: np.asarray(each, dtype=np.float64) for task, each in scores.items()}
    if len(values) < 2:
        raise InputError(f"importance of {', '.join(values) or 'no task'}: similarity needs two tasks or more.")
    if len({each.shape for each in values.values()}) != 1:
        shapes = ", ".join(f"{task} {list(each.shape)}" for task, each in values.items())
        raise InputError(f"importance of {shapes}: expected the same layers and heads for all tasks.")
    flat = [each.ravel() for each in values.values()]
    size = flat[0].size
    tops = {
        share: np.stack([top_heads(each, share) for each in values.values()])  # [T,N,H]
        for share in shares
        if int(share * size) > 0
    }

    def between(vectors: Sequence[Any], alike: Callable[[Any, Any], float]) -> Values:
        return np.array([[alike(one, other) for other in vectors] for one in vectors])

    return ImportanceSimilarity(
        tasks=tuple(values),
        pearson=between(flat, lambda one, other: score(["pearson"], one, other)["pearson"]),
        spearman=between(flat, lambda one, other: score(["spearman"], one, other)["spearman"]),
        overlap={share: between(list(top), jaccard) for share, top in tops.items()},
        chance={share: _chance_overlap(int(top[0].sum()), size) for share, top in tops.items()},
        per_layer={share: top.sum(2) for share, top in tops.items()},
    )


def _chance_overlap(count: int, size: int) -> float:
    """The mean Jaccard overlap of two random sets: sum_i P(i in both) i / (2 count - i)."""
    ways = {both: comb(count, both) * comb(size - count, count - both) for both in range(1, count + 1)}
    return sum(number / comb(size, count) * both / (2 * count - both) for both, number in ways.items())

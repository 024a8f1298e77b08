"""The guides whose cost is measured: every registered one, and some in their other forms.

Shapes: B batch, K keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from measure import SEED, Batch, Point, make_batch
from torch import nn

from headwise.guides import GUIDES, Guide, Regulariser, build, guide, unguide
from headwise.patterns import mark_ids
from headwise.patterns.base import Knowledge
from headwise.patterns.fixed import FULL_STOP, SEPARATOR
from headwise.training.encoders import find_encoder

ENCODER = "builtin:minilm-l6"  # only its tokenizer and its input embeddings are used
WEIGHT = 1e-3  # a number: measuring a share costs time of its own, at some steps only
PLAIN = "plain"
FORMS = ("received", "cls", "value", "output", "map", "gates", "two passes")
# What the defaults leave out. `match` is the code of the guides that are named after a pattern.
OTHER_FORMS: list[tuple[str, dict[str, Any]]] = [
    ("first", {"on": "received"}),
    ("pmi", {"on": "map"}),
    ("rationale", {"queries": "cls"}),
    ("entropy", {"on": "received"}),
    ("disagreement", {"on": "subspace"}),
    ("disagreement", {"on": "position", "heads": "first:half"}),
]


@cache
def variants() -> dict[str, Regulariser]:
    """The guides by a name that says what they look at: those on received attention first, then those on maps.

    Last are those that are no losses on attention.
    """
    chosen = [(name, {}) for name in GUIDES if name != "match"] + OTHER_FORMS
    guides = [build(name, **(weight_of(name) | options)) for name, options in chosen]
    named = {name_of(each): each for each in guides}
    return dict(sorted(named.items(), key=lambda item: (FORMS.index(form_of(item[1])), item[0])))


def weight_of(name: str) -> dict[str, float]:
    """The weight of a guide of this name, if it has one."""
    return {"weight": WEIGHT} if name != "head_dropout" else {}


def name_of(chosen: Regulariser) -> str:
    return f"{chosen.name} on {getattr(chosen, 'on', chosen.what)}" if isinstance(chosen, Guide) else chosen.name


def form_of(chosen: Regulariser) -> str:
    """The attention that a guide reads, or what it does instead."""
    return chosen.what if isinstance(chosen, Guide) else chosen.kind


def guide_of(name: str) -> Regulariser | None:
    """The guide of a variant; None for plain training."""
    return None if name == PLAIN else variants()[name]


@cache
def encoder() -> Any:
    return find_encoder(ENCODER)


@contextmanager
def attached(model: nn.Module, chosen: Regulariser | None) -> Iterator[None]:
    """Guide a model for a while; without a guide it stays plain."""
    if chosen is None:
        yield
        return
    guide(model, chosen, tokenizer=encoder().tokenizer if chosen.marks or chosen.reads_marks else None)
    try:
        yield
    finally:
        unguide(model)


def batch_for(chosen: Regulariser | None, point: Point, size: int, length: int) -> Batch:
    """The random batch of the point, with the marks or the knowledge that the guide asks for."""
    batch: dict[str, Any] = make_batch(point, size, length)
    if chosen is not None and chosen.marks:
        put_marks(batch)
    if chosen is not None and chosen.reads_marks:  # every fifth token
        positions = torch.arange(batch["input_ids"].shape[1])
        batch["rationale_mask"] = (positions % 5 == 2) * batch["attention_mask"]
    if chosen is not None and chosen.name == "alignment":
        repeat_text(batch)
    pattern = getattr(chosen, "pattern", None)
    if isinstance(pattern, Knowledge):
        generator = torch.Generator().manual_seed(SEED)
        shape = (size, length, length) if chosen.on == "map" else (size, length)  # [B, K, K] or [B, K]
        batch["knowledge"] = {pattern.entry(chosen.on): torch.rand(shape, generator=generator)}
    return batch


def put_marks(batch: Batch) -> None:
    """A full stop and a separator behind both halves of every example, as behind the texts of a pair."""
    tokens, lengths = batch["input_ids"], batch["attention_mask"].sum(1)
    rows, known = torch.arange(len(tokens)), mark_ids(encoder().tokenizer)
    for back, kind in enumerate((SEPARATOR, FULL_STOP), 1):
        for end in (lengths // 2, lengths):
            tokens[rows, end - back] = known[kind][0]


def repeat_text(batch: Batch) -> None:
    """The second half of every example has the tokens of the first: in random texts hardly any are equal."""
    for tokens, length in zip(batch["input_ids"], batch["attention_mask"].sum(1).tolist(), strict=True):
        size = length // 2 - 2  # without what `put_marks` has put behind each half
        tokens[length // 2 : length // 2 + size] = tokens[:size]


def carried_megabytes(batch: Batch) -> float:
    """The size of the knowledge in a batch."""
    return sum(tensor.nbytes for tensor in batch.get("knowledge", {}).values()) / 1024**2

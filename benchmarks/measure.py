"""One training step of each variant: how it is built and timed.

A step is forward + backward + AdamW on a randomly initialised BERT classifier. The variants are

    plain      SDPA attention, no guide
    eager      eager attention, no guide
    reference  eager attention, stored maps, MDG and PDG computed from them as the papers write them
    kernel     attn_implementation="headwise", no guide
    ours       SDPA attention and ``headwise.guide``

Shapes in comments: B batch, N layers, H heads, S = N * H maps, Q queries, K keys.
"""

import gc
import hashlib
import importlib.util
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification

SEED = 0
CLASSES = 3
SHORTEST = 32  # the shortest example of a padded batch
MDG_WEIGHT = 1e-3
PDG_WEIGHT = 1e-4
SHARE = 0.03
FIRST_STEPS = 12  # of a run with automatic weights: they are measured most often there
SHORT_RUN = 100  # steps of a short run with automatic weights
VARIANTS = ("plain", "eager", "reference", "kernel", "ours")
Batch = dict[str, Tensor]
Row = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """Size of a model and of its batch."""

    layers: int
    hidden: int
    heads: int
    intermediate: int
    batch: int
    vocabulary: int = 30522


SHAPES = {
    "base": Shape(12, 768, 12, 3072, batch=8),
    "minilm": Shape(6, 384, 12, 1536, batch=16),
    # For trying the program out: too small to say anything about cost, so no bar is held against it.
    "tiny": Shape(2, 32, 2, 64, batch=2, vocabulary=100),
}


@dataclass(frozen=True)
class Point:
    """One condition under which the variants are compared."""

    shape: str
    length: int
    dropout: float
    padded: bool = False
    threads: int = 2

    @property
    def name(self) -> str:
        padding = "padded" if self.padded else "unpadded"
        return f"{self.memory_name} {padding} {self.threads} thread{'s' if self.threads > 1 else ''}"

    @property
    def memory_name(self) -> str:
        return f"{self.shape} L{self.length} dropout {self.dropout:g}"


@dataclass(frozen=True)
class Plan:
    """How long a point is measured: rounds until ``seconds`` are used up, between ``least`` and ``most`` of them."""

    least: int = 3
    most: int = 15
    seconds: float = 20.0
    side_rounds: int = 2

    def wants_another(self, done: int, elapsed: float) -> bool:
        """Whether to run round number ``done``, given what the rounds so far took."""
        if done < self.least:
            return True
        return done < self.most and elapsed + elapsed / done <= self.seconds

    def wants_side(self, done: int, elapsed: float) -> bool:
        """Whether the side variants take part: where one round uses up the time, once must do for them."""
        return done < self.side_rounds and (done == 0 or elapsed < self.seconds)


def make_model(point: Point, variant: str) -> BertForSequenceClassification:
    """The variant's model in training mode; every variant of a point starts from the same weights."""
    shape = SHAPES[point.shape]
    torch.manual_seed(SEED)
    if variant in ("kernel", "ours", "auto"):
        import headwise as hw
    implementation = {"eager": "eager", "reference": "eager", "kernel": "headwise"}.get(variant, "sdpa")
    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate,
        attention_probs_dropout_prob=point.dropout,
        hidden_dropout_prob=0.1,
        num_labels=CLASSES,
        attn_implementation=implementation,
    )
    model = BertForSequenceClassification(config).train()
    if variant == "ours":
        model = hw.guide(model, hw.MDG(weight=MDG_WEIGHT) + hw.PDG(weight=PDG_WEIGHT))
    if variant == "auto":
        model = hw.guide(model, hw.MDG(weight=hw.auto(SHARE)) + hw.PDG(weight=hw.auto(SHARE)))
    return model


def make_batch(point: Point, size: int, length: int) -> Batch:
    """Random tokens and labels; padded on the right to lengths spread evenly when the point asks for it."""
    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(1, SHAPES[point.shape].vocabulary, (size, length), generator=generator)
    lengths = torch.full((size,), length)
    if point.padded:
        lengths = torch.linspace(min(SHORTEST, length), length, size).round().long()
    mask = (torch.arange(length) < lengths[:, None]).long()  # [B, K]
    labels = torch.randint(0, CLASSES, (size,), generator=generator)
    return {"input_ids": tokens * mask, "attention_mask": mask, "labels": labels}


def task_loss(model: BertForSequenceClassification, batch: Batch) -> Tensor:
    """The loss the model returns: with guides added by the model itself when it is guided."""
    return model(**batch).loss


def reference_loss(model: BertForSequenceClassification, batch: Batch) -> Tensor:
    """Task + MDG + PDG from stored maps, with the K x K matrix of the papers."""
    outputs = model(**batch, output_attentions=True)
    received = torch.cat([attention.sum(2) for attention in outputs.attentions], 1)  # [B, S, K]
    rows = functional.normalize(received, dim=-1)
    cosines = rows @ rows.transpose(1, 2)  # [B, S, S]
    discrimination = -cosines.log_softmax(-1).diagonal(dim1=1, dim2=2).mean()
    correlation = rows.transpose(1, 2) @ rows  # [B, K, K]
    keys = correlation.shape[-1]
    decorrelation = (correlation - torch.eye(keys)).square().sum((1, 2)).mean() / keys
    return outputs.loss + MDG_WEIGHT * discrimination + PDG_WEIGHT * decorrelation


class Step:
    """A variant ready to take training steps."""

    def __init__(self, point: Point, variant: str, keep_gradients: bool = False) -> None:
        self.model = make_model(point, variant)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5, fused=True)
        self.loss: Callable[..., Tensor] = reference_loss if variant == "reference" else task_loss
        self.keep_gradients = keep_gradients

    def take(self, batch: Batch) -> float:
        """Forward, backward, update; returns the loss."""
        self.optimizer.zero_grad(set_to_none=not self.keep_gradients)
        loss = self.loss(self.model, batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def clock(self, batch: Batch) -> tuple[float, float]:
        """Wall and processor seconds of one step."""
        wall, processor = time.perf_counter(), time.process_time()
        self.take(batch)
        return time.perf_counter() - wall, time.process_time() - processor


def time_point(point: Point, variants: list[str], plan: Plan) -> Row:
    """Medians over rounds of each variant's step, and of its ratio to plain within the round."""
    torch.set_num_threads(point.threads)
    shape = SHAPES[point.shape]
    batch = make_batch(point, shape.batch, point.length)
    steps = {variant: Step(point, variant) for variant in variants}
    losses = {variant: warm_up(step, batch) for variant, step in steps.items()}
    times = run_rounds(steps, batch, plan)
    steps.clear()
    gc.collect()  # models hold reference cycles; four of BERT-base size must not outlive their point
    row = {"kind": "time", "point": asdict(point), "rounds": len(times["plain"]), "first_loss": losses}
    return row | summary(times)


def time_auto(point: Point, plan: Plan) -> Row:
    """The first steps of runs with automatic weights, against as many plain steps between them; median over runs."""
    torch.set_num_threads(point.threads)
    batch = make_batch(point, SHAPES[point.shape].batch, point.length)
    plain = Step(point, "plain")
    for variant in ("plain", "auto"):
        warm_up(Step(point, variant), batch)
    warm_up(plain, batch)
    ratios: list[float] = []
    start = time.perf_counter()
    while plan.wants_another(len(ratios), time.perf_counter() - start):
        auto, seconds = Step(point, "auto"), [0.0, 0.0]
        auto.take(make_batch(point, 1, 8))  # creates gradients and moments, as plain has them
        fresh_weights(auto)
        for number in range(FIRST_STEPS):
            pair = (plain, auto) if number % 2 == 0 else (auto, plain)
            for step in pair:
                seconds[step is auto] += step.clock(batch)[0]
        ratios.append(seconds[1] / seconds[0])
    ratio = {"plain": 1.0, "ours": round(median(ratios), 4)}
    return {"kind": "auto", "point": asdict(point), "rounds": len(ratios), "ratio": ratio, "round_ratios": ratios}


def time_measuring(point: Point) -> Row:
    """The part of a run with automatic weights, of its time, that goes into measuring them."""
    import headwise as hw

    torch.set_num_threads(point.threads)
    batch, step = make_batch(point, SHAPES[point.shape].batch, point.length), Step(point, "auto")
    warm_up(step, batch)
    fresh_weights(step)
    balance, measuring = hw.guides.guidance(step.model)._balance, 0.0
    own = balance.weights

    def timed(*arguments: Any) -> dict[str, float]:
        nonlocal measuring
        start = time.perf_counter()
        weights = own(*arguments)
        measuring += time.perf_counter() - start
        return weights

    balance.weights = timed  # type: ignore[method-assign]
    whole = sum(step.clock(batch)[0] for _ in range(SHORT_RUN))
    ratio = {"measuring": round(measuring / whole, 4)}
    return {"kind": "measuring", "point": asdict(point), "steps": SHORT_RUN, "ratio": ratio}


def fresh_weights(step: Step) -> None:
    """Let automatic weights begin anew: with the measurement of their first step."""
    import headwise as hw

    guides = hw.MDG(weight=hw.auto(SHARE)) + hw.PDG(weight=hw.auto(SHARE))
    step.model = hw.guide(hw.unguide(step.model), guides)


def warm_up(step: Step, batch: Batch) -> float:
    """The first step, unmeasured; equally seeded, so that the guided variants' losses can be compared."""
    torch.manual_seed(SEED)
    return round(step.take(batch), 6)


def run_rounds(steps: dict[str, Step], batch: Batch, plan: Plan) -> dict[str, list[tuple[float, float]]]:
    """Interleaved steps: plain, kernel and ours in every round, the side variants in the first few only."""
    times: dict[str, list[tuple[float, float]]] = {variant: [] for variant in steps}
    main = [variant for variant in steps if variant in ("plain", "kernel", "ours")]
    side = [variant for variant in steps if variant not in main]
    start, done = time.perf_counter(), 0
    while plan.wants_another(done, elapsed := time.perf_counter() - start):
        order = main if done % 2 == 0 else main[::-1]  # alternating cancels drift of the machine
        for variant in order + (side if plan.wants_side(done, elapsed) else []):
            times[variant].append(steps[variant].clock(batch))
        done += 1
    return times


def summary(times: dict[str, list[tuple[float, float]]]) -> Row:
    """Seconds, wall ratios and processor ratios; a side variant is compared with the rounds it took part in."""
    timed = {variant: clocks for variant, clocks in times.items() if clocks}
    wall = {variant: round_ratios(clocks, times["plain"], 0) for variant, clocks in timed.items()}
    processor = {variant: round_ratios(clocks, times["plain"], 1) for variant, clocks in timed.items()}
    return {
        "seconds": {variant: round(median(clock[0] for clock in clocks), 4) for variant, clocks in timed.items()},
        "ratio": {variant: round(median(ratios), 4) for variant, ratios in wall.items()},
        "processor_ratio": {variant: round(median(ratios), 4) for variant, ratios in processor.items()},
        "round_ratios": {variant: [round(ratio, 4) for ratio in ratios] for variant, ratios in wall.items()},
    }


def round_ratios(clocks: list[tuple[float, float]], plain: list[tuple[float, float]], which: int) -> list[float]:
    """Per-round ratios to plain of wall (0) or processor (1) time."""
    return [ours[which] / base[which] for ours, base in zip(clocks, plain, strict=False)]


@cache
def code_version() -> str:
    """Short digest of headwise's sources, so that rows measured on different code can be told apart."""
    found = importlib.util.find_spec("headwise")
    folders = list(found.submodule_search_locations or []) if found else []
    files = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12] if files else "none"

"""What questions about heads cost: importance beside training, many masks beside one at a time, IAT beside plain steps.

    python benchmarks/heads.py                    some minutes on two cores
    python benchmarks/heads.py --quick --check    fewer of everything in under a minute; exit 1 if a bar is missed

importance: one pass of `head_importance` (sample) beside one epoch of training over the same examples: forward,
backward, clipping and AdamW, in batches of 32 of similar length, with dropout. Pairs as in benchmarks/ssa.py.

curve: K masks by `predict_under_masks` beside K passes of the ordinary prediction under `hw.mask` (curve_rows.py).

iat: a step in which a task may change 30 % of the heads (mode skip, or grad_mask, which is the authors') beside a
plain one: two copies of MiniLM-L6 with an optimiser each take steps on the same batches in turns, clipping included.

All with MiniLM-L6. stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from curve_rows import curve_rows
from harness import Bar, UsageError, fail, finish, machine, make_bar, progress, versions
from measure import SEED, Plan, Row, code_version
from ssa import texts_of
from step import Parser
from torch.utils.data import DataLoader
from transformers.utils import logging as transformers_logging

from headwise.data import Collator, Split, encode
from headwise.errors import HeadwiseError
from headwise.heads.iat import HeadUpdates
from headwise.training import MultiTask, find_encoder, load_classifier
from headwise.training.predict import importance_on
from headwise.training.run_trainer import LengthBuckets

IMPORTANCE_LIMIT, STEP_LIMIT = 0.75, 1.03
LENGTH, BATCH = 128, 32
SIZES = {"full": ({"short": 768, "long": 256}, Plan(3, 3)), "quick": ({"short": 96, "long": 40}, Plan(1, 2, 4.0))}
# Examples and tokens of a step, and how many steps are timed.
STEPS = {"full": (((16, 64), (32, 32)), 40), "quick": (((16, 64),), 6)}
MODES = ("skip", "grad_mask")


def read_options() -> argparse.Namespace:
    parser = Parser(description="The cost of importance, of many masks and of IAT.")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--parts", nargs="+", choices=["importance", "curve", "iat"], help="default: all")
    parser.add_argument("--quick", action="store_true", help="few examples and rounds: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    return parser.parse_args()


def classifier() -> Any:
    return load_classifier(find_encoder("builtin:minilm-l6"), labels=("yes", "no"), head="cls", seed=SEED)


def about(options: argparse.Namespace) -> Row:
    return {"threads": options.threads, "settings": versions(), "machine": machine(), "code": code_version()}


def epoch(model: Any, encoded: Any, collate: Collator, number: int) -> float:
    """Seconds of an epoch; the weights are put back."""
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    sampler = LengthBuckets(encoded.lengths, BATCH, SEED)
    sampler.set_epoch(number)
    begin = time.perf_counter()
    for batch in DataLoader(encoded, batch_sampler=sampler, collate_fn=collate):
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    seconds = time.perf_counter() - begin
    model.load_state_dict(before)
    return seconds


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def importance_row(kind: str, count: int, plan: Plan, options: argparse.Namespace) -> Row:
    encoder, model = find_encoder("builtin:minilm-l6"), classifier()
    texts = texts_of(kind, count).texts
    labels = tuple(int(label) for label in np.random.default_rng(SEED).integers(0, 2, count))
    encoded = encode(Split(texts, labels), encoder.tokenizer, LENGTH)
    collate = Collator.of(encoder.tokenizer, "classification", max_length=LENGTH)
    importance_on(model, encoded, collate, examples=64)  # the first pass is slower
    passes, epochs, done, begin = [], [], 0, time.perf_counter()
    while plan.wants_another(done, time.perf_counter() - begin):
        done += 1
        if done % 2:
            epochs.append(epoch(model, encoded, collate, done))
        passes.append(timed(lambda: importance_on(model, encoded, collate, examples=None)))
        if not done % 2:
            epochs.append(epoch(model, encoded, collate, done))
        progress(f"importance, {kind}, round {done}: pass {passes[-1]:.1f} s, epoch {epochs[-1]:.1f} s")
    return {
        "kind": "importance",
        "texts": kind,
        "examples": count,
        "rounds": done,
        "seconds": {"pass": round(median(passes), 3), "epoch": round(median(epochs), 3)},
        "ratio": round(median(one / other for one, other in zip(passes, epochs, strict=True)), 4),
        **about(options),
    }


class Stepper:
    """A model of two tasks with an optimiser; with important heads only if a mode is given."""

    def __init__(self, mode: str | None) -> None:
        """Both tasks alike; 30 % of the heads, at random, for each."""
        self.model = MultiTask({"one": classifier(), "two": classifier()}).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=2e-5, fused=True)
        random = np.random.default_rng(SEED)
        heads = {task: random.permutation(np.arange(72) < 21).reshape(6, 12) for task in self.model.tasks}
        own = self.model.own_parameters()
        self.updates = None if mode is None else HeadUpdates(self.model, heads, mode=mode, own=own)

    def step(self, task: str, batch: dict[str, torch.Tensor]) -> None:
        """One update."""
        if self.updates is not None:
            self.updates.on(task)
        self.model(task=task, **batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if self.updates is not None:
            self.updates.before_step(self.optimiser)
        self.optimiser.step()
        if self.updates is not None:
            self.updates.after_step(self.optimiser)
        self.optimiser.zero_grad()


def step_row(shape: tuple[int, int], mode: str, steps: int, options: argparse.Namespace) -> Row:
    torch.manual_seed(SEED)
    plain, ours = Stepper(None), Stepper(mode)
    seconds: dict[str, list[float]] = {"plain": [], "iat": []}
    for number in range(steps + 2):
        ids = torch.randint(1000, 20000, shape)
        batch = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": torch.randint(0, 2, shape[:1]),
        }
        task = plain.model.tasks[number % 2]
        order = [("plain", plain), ("iat", ours)]
        for name, stepper in order if number // 2 % 2 else reversed(order):
            seconds[name].append(timed(lambda: stepper.step(task, batch)))  # noqa: B023
    medians = {name: median(values[2:]) for name, values in seconds.items()}  # the first ones warm up
    ratios = [one / other for one, other in zip(seconds["iat"][2:], seconds["plain"][2:], strict=True)]
    progress(f"iat, {shape[0]} x {shape[1]}, {mode}: {medians['iat']:.3f} s, plain {medians['plain']:.3f} s")
    return {
        "kind": "iat",
        "mode": mode,
        "examples": shape[0],
        "tokens": shape[1],
        "steps": steps,
        "seconds": {name: round(value, 4) for name, value in medians.items()},
        "ratio": round(median(ratios), 4),
        **about(options),
    }


def bars_of(rows: list[Row]) -> list[Bar]:
    bars = [
        make_bar(f"importance, {row['texts']} pairs: pass / epoch", row["ratio"], IMPORTANCE_LIMIT)
        for row in rows
        if row["kind"] == "importance"
    ]
    return bars + [
        make_bar(f"iat {row['mode']}, {row['examples']} x {row['tokens']}: step / plain", row["ratio"], STEP_LIMIT)
        for row in rows
        if row["kind"] == "iat"
    ]


def main() -> int:
    options = read_options()
    size = "quick" if options.quick else "full"
    counts, plan = SIZES[size]
    shapes, steps = STEPS[size]
    parts = options.parts or ["importance", "curve", "iat"]
    rows: list[Row] = []
    bars: list[Bar] = []
    try:
        if options.threads < 1:
            raise UsageError("--threads must be at least 1.")
        torch.set_num_threads(options.threads)
        transformers_logging.disable_progress_bar()
        if "importance" in parts:
            rows += [importance_row(kind, count, plan, options) for kind, count in counts.items()]
        if "iat" in parts:
            rows += [step_row(shape, mode, steps, options) for shape in shapes for mode in MODES]
        bars = bars_of(rows)
        if "curve" in parts:
            curve, more = curve_rows(options.quick, options.threads)
            rows, bars = [*rows, *curve], [*bars, *more]
    except (UsageError, HeadwiseError) as error:
        fail(str(error), 2)
    return finish({"rows": rows, "bars": bars}, options.check)


if __name__ == "__main__":
    sys.exit(main())

"""What a pruning curve costs: K head masks in one batched pass beside K separate passes.

The masks are those of a curve on MiniLM-L6: 20, 30 and 40 % of its 72 heads, nested. A third are ranked, by the
importances of three tasks (half of their variance in common); two thirds are random controls, which share least. A
separate pass is `predict_logits` under gates of 0, with examples of similar length together and 64 at a time; the
batched pass is `predict_under_masks`, told the same 64. Both give the same outputs, which is checked.

A round is one batched pass and separate passes under a third of the masks, in turns; a separate pass costs the same
under every mask, so these count three times. What counts is the median over rounds of the ratio within the round.

The pairs are generated, with the lengths of SICK (short) and of RTE (long): see benchmarks/ssa.py.
"""

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from harness import Bar, UsageError, machine, make_bar, progress, versions
from measure import SEED, Plan, Row, code_version
from ssa import LENGTH, texts_of

from headwise.attention import gate
from headwise.data import Collator, Encoded, encode
from headwise.heads.pruning import exact_masks, head_count, random_masks
from headwise.training import find_encoder, load_classifier, predict_logits
from headwise.training.predict import predict_under_masks

LIMIT = round(1 / 1.5, 4)  # 1.5 times faster
BATCH, SHARE = 64, 3
PERCENT = (20, 30, 40)
TOLERANCE = 1e-4
# examples by kind, tasks whose heads are ranked, rounds
SIZES = {
    "full": ({"short": 256, "long": 192}, 3, Plan(3, 3)),
    "quick": ({"short": 96, "long": 96}, 1, Plan(1, 1)),
}


@dataclass(frozen=True)
class Curve:
    """A model, examples, and the masks of a curve."""

    model: Any
    encoded: Encoded
    collate: Collator
    masks: np.ndarray  # [K,N,H]

    def batched(self) -> np.ndarray:
        return predict_under_masks(self.model, self.encoded, self.collate, self.masks, batch=BATCH)

    def separate(self, chosen: range) -> np.ndarray:
        found = []
        for number in chosen:
            with gate(self.model, torch.from_numpy(~self.masks[number]).float()):
                found.append(predict_logits(self.model, self.encoded, self.collate, batch=BATCH))
        return np.stack(found)


def make_masks(shape: tuple[int, int], tasks: int) -> np.ndarray:
    """Three masks per task and six random ones beside them."""
    random = np.random.default_rng(SEED)
    counts = [head_count(shape[0] * shape[1], percent) for percent in PERCENT]
    common = random.normal(size=shape)
    scores = [common + random.normal(size=shape) for _ in range(tasks)]
    ranked = [exact_masks(lambda mask, own=own: own, counts) for own in scores]
    controls = random_masks(shape, counts, 2 * tasks, SEED)  # by count, then by repeat
    return np.array([mask for several in (*ranked, *controls) for mask in several])


def make_curve(kind: str, count: int, tasks: int) -> Curve:
    encoder = find_encoder("builtin:minilm-l6")
    model: Any = load_classifier(encoder, labels=("yes", "no"), head="cls", seed=SEED)
    collate = Collator.of(encoder.tokenizer, "classification", max_length=LENGTH)
    shape = model.config.num_hidden_layers, model.config.num_attention_heads
    return Curve(model, encode(texts_of(kind, count), encoder.tokenizer, LENGTH), collate, make_masks(shape, tasks))


def run_round(curve: Curve, number: int) -> tuple[float, float]:
    """Seconds of the batched pass and of all separate passes; the latter come first in every other round."""
    chosen = range(number % SHARE, len(curve.masks), SHARE)
    seconds, found = {}, {}
    passes = {"batched": curve.batched, "separate": lambda: curve.separate(chosen)}
    for name in sorted(passes, reverse=bool(number % 2)):
        begin = time.perf_counter()
        found[name] = passes[name]()
        seconds[name] = time.perf_counter() - begin
    difference = np.abs(found["batched"][list(chosen)] - found["separate"]).max()
    if difference > TOLERANCE:
        raise UsageError(f"the batched pass differs from separate passes by {difference:.1e}: the code is broken.")
    return seconds["batched"], seconds["separate"] * SHARE


def measure(kind: str, count: int, tasks: int, plan: Plan, threads: int) -> Row:
    curve = make_curve(kind, count, tasks)
    curve.separate(range(1))  # the first pass is slower
    batched, separate = [], []
    begin, done = time.perf_counter(), 0
    while plan.wants_another(done, time.perf_counter() - begin):
        one, other = run_round(curve, done)
        batched.append(one)
        separate.append(other)
        done += 1
        progress(f"curve, {kind}, round {done}: batched {one:.1f} s, separate {other:.1f} s")
    lengths = curve.encoded.lengths
    return {
        "kind": "curve",
        "texts": kind,
        "examples": count,
        "masks": len(curve.masks),
        "threads": threads,
        "rounds": done,
        "tokens": {"mean": round(float(lengths.mean()), 1), "longest": int(lengths.max())},
        "seconds": {"batched": round(median(batched), 3), "separate": round(median(separate), 3)},
        "ratio": round(median(one / other for one, other in zip(batched, separate, strict=True)), 4),
        "settings": versions(),
        "machine": machine(),
        "code": code_version(),
    }


def curve_rows(quick: bool, threads: int) -> tuple[list[Row], list[Bar]]:
    """A row for short and one for long pairs, and a bar for each."""
    torch.set_num_threads(threads)
    counts, tasks, plan = SIZES["quick" if quick else "full"]
    rows = [measure(kind, count, tasks, plan, threads) for kind, count in counts.items()]
    return rows, [
        make_bar(f"curve, {row['texts']} pairs, {row['masks']} masks: batched / separate", row["ratio"], LIMIT)
        for row in rows
    ]

"""What padding costs per epoch: our loader (batches of similar length, little padding) beside fixed padding to 256.

    python benchmarks/epoch.py                    512 pairs, three rounds, about four minutes on two cores
    python benchmarks/epoch.py --quick --check    96 pairs in under a minute; exit 1 if a bar is missed

Both train on the same examples, equally many per step, from the same weights: a randomly initialised BERT of MiniLM's
shape, forward + backward + AdamW. A round is one epoch with either loader, in turns; what counts is the median over
rounds of the ratio within the round. The input pipeline is all that happens outside the training steps: tokenising,
choosing and padding batches. The tokenising is charged in full to this one epoch, though a real run does it once for
all its epochs.

The pairs are generated with the lengths of SICK: in its train part, measured with the same tokenizer, pairs have 23.0
tokens on average with a standard deviation of 7.0; 5 % have 14 or fewer, 5 % have 36 or more, the longest has 55. Here
each pair has a rate from a Gamma distribution of shape 4.1 and mean 5.7, each of its two sentences 4 + Poisson(rate)
words of one token, one word in 24 carries a full stop, and the tokenizer adds three special tokens.

stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from harness import Bar, UsageError, fail, finish, machine, make_bar, progress, versions
from measure import CLASSES, SEED, SHAPES, Plan, Point, Row, Step, code_version
from step import Parser
from torch.utils.data import DataLoader

FIXED_LENGTH = 256  # what the authors' released code pads to
RATIO_LIMIT = 0.2  # five times faster
PIPELINE_LIMIT = 0.03
PADDING = {"ours": "dynamic", "fixed": "fixed"}
SIZES = {"full": (512, Plan(3, 3)), "quick": (96, Plan(2, 3, 25.0))}  # examples, rounds
SHORTEST_SENTENCE = 4
RATE_SHAPE, RATE_MEAN = 4.1, 5.7
STOPS = 1 / 24


@dataclass(frozen=True)
class Work:
    """What one epoch goes over."""

    split: Any
    tokenizer: Any
    shape: str

    @property
    def batch(self) -> int:
        return SHAPES[self.shape].batch


@dataclass(frozen=True)
class Epoch:
    """What one epoch took."""

    seconds: float
    pipeline: float  # seconds of them outside the training steps
    positions: int  # tokens and padding that went through the model


def read_options() -> argparse.Namespace:
    parser = Parser(description="One epoch with our loader beside one with fixed padding to 256.")
    parser.add_argument(
        "--shape", choices=SHAPES, default="minilm", help="default: minilm; tiny only tries the program"
    )
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--quick", action="store_true", help="few examples and rounds: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    return parser.parse_args()


def make_work(examples: int, shape: str) -> Work:
    """Pairs of random words with the lengths of SICK, random labels, and MiniLM's tokenizer."""
    try:
        from headwise.data import Split
        from headwise.errors import InputError
        from headwise.training.encoders import find_encoder
    except ImportError as error:
        raise UsageError(f"headwise cannot be used ({error}): install it with 'pip install -e .'.") from None
    try:
        tokenizer = find_encoder("builtin:minilm-l6").tokenizer  # cuts and pads only when asked to
    except InputError as error:
        raise UsageError(str(error)) from None
    random = np.random.default_rng(SEED)
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha())
    rates = random.gamma(RATE_SHAPE, RATE_MEAN / RATE_SHAPE, examples)
    texts = tuple((sentence(random, rate, words), sentence(random, rate, words)) for rate in rates)
    return Work(Split(texts, tuple(random.integers(0, CLASSES, examples).tolist())), tokenizer, shape)


def sentence(random: np.random.Generator, rate: float, words: list[str]) -> str:
    chosen = random.choice(words, SHORTEST_SENTENCE + random.poisson(rate))
    return " ".join(f"{word}." if random.random() < STOPS else str(word) for word in chosen)


def make_loader(work: Work, variant: str, epoch: int) -> DataLoader[Any]:
    """Tokenise, and prepare the batches of an epoch."""
    from headwise.data import Collator, encode
    from headwise.training.run_trainer import LengthBuckets

    encoded = encode(work.split, work.tokenizer, FIXED_LENGTH)
    sampler = LengthBuckets(encoded.lengths, work.batch, SEED, by_length=variant == "ours")
    sampler.set_epoch(epoch)
    collate = Collator.of(work.tokenizer, "classification", padding=PADDING[variant], max_length=FIXED_LENGTH)
    return DataLoader(encoded, batch_sampler=sampler, collate_fn=collate)


def run_epoch(step: Step, work: Work, variant: str, number: int) -> Epoch:
    start, training, positions = time.perf_counter(), 0.0, 0
    vocabulary = SHAPES[work.shape].vocabulary
    for batch in make_loader(work, variant, number):
        begin = time.perf_counter()
        batch["input_ids"].clamp_(max=vocabulary - 1)  # changes something for tiny only, which knows few words
        step.take(batch)
        training += time.perf_counter() - begin
        positions += batch["input_ids"].numel()
    seconds = time.perf_counter() - start
    return Epoch(seconds, seconds - training, positions)


def run_rounds(work: Work, plan: Plan, threads: int) -> dict[str, list[Epoch]]:
    """Epochs of both loaders in turns; each begins half of the rounds."""
    torch.set_num_threads(threads)
    point = Point(work.shape, FIXED_LENGTH, 0.1, threads=threads)
    steps = {variant: Step(point, "plain") for variant in PADDING}  # they differ in their batches only
    few = Work(work.split.subset(range(work.batch)), work.tokenizer, work.shape)
    for variant, step in steps.items():
        run_epoch(step, few, variant, 0)  # the first step is slower, and not measured
    epochs: dict[str, list[Epoch]] = {variant: [] for variant in steps}
    start, done = time.perf_counter(), 0
    while plan.wants_another(done, time.perf_counter() - start):
        for variant in list(steps)[:: 1 if done % 2 == 0 else -1]:
            epochs[variant].append(run_epoch(steps[variant], work, variant, done))
        done += 1
        took = ", ".join(f"{variant} {each[-1].seconds:.1f} s" for variant, each in epochs.items())
        progress(f"round {done}: {took}")
    return epochs


def make_row(work: Work, epochs: dict[str, list[Epoch]], threads: int) -> Row:
    ratios = [ours.seconds / fixed.seconds for ours, fixed in zip(epochs["ours"], epochs["fixed"], strict=True)]
    shares = {variant: median(each.pipeline / each.seconds for each in found) for variant, found in epochs.items()}
    size = {"shape": work.shape, "examples": len(work.split), "batch": work.batch, "threads": threads}
    return {
        "kind": "epoch",
        **size,
        "rounds": len(ratios),
        "tokens": token_counts(work),
        "positions": {variant: found[0].positions for variant, found in epochs.items()},
        "seconds": {variant: round(median(each.seconds for each in found), 3) for variant, found in epochs.items()},
        "ratio": round(median(ratios), 4),
        "round_ratios": [round(ratio, 4) for ratio in ratios],
        "pipeline_share": {variant: round(share, 4) for variant, share in shares.items()},
        "settings": versions(),
        "machine": machine(),
        "code": code_version(),
    }


def token_counts(work: Work) -> dict[str, float]:
    from headwise.data import encode

    lengths = encode(work.split, work.tokenizer, FIXED_LENGTH).lengths
    found = {"mean": lengths.mean(), "deviation": lengths.std(), "shortest": lengths.min(), "longest": lengths.max()}
    return {name: round(float(value), 2) for name, value in found.items()}


def bars_of(row: Row) -> list[Bar]:
    if row["shape"] == "tiny":
        return []
    return [
        make_bar(f"epoch {row['shape']}: ours / fixed padding to {FIXED_LENGTH}", row["ratio"], RATIO_LIMIT),
        make_bar(f"epoch {row['shape']}: input pipeline / ours", row["pipeline_share"]["ours"], PIPELINE_LIMIT),
    ]


def main() -> int:
    options = read_options()
    examples, plan = SIZES["quick" if options.quick else "full"]
    try:
        if options.threads < 1:
            raise UsageError("--threads must be at least 1.")
        work = make_work(examples, options.shape)
    except UsageError as error:
        fail(str(error), 2)
    row = make_row(work, run_rounds(work, plan, options.threads), options.threads)
    progress(f"ours / fixed {row['ratio']}, input pipeline {row['pipeline_share']['ours']:.1%} of our epoch")
    return finish({"rows": [row], "bars": bars_of(row)}, options.check)


if __name__ == "__main__":
    sys.exit(main())

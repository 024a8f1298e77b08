"""How fast pairs of claims and papers are scored: `Reranker.predict` beside `CrossEncoder.predict`.

    python benchmarks/rerank.py                     four points, about fifteen minutes on two cores
    python benchmarks/rerank.py --quick --check     one small point in under a minute; exit 1 if a bar is missed

Both load the same folder (MiniLM-L6 with a seeded head of one logit) and score the same pairs, tokenising included.
CrossEncoder takes 32 pairs at a time, its default, and 8, 16 and 64 as well: the best of these is a second measure. In
every round each variant goes once over all pairs; what counts is the median over rounds of the ratio within the round.
`difference` is the largest between a score of ours and of CrossEncoder's.

The pairs are generated: claims of 8 to 24 words; abstracts of 240 to 360 words, cut at 256 tokens with their claim
(`long`, as SciFact), or of 20 to 300 words (`mixed`). Words are whole tokens, so a word is a token.

A bar is seconds of ours / seconds of CrossEncoder with its best batch size, at most 1 / 1.3: at least 1.3 times as many
pairs per second. stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from harness import Bar, UsageError, fail, finish, machine, make_bar, progress, versions
from measure import SEED, Row, code_version
from step import Parser

MAX_LENGTH = 256
CLAIM_WORDS = (8, 24)
PAPER_WORDS = {"long": (240, 360), "mixed": (20, 300)}
DEFAULT, BATCHES = 32, (8, 16, 32, 64)
LIMIT, DIFFERENCE = round(1 / 1.3, 4), 1e-5
Pairs = list[tuple[str, str]]
Variant = Callable[[], np.ndarray]


@dataclass(frozen=True)
class Point:
    """One condition under which both are timed."""

    lengths: str
    threads: int
    pairs: int

    @property
    def name(self) -> str:
        return f"{self.lengths} {self.threads} thread{'s' if self.threads > 1 else ''}"


def read_options() -> argparse.Namespace:
    parser = Parser(description="Pairs per second of our re-ranker and of CrossEncoder.")
    parser.add_argument("--lengths", nargs="+", choices=PAPER_WORDS, default=list(PAPER_WORDS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--pairs", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="long, 2 threads, 48 pairs: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    return parser.parse_args()


def settle(options: argparse.Namespace) -> None:
    if options.quick:
        options.lengths, options.threads, options.pairs, options.rounds = ["long"], [2], 48, 3
    demands = [
        (options.pairs >= 1 and options.rounds >= 1, "--pairs and --rounds must be at least 1."),
        (all(count >= 1 for count in options.threads), "--threads must be at least 1."),
    ]
    for satisfied, sentence in demands:
        if not satisfied:
            raise UsageError(sentence)


def save_model(folder: Path) -> None:
    from headwise.training import find_encoder, load_classifier, save_classifier
    from headwise.training.saving import prepare_reranker

    encoder = find_encoder("builtin:minilm-l6")
    model = load_classifier(encoder, labels=(), head="cls", seed=SEED, kind="ranking")
    with torch.no_grad():
        model.classifier.weight.mul_(50)  # a trained head's logits lie some units apart, a fresh one's do not
    prepare_reranker(model, encoder.tokenizer, MAX_LENGTH)
    save_classifier(model, encoder.tokenizer, folder, "cls")


def make_pairs(tokenizer: Any, point: Point) -> Pairs:
    """Each claim with twenty papers."""
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 2)
    chance = random.Random(SEED)

    def text(shortest: int, longest: int) -> str:
        return " ".join(chance.choices(words, k=chance.randint(shortest, longest)))

    claims = [text(*CLAIM_WORDS) for _ in range(-(-point.pairs // 20))]
    return [(claims[number // 20], text(*PAPER_WORDS[point.lengths])) for number in range(point.pairs)]


def make_variants(folder: Path, point: Point, options: argparse.Namespace) -> dict[str, Variant]:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        raise UsageError("CrossEncoder cannot be used: pip install 'headwise[rerank]'.") from None
    from headwise.retrieval.reranker import Reranker

    reranker, theirs = Reranker.load(folder), CrossEncoder(str(folder), device="cpu")
    pairs = make_pairs(reranker.tokenizer, point)
    batches = (DEFAULT, 8) if options.quick else BATCHES
    found: dict[str, Variant] = {
        f"CrossEncoder {batch}": partial(theirs.predict, pairs, batch_size=batch, show_progress_bar=False)
        for batch in batches
    }
    found["ours"] = partial(reranker.predict, pairs)
    if not options.quick:
        found["ours bf16"] = partial(reranker.predict, pairs, precision="bf16")
    return found


def measure(folder: Path, point: Point, options: argparse.Namespace) -> Row:
    torch.set_num_threads(point.threads)
    variants = make_variants(folder, point, options)
    scores = {name: variant() for name, variant in variants.items()}  # warm-up, unmeasured
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(options.rounds):
        order = list(variants) if number % 2 == 0 else list(variants)[::-1]  # cancels drift of the machine
        for name in order:
            begin = time.perf_counter()
            variants[name]()
            seconds[name].append(time.perf_counter() - begin)
    return row_of(point, seconds, scores) | {"code": code_version(), "machine": machine(), **versions()}


def row_of(point: Point, seconds: dict[str, list[float]], scores: dict[str, np.ndarray]) -> Row:
    """Pairs per second, and ratios of ours to CrossEncoder with its default batch and with its best."""
    default = f"CrossEncoder {DEFAULT}"
    best = min((name for name in seconds if name.startswith("CrossEncoder")), key=lambda name: median(seconds[name]))
    ours = [name for name in seconds if name.startswith("ours")]
    return {
        "point": asdict(point),
        "name": point.name,
        "pairs_per_second": {name: round(point.pairs / median(each), 2) for name, each in seconds.items()},
        "times_default": {name: ratio(seconds[default], seconds[name]) for name in ours},
        "best": best,
        "times_best": {name: ratio(seconds[best], seconds[name]) for name in ours},
        "difference": {name: float(np.abs(scores[name] - scores[default]).max()) for name in ours},
        "spread_of_scores": float(np.ptp(scores[default])),
        "rounds": len(seconds["ours"]),
    }


def ratio(theirs: list[float], ours: list[float]) -> float:
    return round(median(one / other for one, other in zip(theirs, ours, strict=True)), 4)


def bars_of(row: Row) -> list[Bar]:
    against = {f"CrossEncoder {DEFAULT}": row["times_default"], f"the best, {row['best']}": row["times_best"]}
    bars = [
        make_bar(f"{row['name']}: seconds of ours / {name}", round(1 / times["ours"], 4), LIMIT)
        for name, times in against.items()
    ]
    return [*bars, make_bar(f"{row['name']}: difference of scores", row["difference"]["ours"], DIFFERENCE)]


def main() -> int:
    options = read_options()
    try:
        settle(options)
        chosen = product(options.lengths, options.threads)
        with TemporaryDirectory() as folder:
            save_model(Path(folder))
            rows = []
            for lengths, threads in chosen:
                rows.append(measure(Path(folder), Point(lengths, threads, options.pairs), options))
                progress(f"{rows[-1]['name']}: {rows[-1]['pairs_per_second']}, times {rows[-1]['times_default']}")
    except UsageError as error:
        fail(str(error), 2)
    bars = [bar for row in rows for bar in bars_of(row)]
    return finish({"rows": rows, "bars": bars}, options.check)


if __name__ == "__main__":
    sys.exit(main())

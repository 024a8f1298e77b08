"""How fast papers are embedded: `Embedder.embed` beside `SentenceTransformer.encode`.

    python benchmarks/embed.py                     four points, some ten minutes on two cores
    python benchmarks/embed.py --quick --check     one small point in under 50 s; exit 1 if a bar is missed

Both load MiniLM-L6 (builtin:minilm-l6), read at most 192 tokens of the same texts in float32, tokenising included, and
give unit vectors. SentenceTransformer takes 32 texts at a time, its default, and 8 and 64 as well: the best of these is
a second measure. In every round each variant goes once over all texts, forwards and backwards by turns; what counts is
the median over rounds of the ratio within the round. `difference` is the largest between two numbers of their vectors.

The texts are generated: abstracts of 160 to 360 words (`long`: most are cut, as in SciFact), or of 20 to 300 (`mixed`).
Words are whole tokens, so a word is a token. The variant bf16 computes matrix products in bfloat16: no bar counts it.

The bar: with its default batch SentenceTransformer takes at least 1.5 times as long, so ours / its is at most 1 / 1.5.
stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch
from harness import Bar, UsageError, fail, finish, machine, make_bar, progress, versions
from measure import SEED, Row, code_version
from step import Parser

from headwise.retrieval.embedder import BUILTIN, LENGTH, Embedder
from headwise.training.encoders import builtin_folder

WORDS = {"long": (160, 360), "mixed": (20, 300)}
DEFAULT, BATCHES = 32, (8, 32, 64)
AIM, DIFFERENCE = 1.5, 1e-5
Variant = Callable[[], np.ndarray]


def read_options() -> argparse.Namespace:
    parser = Parser(description="Texts per second of our embedder and of SentenceTransformer.")
    parser.add_argument("--lengths", nargs="+", choices=WORDS, default=list(WORDS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="long, 2 threads, 64 texts: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    return parser.parse_args()


def settle(options: argparse.Namespace) -> None:
    if options.quick:
        options.lengths, options.threads, options.texts, options.rounds = ["long"], [2], 64, 3
    if min(options.texts, options.rounds, *options.threads) < 1:
        raise UsageError("--texts, --rounds and --threads must be at least 1.")


def make_texts(tokenizer: Any, lengths: str, count: int) -> list[str]:
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 2)
    chance = random.Random(SEED)
    return [" ".join(chance.choices(words, k=chance.randint(*WORDS[lengths]))) for _ in range(count)]


def make_variants(lengths: str, options: argparse.Namespace) -> dict[str, Variant]:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UsageError("SentenceTransformer cannot be used: pip install 'headwise[rerank]'.") from None
    ours, theirs = Embedder.load(), SentenceTransformer(str(builtin_folder(BUILTIN)), device="cpu")
    theirs.max_seq_length = LENGTH
    texts = make_texts(ours.tokenizer, lengths, options.texts)
    encode = partial(theirs.encode, texts, normalize_embeddings=True, show_progress_bar=False)
    variants: dict[str, Variant] = {
        f"SentenceTransformer {batch}": partial(encode, batch_size=batch)
        for batch in ((DEFAULT,) if options.quick else BATCHES)
    }
    variants["ours"] = partial(ours.embed, texts)
    if not options.quick:
        variants["ours bf16"] = partial(Embedder.load(precision="bf16").embed, texts)
    return variants


def measure(lengths: str, threads: int, options: argparse.Namespace) -> Row:
    torch.set_num_threads(threads)
    variants = make_variants(lengths, options)
    vectors = {name: variant() for name, variant in variants.items()}  # warm-up, unmeasured
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(options.rounds):
        for name in list(variants)[:: 1 if number % 2 == 0 else -1]:  # cancels drift of the machine
            begin = time.perf_counter()
            variants[name]()
            seconds[name].append(time.perf_counter() - begin)
    default = f"SentenceTransformer {DEFAULT}"
    best = min((name for name in seconds if name.startswith("Sent")), key=lambda name: median(seconds[name]))
    ours = [name for name in seconds if name.startswith("ours")]
    return {
        "name": f"{lengths} {threads} thread{'s' if threads > 1 else ''}",
        "texts": options.texts,
        "texts_per_second": {name: round(options.texts / median(each), 2) for name, each in seconds.items()},
        "times_default": {name: ratio(seconds[default], seconds[name]) for name in ours},
        "best": best,
        "times_best": {name: ratio(seconds[best], seconds[name]) for name in ours},
        "difference": {name: float(np.abs(vectors[name] - vectors[default]).max()) for name in ours},
        "rounds": options.rounds,
        "load": [round(each, 1) for each in os.getloadavg()],
        "code": code_version(),
        "machine": machine(),
        **versions(),
    }


def ratio(theirs: list[float], ours: list[float]) -> float:
    return round(median(one / other for one, other in zip(theirs, ours, strict=True)), 4)


def bars_of(row: Row) -> list[Bar]:
    share = round(1 / row["times_default"]["ours"], 4)
    name = f"{row['name']}: seconds of ours / SentenceTransformer (1 / {AIM})"
    difference = make_bar(f"{row['name']}: difference of vectors", row["difference"]["ours"], DIFFERENCE)
    return [make_bar(name, share, round(1 / AIM, 4)), difference]


def main() -> int:
    options = read_options()
    try:
        settle(options)
        rows = []
        for lengths, threads in product(options.lengths, options.threads):
            rows.append(measure(lengths, threads, options))
            progress(f"{rows[-1]['name']}: {rows[-1]['texts_per_second']}, times {rows[-1]['times_default']}")
    except UsageError as error:
        fail(str(error), 2)
    return finish({"rows": rows, "bars": [bar for row in rows for bar in bars_of(row)]}, options.check)


if __name__ == "__main__":
    sys.exit(main())

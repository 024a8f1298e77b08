"""What pruning heads buys: MiniLM-L6 without some of its heads beside the whole model.

    python benchmarks/prune.py                    about two minutes on two cores
    python benchmarks/prune.py --quick --check    under 50 s; exit 1 if a bar is missed

Inference is a forward pass of 16 x 128 tokens, training a step on the same tokens: forward, backward and AdamW, with
dropout. The heads that go are a share of every layer's (25, 50, 75 %), or all of every second layer (layers). Each is
taken away (pruned, `hw.prune`) and silenced (masked, `hw.mask`). None is the noise of the measurement: another copy of
the whole model, and gates of 1. A round is one turn of everybody; what counts is the median over rounds of the ratio to
the whole model within the round.

stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import torch
from harness import Bar, UsageError, fail, finish, machine, make_bar, progress, versions
from measure import SEED, Plan, Row, code_version
from step import Parser
from transformers.utils import logging as transformers_logging

from headwise.attention import gate, mask, prune
from headwise.errors import HeadwiseError
from headwise.training import find_encoder, load_classifier

BATCH, LENGTH = 16, 128
LAYERS, HEADS = 6, 12
LIMIT = 1.0
PLANS = {"full": Plan(5, 25, 45.0), "quick": Plan(2, 4, 6.0)}
Choice = dict[int, list[int]]
CHOICES: dict[str, Choice] = {
    "none": {},
    **{f"{share} %": {layer: [*range(HEADS * share // 100)] for layer in range(LAYERS)} for share in (25, 50, 75)},
    "layers": {layer: [*range(HEADS)] for layer in range(1, LAYERS, 2)},
}
# With half of the heads gone, in one way or the other, nothing may be slower than with all of them.
JUDGED = ("50 %", "layers")


def read_options() -> argparse.Namespace:
    parser = Parser(description="The time that pruned heads save.")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--quick", action="store_true", help="few rounds: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    return parser.parse_args()


def make_batch(model: Any) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(1000, model.config.vocab_size, (BATCH, LENGTH), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.arange(BATCH) % 2}


def silenced(model: Any, heads: Choice) -> AbstractContextManager[None]:
    return mask(model, heads) if heads else gate(model, torch.ones(LAYERS, HEADS))


class Worker:
    """One model at one kind of work, with some heads silent or none."""

    def __init__(self, model: Any, batch: dict[str, torch.Tensor], training: bool, silent: Choice | None) -> None:
        self.model, self.batch, self.training = model.train(training), batch, training
        self.context: Callable[[], AbstractContextManager[None]] = (
            nullcontext if silent is None else lambda: silenced(self.model, silent)
        )
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def turn(self) -> float:
        """Seconds of one pass or step; hanging the mask on the model is not counted."""
        with self.context():
            begin = time.perf_counter()
            if self.training:
                self.model(**self.batch).loss.backward()
                self.optimiser.step()
                self.optimiser.zero_grad()
            else:
                with torch.inference_mode():
                    self.model(**self.batch)
            return time.perf_counter() - begin


def workers_of(model: Any, training: bool) -> dict[str, Worker]:
    batch = make_batch(model)
    workers = {"whole": Worker(copy.deepcopy(model), batch, training, None)}
    for name, heads in CHOICES.items():
        pruned = copy.deepcopy(model)
        if heads:
            prune(pruned, heads)
        workers[f"pruned {name}"] = Worker(pruned, batch, training, None)
        workers[f"masked {name}"] = Worker(copy.deepcopy(model), batch, training, heads)
    return workers


def run_rounds(workers: dict[str, Worker], plan: Plan) -> dict[str, list[float]]:
    for worker in workers.values():
        worker.turn()  # the first turn is slower
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    begin, done = time.perf_counter(), 0
    while plan.wants_another(done, time.perf_counter() - begin):
        names = list(workers) if done % 2 == 0 else list(workers)[::-1]  # alternating cancels drift of the machine
        for name in names:
            seconds[name].append(workers[name].turn())
        done += 1
    return seconds


def difference(model: Any, heads: Choice) -> float:
    """How far the logits of the pruned model are from those of the masked one."""
    batch, pruned = make_batch(model), copy.deepcopy(model).eval()
    if not heads:
        return 0.0
    with torch.inference_mode():
        with mask(pruned, heads):
            expected = pruned(**batch).logits
        found = prune(pruned, heads)(**batch).logits
    return float((found - expected).abs().max())


def size(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def measure(model: Any, work: str, options: argparse.Namespace) -> list[Row]:
    workers = workers_of(model, work == "training")
    seconds = run_rounds(workers, PLANS["quick" if options.quick else "full"])
    whole = seconds["whole"]
    rows = []
    for name, heads in CHOICES.items():
        times = {way: seconds[f"{way} {name}"] for way in ("pruned", "masked")}
        rounds = {way: [one / other for one, other in zip(those, whole, strict=True)] for way, those in times.items()}
        row = {
            "kind": "prune",
            "work": work,
            "heads": name,
            "pruned_heads": sum(map(len, heads.values())),
            "removed_parameters": size(model) - size(workers[f"pruned {name}"].model),
            "parameters": size(model),
            "batch": [BATCH, LENGTH],
            "threads": options.threads,
            "rounds": len(whole),
            "seconds": {"whole": round(median(whole), 4)}
            | {way: round(median(those), 4) for way, those in times.items()},
            "ratio": {way: round(median(those), 4) for way, those in rounds.items()},
            "logit_difference": difference(model, heads),
            "settings": versions(),
            "machine": machine(),
            "code": code_version(),
        }
        rows.append(row)
        progress(
            f"{work}, {name}: pruned {row['ratio']['pruned']:.2f}, masked {row['ratio']['masked']:.2f} of the whole"
        )
    return rows


def bars_of(rows: list[Row]) -> list[Bar]:
    return [
        make_bar(f"{row['work']} without {row['heads']}: pruned / whole", row["ratio"]["pruned"], LIMIT)
        for row in rows
        if row["heads"] in JUDGED
    ]


def main() -> int:
    options = read_options()
    try:
        if options.threads < 1:
            raise UsageError("--threads must be at least 1.")
        torch.set_num_threads(options.threads)
        transformers_logging.disable_progress_bar()
        encoder = find_encoder("builtin:minilm-l6")
        model: Any = load_classifier(encoder, labels=("yes", "no"), head="cls", seed=SEED)
        rows = [row for work in ("inference", "training") for row in measure(model, work, options)]
    except (UsageError, HeadwiseError) as error:
        fail(str(error), 2)
    return finish({"rows": rows, "bars": bars_of(rows)}, options.check)


if __name__ == "__main__":
    sys.exit(main())

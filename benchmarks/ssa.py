"""What labelling tokens costs: one relabelling pass of SSA beside one epoch of training on the same examples.

    python benchmarks/ssa.py                    256 long and 768 short pairs, three rounds, some minutes on two cores
    python benchmarks/ssa.py --quick --check    fewer of both in under a minute; exit 1 if a bar is missed

A pass is the worst that can be: every example is asked about, every one is answered rightly (the labels are the model's
own answers), so that all are probed as well; the labels of all tokens come out. An epoch is forward, backward and AdamW
with the token loss, in batches of 32 of similar length, with dropout. Both use MiniLM-L6 with the hybrid model. A round
is one of each, in turns; what counts is the median over rounds of the ratio within the round.

The reference column is the design of the authors' released code: originals and probes of all examples, padded to 128,
in batches of 32, in the order of the data; forward passes only, without its list scans, which are quadratic. It is
measured once.

The pairs are generated. Short ones have the lengths of SICK (benchmarks/epoch.py), long ones about those of RTE: in its
train part, measured with the same tokenizer and cut at 128, pairs have 66.6 tokens on average, 5 % have 29 or fewer and
13 % have 128. Here a premise has 17 + Gamma(1.5, mean 36) words and a hypothesis 4 + Poisson(6).

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
from epoch import make_work
from epoch import sentence as short_sentence
from harness import Bar, UsageError, fail, finish, machine, make_bar, progress, versions
from measure import SEED, Plan, Row, code_version
from step import Parser
from torch.utils.data import DataLoader
from transformers import TrainingArguments
from transformers.utils import logging as transformers_logging

from headwise.data import Collator, Encoded, Split, encode
from headwise.errors import HeadwiseError
from headwise.ssa import SSA, self_supervise
from headwise.training import find_encoder, load_classifier, predict_logits
from headwise.training.predict import tokens_at_a_time
from headwise.training.relabelling import Probing, SSACallback, TokenLabelCollator, WithTokenLabels
from headwise.training.run_trainer import LengthBuckets

LIMIT = 0.5
LENGTH, BATCH = 128, 32
SIZES = {"full": ({"short": 768, "long": 256}, Plan(3, 3)), "quick": ({"short": 128, "long": 48}, Plan(1, 2, 4.0))}
RULES = ("probe", "reference")


@dataclass
class Material:
    """A model with a token head, the examples, and how to label them."""

    model: Any
    encoded: Encoded
    collate: Collator
    labelled: WithTokenLabels
    relabel: SSACallback


def read_options() -> argparse.Namespace:
    parser = Parser(description="One relabelling pass of SSA beside one training epoch on the same examples.")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto", help="of probing")
    parser.add_argument("--quick", action="store_true", help="few examples and rounds: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    return parser.parse_args()


def texts_of(kind: str, count: int) -> Split:
    if kind == "short":
        return make_work(count, "minilm").split
    random = np.random.default_rng(SEED)
    tokenizer = find_encoder("builtin:minilm-l6").tokenizer
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha())
    pairs = []
    for _ in range(count):
        premise = random.choice(words, 17 + int(random.gamma(1.5, 36 / 1.5)))
        pairs.append((" ".join(premise.tolist()), short_sentence(random, 6.0, words)))
    return Split(tuple(pairs), (0,) * count)


def make_material(kind: str, count: int, rule: str, precision: str) -> Material:
    encoder = find_encoder("builtin:minilm-l6")
    model: Any = load_classifier(encoder, labels=("yes", "no"), head="cls", seed=SEED)
    self_supervise(model, SSA(label_rule=rule, max_passes=1, precision=precision), tokenizer=encoder.tokenizer)
    split = texts_of(kind, count)
    collate = Collator.of(encoder.tokenizer, "classification", max_length=LENGTH)
    plain = encode(split, encoder.tokenizer, LENGTH)
    answers = predict_logits(model, plain, collate, batch=count, tokens=tokens_at_a_time(model)).argmax(1)
    encoded = encode(Split(split.texts, tuple(answers.tolist())), encoder.tokenizer, LENGTH)
    relabel = SSACallback(model, encoded, collate, probing=Probing(encoded, collate, "classification"))
    relabel.labeller(TrainingArguments(seed=SEED, use_cpu=True))
    return Material(model, encoded, collate, relabel.dataset, relabel)


def label(material: Material, number: int) -> tuple[float, dict[str, float]]:
    """Seconds of a pass over all examples, and what came of it."""
    begin = time.perf_counter()
    found = material.relabel.label(number, 1.0)
    seconds = time.perf_counter() - begin
    material.labelled.labels = found.labels
    return seconds, found.statistics


def train(material: Material, number: int) -> float:
    """Seconds of an epoch; the weights are put back, so that the next pass asks the same model."""
    model = material.model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    sampler = LengthBuckets(material.encoded.lengths, BATCH, SEED)
    sampler.set_epoch(number)
    begin = time.perf_counter()
    for batch in DataLoader(material.labelled, batch_sampler=sampler, collate_fn=TokenLabelCollator(material.collate)):
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
    seconds = time.perf_counter() - begin
    model.load_state_dict(before)
    return seconds


def reference(material: Material) -> float:
    """Seconds of the forward passes of the authors' design."""
    fixed = Collator(material.collate.pad_id, padding="fixed", max_length=LENGTH)
    material.model.eval()
    begin = time.perf_counter()
    with torch.no_grad():
        for _ in ("originals", "probes"):
            for start in range(0, len(material.encoded), BATCH):
                places = range(start, min(start + BATCH, len(material.encoded)))
                batch = fixed([material.encoded[place] for place in places])
                batch.pop("labels")
                material.model(**batch)
    return time.perf_counter() - begin


def measure(kind: str, count: int, rule: str, plan: Plan, options: argparse.Namespace) -> Row:
    material = make_material(kind, count, rule, options.precision)
    passes, epochs, statistics = [], [], {}
    label(material, 0)  # the first pass is slower, and gives the first epoch its labels
    begin, done = time.perf_counter(), 0
    while plan.wants_another(done, time.perf_counter() - begin):
        done += 1
        if done % 2:
            epochs.append(train(material, done))
        seconds, statistics = label(material, done)
        passes.append(seconds)
        if not done % 2:
            epochs.append(train(material, done))
        progress(f"{kind} {rule}, round {done}: pass {passes[-1]:.1f} s, epoch {epochs[-1]:.1f} s")
    design = reference(material)
    lengths = material.encoded.lengths
    return {
        "kind": "ssa",
        "texts": kind,
        "rule": rule,
        "examples": count,
        "threads": options.threads,
        "rounds": done,
        "tokens": {"mean": round(float(lengths.mean()), 1), "longest": int(lengths.max())},
        "asked": {name: statistics[name] for name in ("originals", "probes", "share", "acceptance")},
        "seconds": {"pass": round(median(passes), 3), "epoch": round(median(epochs), 3), "reference": round(design, 3)},
        "ratio": round(median(one / other for one, other in zip(passes, epochs, strict=True)), 4),
        "reference_ratio": round(design / median(epochs), 4),
        "precision": options.precision,
        "settings": versions(),
        "machine": machine(),
        "code": code_version(),
    }


def bars_of(rows: list[Row]) -> list[Bar]:
    return [make_bar(f"{row['texts']} pairs, {row['rule']}: pass / epoch", row["ratio"], LIMIT) for row in rows]


def main() -> int:
    options = read_options()
    counts, plan = SIZES["quick" if options.quick else "full"]
    try:
        if options.threads < 1:
            raise UsageError("--threads must be at least 1.")
        torch.set_num_threads(options.threads)
        transformers_logging.disable_progress_bar()
        points = [(kind, count, rule) for kind, count in counts.items() for rule in RULES]
        rows = [measure(kind, count, rule, plan, options) for kind, count, rule in points]
    except (UsageError, HeadwiseError) as error:
        fail(str(error), 2)
    return finish({"rows": rows, "bars": bars_of(rows)}, options.check)


if __name__ == "__main__":
    sys.exit(main())

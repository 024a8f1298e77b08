"""What looking at heads costs: analysing a data set beside plain inference, and how soon a page can be used.

    python benchmarks/report.py                    some minutes on two cores
    python benchmarks/report.py --quick --check    under 50 s; exit 1 if a bar is missed

Analysis: all that `headwise analyze` does once the model is loaded (reading, statistics and answers over the test set,
one example in fifty with all its maps, files), beside plain inference over the same texts in the same batches (reading,
`predict_logits`). MiniLM-L6, one of each in turns, what counts is the median over rounds of the ratio within the round.
Short pairs are those of the built-in task clinic, long ones are generated (see benchmarks/ssa.py).

Page: two runs of an encoder of 12 x 12 heads (random weights, small, for only its heads matter here) are trained for a
step, analysed on 20 examples of 64 tokens, and put on a page by the code of `headwise report`. Chromium opens it from
disk; the time is that from the beginning of navigation to the page's own word that it can be used. The same with two
examples of 512 tokens, where also the time to draw the three maps of another head is taken.

stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from harness import Bar, UsageError, fail, finish, machine, make_bar, progress, versions
from measure import SEED, Row, code_version
from ssa import texts_of as generated
from step import Parser
from transformers import AutoTokenizer, BertConfig, BertModel
from transformers.utils import logging as transformers_logging

from headwise.data import Collator, build_task, encode
from headwise.errors import HeadwiseError
from headwise.experiments.analysis.analyze import AnalysisSettings, analyze_tasks
from headwise.experiments.apply import Loaded, RunTasks, load_tasks
from headwise.experiments.prepare import RunPaths
from headwise.experiments.recipe import check_recipe
from headwise.experiments.run import train
from headwise.experiments.splits import read_split
from headwise.reports.report_page import build_page
from headwise.reports.report_runs import gather_runs
from headwise.training import find_encoder, load_classifier, predict_logits
from headwise.training.encoders import quiet_libraries
from headwise.training.predict import tokens_at_a_time

ANALYSIS_LIMIT = 1.3
READY_LIMIT = 1.5  # seconds
SIZE_LIMIT = 10e6  # bytes
BATCH, LENGTH = 64, 128
LAYERS, HEADS, HIDDEN = 12, 12, 144
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1280,900",
)


def read_options() -> argparse.Namespace:
    parser = Parser(description="Analysis beside plain inference, and how soon a page can be used.")
    parser.add_argument("--rounds", type=int, default=3, help="of analysis; default: 3")
    parser.add_argument("--examples", type=int, default=1000, help="pairs of each kind; default: 1000")
    parser.add_argument("--loads", type=int, default=5, help="times that a page is opened; default: 5")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument(
        "--quick", action="store_true", help="three rounds of 160 pairs, three loads of one page: under 50 s"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.examples, options.loads = 3, 160, 3
    return options


# -- analysis ----------------------------------------------------------------------------------------------------------


def run_of(kind: str, count: int, folder: Path) -> Loaded:
    """MiniLM-L6 with a new classifier, as a finished run would load, on a test set of so many pairs."""
    if kind == "short":
        task: Any = {"name": "clinic", "sizes": {"test": count}}
        data = None
    else:
        task, data = {"name": "pairs"}, folder
        lines = [f"{one}\t{two}\tyes" for one, two in generated("long", count).texts]
        (folder / "test.tsv").write_text("\n".join(["sentence1\tsentence2\tlabel", *lines]) + "\n", encoding="utf-8")
    recipe = check_recipe({"task": task, "data": {"max_length": LENGTH}}, "benchmark")
    labels = ("entailment", "neutral", "contradiction") if kind == "short" else ("yes", "no")
    encoder = find_encoder("builtin:minilm-l6")
    model = load_classifier(encoder, labels=labels, head="cls", seed=SEED, kind="classification").eval()
    options = recipe.task.options | ({} if kind == "short" else {"labels": list(labels)})
    (folder / "headwise.json").write_text("{}", encoding="utf-8")  # of which an analysis keeps a hash
    return Loaded(recipe, build_task(recipe.task.name, options), model, encoder.tokenizer, labels, data)


def infer(run: Loaded) -> None:
    """Plain inference: read, cut into tokens, predict."""
    split = read_split(run.recipe, run.task, "test", run.data)
    encoded = encode(split, run.tokenizer, LENGTH)
    collate = Collator.of(run.tokenizer, "classification", max_length=LENGTH)
    predict_logits(run.model, encoded, collate, batch=BATCH, tokens=tokens_at_a_time(run.model))


def measure_analysis(options: argparse.Namespace) -> list[Row]:
    rows = []
    for kind, count in (("short", options.examples), ("long", options.examples // (2 if options.quick else 1))):
        with tempfile.TemporaryDirectory() as name:
            run = run_of(kind, count, Path(name))
            tasks = RunTasks(Path(name), False, {run.task.name: run})
            kept = AnalysisSettings(batch=BATCH, examples=max(1, count // 50))  # 20 of 1,000, whatever the size
            ways: dict[str, Callable[[], Any]] = {
                "plain": lambda run=run: infer(run),
                "analysis": lambda tasks=tasks, kept=kept: analyze_tasks(tasks, kept),
            }
            ratios = []
            for number in range(options.rounds):
                seconds = {}
                for way in sorted(ways, reverse=number % 2 == 0):
                    begin = time.perf_counter()
                    ways[way]()
                    seconds[way] = time.perf_counter() - begin
                ratios.append(seconds["analysis"] / seconds["plain"])
                progress(f"{kind}: plain {seconds['plain']:.2f} s, analysis {seconds['analysis']:.2f} s")
            split = read_split(run.recipe, run.task, "test", run.data)
        tokens = float(encode(split, run.tokenizer, LENGTH).lengths.mean())
        rows.append(
            row_of("analysis", texts=kind, examples=count, tokens=round(tokens, 1), ratio=round(median(ratios), 4))
        )
    return rows


# -- page --------------------------------------------------------------------------------------------------------------


def make_pages(folder: Path, options: argparse.Namespace) -> dict[str, Path]:
    """The page of 20 examples of 64 tokens, and unless it must be quick that of two of 512."""
    encoder = folder / "encoder"
    torch.manual_seed(SEED)
    source = find_encoder("builtin:minilm-l6")
    config = BertConfig(
        vocab_size=len(source.tokenizer),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * HIDDEN,
        max_position_embeddings=512,
        initializer_range=0.2,  # so that rows are not all even
    )
    BertModel(config).save_pretrained(encoder)
    AutoTokenizer.from_pretrained(source.path).save_pretrained(encoder)
    pages = {}
    for name, tokens, count in (("64 tokens", 64, 20), ("512 tokens", 512, 2))[: 1 if options.quick else 2]:
        place = folder / name.replace(" ", "-")
        write_pairs(place / "data", tokens, count)
        for run, guides in (("plain", {}), ("guided", {"mdg": {"weight": 0.001}})):
            recipe = {
                "task": "pairs",
                "model": str(encoder),
                "guides": guides,
                "data": {"max_length": tokens},
                "training": {"max_steps": 1, "num_train_epochs": None, "per_device_train_batch_size": 4},
            }
            train(check_recipe(recipe, "benchmark"), RunPaths(place / run, place / "data"))
            analyze_tasks(load_tasks(place / run), AnalysisSettings(examples=count))
        page = build_page(gather_runs(place / "guided", place / "plain"))
        lengths = {len(example["tokens"]) for example in page.payload["views"]["examples"]["list"]}
        if lengths != {tokens}:
            raise UsageError(f"the examples have {sorted(lengths)} tokens, and {tokens} were wanted.")
        pages[name] = place / "report.html"
        pages[name].write_text(page.html(), encoding="utf-8")
    return pages


def write_pairs(folder: Path, tokens: int, count: int) -> None:
    """Pairs that are longer than the model takes, so that all are cut to the same length."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(SEED)
    words = "the patient has a fever and no cough since last week but pain in the left arm after a walk".split()
    for split, size in (("train", 8), ("validation", 4), ("test", count)):
        lines = ["sentence1\tsentence2\tlabel"]
        for number in range(size):
            one, two = (" ".join(generator.choice(words, tokens)) for _ in range(2))
            lines.append(f"{one}\t{two}\t{('yes', 'no')[number % 2]}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure_pages(options: argparse.Namespace) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        pages = make_pages(Path(folder), options)
        browser = open_browser(Path(folder) / "profile")
        try:
            for name, path in pages.items():
                ready = [load_seconds(browser, path) for _ in range(options.loads)]
                drawn = [draw_seconds(browser, place) for place in range(1, 6)]
                row = row_of(
                    "page",
                    page=name,
                    bytes=path.stat().st_size,
                    ready=round(median(ready), 3),
                    first=round(ready[0], 3),
                    another_head=round(median(drawn), 3),
                )
                progress(
                    f"{name}: {row['bytes'] / 1e6:.1f} MB, ready in {row['ready']} s, next head {row['another_head']} s"
                )
                rows.append(row)
        finally:
            browser.quit()
    return rows


def open_browser(profile: Path) -> Any:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise UsageError("the page is opened in Chromium: install chromium and chromium-driver.")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def load_seconds(browser: Any, path: Path) -> float:
    """From the beginning of navigation to the page's own word."""
    browser.get("about:blank")
    browser.get(path.as_uri())
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = browser.execute_script(
            "return performance.getEntriesByName('headwise-ready').map((mark) => mark.startTime)[0] ?? null"
        )
        if found is not None:
            return float(found) / 1000
        time.sleep(0.05)
    raise UsageError(f"{path.name} did not say within a minute that it can be used.")


def draw_seconds(browser: Any, head: int) -> float:
    """From choosing another head by the address to the frame after its maps are drawn."""
    return (
        float(
            browser.execute_async_script(
                """
                const [head, done] = arguments, begin = performance.now();
                location.hash = location.hash.replace(/head=\\d+/, '') + '&head=' + head;
                requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)));
                """,
                head,
            )
        )
        / 1000
    )


def row_of(kind: str, **values: Any) -> Row:
    return {"kind": kind, **values, "settings": versions(), "machine": machine(), "code": code_version()}


def bars_of(rows: list[Row]) -> list[Bar]:
    bars = []
    for row in rows:
        if row["kind"] == "analysis":
            bars.append(make_bar(f"analysis / inference, {row['texts']}", row["ratio"], ANALYSIS_LIMIT))
        elif row["page"] == "64 tokens":
            bars.append(make_bar("page of 20 examples of 64 tokens, bytes", row["bytes"], SIZE_LIMIT))
            bars.append(make_bar("page of 20 examples of 64 tokens, seconds until ready", row["ready"], READY_LIMIT))
    return bars


def main() -> int:
    options = read_options()
    torch.set_num_threads(options.threads)
    quiet_libraries()
    transformers_logging.disable_progress_bar()
    try:
        if min(options.rounds, options.loads, options.threads) < 1 or options.examples < BATCH:
            raise UsageError(f"--rounds, --loads and --threads must be at least 1, --examples at least {BATCH}.")
        rows = measure_analysis(options) + measure_pages(options)
    except (UsageError, HeadwiseError) as error:
        fail(str(error), 2)
    return finish({"rows": rows, "bars": bars_of(rows)}, options.check)


if __name__ == "__main__":
    sys.exit(main())

"""What the engine of a sweep costs, and what two processes bring over one.

    python benchmarks/sweep.py                    some minutes on two cores
    python benchmarks/sweep.py --quick --check    under 50 s; exit 1 if a bar is missed

The runs are real and short: MiniLM-L6 on the built-in clinical sentence pairs, plain and guided, each on one thread. A
round makes the same runs with one process and then with two (the order alternates), each time in a fresh folder. Of
one process:

    own        seconds of a run by itself: reading, training, scoring, saving
    overhead   seconds from one report to the next, less the own seconds of the run between them: locks, JSON, tidying,
               messages; the mean over all runs but the first
    start      seconds from asking for the runs to the beginning of the first: Python, torch, transformers
    end        seconds from the last report until the process is gone

Bars: the median over rounds of overhead / own, and of seconds with two processes / seconds with one. Both of these go
from the beginning of the first run to the last report: starts and ends are paid once, whatever the number of runs.
Runs of a single step are little but loading and saving, for which two processes share one disk: so --quick shows the
second ratio and does not judge it.

stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from harness import Bar, UsageError, fail, finish, machine, make_bar, progress, versions
from measure import Row, code_version
from step import Parser

from headwise.errors import HeadwiseError
from headwise.experiments.recipe import check_recipe
from headwise.experiments.sweeps.jobs import Job, JobResult, JobSettings
from headwise.experiments.sweeps.worker_pool import LocalWorkers, run_jobs

OVERHEAD_LIMIT = 0.05
TWO_LIMIT = 0.65
GUIDES = {"mdg": {"weight": {"share": 0.03}}, "pdg": {"weight": {"share": 0.03}}}


def read_options() -> argparse.Namespace:
    parser = Parser(description="Overhead of the engine, and speed-up of two workers.")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--runs", type=int, default=8, help="of each round, an even number; default: 8")
    parser.add_argument("--steps", type=int, default=20, help="of each run; default: 20")
    parser.add_argument("--quick", action="store_true", help="one round of two runs of a single step: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.runs, options.steps = 1, 2, 1
    return options


def jobs(folder: Path, runs: int, steps: int) -> list[Job]:
    """Plain and guided runs in turn, each pair with a seed of its own."""
    made = []
    for number in range(runs):
        data = {
            "name": "run",
            "task": {"name": "clinic", "sizes": {"train": 16 * steps, "validation": 30, "test": 30}},
            "guides": GUIDES if number % 2 else {},
            "training": {
                "num_train_epochs": 1,
                "per_device_train_batch_size": 16,
                "learning_rate": 2e-4,
                "freeze": ["embeddings"],
            },
            "seed": 1 + number // 2,
        }
        recipe = check_recipe(data, "benchmark")
        made.append(JobSettings(folder).job(recipe, str(number)))
    return made


class Watch:
    """When each run was over."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.reports: list[tuple[float, JobResult]] = []

    def over(self, report: JobResult) -> None:
        self.reports.append((time.perf_counter(), report))


def timed(workers: int, options: argparse.Namespace) -> dict[str, Any]:
    """One making of all runs."""
    with tempfile.TemporaryDirectory() as folder:
        made = jobs(Path(folder) / "out", options.runs, options.steps)
        watch = Watch()
        run_jobs(made, LocalWorkers(workers), over=watch.over)
        end = time.perf_counter()
        failed = [report.message for _, report in watch.reports if report.state != "finished"]
        if failed:
            raise UsageError(f"a run failed: {failed[0]}")
        files = Path(folder) / "out" / "runs"
        own = [
            json.loads((files / f"{report.key}.json").read_text())["environment"]["times"]["seconds"]
            for _, report in watch.reports
        ]
    moments = [moment for moment, _ in watch.reports]
    first = min(moment - seconds for moment, seconds in zip(moments, own, strict=True))
    return {
        "start": first - watch.begin,
        "seconds": moments[-1] - first,
        "end": end - moments[-1],
        "own": own,
        "between": [after - before for before, after in pairwise(moments)],
    }


def measure(options: argparse.Namespace) -> list[Row]:
    rows = []
    for number in range(options.rounds):
        order = (1, 2) if number % 2 == 0 else (2, 1)
        found = {workers: timed(workers, options) for workers in order}
        one, two = found[1], found[2]
        overhead = mean(between - own for between, own in zip(one["between"], one["own"][1:], strict=True))
        row = {
            "kind": "sweep",
            "round": number,
            "runs": options.runs,
            "steps": options.steps,
            "start": round(one["start"], 3),
            "own": round(median(one["own"]), 3),
            "overhead": round(overhead, 3),
            "end": round(one["end"], 3),
            "overhead_share": round(overhead / median(one["own"]), 4),
            "seconds": {"1": round(one["seconds"], 3), "2": round(two["seconds"], 3)},
            "ratio": round(two["seconds"] / one["seconds"], 4),
            "settings": versions(),
            "machine": machine(),
            "code": code_version(),
        }
        rows.append(row)
        progress(
            f"round {number}: start {row['start']} s, run {row['own']} s, overhead {row['overhead']} s per run, "
            f"two processes / one {row['ratio']}"
        )
    return rows


def bars_of(rows: list[Row], *, quick: bool) -> list[Bar]:
    overhead = make_bar("overhead per run / run", median(row["overhead_share"] for row in rows), OVERHEAD_LIMIT)
    if quick:
        return [overhead]
    return [overhead, make_bar("two processes / one", median(row["ratio"] for row in rows), TWO_LIMIT)]


def main() -> int:
    options = read_options()
    try:
        if options.rounds < 1 or options.runs < 2 or options.runs % 2 or options.steps < 1:
            raise UsageError("--rounds and --steps must be at least 1, --runs an even number from 2.")
        rows = measure(options)
    except (UsageError, HeadwiseError) as error:
        fail(str(error), 2)
    return finish({"rows": rows, "bars": bars_of(rows, quick=options.quick)}, options.check)


if __name__ == "__main__":
    sys.exit(main())

"""What each guide costs: step time and peak memory beside plain training, and how fast knowledge is worked out.

    python benchmarks/guides.py                         everything, about twenty minutes on two cores
    python benchmarks/guides.py --output guides.json    the same, resumable: rows in the file are not measured again
    python benchmarks/guides.py --quick --check         a few guides in under a minute; exit 1 if a bar is missed

MiniLM's shape, 16 examples, every registered guide with its default options and some in their other forms. One model
trains with the guides in turns, with a plain step before and behind every five; a ratio is a guided step to the mean of
the two plain ones around it, and a row holds the median over rounds. Peak memory is taken in a process of its own per
guide, without padding and with two threads. Knowledge is built for pairs of the built-in task, by all cores, with the
worker processes already running. stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from guide_costs import memory_row, time_guides, weigh, weigh_in_child
from guide_report import build_name, check_page, cost_name, result_of, row_name, write_page
from guide_variants import PLAIN, variants
from harness import UsageError, fail, finish, machine, progress, read_rows, replace_text, versions
from knowledge_builds import SOURCES, make_pairs, measure_build
from measure import Plan, Point, Row
from memory import answer_child
from step import LONGEST, Parser

from headwise.errors import HeadwiseError

SHAPE = "minilm"
CHOICE = {"lengths": [128, 256], "dropout": [0.0, 0.1], "padded": "no", "threads": 2, "guides": None, "pairs": 2000}
# Without dropout, where guiding has no slower plain training to hide behind.
QUICK_CHOICE = CHOICE | {
    "lengths": [128],
    "dropout": [0.0],
    "guides": ["pmi on received", "disagreement on output", "first on map"],
    "pairs": 200,
}
# A process that weighs takes seven seconds, and so do new workers.
QUICK_WEIGHED, QUICK_SOURCES = ("first on map",), ("pmi", "wordsim vectors")
PLAN, QUICK_PLAN = Plan(3, 7, 150.0), Plan(2, 2)


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(description="Cost of each guide per training step, and of building knowledge.")
    parser.add_argument("--lengths", nargs="+", type=int, help="default: 128 256")
    parser.add_argument("--dropout", nargs="+", type=float, help="attention dropout; default: 0 0.1")
    parser.add_argument("--padded", choices=["yes", "no", "both"], help="of time; default: no")
    parser.add_argument("--threads", type=int, help="of time; default: 2")
    parser.add_argument("--guides", nargs="+", metavar="NAME", help=f"default: all ({'; '.join(variants())})")
    parser.add_argument("--pairs", type=int, help="for which knowledge is built; default: 2000")
    parser.add_argument("--rounds", type=int, help="per point; default: 3 to 7, as 150 s allow, or 2 with --quick")
    parser.add_argument("--no-time", action="store_true", help="leave the step times out")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory out")
    parser.add_argument("--no-build", action="store_true", help="leave the building of knowledge out")
    parser.add_argument("--quick", action="store_true", help="three guides, L128, no dropout, 200 pairs: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--output", type=Path, help="keep the rows in this JSON file and do not measure them again")
    parser.add_argument("--markdown", type=Path, help="write the tables of all rows into this page, between its marks")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def settle(options: argparse.Namespace) -> None:
    """Fill in the defaults of the mode; a quick run has fixed points, so that its rows mean the same everywhere."""
    given = [name for name in CHOICE if getattr(options, name) is not None]
    if options.quick and given:
        raise UsageError(f"--quick measures fixed points: leave out --{' and --'.join(given)}.")
    for name, value in (QUICK_CHOICE if options.quick else CHOICE).items():
        if name not in given:
            setattr(options, name, value)
    if options.guides is None:
        options.guides = list(variants())


def check_options(options: argparse.Namespace) -> None:
    """One sentence for what cannot be measured."""
    unknown = [name for name in options.guides if name not in variants()]
    demands = [
        (all(8 <= length <= LONGEST for length in options.lengths), f"--lengths must lie between 8 and {LONGEST}."),
        (all(0 <= dropout < 1 for dropout in options.dropout), "--dropout must be at least 0 and less than 1."),
        (options.threads >= 1, "--threads must be at least 1."),
        (options.pairs >= 1, "--pairs must be at least 1."),
        (options.rounds is None or options.rounds >= 1, "--rounds must be at least 1."),
        (not unknown, f"--guides {unknown[:1]}: expected names among {'; '.join(variants())}."),
        (options.output is None or options.output.parent.is_dir(), "--output: the folder of the file does not exist."),
    ]
    for satisfied, sentence in demands:
        if not satisfied:
            raise UsageError(sentence)
    if options.markdown:
        check_page(options.markdown)


class Session:
    """The rows so far: those of the output file, and what this run adds."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rows = read_rows(options.output, row_name)

    def run(self) -> None:
        """Measure what is not there yet, saving after every row or point."""
        for measure in (self.times, self.memories, self.builds):
            start = time.perf_counter()
            for row in measure():
                self.keep(row)
                told = row.get("skipped") or row.get("ratio") or f"{row.get('pairs_per_second')} pairs per second"
                progress(f"{row_name(row)}: {told}")
            progress(f"{measure.__name__}: {time.perf_counter() - start:.0f} s")

    def times(self) -> Iterator[Row]:
        padded = {"yes": [True], "no": [False], "both": [False, True]}[self.options.padded]
        for length, dropout, pad in product(self.options.lengths, self.options.dropout, padded):
            point = Point(SHAPE, length, dropout, pad, self.options.threads)
            wanted = [] if self.options.no_time else self.missing("time", point)
            if wanted:
                yield from time_guides(point, wanted, self.plan)

    def memories(self) -> Iterator[Row]:
        for length, dropout in product(self.options.lengths, self.options.dropout):
            point = Point(SHAPE, length, dropout)
            wanted = [] if self.options.no_memory else self.missing("memory", point)
            plain = weigh_in_child(point, PLAIN) if wanted else {}
            yield from (memory_row(point, name, plain) for name in wanted)

    def builds(self) -> Iterator[Row]:
        sources = QUICK_SOURCES if self.options.quick else SOURCES
        wanted = [name for name in sources if not self.holds(build_name(name), "build")]
        if wanted and not self.options.no_build:
            pairs = make_pairs(self.options.pairs)
            yield from (measure_build(name, pairs) for name in wanted)

    def missing(self, kind: str, point: Point) -> list[str]:
        names = dict.fromkeys(QUICK_WEIGHED if self.options.quick and kind == "memory" else self.options.guides)
        return [name for name in names if not self.holds(cost_name(kind, name, point), kind)]

    def holds(self, name: str, kind: str) -> bool:
        return self.rows.get(name, {}).get("settings") == self.settings(kind)

    def settings(self, kind: str) -> Row:
        """What must agree for an earlier row to stand for a new measurement."""
        plan = [self.plan.least, self.plan.most, self.plan.seconds]
        return versions() | {"time": {"plan": plan}, "memory": {}, "build": {"pairs": self.options.pairs}}[kind]

    @property
    def plan(self) -> Plan:
        if self.options.rounds is not None:
            return Plan(self.options.rounds, self.options.rounds)
        return QUICK_PLAN if self.options.quick else PLAN

    def keep(self, row: Row) -> None:
        self.rows[row_name(row)] = row | {"settings": self.settings(row["kind"]), "machine": machine()}
        if self.options.output:
            replace_text(self.options.output, json.dumps(result_of(self.rows), indent=1))


def warn_of_mixture(rows: dict[str, Row]) -> None:
    """Old rows keep their figures when headwise changes: say so rather than mix them in silence."""
    if len({row["code"] for row in rows.values()}) > 1:
        progress("note: the rows were measured on different versions of headwise (see 'code' in each row).")


def main() -> int:
    options = read_options()
    if options.memory_of:
        return answer_child(options.memory_of, weigh)
    try:
        settle(options)
        check_options(options)
        session = Session(options)
        session.run()
    except (UsageError, HeadwiseError) as error:
        fail(str(error), 2)
    warn_of_mixture(session.rows)
    if options.markdown and session.rows:
        write_page(options.markdown, session.rows)
    return finish(result_of(session.rows), options.check)


if __name__ == "__main__":
    sys.exit(main())

"""Whether guiding stays sane when the cores are taken: ours / plain with and without other processes at work.

A kernel of many short parallel regions can look well on an idle machine and lose several times over when its threads
must wait for a core. Here busy processes load the cores while plain and ours take turns, as in step.py.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from harness import UsageError, fail, finish, machine, make_bar, progress, versions
from measure import SHAPES, Plan, Point, Row, code_version, time_point
from step import Parser, require_headwise

LIMIT = 1.2
LENGTHS = (32, 128)
# Ends by itself when the benchmark is killed and can no longer end it.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10000))\n"


def read_options() -> argparse.Namespace:
    parser = Parser(description="Ratio of a guided to a plain training step while other processes load the cores.")
    parser.add_argument(
        "--shape", choices=SHAPES, default="minilm", help="default: minilm; tiny only tries the program"
    )
    parser.add_argument("--busy", type=int, default=2, help="busy processes; default: 2")
    parser.add_argument("--quick", action="store_true", help="few rounds: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if the bar is missed")
    return parser.parse_args()


@contextmanager
def load(count: int) -> Iterator[None]:
    """Keep ``count`` processes busy for the time of the block."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen([sys.executable, "-c", BUSY]))
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def measure(point: Point, busy: int, plan: Plan) -> Row:
    with load(busy):
        row = time_point(point, ["plain", "ours"], plan)
    progress(f"{point.name} beside {busy} busy processes: ours / plain {row['ratio']['ours']}")
    return row | {"busy": busy, "settings": versions(), "machine": machine(), "code": code_version()}


def main() -> int:
    options = read_options()
    points = [Point(options.shape, length, 0.0, padded=False, threads=2) for length in LENGTHS]
    # Under load single rounds scatter, so most of the time goes there.
    idle, loaded = (Plan(3, 9, 1.5), Plan(3, 61, 4.0)) if options.quick else (Plan(5, 41, 30.0), Plan(9, 121, 90.0))
    try:
        if options.busy < 1:
            raise UsageError("--busy must be at least 1.")
        require_headwise()
    except UsageError as error:
        fail(str(error), 2)
    rows = [measure(point, busy, plan) for point in points for busy, plan in ((0, idle), (options.busy, loaded))]
    judged = [row for row in rows if row["busy"] and options.shape != "tiny"]
    bars = [
        make_bar(f"time {Point(**row['point']).name} beside {row['busy']} busy", row["ratio"]["ours"], LIMIT)
        for row in judged
    ]
    return finish({"rows": rows, "bars": bars}, options.check)


if __name__ == "__main__":
    sys.exit(main())

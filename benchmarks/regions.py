"""How often a training step waits for all its threads: parallel regions of OpenMP per step, ours / plain.

    python benchmarks/regions.py --check        32 tokens; exit 1 if a bar is missed

On crowded cores a short step takes as long as its waiting: every parallel region ends when its last thread is done. So
the ratio of their numbers says what oversubscribed.py measures, without its scatter and under any load. It needs Linux,
a C compiler (cc) and a torch that uses GNU OpenMP: a small library counts the calls of GOMP_parallel.
"""

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from harness import UsageError, fail, finish, machine, make_bar, progress, versions
from measure import SHAPES, Point, Row, Step, code_version, make_batch
from step import Parser, require_headwise

LIMIT = 1.2  # that of oversubscribed.py
COUNTER = "HEADWISE_REGION_COUNTER"
SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
static long regions;
static int (*inside)(void), (*threads)(void);
static void (*real)(void (*)(void *), void *, unsigned, unsigned);
long regions_so_far(void) { return regions; }
void GOMP_parallel(void (*work)(void *), void *data, unsigned count, unsigned flags) {
    if (!real) {
        inside = dlsym(RTLD_DEFAULT, "omp_in_parallel");
        threads = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
        real = dlsym(RTLD_NEXT, "GOMP_parallel");
    }
    if (!inside() && (count > 1 || (count == 0 && threads() > 1))) regions++;
    real(work, data, count, flags);
}
"""


def read_options() -> argparse.Namespace:
    parser = Parser(description="Parallel regions of a guided step, on crowded and quiet cores, over a plain step's.")
    parser.add_argument(
        "--shape", choices=SHAPES, default="minilm", help="default: minilm; tiny only tries the program"
    )
    parser.add_argument("--length", type=int, default=32, help="tokens; default: 32")
    parser.add_argument("--quick", action="store_true", help="without dropout only")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    return parser.parse_args()


def run_counted() -> int:
    """This program once more, with the counter in front of OpenMP; waiting threads sleep, which changes no count."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "counter.c"), Path(folder, "counter.so")
        source.write_text(SOURCE)
        try:
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
        except (OSError, subprocess.CalledProcessError):
            raise UsageError("the counter cannot be built: install a C compiler (cc).") from None
        environment = {COUNTER: str(library), "LD_PRELOAD": str(library), "OMP_WAIT_POLICY": "passive"}
        return subprocess.run([sys.executable, *sys.argv], env=os.environ | environment, check=False).returncode


def count(point: Point, variant: str, crowded: bool) -> int:
    """Of one step, the second one."""
    from headwise.attention import workers

    workers._crowding.assumed = lambda: crowded  # type: ignore[method-assign]
    counter = ctypes.CDLL(os.environ[COUNTER])
    step, batch = Step(point, variant), make_batch(point, SHAPES[point.shape].batch, point.length)
    step.take(batch)
    before = counter.regions_so_far()
    step.take(batch)
    return int(counter.regions_so_far() - before)


def make_row(point: Point, crowded: bool) -> Row:
    torch.set_num_threads(point.threads)
    regions = {variant: count(point, variant, crowded) for variant in ("plain", "kernel", "ours")}
    ratio = {variant: round(number / max(1, regions["plain"]), 4) for variant, number in regions.items()}
    cores = "crowded" if crowded else "quiet"
    progress(f"{point.name}, {cores} cores: {regions}")
    row = {"point": vars(point), "cores": cores, "regions": regions, "ratio": ratio}
    return row | {"settings": versions(), "machine": machine(), "code": code_version()}


def main() -> int:
    options = read_options()
    try:
        require_headwise()
        if COUNTER not in os.environ:
            return run_counted()
    except UsageError as error:
        fail(str(error), 2)
    points = [Point(options.shape, options.length, dropout) for dropout in ([0.0] if options.quick else [0.0, 0.1])]
    rows = [make_row(point, crowded) for point in points for crowded in (False, True)]
    judged = [row for row in rows if row["cores"] == "crowded" and options.shape != "tiny"]
    bars = [make_bar(f"regions {Point(**row['point']).name}", row["ratio"]["ours"], LIMIT) for row in judged]
    return finish({"rows": rows, "bars": bars}, options.check)


if __name__ == "__main__":
    sys.exit(main())

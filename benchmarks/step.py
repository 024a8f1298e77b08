"""What attention guiding costs per training step: time and peak memory beside plain, eager and reference training.

    python benchmarks/step.py                       every point, about an hour on two cores
    python benchmarks/step.py --output step.json    the same, resumable: points in the file are not measured again
    python benchmarks/step.py --quick --check       one small point in under a minute; exit 1 if a bar is missed

Times count only as ratios within one run: the variants take turns in every round, and a row holds the median over
rounds of the ratio within the round. Peak memory is taken in a process of its own per variant, without padding and
with two threads. stdout carries one JSON object {"rows", "bars"}, stderr the progress.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import NoReturn

from harness import (
    SHORT,
    UsageError,
    check_markdown,
    fail,
    finish,
    machine,
    progress,
    read_rows,
    replace_text,
    result_of,
    row_name,
    versions,
    write_markdown,
)
from measure import SHAPES, VARIANTS, Plan, Point, Row, code_version, time_auto, time_measuring, time_point
from memory import answer_child, memory_in_child

CHOICE = {
    "shapes": ["base", "minilm"],
    "lengths": [16, 32, 64, 128, 256, 512],
    "dropout": [0.0, 0.1],
    "padded": "both",
    "threads": [1, 2],
}
QUICK_CHOICE = {"shapes": ["minilm"], "lengths": [32, 128], "dropout": [0.0, 0.1], "padded": "no", "threads": [2]}
QUICK_SECONDS = 4.0  # per point, so that four points and two memory processes stay under 50 s
LONGEST = 512  # positions of the model
WEIGHED = ("plain", "reference", "kernel", "ours")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        fail(message, 2)


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(description="Cost of attention guiding per training step, as ratios to plain training.")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, help="default: base minilm; tiny only tries the program")
    parser.add_argument("--lengths", nargs="+", type=int, help="default: 16 32 64 128 256 512")
    parser.add_argument("--dropout", nargs="+", type=float, help="attention dropout; default: 0 0.1")
    parser.add_argument("--padded", choices=["yes", "no", "both"], help="default: both")
    parser.add_argument("--threads", nargs="+", type=int, help="default: 1 2")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="default: all")
    parser.add_argument("--rounds", type=int, help="rounds per point; default: 3 to 15 as --seconds-per-point allows")
    parser.add_argument("--seconds-per-point", type=float, help="default: 20, or 4 with --quick; warm-up not counted")
    parser.add_argument("--side-rounds", type=int, help="rounds of eager and reference; default: 2, or 1 with --quick")
    parser.add_argument("--no-time", action="store_true", help="measure memory only")
    parser.add_argument("--no-memory", action="store_true", help="measure time only")
    parser.add_argument("--quick", action="store_true", help="minilm, L128, not padded, 2 threads: under 50 s")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bar is missed")
    parser.add_argument("--output", type=Path, help="keep the rows in this JSON file and do not measure them again")
    parser.add_argument("--markdown", type=Path, help="write the table of all rows into this page")
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
    if options.seconds_per_point is None:
        options.seconds_per_point = QUICK_SECONDS if options.quick else Plan.seconds
    if options.side_rounds is None:
        options.side_rounds = 1 if options.quick else Plan.side_rounds


def check_options(options: argparse.Namespace) -> None:
    """One sentence for what cannot be measured."""
    demands = [
        (all(8 <= length <= LONGEST for length in options.lengths), f"--lengths must lie between 8 and {LONGEST}."),
        (all(0 <= dropout < 1 for dropout in options.dropout), "--dropout must be at least 0 and less than 1."),
        (all(count >= 1 for count in options.threads), "--threads must be at least 1."),
        (options.rounds is None or options.rounds >= 1, "--rounds must be at least 1."),
        (options.side_rounds >= 0, "--side-rounds must be at least 0."),
        (options.seconds_per_point > 0, "--seconds-per-point must be more than 0."),
        ("plain" in options.variants, "--variants must include plain, the measure of all others."),
        (not options.check or "ours" in options.variants, "--check judges ours: add it to --variants."),
        (options.output is None or options.output.parent.is_dir(), "--output: the folder of the file does not exist."),
    ]
    for satisfied, sentence in demands:
        if not satisfied:
            raise UsageError(sentence)
    if options.markdown:
        check_markdown(options.markdown)
    if "ours" in options.variants and not (options.no_time and options.no_memory):
        require_headwise()


def require_headwise() -> None:
    try:
        import headwise

        _ = headwise.guide, headwise.MDG, headwise.PDG
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"headwise cannot be used ({error}): install it with 'pip install -e .', "
            "or leave it out by --variants plain eager reference."
        ) from None


def time_points(options: argparse.Namespace) -> list[Point]:
    padded = {"yes": [True], "no": [False], "both": [False, True]}[options.padded]
    chosen = product(options.shapes, options.lengths, options.dropout, padded, options.threads)
    return [] if options.no_time else [Point(*values) for values in dict.fromkeys(chosen)]


def memory_points(options: argparse.Namespace) -> list[Point]:
    """Not padded, two threads, long; a quick run weighs the one point where a stored map would show."""
    dropout = [0.0] if options.quick else options.dropout
    chosen = product(options.shapes, [length for length in options.lengths if length > SHORT], dropout)
    return [] if options.no_memory else [Point(*values) for values in dict.fromkeys(chosen)]


def measure_time(point: Point, options: argparse.Namespace) -> Row:
    variants = [variant for variant in VARIANTS if variant in options.variants]
    plan = Plan(seconds=options.seconds_per_point, side_rounds=options.side_rounds)
    if options.rounds is not None:
        plan = Plan(options.rounds, options.rounds, side_rounds=options.side_rounds)
    return time_point(point, variants, plan) | {"code": code_version()}


def measure_auto(point: Point, options: argparse.Namespace) -> Row:
    plan = Plan(3, 9, seconds=options.seconds_per_point)
    return time_auto(point, plan) | {"code": code_version()}


def measure_measuring(point: Point, _: argparse.Namespace) -> Row:
    return time_measuring(point) | {"code": code_version()}


def weighed_variants(options: argparse.Namespace) -> list[str]:
    return [v for v in WEIGHED if v in options.variants and not (options.quick and v in ("reference", "kernel"))]


def measure_memory(point: Point, options: argparse.Namespace) -> Row:
    weighed = {variant: memory_in_child(point, variant) for variant in weighed_variants(options)}
    above = {variant: result["above_baseline"] for variant, result in weighed.items()}
    return {
        "kind": "memory",
        "point": asdict(point),
        "megabytes_above_baseline": above,
        "megabytes_baseline": {variant: result["baseline"] for variant, result in weighed.items()},
        "ratio": {variant: round(value / max(above["plain"], 0.1), 4) for variant, value in above.items()},
        "source": weighed["plain"]["source"],
        "code": list(weighed.values())[-1]["code"],
    }


def settings_of(kind: str, options: argparse.Namespace) -> Row:
    """What must agree for an earlier row to stand for a new measurement."""
    if kind == "memory":
        return versions() | {"variants": sorted(weighed_variants(options))}
    length = {"rounds": options.rounds} if options.rounds else {"seconds_per_point": options.seconds_per_point}
    return versions() | {"variants": sorted(set(options.variants)), "side_rounds": options.side_rounds} | length


def run(options: argparse.Namespace) -> dict[str, Row]:
    """Measure what the output file does not hold yet, saving after every point."""
    rows = read_rows(options.output)
    jobs = [("time", point, measure_time) for point in time_points(options)]
    short = [point for point in time_points(options) if point.length <= SHORT and "ours" in options.variants]
    jobs += [("auto", point, measure_auto) for point in short]
    jobs += [("measuring", point, measure_measuring) for point in short if not (options.quick and point.dropout)]
    jobs += [("memory", point, measure_memory) for point in memory_points(options)]
    for number, (kind, point, measure) in enumerate(jobs, 1):
        settings, start = settings_of(kind, options), time.perf_counter()
        name = row_name({"kind": kind, "point": asdict(point)})
        if rows.get(name, {}).get("settings") == settings:
            progress(f"[{number}/{len(jobs)}] {name}: kept")
            continue
        rows[name] = measure(point, options) | {"settings": settings, "machine": machine()}
        progress(f"[{number}/{len(jobs)}] {name}: {rows[name]['ratio']} in {time.perf_counter() - start:.0f} s")
        if options.output:
            replace_text(options.output, json.dumps(result_of(rows), indent=1))
    return rows


def warn_of_mixture(rows: dict[str, Row]) -> None:
    """Old rows keep their figures when headwise changes: say so rather than mix them in silence."""
    measured = {row["code"] for row in rows.values() if "ours" in row["ratio"]}
    if len(measured) > 1:
        progress("note: the rows were measured on different versions of headwise (see 'code' in each row).")


def main() -> int:
    options = read_options()
    if options.memory_of:
        return answer_child(options.memory_of)
    try:
        settle(options)
        check_options(options)
        rows = run(options)
    except UsageError as error:
        fail(str(error), 2)
    warn_of_mixture(rows)
    if options.markdown and rows:
        write_markdown(options.markdown, rows)
    return finish(result_of(rows), options.check)


if __name__ == "__main__":
    sys.exit(main())

"""What a benchmark hands over: rows kept in a file, bars held against limits, a table in Markdown."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers
from measure import SHAPES, Point, Row

from headwise.errors import HeadwiseError

TIME_LIMIT = 1.08
TIME_LIMIT_WITH_DROPOUT = 1.02
SHORT, SHORT_LIMIT = 64, 1.05  # tokens up to which an example is short; also for the first steps with automatic weights
KERNEL_LIMIT = 1.0  # of our attention without guides, where weights are dropped: it must be worth its name
MEMORY_LIMIT = 1.02
MEASURING_LIMIT = 0.03  # of a run of 100 steps, the part that measures automatic weights
OPENING = "<!-- step-table -->"
CLOSING = "<!-- /step-table -->"
HEADER = (
    "| model | L | attention dropout | padded | threads | plain, s | eager / plain | reference / plain "
    "| kernel / plain | ours / plain | ours, first 12 steps with auto | memory: reference / plain "
    "| memory: kernel / plain | memory: ours / plain |"
)
Bar = dict[str, Any]


class UsageError(Exception):
    """What the user asked for cannot be done; the message is one sentence that says why."""


def fail(message: str, code: int) -> NoReturn:
    """End with one sentence on stderr."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def progress(message: str) -> None:
    """Tell a waiting person; stdout belongs to the result."""
    print(message, file=sys.stderr, flush=True)


def make_bar(name: str, value: float, limit: float) -> Bar:
    return {"name": name, "value": value, "limit": limit, "ok": value <= limit}


def point_of(row: Row) -> Point:
    return Point(**row["point"])


def row_name(row: Row) -> str:
    """The key of a row, unique among rows: also its bar's name."""
    point = point_of(row)
    return f"memory {point.memory_name}" if row["kind"] == "memory" else f"{row['kind']} {point.name}"


def bars_of(rows: Iterable[Row]) -> list[Bar]:
    """Bars of each row that measured ours, or our kernel where weights are dropped, on a shape of the promise."""
    bars = []
    for row in rows:
        if row["point"]["shape"] == "tiny":
            continue
        if "ours" in row["ratio"]:
            bars.append(make_bar(row_name(row), row["ratio"]["ours"], limit_of(row)))
        if "measuring" in row["ratio"]:
            bars.append(make_bar(row_name(row), row["ratio"]["measuring"], MEASURING_LIMIT))
        if "kernel" in row["ratio"] and row["point"]["dropout"] > 0:
            bars.append(make_bar(f"{row_name(row)}, without guides", row["ratio"]["kernel"], KERNEL_LIMIT))
    return bars


def limit_of(row: Row) -> float:
    if row["kind"] == "memory":
        return MEMORY_LIMIT
    if row["kind"] == "auto" or row["point"]["length"] <= SHORT:
        return SHORT_LIMIT
    return TIME_LIMIT_WITH_DROPOUT if row["point"]["dropout"] > 0 else TIME_LIMIT


def in_order(row: Row) -> tuple[Any, ...]:
    """Sorting key: rows appear in one order however the runs that made them were cut."""
    point = point_of(row)
    kind = ("time", "auto", "measuring", "memory").index(row["kind"])
    return kind, list(SHAPES).index(point.shape), point.length, point.dropout, point.padded, point.threads


def read_rows(path: Path | None, name: Callable[[Row], str] = row_name) -> dict[str, Row]:
    """Rows of an earlier run by name; none when there is no such file yet."""
    if path is None or not path.exists():
        return {}
    try:
        return {name(row): row for row in json.loads(path.read_text())["rows"]}
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"--output {path} exists and is not a result of this benchmark: name another file.") from None


def result_of(rows: dict[str, Row]) -> dict[str, Any]:
    ordered = sorted(rows.values(), key=in_order)
    return {"rows": ordered, "bars": bars_of(ordered)}


def replace_text(path: Path, text: str) -> None:
    """Write so that a reader, or a run cut short, never meets half a file."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text)
    os.replace(draft, path)


def write_rows(path: Path, rows: list[Row]) -> None:
    """The rows as a file for pages and programs."""
    replace_text(path, json.dumps({"rows": rows}, indent=1) + "\n")


def put_between(path: Path, start: str, end: str, text: str) -> None:
    """Put a text, which brings both marks along, in the place of what stands between them on a page."""
    content = path.read_text(encoding="utf-8")
    replace_text(path, content.split(start)[0] + text + content.split(end)[1])


def finish(result: dict[str, Any], check: bool) -> int:
    """Print the one JSON object; the exit code is 1 when a bar is missed and the user asked to check."""
    print(json.dumps(result, indent=1))
    missed = [bar for bar in result["bars"] if not bar["ok"]]
    for bar in missed:
        progress(f"missed: {bar['name']}: {bar['value']} > {bar['limit']}")
    return int(check and bool(missed))


def finish_study(
    name: str,
    options: Any,
    make_rows: Callable[[], list[Row]],
    page: Callable[[list[Row]], str],
    marks: tuple[str, str],
) -> int:
    """Compute the rows of a study, write them and its page if asked, and print them; bad input is exit code 2."""
    try:
        rows = make_rows()
    except HeadwiseError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    if options.output:
        write_rows(options.output, rows)
    if options.markdown:
        put_between(options.markdown, *marks, page(rows))
    return finish({"rows": rows, "bars": []}, options.check)


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__}


def machine() -> str:
    """The machine in general words: enough to judge a ratio, nothing that names the host."""
    capability = torch.backends.cpu.get_cpu_capability()  # "AVX512", "AVX2", "DEFAULT", ...
    family = {"AVX512": " with AVX-512", "AVX2": " with AVX2"}.get(capability, "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    architecture = os.uname().machine.replace("x86_64", "x86-64") if hasattr(os, "uname") else "unknown"
    return f"{cores} core{'s' if cores > 1 else ''} of a {processor_class()}{architecture} CPU{family}"


def processor_class() -> str:
    """The word server where the processor's brand says so."""
    try:
        description = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    return "server " if "Xeon" in description or "EPYC" in description else ""


def check_markdown(path: Path) -> None:
    """Refuse early to overwrite a page that has no place for the table."""
    if not path.parent.is_dir():
        raise UsageError(f"--markdown {path}: the folder {path.parent} does not exist.")
    if path.exists() and not has_markers(path.read_text()):
        raise UsageError(f"--markdown {path} exists without the lines {OPENING} and {CLOSING}: add them first.")


def has_markers(text: str) -> bool:
    return 0 <= text.find(OPENING) < text.find(CLOSING)


def write_markdown(path: Path, rows: dict[str, Row]) -> None:
    """Put the table between the markers of an existing page, or make a page of it."""
    page = path.read_text() if path.exists() else f"{OPENING}\n{CLOSING}\n"
    before, rest = page.split(OPENING, 1)
    after = rest.split(CLOSING, 1)[1]
    replace_text(path, f"{before}{OPENING}\n{table(rows)}\n{CLOSING}{after}")


def table(rows: dict[str, Row]) -> str:
    """One line per point, headed by where the rows come from."""
    timed = sorted((row for row in rows.values() if row["kind"] == "time"), key=in_order)
    worlds = sorted({f"{row['machine']}, {world(row['settings'])}" for row in rows.values()})
    separator = "|---|" + "---:|" * 2 + "---|" + "---:|" * 10
    lines = [HEADER, separator] + [table_line(row, rows) for row in timed]
    return f"Measured on {'; '.join(worlds)}.\n\n" + "\n".join(lines)


def world(settings: Row) -> str:
    return f"torch {settings['torch']}, transformers {settings['transformers']}, fp32"


def table_line(row: Row, rows: dict[str, Row]) -> str:
    point = point_of(row)
    # Memory was measured for one padding and number of threads: other lines must not seem to have their own figure.
    weighed = rows.get(f"memory {point.memory_name}", {})
    memory = weighed.get("ratio", {}) if weighed and point_of(weighed) == point else {}
    shape = SHAPES[point.shape]
    cells = [
        f"{point.shape} {shape.layers}x{shape.hidden} B{shape.batch}",
        f"{point.length}",
        f"{point.dropout:g}",
        "yes" if point.padded else "no",
        f"{point.threads}",
        f"{row['seconds']['plain']:.2f}",
        *(cell(row["ratio"], variant) for variant in ("eager", "reference", "kernel", "ours")),
        cell(rows.get(f"auto {point.name}", {}).get("ratio", {}), "ours"),
        *(cell(memory, variant) for variant in ("reference", "kernel", "ours")),
    ]
    return f"| {' | '.join(cells)} |"


def cell(ratios: dict[str, float], variant: str) -> str:
    return f"{ratios[variant]:.2f}" if variant in ratios else "–"

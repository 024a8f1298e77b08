"""Rows, bars and tables of guides.py."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from guide_variants import variants
from harness import Bar, UsageError, make_bar, point_of, replace_text, world
from knowledge_builds import SOURCES
from measure import Point, Row

# A map-form guide on half the heads, time and memory; and a second forward and backward pass.
LIMITS = {"map": 1.35, "two passes": 2.2}
OTHER_LIMIT = 1.08
SHORTEST = 128  # below, the fixed cost of a layer weighs more, and short batches serve to try the program
OPENING, CLOSING = "<!-- guide-table -->", "<!-- /guide-table -->"


def cost_name(kind: str, guide: str, point: Point) -> str:
    """The name of a row of time or memory: also its bar's."""
    return f"{kind} {guide}, {point.name if kind == 'time' else point.memory_name}"


def build_name(source: str) -> str:
    return f"build {source}"


def row_name(row: Row) -> str:
    """The key of a row, unique among rows."""
    return build_name(row["source"]) if row["kind"] == "build" else cost_name(row["kind"], row["guide"], point_of(row))


def bars_of(rows: Iterable[Row]) -> list[Bar]:
    """One bar for each time and each memory, at the lengths of the promise."""
    judged = [row for row in rows if row["kind"] != "build" and row["point"]["length"] >= SHORTEST]
    return [make_bar(row_name(row), row["ratio"], LIMITS.get(row["form"], OTHER_LIMIT)) for row in judged]


def in_order(row: Row) -> tuple[Any, ...]:
    """Sorting key: rows appear in one order however the runs that made them were cut."""
    kind = ("time", "memory", "build").index(row["kind"])
    if row["kind"] == "build":
        return kind, place_of(row["source"], SOURCES)
    return kind, column_order(point_of(row)), place_of(row["guide"], variants())


def place_of(name: str, known: Iterable[str]) -> tuple[int, str]:
    """The place of a name in its table; names that the table no longer has come last."""
    names = list(known)
    return names.index(name) if name in names else len(names), name


def column_order(point: Point) -> tuple[Any, ...]:
    return point.length, point.dropout, point.padded, point.threads


def result_of(rows: dict[str, Row]) -> dict[str, Any]:
    ordered = sorted(rows.values(), key=in_order)
    return {"rows": ordered, "bars": bars_of(ordered)}


def check_page(path: Path) -> None:
    """Refuse early to write where there is no place for the tables."""
    text = path.read_text() if path.is_file() else ""
    if not 0 <= text.find(OPENING) < text.find(CLOSING):
        raise UsageError(f"--markdown {path} is not a page with the lines {OPENING} and {CLOSING}: add them first.")


def write_page(path: Path, rows: dict[str, Row]) -> None:
    """Put the tables between the markers."""
    before, rest = path.read_text().split(OPENING, 1)
    after = rest.split(CLOSING, 1)[1]
    replace_text(path, f"{before}{OPENING}\n{tables(sorted(rows.values(), key=in_order))}\n{CLOSING}{after}")


def tables(rows: list[Row]) -> str:
    worlds = sorted({f"{row['machine']}, {world(row['settings'])}" for row in rows})
    parts = [f"Measured on {'; '.join(worlds)}."]
    costs, builds = [row for row in rows if row["kind"] != "build"], [row for row in rows if row["kind"] == "build"]
    return "\n\n".join(parts + ([cost_table(costs)] if costs else []) + ([build_table(builds)] if builds else []))


def cost_table(rows: list[Row]) -> str:
    """A line for each guide, a column for each point, and first the seconds and megabytes of plain training."""
    columns = list(dict.fromkeys((row["kind"], point_of(row)) for row in rows))
    found = {(row["kind"], point_of(row), row["guide"]): f"{row['ratio']:.2f}" for row in rows}
    plain = {(row["kind"], point_of(row)): plain_cell(row) for row in rows}
    guides = sorted({(row["guide"], row["form"]) for row in rows}, key=lambda each: place_of(each[0], variants()))
    lines = [["plain", "", *(plain[column] for column in columns)]]
    lines += [[name, form, *(found.get((*column, name), "–") for column in columns)] for name, form in guides]
    return aligned([["guide", "form", *(column_title(*column) for column in columns)], *lines], text_columns=2)


def plain_cell(row: Row) -> str:
    if row["kind"] == "time":
        return f"{row['seconds_plain']:.2f} s"
    return f"{row['megabytes_above_baseline_plain']:.0f} MB"


def column_title(kind: str, point: Point) -> str:
    title = f"{kind}: L {point.length}" + (f", dropout {point.dropout:g}" if point.dropout else "")
    if kind == "memory":
        return title
    return title + (", padded" if point.padded else "") + (f", threads {point.threads}" if point.threads != 2 else "")


def build_table(rows: list[Row]) -> str:
    head = ["knowledge", "pairs", "processes", "prepare, s", "build, s", "pairs per second", "open again, s"]
    return aligned([head, *(build_line(row) for row in rows)], text_columns=1)


def build_line(row: Row) -> list[str]:
    if "skipped" in row:
        return [f"{row['source']} (skipped: {row['skipped']})", *["–"] * 6]
    return [
        row["source"],
        f"{row['pairs']}",
        f"{row['workers']}",
        f"{row['seconds_to_prepare']:.1f}",
        f"{row['seconds_to_build']:.1f}",
        f"{row['pairs_per_second']:.0f}",
        f"{row['seconds_to_open']:.2f}",
    ]


def aligned(lines: list[list[str]], text_columns: int) -> str:
    """A table in Markdown; the first line is its head, and numbers stand to the right."""
    separator = "|" + "---|" * text_columns + "---:|" * (len(lines[0]) - text_columns)
    head, *rest = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, separator, *rest])

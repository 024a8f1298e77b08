"""The figures of a campaign as JSON, and as the section of docs/reliability.md that is generated from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "reliability.md"
MEASURED = ROOT / "studies" / "results" / "reliability.json"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
NOTHING = "No campaign is recorded yet: `make campaign` writes its figures here.\n"
SHOWN = 20  # failures that the section names


def section(content: Mapping[str, Any]) -> str:
    """The figures as Markdown, every number taken from the result."""
    world = content["world"]
    failures = content["failures"]
    lines = [
        f"Campaign of {world['date']}, headwise {world['headwise']}, Python {world['python']}, "
        f"{world['cores']} cores, seed {content['seed']}: {len(failures)} "
        f"{'failure' if len(failures) == 1 else 'failures'}.",
        "",
        "| part | tried | as promised | failures |",
        "|---|---|---|---|",
        *(_row(*row) for row in _parts(content["parts"])),
        "",
        *_details(content["parts"]),
    ]
    if failures:
        lines += ["", "Failures:", "", *(f"- {_failure(each)}" for each in failures[:SHOWN])]
        if len(failures) > SHOWN:
            lines.append(f"- and {len(failures) - SHOWN} more in studies/results/reliability.json")
    return "\n".join(lines) + "\n"


def _row(part: str, tried: int, failures: int) -> str:
    return f"| {part} | {tried} | {tried - failures} | {failures} |"


def _parts(parts: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    names = {
        "inputs": ("bad inputs", "inputs"),
        "kills": ("commands interrupted by SIGKILL and started again", "interrupted_commands"),
        "writers": ("outputs with two to four writers", "outputs"),
        "disk": ("commands on a disk without enough room", "attempts"),
        "damage": ("damaged files", "damaged_files"),
    }
    return [(title, parts[name][key], parts[name]["failures"]) for name, (title, key) in names.items() if name in parts]


def _details(parts: Mapping[str, Any]) -> list[str]:
    lines = []
    if "inputs" in parts:
        each = parts["inputs"]
        lines.append(
            f"Bad inputs went to {each['commands']} commands, {each['real_processes']} of them to a fresh interpreter: "
            f"{each['refused']} were refused with exit code 2, {each['still_valid']} were still valid (or harmless), "
            f"and {each['runs_listed_as_failed']} ended as failed runs that a sweep or a tuning lists. The slowest "
            f"took {each['slowest_seconds']:.0f} seconds."
        )
        lines += ["", "| kind of input | inputs | refused | failures |", "|---|---|---|---|"]
        lines += [
            f"| {name} | {row['inputs']} | {row['refused']} | {row['failures']} |"
            for name, row in each["by_family"].items()
        ]
    if "kills" in parts:
        each = parts["kills"]
        commands = ", ".join(f"{name} {count}" for name, count in each["by_command"].items())
        lines += [
            "",
            f"Kills: {each['kills']} ({commands}), {each['at_steps_of_writing']} of them at a step of writing a file, "
            f"the others at a random moment; {each['killed_more_than_once']} commands were killed more than once.",
        ]
    if "writers" in parts:
        each = parts["writers"]
        lines += [
            "",
            f"Writers: {each['processes']} processes of {', '.join(each['commands'])}; {each['finished']} finished, "
            f"{each['refused']} were refused, {each['refused_with_the_process']} of those with the process "
            "that was writing.",
        ]
    if "disk" in parts:
        each = parts["disk"]
        lines += [
            "",
            f"Full disk ({each['how']}): {len(each['commands'])} commands; in {each['disk_was_full']} of "
            f"{each['attempts']} attempts the room was not enough.",
        ]
    if "damage" in parts:
        each = parts["damage"]
        lines += [
            "",
            f"Damage: {each['files']} files, each in {each['kinds_of_damage']} ways; {each['refused']} were refused, "
            f"{each['made_no_difference']} made no difference.",
        ]
    return lines


def _failure(each: Mapping[str, Any]) -> str:
    return f"{each['part']} {each['number']}: `{each['name']}`, {each['what']}: {'; '.join(each['complaints'])}"


def failures(part: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What did not go as promised, in a few words each."""
    return [
        {
            "part": part,
            "number": row["number"],
            "name": row.get("order") or row.get("job"),
            "what": row.get("what")
            or " ".join(str(row[key]) for key in ("file", "kind", "free", "kills") if key in row),
            "complaints": row["complaints"],
            "stderr": row.get("stderr"),
        }
        for row in rows
        if row["complaints"]
    ]


def write(content: Mapping[str, Any]) -> None:
    """Keep the result, and put its figures into the document."""
    MEASURED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(with_section(text, section(content)), encoding="utf-8")


def with_section(text: str, figures: str) -> str:
    """A document with these figures between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/reliability.md has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{figures}\n{END}{after}"

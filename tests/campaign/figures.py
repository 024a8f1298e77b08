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


PARTS = {
    "inputs": ("bad inputs", "inputs"),
    "kills": ("commands interrupted by SIGKILL and started again", "interrupted_commands"),
    "writers": ("outputs with two to four writers", "outputs"),
    "disk": ("commands on a disk without enough room", "attempts"),
    "damage": ("damaged files", "damaged_files"),
}
# A paragraph for each part, filled in with its figures.
DETAILS = {
    "inputs": "Bad inputs went to {commands} commands, {real_processes} of them to a fresh interpreter: "
    "{refused} were refused with exit code 2, {still_valid} were still valid (or harmless), and "
    "{runs_listed_as_failed} ended as failed runs that a sweep or a tuning lists. The slowest took "
    "{slowest_seconds:.0f} seconds.",
    "kills": "Kills: {kills} ({counts}), {at_steps_of_writing} of them at a step of writing a file, the others at a "
    "random moment; {killed_more_than_once} commands were killed more than once.",
    "writers": "Writers: {processes} processes of {names}; {finished} finished, {refused} were refused, "
    "{refused_with_the_process} of those with the process that was writing.",
    "disk": "Full disk ({how}): {number} commands; in {disk_was_full} of {attempts} attempts the room was not enough.",
    "damage": "Damage: {files} files, each in {kinds_of_damage} ways; {refused} were refused, "
    "{made_no_difference} made no difference.",
}


def section(content: Mapping[str, Any]) -> str:
    """The figures as Markdown, every number taken from the result."""
    world, failures = content["world"], content["failures"]
    parts = {name: content["parts"][name] for name in PARTS if name in content["parts"]}
    lines = [
        f"Campaign of {world['date']}, headwise {world['headwise']}, Python {world['python']}, "
        f"{world['cores']} cores, seed {content['seed']}: {len(failures)} "
        f"{'failure' if len(failures) == 1 else 'failures'}.",
        "",
        "| part | tried | as promised | failures |",
        "|---|---|---|---|",
    ]
    for name, part in parts.items():
        title, key = PARTS[name]
        lines.append(f"| {title} | {part[key]} | {part[key] - part['failures']} | {part['failures']} |")
    for name, part in parts.items():
        more: dict[str, Any] = {}
        if name == "kills":
            more["counts"] = ", ".join(f"{command} {count}" for command, count in part["by_command"].items())
        if name in ("writers", "disk"):
            more = {"names": ", ".join(part["commands"]), "number": len(part["commands"])}
        lines += ["", DETAILS[name].format(**part, **more)]
        if name == "inputs":
            lines += ["", "| kind of input | inputs | refused | failures |", "|---|---|---|---|"]
            rows = part["by_family"].items()
            lines += [f"| {kind} | {row['inputs']} | {row['refused']} | {row['failures']} |" for kind, row in rows]
    if failures:
        lines += ["", "Failures:", ""]
        for each in failures[:SHOWN]:
            complaints = "; ".join(each["complaints"])
            lines.append(f"- {each['part']} {each['number']}: `{each['name']}`, {each['what']}: {complaints}")
        if len(failures) > SHOWN:
            lines.append(f"- and {len(failures) - SHOWN} more in studies/results/reliability.json")
    return "\n".join(lines) + "\n"


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

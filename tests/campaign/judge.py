"""What a command may do with a bad input, and what it did: the oracle of the campaign."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign.commands import Answer
from campaign.orders import BAD, SAME, Order

Files = dict[str, str]

REFUSED = 2
# A command may log progress and notes before it meets what is wrong, but only one line is the error.
LIBRARY = re.compile(r"\w+Warning: ")
# How a command says that it does without a file.
SAID = re.compile(r"is damaged|was made for another run")
DIVERGED = "headwise: the model's outputs are not finite"  # a failure of training, not of the input
LONGEST = 1500  # characters of an error: what, where, expected, got, fix
# Files that a command keeps only while it works.
DRAFT = re.compile(r"(^|/)\.[^/]*\.(new|tmp)$|\.(tmp|partial|new)$|(^|/)unfinished/.|\.(incomplete|draft)")
# Of which nothing but the presence of a lock says that somebody is at work: they may stay.
LOCK = re.compile(r"\.lock$")
# Keys whose values differ from run to run, though nothing else does.
VOLATILE = re.compile(
    r"second|runtime|^(written|command|times?|world|environment|process|record|total_flos|train_loss)$"
)
SECONDS = re.compile(r"\d+(\.\d+)?(e-?\d+)? ?(ms|s|sec|seconds?|pairs/s|kB|MB|B)\b")


def snapshot(folder: Path) -> Files:
    """Every file below a folder by name, with a hash of its content."""
    found: Files = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink():
                found[relative] = f"link to {os.readlink(path)}"
            elif path.is_dir():
                found[relative] = "folder"
            elif path.is_file():
                found[relative] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def judge(
    order: Order, verdict: str, answer: Answer, before: Files, after: Files, *, valid: str, box: Path
) -> list[str]:
    """What is wrong with the answer of a command; nothing if all is as promised.

    Args:
        order: the valid order that the input was made from.
        verdict: what may come of the input.
        answer: what came of it.
        before: the files of the box before.
        after: the files of the box afterwards.
        valid: the result of the valid order.
        box: the folder of the input.
    """
    if answer.code is None:
        return ["it hangs"]
    if answer.code < 0:
        return [f"it was ended by signal {-answer.code}"]
    found = ["a traceback"] if "Traceback (most recent call last)" in answer.err else []
    if match := re.search(r"headwise: unexpected (\w+)", answer.err):
        found.append(f"unexpected {match[1]}")
    if answer.code == REFUSED:
        free = (*order.caches, *(order.writes if order.continues else ()))
        found += _wrong_refusal(answer) + _changes(_outside(before, free), _outside(after, free))
    elif answer.code == 0:
        found += _wrong_success(order, verdict, answer, before, after)
        # A command may do without a damaged file if it says so.
        if not found and verdict == SAME and not SAID.search(answer.err) and result(order, box, answer) != valid:
            found.append("a damaged input was accepted, with another result")
    elif not (answer.code == 1 and (DIVERGED in answer.err or (order.failed_runs and "failed" in answer.out))):
        found.append(f"exit code {answer.code}")
    return found


def _wrong_refusal(answer: Answer) -> list[str]:
    lines = [line for line in answer.err.splitlines() if line.strip()]
    usage = bool(lines) and lines[0].startswith(("Usage: ", "Error: "))
    wrong = {
        "no sentence": not lines,
        "a mistake in the command line without one sentence": usage
        and [place for place, line in enumerate(lines) if line.startswith("Error: ")] != [len(lines) - 1],
        "the last line is not of headwise": not usage and bool(lines) and not lines[-1].startswith("headwise: "),
        "more than one line": not usage and sum(line.startswith("headwise: ") for line in lines) > 1,
        "a warning of a library": any(LIBRARY.search(line) for line in lines),
        "a sentence without end": any(len(line) > LONGEST for line in lines),
        "a result beside the error": bool(answer.out.strip()),
        "control characters in the sentence": "\x1b" in answer.err or "\0" in answer.err,
    }
    return [complaint for complaint, holds in wrong.items() if holds]


def _changes(before: Files, after: Files) -> list[str]:
    """What a command that refused its input did to the disk all the same."""
    new = [name for name in after if name not in before]
    found = [f"left behind: {name}" for name in new if after[name] == "folder" or not LOCK.search(name)][:1]
    kept = [name for name in before if not LOCK.search(name)]
    found += [f"removed: {name}" for name in kept if name not in after][:1]
    found += [f"changed: {name}" for name in kept if name in after and before[name] != after[name]][:1]
    return found


def _wrong_success(order: Order, verdict: str, answer: Answer, before: Files, after: Files) -> list[str]:
    if verdict == BAD:
        return ["a wrong input was accepted"]
    found = [f"left behind: {name}" for name in drafts(after) if name not in before][:1]
    said = re.findall(r"saved in (\S+)", answer.out) + re.findall(r'"(?:output|file)": "([^"]+)"', answer.out)
    for name, content in _outside(before, order.caches).items():
        # A link that was named as output is replaced.
        if content != after.get(name) and not content.startswith("link to"):
            places = (*order.writes, *said)
            if not any(f"{name}/".startswith(f"{each}/") or each.startswith(f"{name}/") for each in places):
                return [*found, f"changed: {name}"]
    return found


def _outside(files: Files, folders: tuple[str, ...]) -> Files:
    inside = tuple(f"{each}/" for each in folders)
    return {name: content for name, content in files.items() if not name.startswith(inside)}


def drafts(files: Mapping[str, str]) -> list[str]:
    """Files that should be there only while a command works."""
    return [name for name, content in files.items() if DRAFT.search(name) and content != "folder"]


# -- results -----------------------------------------------------------------------------------------------------------


def result(order: Order, box: Path, answer: Answer) -> str:
    """A hash of what a command gave: its output and its files, without times."""
    files = {
        path.relative_to(box).as_posix(): content_of(path, box)
        for place in order.writes
        for path in sorted([box / place, *(box / place).rglob("*")])
        if path.is_file() and path.suffix not in (".lock", ".db") and path.name != "log.jsonl"
    }
    # A sweep that makes a damaged result again says so, and a page is served at any port.
    said = "" if order.failed_runs or order.serves else output_of(answer.out, box)
    return hashlib.sha256(json.dumps([said, files], sort_keys=True).encode()).hexdigest()


def output_of(text: str, box: Path) -> Any:
    """What a command printed, without times and without the name of the box."""
    text = text.replace(str(box), "BOX").replace(str(box.parent), "PLACE")
    try:
        return without_times(json.loads(text))
    except ValueError:
        return plain_text(text)


def content_of(path: Path, box: Path) -> Any:
    """The content of a file, without times and without the name of the box."""
    if path.suffix not in (".json", ".jsonl", ".md", ".html", ".svg", ".yaml"):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    text = path.read_text(encoding="utf-8", errors="replace").replace(str(box), "BOX")
    try:
        if path.suffix == ".json":
            return without_times(json.loads(text))
        if path.suffix == ".jsonl":
            return [without_times(json.loads(line)) for line in text.splitlines()]
    except ValueError:
        pass
    return plain_text(text)


def without_times(data: Any) -> Any:
    """Nested data without what differs from run to run."""
    if isinstance(data, dict):
        return {key: without_times(each) for key, each in data.items() if not VOLATILE.search(str(key))}
    return [without_times(each) for each in data] if isinstance(data, list) else data


def plain_text(text: str) -> str:
    """A text without times and sizes."""
    text = SECONDS.sub("#", text)
    return re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*", "#", text)

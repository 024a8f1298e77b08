"""What the commands and the Python API give on tiny inputs, compared with tests/golden.json.

    python tests/golden.py                      # run everything and compare with the record; exit code 1 if they differ
    python tests/golden.py --only train         # only the sections train and train.*; may be repeated
    python tests/golden.py --write              # write the record (with --only: these sections of it)

For the restructure of the code base: every step leaves the record equal, or its commit says which line changed and why.
So the sections (folder golden_sections) use only the command line and the names in `headwise.__all__`. Not part of
`make test`.

Not in the record: paths, times, versions, and sentences of documentation. Floats are compared to 5 digits. Keys that
end in `sha256` (weights) are compared only on the kind of processor and the release of torch that wrote the record.
"""
# ruff: noqa: E402

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = str(HERE.parent / "src")
sys.path.insert(0, SOURCE)  # this tree, and no other one that is installed
os.environ["PYTHONPATH"] = SOURCE  # the same for the workers of a sweep
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import logging
import math
import multiprocessing.process
import platform
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from golden_sections import api, commands, mistakes, several_runs, training
from golden_sections.inputs import write_inputs
from golden_sections.lab import SECTIONS, Lab

RECORD = HERE / "golden.json"
MODULES = (commands, training, several_runs, mistakes, api)  # which have entered their sections in SECTIONS
DIGITS = 7  # of a float in the record: more than are compared, so that rounding makes no difference
# Relative tolerance on the recorded kind of processor, and on another one, where rounding adds up over the steps.
SAME, OTHER = 1e-5, 3e-3
MISSING = object()


def machine() -> dict[str, str]:
    """What decides the last bits of a number."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {"cpu_capability": capability, "machine": platform.machine(), "torch": torch.__version__}


def flat(data: Any, path: str = "") -> dict[str, Any]:
    """{path: leaf}; a list without dicts is a leaf."""
    if isinstance(data, Mapping):
        parts = {str(key).replace("/", ":"): value for key, value in data.items()}
    elif isinstance(data, list | tuple) and any(isinstance(value, Mapping) for value in data):
        parts = {str(number): value for number, value in enumerate(data)}
    else:
        return {path: rounded(data)}
    if not parts:
        return {path: {}}
    joined = {f"{path}/{key}" if path else key: value for key, value in parts.items()}
    return {inner: leaf for key, value in joined.items() for inner, leaf in flat(value, key).items()}


def rounded(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    return value


def same(old: Any, new: Any, tolerance: float) -> bool:
    """Whether two leaves are equal, floats to the tolerance."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(same(*pair, tolerance) for pair in zip(old, new, strict=True))
    if isinstance(old, float) and isinstance(new, float | int) or isinstance(new, float) and isinstance(old, int):
        return math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance / 100)
    return type(old) is type(new) and bool(old == new)


def differences(name: str, old: Mapping[str, Any], new: Mapping[str, Any], *, alike: bool) -> tuple[list[str], int]:
    """The lines of a diff by key path, and how many hashes were not compared."""
    lines, skipped = [], 0
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key, MISSING), new.get(key, MISSING)
        if not alike and key.endswith("sha256") and MISSING not in (before, after):
            skipped += 1
        elif MISSING in (before, after) or not same(before, after, SAME if alike else OTHER):
            shown = (("-", before), ("+", after))
            lines += [f"{sign}{name}/{key}: {json.dumps(value)}" for sign, value in shown if value is not MISSING]
    return lines, skipped


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def make(names: Sequence[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What the sections give, and the names of those that failed."""
    made, failed, lab = {}, [], Lab()
    for number, name in enumerate(names, 1):
        start = time.monotonic()
        try:
            made[name] = flat(SECTIONS[name](lab))
            say(f"{number}/{len(names)} {name}: {len(made[name])} values, {time.monotonic() - start:.1f} s")
        except Exception:
            failed.append(name)
            say(f"{number}/{len(names)} {name} FAILED\n{traceback.format_exc()}")
    return made, failed


def write(made: Mapping[str, Any], *, part: bool) -> None:
    """One line for each value, so that a diff of the file reads well."""
    old: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if part else {"sections": {}}
    if part and old["machine"] != machine():
        raise SystemExit(f"the record is of another machine ({old['machine']}): write all of it, without --only.")
    every = {**old["sections"], **made}
    blocks = []
    for name in [name for name in SECTIONS if name in every]:
        entries = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in every[name].items()]
        blocks.append(f"{json.dumps(name)}: {{\n" + ",\n".join(entries) + "\n}")
    text = f'{{\n"machine": {json.dumps(machine())},\n"sections": {{\n' + ",\n".join(blocks) + "\n}\n}\n"
    RECORD.write_text(text, encoding="utf-8")


def check(made: Mapping[str, Any], *, part: bool) -> int:
    """Print the differences; returns how many lines they have."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    alike, skipped, count = record["machine"] == machine(), 0, 0
    if not alike:
        say(f"recorded on {record['machine']}, this is {machine()}: hashes are not compared, floats roughly")
    gone = [] if part else [name for name in record["sections"] if name not in SECTIONS]
    for name in [*made, *gone]:
        lines, passed = differences(name, record["sections"].get(name, {}), made.get(name, {}), alike=alike)
        skipped, count = skipped + passed, count + len(lines)
        for line in lines:
            print(line)
    if skipped:
        say(f"{skipped} hashes were not compared")
    return count


@contextmanager
def workplace(kept: Path | None) -> Iterator[None]:
    """A fresh folder as the current one, with the inputs; one thread; quiet libraries."""
    folder = Path(tempfile.mkdtemp(prefix="golden-")) if kept is None else kept.absolute()
    folder.mkdir(parents=True, exist_ok=kept is None)
    before = os.getcwd()
    os.chdir(folder)
    multiprocessing.process.ORIGINAL_DIR = str(folder)  # where spawned workers start
    os.environ["HEADWISE_CACHE"] = str(folder / "cache")
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with Ctrl-C ignored
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.captureWarnings(True)
    try:
        write_inputs()
        yield
    finally:
        os.chdir(before)
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare what headwise gives on tiny inputs with tests/golden.json.")
    parser.add_argument("--write", action="store_true", help="write the record instead of comparing with it")
    parser.add_argument("--only", action="append", metavar="NAME", help="only the sections NAME and NAME.*; repeatable")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="new folder for inputs and runs; it is not removed")
    asked = parser.parse_args()
    wanted = asked.only or [""]
    asked.names = [name for name in SECTIONS if any(not each or f"{name}.".startswith(f"{each}.") for each in wanted)]
    if not asked.names:
        parser.error(f"no section {', '.join(asked.only)}: there are {', '.join(SECTIONS)}")
    if not RECORD.is_file() and (asked.only or not asked.write):
        parser.error(f"{RECORD} is missing: write it with --write")
    return asked


def main() -> int:
    asked, start = arguments(), time.monotonic()
    with workplace(asked.keep):
        made, failed = make(asked.names)
    say(f"{len(made)} sections in {time.monotonic() - start:.0f} s")
    if failed:
        say(f"failed: {', '.join(failed)}")
    if asked.write:
        if not failed:
            write(made, part=bool(asked.only))
        return int(bool(failed))
    count = check(made, part=bool(asked.only))
    say(f"{count} lines differ" if count else "all equal")
    return int(bool(count or failed))


if __name__ == "__main__":
    sys.exit(main())

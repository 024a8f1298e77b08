"""Damage to any file, whatever it holds: cut off, overwritten, empty, gone, something else."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from pathlib import Path

from campaign.case import BAD, OPEN, SAME, Case, Draw
from campaign.orders import Order

# Files of a model, of which transformers keeps no hash.
MODEL = {
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors",
    "headwise_head.safetensors",
    "headwise_heads.safetensors",
    "snapshots.safetensors",
}
# Older runs have no outputs, and what the heads do is measured again where it is missing.
OPTIONAL = {"outputs.json", "prune-curve.json", "dissociation.json"}
# Kinds after which nothing of a file's structure is left: no reader can take it for whole.
FATAL = ("empty", "random bytes", "zeros", "a folder", "packed by zlib")


def damage(path: Path, kind: str, chance: random.Random) -> None:
    """Damage a file in one way."""
    KINDS[kind](path, chance)


def _empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def _half(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(max(len(content), 1))])


def _one_byte(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    place = chance.randrange(len(content))
    content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _hole(path: Path, chance: random.Random) -> None:
    """As a lost block of the disk: zeros in the middle."""
    content = bytearray(path.read_bytes())
    start = chance.randrange(max(len(content), 1))
    end = min(len(content), start + 512)
    content[start:end] = bytes(end - start)
    path.write_bytes(content)


def _random(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(max(path.stat().st_size, 64)))


def _zeros(path: Path, chance: random.Random) -> None:
    path.write_bytes(bytes(max(path.stat().st_size, 64)))


def _tail(path: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(100))


def _twice(path: Path, chance: random.Random) -> None:
    path.write_bytes(2 * path.read_bytes())


def _gone(path: Path, chance: random.Random) -> None:
    path.unlink()


def _folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _packed(path: Path, chance: random.Random) -> None:
    path.write_bytes(zlib.compress(path.read_bytes()))


def _loop(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "empty": _empty,
    "half of it": _half,
    "cut off": _cut,
    "one bit": _one_byte,
    "a hole": _hole,
    "random bytes": _random,
    "zeros": _zeros,
    "a tail": _tail,
    "twice": _twice,
    "gone": _gone,
    "a folder": _folder,
    "packed by zlib": _packed,
    "a link to itself": _loop,
}


def damaged_file(draw: Draw) -> Case | None:
    """Damage to one of the files that the command reads."""
    folders = tuple(f"{run}/*" for run in draw.order.runs)
    path = draw.pick((*draw.order.reads, *draw.order.tables, *folders))
    if path is None or path.suffix == ".lock":
        return None
    kind = draw.chance.choice(sorted(KINDS))
    damage(path, kind, draw.chance)
    return draw.case(f"{draw.name(path)}: {kind}", verdict_of(draw.order, path, kind))


def verdict_of(order: Order, path: Path, kind: str) -> str:
    """What a command may do with a file that was damaged in this way."""
    gone = kind in ("gone", "a folder", "a link to itself")
    if order.failed_runs or (path.name in OPTIONAL and gone):
        return OPEN
    # Tables, figures and pages note the runs of a sweep that are missing; without its manifest it is a folder of runs.
    if kind == "gone" and path.parent.name in ("runs", "sweeps"):
        return OPEN
    return SAME if every_byte_counts(path) else OPEN


def every_byte_counts(path: Path) -> bool:
    """Whether every byte of it matters to somebody; of a table, what is left may be a smaller table."""
    if "unfinished" in path.parts:
        return True
    if path.name in MODEL:  # one bit more or less may be another valid model
        return False
    return path.suffix not in (".tsv", ".csv", ".jsonl", ".trec", ".txt", ".yaml", ".zip", ".md")


def damaged_recipe(draw: Draw) -> Case | None:
    """Damage to the bytes of a recipe or a sweep."""
    if draw.order.recipe is None:
        return None
    path = draw.box / draw.order.recipe
    kind = draw.chance.choice(sorted(KINDS))
    damage(path, kind, draw.chance)
    fatal = kind in (*FATAL, "gone", "a link to itself")
    return draw.case(f"{path.name}: {kind}", BAD if fatal else OPEN)

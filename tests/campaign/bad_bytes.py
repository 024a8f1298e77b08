"""Damage to any file, whatever it holds (cut off, overwritten, empty, gone), and wrong archives."""

from __future__ import annotations

import random
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from campaign.orders import BAD, OPEN, SAME, Case, Draw, Order

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
HUGE = 200 * 2**20  # bytes of a bomb


def _one_bit(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content or b"\0")
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _hole(content: bytes, chance: random.Random) -> bytes:
    """As a lost block of the disk: zeros in the middle."""
    start = chance.randrange(max(len(content), 1))
    end = min(len(content), start + 512)
    return content[:start] + bytes(end - start) + content[end:]


# How the content of a file is changed; the last three are no content.
KINDS: dict[str, Callable[[bytes, random.Random], bytes] | None] = {
    "empty": lambda content, chance: b"",
    "half of it": lambda content, chance: content[: len(content) // 2],
    "cut off": lambda content, chance: content[: chance.randrange(max(len(content), 1))],
    "one bit": _one_bit,
    "a hole": _hole,
    "random bytes": lambda content, chance: chance.randbytes(max(len(content), 64)),
    "zeros": lambda content, chance: bytes(max(len(content), 64)),
    "a tail": lambda content, chance: content + chance.randbytes(100),
    "twice": lambda content, chance: 2 * content,
    "packed by zlib": lambda content, chance: zlib.compress(content),
    "gone": None,
    "a folder": None,
    "a link to itself": None,
}


def damage(path: Path, kind: str, chance: random.Random) -> None:
    """Damage a file in one way."""
    change = KINDS[kind]
    if change is not None:
        path.write_bytes(change(path.read_bytes(), chance))
        return
    path.unlink()
    if kind == "a folder":
        path.mkdir()
    if kind == "a link to itself":
        path.symlink_to(path.name)


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


# -- archives ----------------------------------------------------------------------------------------------------------


def _rezip(*names: str, content: bytes | None = None) -> Callable[[Path], None]:
    """Members of these names, with the content of the first member, or another; NAME is its name."""

    def change(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            first = archive.namelist()[0]
            whole = archive.read(first)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name.replace("NAME", first), whole if content is None else content)

    return change


def _bomb(path: Path) -> None:
    """One line of many megabytes, packed into a few kilobytes."""
    with zipfile.ZipFile(path) as archive:
        name = archive.namelist()[0]
        content = archive.read(name)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as member:
        member.write(content)
        for _ in range(HUGE // 2**20):
            member.write(bytes(2**20))


def _headers(local: int | None, central: int, change: Callable[[int], int]) -> Callable[[Path], None]:
    """Change a byte at these places of the two headers of the first member."""

    def changed(path: Path) -> None:
        content = bytearray(path.read_bytes())
        for mark, place in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
            if place is not None:
                where = content.index(mark) + place
                content[where] = change(content[where])
        path.write_bytes(content)

    return changed


def _broken_stream(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:60] + bytes(40) + content[100:])


ZIPS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a member of another name": (_rezip("somebody.else"), OPEN),
    "an empty member": (_rezip("NAME", content=b""), BAD),
    "no members": (_rezip(), BAD),
    "two members": (_rezip("NAME", "second.txt"), OPEN),
    "a member that climbs": (_rezip("../../NAME"), OPEN),
    "a bomb": (_bomb, BAD),
    "a password": (_headers(6, 8, lambda byte: byte | 1), BAD),
    "an unknown method": (_headers(8, 10, lambda byte: 97), BAD),
    "a wrong checksum": (_headers(None, 16, lambda byte: byte ^ 0xFF), BAD),
    "a broken stream": (_broken_stream, BAD),
    "no text": (_rezip("NAME", content=bytes(range(256)) * 50), BAD),
}


def wrong_zip(draw: Draw) -> Case | None:
    """An archive that is wrong."""
    path = draw.pick(tuple(each for each in draw.order.reads if each.endswith(".zip")))
    if path is None:
        return None
    kind = draw.chance.choice(sorted(ZIPS))
    change, verdict = ZIPS[kind]
    change(path)
    return draw.case(f"{draw.name(path)}: {kind}", verdict)

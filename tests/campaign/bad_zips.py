"""Archives that are no archives, hold something else, or would fill the memory."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from campaign.case import BAD, OPEN, Case, Draw

HUGE = 200 * 2**20


def _rezip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _member(path: Path) -> tuple[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        name = archive.namelist()[0]
        return name, archive.read(name)


def _other_name(path: Path) -> None:
    _rezip(path, {"somebody.else": _member(path)[1]})


def _empty_member(path: Path) -> None:
    _rezip(path, {_member(path)[0]: b""})


def _no_members(path: Path) -> None:
    _rezip(path, {})


def _twice(path: Path) -> None:
    name, content = _member(path)
    _rezip(path, {name: content, "second.txt": content})


def _climbing(path: Path) -> None:
    name, content = _member(path)
    _rezip(path, {f"../../{name}": content})


def _bomb(path: Path) -> None:
    """One line of many megabytes, packed into a few kilobytes."""
    name, content = _member(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as member:
        member.write(content)
        for _ in range(HUGE // 2**20):
            member.write(bytes(2**20))


def _encrypted(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + place] |= 1
    path.write_bytes(content)


def _unknown_method(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(mark) + place] = 97
    path.write_bytes(content)


def _wrong_checksum(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 16] ^= 0xFF
    path.write_bytes(content)


def _broken_stream(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60:100] = bytes(40)
    path.write_bytes(content)


def _no_text(path: Path) -> None:
    _rezip(path, {_member(path)[0]: bytes(range(256)) * 50})


ZIPS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a member of another name": (_other_name, OPEN),
    "an empty member": (_empty_member, BAD),
    "no members": (_no_members, BAD),
    "two members": (_twice, OPEN),
    "a member that climbs": (_climbing, OPEN),
    "a bomb": (_bomb, BAD),
    "a password": (_encrypted, BAD),
    "an unknown method": (_unknown_method, BAD),
    "a wrong checksum": (_wrong_checksum, BAD),
    "a broken stream": (_broken_stream, BAD),
    "no text": (_no_text, BAD),
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

"""Files inside a zip, named as if the zip were a folder: data/scifact.zip/claims_train.csv."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from headwise.errors import InputError
from headwise.packed import check_member

_ENCRYPTED = 1  # the first of a member's flag bits


def archive_of(path: Path) -> Path | None:
    """The zip that the path goes through, if it does."""
    return next((folder for folder in path.parents if is_archive(folder)), None)


def is_archive(path: Path) -> bool:
    """Whether this is a file whose name says that it is a zip."""
    return path.suffix.lower() == ".zip" and path.is_file()


def members(archive: Path) -> tuple[str, ...]:
    """The names of the files inside, without what macOS adds."""
    with _opened(archive) as opened:
        names = [info.filename for info in opened.infolist() if not info.is_dir()]
    return tuple(name for name in names if not name.startswith("__MACOSX/"))


def packed_size(path: Path, archive: Path) -> int:
    """Bytes of a file inside a zip as it is packed there."""
    with _opened(archive) as opened:
        return min(opened.getinfo(path.relative_to(archive).as_posix()).compress_size, archive.stat().st_size)


@contextmanager
def open_member(path: Path, archive: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file inside a zip, unpacked as they are read."""
    name = path.relative_to(archive).as_posix()
    with _opened(archive) as opened:
        if name not in opened.namelist():
            raise InputError(f"{archive} holds no {name}: correct the name, or put the file into the zip.")
        if opened.getinfo(name).flag_bits & _ENCRYPTED:
            raise InputError(f"{path} is locked with a password: unpack the zip first.")
        check_member(opened, opened.getinfo(name), path)
        try:
            stream = opened.open(name)
        except NotImplementedError as error:
            raise InputError(f"{path} is packed in a way that Python cannot read ({error}): unpack it first.") from None
        with stream:
            yield stream


@contextmanager
def _opened(archive: Path) -> Iterator[ZipFile]:
    try:
        with ZipFile(archive) as opened:
            yield opened
    except BadZipFile as error:
        raise InputError(f"{archive} is not a whole zip file ({error}): fetch it again, or unpack it.") from None

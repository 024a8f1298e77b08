"""Lines of text files, plain, gzipped or inside a zip; whatever is wrong with the file is said in one sentence.

Files inside a zip are named as if the zip were a folder: data/scifact.zip/claims_train.csv.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from headwise.errors import InputError
from headwise.limits import check_member, limited

CHUNK = 2**20
MAX_LINE = 20_000_000
"""Characters of a line."""
MAX_DOCUMENT = 100_000_000
"""Characters of a file that is read as one text."""
_ENCRYPTED = 1  # the first of a zip member's flag bits


def lines(path: Path, encoding: str, *, longest: int = MAX_LINE) -> Iterator[str]:
    """The lines of a file with their ends; only a line feed ends a line, as in editors and in `wc`.

    A line of more than `longest` characters is refused before the rest of it is read.
    """
    check_file(path)
    # Windows programs begin UTF-8 files with a mark that would otherwise stick to the name of the first column.
    codec = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    try:
        with ExitStack() as stack:
            text = stack.enter_context(TextIOWrapper(_opened(path, stack), encoding=codec, newline="\n"))
            for number, line in enumerate(iter(partial(text.readline, longest + 1), ""), 1):
                if len(line) > longest and not line.endswith("\n"):
                    raise InputError(
                        f"{path} line {number} has more than {longest:,} characters: expected text in lines; break it "
                        "into shorter lines, or check that this is a text file."
                    )
                yield line
    except UnicodeDecodeError as error:
        raise _bad_bytes(path, encoding, error) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        if archive_of(path) is not None and not gzipped(path):
            message = f"{path} is not whole inside its zip ({error}): fetch the zip again."
        else:
            message = f"{path} is not a whole gzip file ({error}): fetch it again, or drop the .gz."
        raise InputError(message) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): make it readable or name another file.") from None


def whole_text(path: Path, encoding: str) -> str:
    """All of a file that is not read line by line."""
    parts, left = [], MAX_DOCUMENT
    for line in lines(path, encoding, longest=MAX_DOCUMENT):
        parts.append(line)
        left -= len(line)
        if left < 0:
            raise InputError(
                f"{path} has more than {MAX_DOCUMENT:,} characters, and is read as one text: split it, or name another."
            )
    return "".join(parts)


def check_file(path: Path) -> None:
    """Refuse a path that does not exist or is not a file."""
    if path.is_dir():
        raise InputError(f"{path} is a directory: expected a file; name one inside it.")
    if archive_of(path) is None and not path.exists():
        raise InputError(f"{path} does not exist: correct the path or put the file there.")


def gzipped(path: Path) -> bool:
    """Whether the name says that the file is compressed."""
    return path.suffix.lower() == ".gz"


def archive_of(path: Path) -> Path | None:
    """The zip that the path goes through, if it does."""
    return next((folder for folder in path.parents if is_archive(folder)), None)


def is_archive(path: Path) -> bool:
    """Whether this is a file whose name says that it is a zip."""
    return path.suffix.lower() == ".zip" and path.is_file()


def members(archive: Path) -> tuple[str, ...]:
    """The names of the files inside a zip, without what macOS adds."""
    with _open_archive(archive) as opened:
        names = [info.filename for info in opened.infolist() if not info.is_dir()]
    return tuple(name for name in names if not name.startswith("__MACOSX/"))


@contextmanager
def _open_archive(archive: Path) -> Iterator[ZipFile]:
    try:
        with ZipFile(archive) as opened:
            yield opened
    except BadZipFile as error:
        raise InputError(f"{archive} is not a whole zip file ({error}): fetch it again, or unpack it.") from None


def _opened(path: Path, stack: ExitStack) -> IO[bytes]:
    """The bytes of a file, unpacked as they are read and up to the limit of a packed file."""
    archive = archive_of(path)
    if archive is None:
        stream: IO[bytes] = stack.enter_context(path.open("rb"))
        packed = path.stat().st_size
    else:
        opened = stack.enter_context(_open_archive(archive))
        name = path.relative_to(archive).as_posix()
        if name not in opened.namelist():
            raise InputError(f"{archive} holds no {name}: correct the name, or put the file into the zip.")
        member = opened.getinfo(name)
        if member.flag_bits & _ENCRYPTED:
            raise InputError(f"{path} is locked with a password: unpack the zip first.")
        check_member(opened, member, path)
        try:
            stream = stack.enter_context(opened.open(name))
        except NotImplementedError as error:
            raise InputError(f"{path} is packed in a way that Python cannot read ({error}): unpack it first.") from None
        packed = min(member.compress_size, archive.stat().st_size)
    if not gzipped(path):
        return stream
    return limited(stack.enter_context(gzip.GzipFile(fileobj=stream)), packed, path)


def _bad_bytes(path: Path, encoding: str, error: UnicodeDecodeError) -> InputError:
    """Reads the file once more, since a stream counts bytes from its last chunk only."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line, start = 1, 0  # of the bytes that are not decoded yet
    with ExitStack() as stack:
        stream = _opened(path, stack)
        try:
            for chunk in iter(partial(stream.readline, CHUNK), b""):
                waiting = len(decoder.getstate()[0])
                decoder.decode(chunk)
                start += waiting + len(chunk) - len(decoder.getstate()[0])
                line += chunk.endswith(b"\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as again:
            error = again
    return InputError(
        f"{path} line {line}, byte {start + error.start}: expected {encoding} text, got the byte "
        f"0x{error.object[error.start]:02x} ({error.reason}); save the file as {encoding}, or, in the task of a "
        "recipe, pass its own encoding, for example encoding: latin-1."
    )

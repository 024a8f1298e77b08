"""Lines of text files, plain, gzipped or inside a zip; whatever is wrong with the file is said in one sentence.

Files inside a zip are named as if the zip were a folder: data/scifact.zip/claims_train.csv.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from string import ascii_letters
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
_HEAD = 4096
MOST_NAMES = 1000
"""Files of a folder among which the one that is meant may be."""
# The first bytes of files that are no text -> what they are, and the fix.
SIGNATURES = {
    b"PK\x03\x04": ("a zip file", "unpack it, or name it .zip and name a file inside it"),
    b"PAR1": ("a Parquet file", "name it .parquet, or set format: parquet"),
    b"\x1f\x8b": ("a gzip file", "add .gz to its name"),
    b"%PDF": ("a PDF", "save its text as a CSV, TSV or JSONL file"),
    b"\x89PNG": ("a PNG image", "name a file of text"),
    b"\xff\xd8\xff": ("a JPEG image", "name a file of text"),
    b"GIF8": ("a GIF image", "name a file of text"),
    b"\xd0\xcf\x11\xe0": ("a file of old Excel or Word (.xls, .doc)", "save it as .xlsx or .csv"),
    b"SQLite format 3": ("an SQLite database", "export the table as CSV"),
    b"ARROW1": ("an Arrow file", "save it as Parquet"),
    b"\x93NUMPY": ("a NumPy array", "save it as CSV"),
    b"\x80\x04\x95": ("a Python pickle", "save it as CSV"),
    b"BZh": ("a bzip2 file", "unpack it"),
    b"\xfd7zXZ": ("an xz file", "unpack it"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it"),
    b"version https://git-lfs": ("a pointer of Git LFS", "fetch the file itself with git lfs pull"),
    b"<!doctype html": ("a web page", "download the file itself"),
    b"<html": ("a web page", "download the file itself"),
}
# What is inside a zip file that is a document.
DOCUMENTS = {
    "xl/": ("an Excel file", "name it .xlsx, or set format: xlsx"),
    "word/": ("a Word file", "save its text as a CSV, TSV or JSONL file"),
    "content.xml": ("an OpenDocument spreadsheet", "save it as .xlsx or .csv"),
}
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b"))
MOST_CONTROL = 0.02
"""Share of control characters in what is still text."""
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
MOST_ACCENTS = 0.4
"""Share of accented letters among all letters in what may be a Western European language."""


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


def encoding_of(path: Path) -> str:
    """The encoding of a text file: utf-8, utf-16, utf-16-le, utf-16-be or cp1252, of which latin-1 is a part.

    A byte order mark decides, or zeros in every second byte (UTF-16). Else the first part with bytes beyond ASCII:
    UTF-8 hardly occurs by chance. What is none of these is left to the reader of UTF-8, which reports the first bad
    byte.
    """
    check_file(path)
    try:
        with ExitStack() as stack:
            stream = _opened(path, stack)
            head = stream.read(_HEAD)
            marked = next((name for mark, name in BYTE_ORDER_MARKS.items() if head.startswith(mark)), _wide(head))
            if marked is not None:
                return marked
            check_text(path, head)
            chunk = head + stream.readline(CHUNK)
            while chunk:
                if not chunk.isascii():
                    return "cp1252" if _looks_western(chunk) else "utf-8"
                chunk = stream.read(CHUNK) + stream.readline(CHUNK)
    except (gzip.BadGzipFile, EOFError, zlib.error, OSError):
        pass  # `lines` reports it in its own sentence
    return "utf-8"


def check_text(path: Path, head: bytes) -> None:
    """Refuse a file whose first bytes are not text, and say what it looks like."""
    begins = head.lstrip().lower()
    found = next(
        (what for mark, what in SIGNATURES.items() if (begins if mark[:1] == b"<" else head).startswith(mark)), None
    )
    if head.startswith(b"PK") and path.is_file():
        with suppress(InputError), _open_archive(path) as archive:
            names = " ".join(archive.namelist())
            found = next((what for part, what in DOCUMENTS.items() if part in names), found)
    if found is None and len(head) - len(head.translate(None, _CONTROL)) > MOST_CONTROL * len(head):
        found = ("bytes that are no text", "name a CSV, TSV, JSONL, Parquet or Excel file")
    if found is not None:
        raise InputError(f"{path} is not a text file: expected text in lines, got {found[0]}; {found[1]}.")


def _wide(head: bytes) -> str | None:
    """UTF-16 without a byte order mark: letters of European languages have a zero byte each, always on one side."""
    first, second = head[::2].count(0), head[1::2].count(0)
    if max(first, second) < len(head) // 5 or min(first, second) > len(head) // 50 or not max(first, second):
        return None
    return "utf-16-le" if second > first else "utf-16-be"


def _looks_western(data: bytes) -> bool:
    """Whether bytes that are not UTF-8 may be latin-1 or cp1252: single letters with accents among many without."""
    sequences = re.findall(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}", data)
    beyond = len(data.translate(None, bytes(range(128))))
    if 2 * sum(map(len, sequences)) >= beyond:  # UTF-8, perhaps damaged
        return False
    return beyond <= MOST_ACCENTS * (beyond + len(data) - len(data.translate(None, ascii_letters.encode())))


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
        with suppress(OSError):
            names = [each.name for each in islice(path.parent.iterdir(), MOST_NAMES) if each.is_file()]
            near = get_close_matches(path.name, names, n=1)
            if near:
                raise InputError(
                    f"{path} does not exist: did you mean {near[0]}? Correct the path or put the file there."
                )
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

"""Lines of text files, plain or gzipped; whatever is wrong with the file is said in one sentence."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from headwise.errors import InputError


def lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines of a file with their ends; only a line feed ends a line, as in editors and in `wc`."""
    check_file(path)
    try:
        with _opened(path, encoding) as stream:
            yield from stream
    except UnicodeDecodeError as error:
        raise _bad_bytes(path, encoding, error) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}): fetch it again, or drop the .gz.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): make it readable or name another file.") from None


def check_file(path: Path) -> None:
    """Refuse what is not there or is not a file."""
    if path.is_dir():
        raise InputError(f"{path} is a directory: expected a file; name one inside it.")
    if not path.exists():
        raise InputError(f"{path} does not exist: correct the path or put the file there.")


def gzipped(path: Path) -> bool:
    """Whether the name says that the file is compressed."""
    return path.suffix.lower() == ".gz"


def _opened(path: Path, encoding: str) -> IO[str]:
    kind = gzip.open if gzipped(path) else open
    return cast(IO[str], kind(path, "rt", encoding=_skipping_mark(encoding), newline="\n"))


def _skipping_mark(encoding: str) -> str:
    # Windows programs begin UTF-8 files with a mark that would otherwise stick to the name of the first column.
    return "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding


def _bad_bytes(path: Path, encoding: str, error: UnicodeDecodeError) -> InputError:
    """Reads the file once more, since a stream counts bytes from its last chunk only."""
    data = gzip.decompress(path.read_bytes()) if gzipped(path) else path.read_bytes()
    try:
        data.decode(encoding)
    except UnicodeDecodeError as whole:
        error = whole
    line = data.count(b"\n", 0, error.start) + 1
    return InputError(
        f"{path} line {line}, byte {error.start}: expected {encoding} text, got the byte "
        f"0x{error.object[error.start]:02x} ({error.reason}); pass the file's encoding, for example encoding: latin-1."
    )

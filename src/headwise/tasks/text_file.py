"""Lines of text files, plain, gzipped or inside a zip; whatever is wrong with the file is said in one sentence."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import IO, cast

from headwise.errors import InputError
from headwise.tasks.zipped import archive_of, open_member


def lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines of a file with their ends; only a line feed ends a line, as in editors and in `wc`."""
    check_file(path)
    try:
        with ExitStack() as stack:
            stream = _opened(path, stack)
            text = TextIOWrapper(stream, encoding=_skipping_mark(encoding), newline="\n")
            yield from stack.enter_context(text)
    except UnicodeDecodeError as error:
        raise _bad_bytes(path, encoding, error) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _not_whole(path, error) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): make it readable or name another file.") from None


def check_file(path: Path) -> None:
    """Refuse what is not there or is not a file."""
    if path.is_dir():
        raise InputError(f"{path} is a directory: expected a file; name one inside it.")
    if archive_of(path) is None and not path.exists():
        raise InputError(f"{path} does not exist: correct the path or put the file there.")


def gzipped(path: Path) -> bool:
    """Whether the name says that the file is compressed."""
    return path.suffix.lower() == ".gz"


def _opened(path: Path, stack: ExitStack) -> IO[bytes]:
    archive = archive_of(path)
    stream = stack.enter_context(path.open("rb") if archive is None else open_member(path, archive))
    return cast(IO[bytes], stack.enter_context(gzip.open(stream))) if gzipped(path) else stream


def _skipping_mark(encoding: str) -> str:
    # Windows programs begin UTF-8 files with a mark that would otherwise stick to the name of the first column.
    return "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding


def _not_whole(path: Path, error: Exception) -> InputError:
    if archive_of(path) is not None and not gzipped(path):
        return InputError(f"{path} is not whole inside its zip ({error}): fetch the zip again.")
    return InputError(f"{path} is not a whole gzip file ({error}): fetch it again, or drop the .gz.")


def _bad_bytes(path: Path, encoding: str, error: UnicodeDecodeError) -> InputError:
    """Reads the file once more, since a stream counts bytes from its last chunk only."""
    with ExitStack() as stack:
        data = _opened(path, stack).read()
    try:
        data.decode(encoding)
    except UnicodeDecodeError as whole:
        error = whole
    line = data.count(b"\n", 0, error.start) + 1
    return InputError(
        f"{path} line {line}, byte {error.start}: expected {encoding} text, got the byte "
        f"0x{error.object[error.start]:02x} ({error.reason}); save the file as {encoding}, or, in the task of a "
        "recipe, pass its own encoding, for example encoding: latin-1."
    )

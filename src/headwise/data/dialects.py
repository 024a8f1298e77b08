"""How a file of rows is written: format, delimiter, quotation marks and encoding, detected where nobody says so."""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from headwise.data.text_files import archive_of, encoding_of, gzipped, lines
from headwise.errors import InputError

logger = logging.getLogger(__name__)

DELIMITERS = {"tsv": "\t", "csv": ","}
QUOTING = {"tsv": "none", "csv": "minimal"}
FORMATS = ("tsv", "csv", "jsonl", "parquet", "xlsx")
SUFFIXES = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",  # as CLUE names its files of JSON lines
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}
NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "pipe"}
"""The delimiters that are looked for."""
SAMPLE_ROWS = 200
SAMPLE_CHARACTERS = 2**18
# Share of rows with as many fields as the first, for a delimiter that the name of the file does not suggest.
REGULAR = 0.5
VERY_REGULAR = 0.8
# Endings under which the same table may lie.
SIBLINGS = (".tsv", ".csv", ".txt", ".tsv.gz", ".csv.gz", ".txt.gz", ".xlsx")


@dataclass(frozen=True)
class Dialect:
    """How a file is written; None is detected."""

    format: str | None = None
    quoting: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    """Of a spreadsheet; its only one if None."""


def suffix_of(path: Path) -> str:
    """The ending of a file's name in lower case, without that of the compression."""
    return (path.with_suffix("") if gzipped(path) else path).suffix.lower()


def format_of(path: Path, encoding: str = "utf-8") -> str:
    """The format that a file's name suggests."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path}: the format of a file that ends in {suffix!r} is not known; set format to {', '.join(FORMATS)}."
        )
    # SciTail and others ship JSON lines under .txt
    if suffix == ".txt" and next(lines(path, encoding), "").startswith("{"):
        return "jsonl"
    return SUFFIXES[suffix]


def resolved(path: Path, dialect: Dialect) -> Dialect:
    """The dialect of a file with what was detected; what its name does not suggest is logged, once for each file."""
    file = archive_of(path) or path
    state = file.stat() if file.exists() else None
    return _resolved(path, dialect, state and (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=256)
def _resolved(path: Path, dialect: Dialect, state: tuple[int, int] | None) -> Dialect:
    suggested = dialect.format or SUFFIXES.get(suffix_of(path))
    if dialect.sheet is not None and suggested != "xlsx":
        raise InputError(f"{path}: sheet={dialect.sheet!r} is for spreadsheets, and this is none: leave it out.")
    if suggested in ("parquet", "xlsx"):
        return replace(dialect, format=suggested)
    if suggested is None:
        format_of(path)  # which refuses it
    encoding = dialect.encoding or encoding_of(path)
    kind = dialect.format or format_of(path, encoding)
    found = replace(dialect, format=kind, encoding=encoding)
    if kind != "jsonl":
        delimiter, quoting = _delimiter(path, found)
        found = replace(found, delimiter=delimiter, quoting=quoting)
    unusual = described(found, unusual=True, given=dialect)
    if unusual:
        logger.warning("%s: %s", path, unusual)
    return found


def described(dialect: Dialect, *, unusual: bool = False, given: Dialect | None = None) -> str:
    """How a file is written, in words: "; as delimiter, latin-1".

    Args:
        dialect: all of it.
        unusual: leave out what the format suggests: UTF-8, and tabs in a TSV or commas in a CSV.
        given: leave out what was given there.
    """
    given, parts = given or Dialect(), []
    kind, delimiter, encoding = dialect.format or "", dialect.delimiter, dialect.encoding
    if delimiter is not None and given.delimiter is None and not (unusual and delimiter == DELIMITERS[kind]):
        parts.append(f"{'tab' if delimiter == chr(9) else delimiter} as delimiter")
    if dialect.quoting == "minimal" and kind == "tsv" and delimiter == "\t" and given.quoting is None:
        parts.append('fields in quotation marks (")')
    if encoding is not None and given.encoding is None and not (unusual and encoding == "utf-8"):
        parts.append({"cp1252": "latin-1 (cp1252)", "utf-8": "UTF-8"}.get(encoding, encoding.upper()))
    if dialect.sheet is not None and not unusual:
        parts.append(f"sheet {dialect.sheet!r}")
    return ", ".join(parts)


# -- delimiters --------------------------------------------------------------------------------------------------------


def _delimiter(path: Path, dialect: Dialect) -> tuple[str, str]:
    """The delimiter of a file and whether quotation marks protect it.

    Where the one that the name suggests splits all rows into equally many fields, it is the one. Another one has to
    split the first line, and most rows into as many fields.
    """
    kind = str(dialect.format)
    usual = dialect.delimiter or DELIMITERS[kind], dialect.quoting or QUOTING[kind]
    if dialect.delimiter is not None:
        # As spreadsheets write it, unless the name suggests a file without quotation marks.
        return usual[0], dialect.quoting or (QUOTING["tsv"] if usual[0] == "\t" and kind == "tsv" else "minimal")
    text, whole = _sample(path, str(dialect.encoding))
    fields, share = _regularity(text, *usual, whole=whole)
    if fields > 1 and share == 1:
        return usual
    best, best_score = usual, (0.0, 0)
    for delimiter in NAMES:
        quoting = dialect.quoting or "minimal"
        if (delimiter, quoting) == usual:
            continue
        others, regular = _regularity(text, delimiter, quoting, whole=whole)
        if delimiter == usual[0]:
            enough = regular == 1 > share  # the same rows, with their quotation marks read
        elif fields > 1:
            enough = regular > 0.95 and share < REGULAR
        else:
            enough = regular >= (VERY_REGULAR if share == 1 else REGULAR) and not _is_prose(text, delimiter)
        if others > 1 and enough and (regular, others) > best_score:
            best, best_score = (delimiter, quoting), (regular, others)
    return best


def _sample(path: Path, encoding: str) -> tuple[list[str], bool]:
    """The first lines, and whether these are all."""
    sample: list[str] = []
    characters = 0
    for line in lines(path, encoding):
        if len(sample) == SAMPLE_ROWS or characters > SAMPLE_CHARACTERS:
            return sample, False
        sample.append(line)
        characters += len(line)
    return sample, True


def _regularity(text: Sequence[str], delimiter: str, quoting: str, *, whole: bool) -> tuple[int, float]:
    """The number of fields of the first row, and the share of rows that have as many; (0, 0) if it cannot be read."""
    counts: list[int] = []
    if quoting == "none":
        counts = [line.count(delimiter) + 1 for line in text if line.strip("\r\n")]
    else:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                counts += [len(fields)] if fields else []
        except csv.Error:
            if whole or not counts:
                return 0, 0.0
    if not counts:
        return 0, 0.0
    return counts[0], Counter(counts)[counts[0]] / len(counts)


def _is_prose(text: Sequence[str], delimiter: str) -> bool:
    """Whether a sign is followed by a blank wherever it occurs, as in sentences."""
    return all(line.count(delimiter) == line.count(f"{delimiter} ") for line in text)


# -- the same table under another ending -------------------------------------------------------------------------------


def sibling(path: Path) -> Path | None:
    """The table of the same name with another ending, such as train.csv for train.tsv; the choice is logged."""
    if suffix_of(path) not in (".tsv", ".csv", ".txt", ".tab", ".xlsx") or path.exists():
        return None
    plain = path.with_suffix("") if gzipped(path) else path
    found = [each for ending in SIBLINGS if (each := plain.with_suffix("").with_name(plain.stem + ending)).is_file()]
    if len(found) > 1:
        raise InputError(
            f"{path} does not exist, and there are {', '.join(each.name for each in found)}: name one of them."
        )
    if not found:
        return None
    logger.warning("%s does not exist: %s is read instead", path, found[0].name)
    return found[0]

"""Sheets of Excel files (.xlsx), read through openpyxl if it is installed.

An .xlsx file is a zip of XML files, and somebody else may have written it. So its size is checked before anything is
unpacked, entities of XML are refused (by defusedxml), and cells beyond the last column of the first row are not read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import date, datetime, time
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from headwise.data.text_files import archive_of, check_file, gzipped
from headwise.errors import InputError, choices, listed
from headwise.limits import check_member

MAX_UNPACKED = 2**30
"""Bytes of all parts of an Excel file."""
MAX_COLUMNS = 1000
MAX_ROWS = 2**20
"""Rows of a sheet, as in Excel."""
ERRORS = ("#N/A", "#REF!", "#VALUE!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!")
"""What formulas without a result show; read as empty cells."""


def open_sheet(path: Path, sheet: str | None) -> tuple[str, tuple[tuple[int, list[str]], ...]]:
    """The name of a sheet and its rows, with their numbers; the only sheet if none is named."""
    check_file(path)
    if archive_of(path) is not None or gzipped(path):
        raise InputError(f"{path} is an Excel file inside another file: unpack it first.")
    _check_size(path)
    try:
        openpyxl = import_module("openpyxl")
        defused = import_module("defusedxml")
    except ImportError:
        raise InputError(
            f"{path} is an Excel file, which needs openpyxl and defusedxml: install headwise[excel], or save it as CSV."
        ) from None
    if not openpyxl.DEFUSEDXML:
        raise InputError(f"{path} is an Excel file, and OPENPYXL_DEFUSEDXML switches its safe reader off: unset it.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and lists for input, which no text needs
        try:
            with path.open("rb") as file:
                book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
                name = _choose(path, [each.title for each in book.worksheets], sheet)
                return name, tuple(_rows(book[name]))
        except InputError:
            raise
        except Exception as error:  # whatever openpyxl and its parsers raise for what they do not expect
            cause = error.__cause__ or error.__context__ or error
            if isinstance(cause, defused.DefusedXmlException):
                raise InputError(
                    f"{path} defines entities of XML, which may unpack without end: save it again, or as CSV."
                ) from error
            reason = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
            raise InputError(f"{path} is not a whole Excel file ({reason:.200}): save it again, or as CSV.") from error


def _check_size(path: Path) -> None:
    """Refuse a zip that unpacks to too much; zipfile never unpacks more than the zip says."""
    try:
        with ZipFile(path) as archive:
            for member in archive.infolist():
                check_member(archive, member, path)
            total = sum(member.file_size for member in archive.infolist())
    except (BadZipFile, OSError) as error:
        raise InputError(f"{path} is not an Excel file ({error}): save it again, or set its format.") from None
    if total > MAX_UNPACKED:
        raise InputError(f"{path} unpacks to {total / 2**30:.1f} GB, and may to 1 GB: save the sheet as CSV.")


def _choose(path: Path, sheets: list[str], sheet: str | None) -> str:
    if sheet is not None:
        if sheet not in sheets:
            raise InputError(f"{path} has no sheet {sheet!r}: {choices(sheet, sheets)}.")
        return sheet
    if len(sheets) != 1:
        raise InputError(
            f"{path} has {len(sheets)} sheets: {listed(sheets)}; expected one: choose with sheet=NAME (task.sheet in a "
            "recipe)."
        )
    return sheets[0]


def _rows(sheet: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, as wide as the first one."""
    sheet.reset_dimensions()  # what the file says of its size may be anything
    width = None
    for number, values in enumerate(sheet.iter_rows(max_row=MAX_ROWS, max_col=MAX_COLUMNS, values_only=True), 1):
        if values.count(None) == len(values):  # fast: a sheet may have gaps of a million rows
            continue
        cells = [_text(value) for value in values[:width]]
        if width is None:
            width = max((position for position, cell in enumerate(cells, 1) if cell), default=None)
        if any(cells):
            yield number, cells[:width]


def _text(value: Any) -> str:
    """A cell as a spreadsheet shows it."""
    if value is None or (isinstance(value, str) and value in ERRORS):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        value = value.date()
    return value.isoformat() if isinstance(value, date | time) else str(value)

"""Tables of rows with exact line numbers: TSV, CSV, JSON Lines, Parquet and Excel files, and data sets of the Hub.

The csv module reads delimited files rather than pandas: pandas reports no line of a row that is too short, and fills
it up instead.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from headwise.data.dialects import NAMES, Dialect, described, resolved
from headwise.data.text_files import MAX_LINE, check_file, lines
from headwise.errors import InputError, listed
from headwise.limits import parse_json

SPLITS = {"train": "train", "validation": "validation", "test": "test"}

Row = tuple[int, list[Any]]
"""A line number and the values of the requested columns."""
Broken = Callable[[str], None]
"""Called with one sentence about a row that cannot be used; raises, or returns to skip the row."""


class Table:
    """Rows of a file or of the Hub. A subclass has `first` and either `objects` or `rows`."""

    path: Path | str
    unit: ClassVar[str] = "line"
    """What its rows are counted in, for messages: line or row."""
    named: ClassVar[bool] = True
    """Whether the rows carry the names of their columns, so that no header is needed."""

    @property
    def where(self) -> str:
        """The file, for messages."""
        return str(self.path)

    @property
    def written(self) -> str:
        """How the file is written, such as "; as delimiter, UTF-8"; empty if there is nothing to say."""
        return ""

    @property
    def first(self) -> tuple[str, ...]:
        """The fields of the first line, or the names of the columns."""
        raise NotImplementedError

    def objects(self, wanted: Sequence[str] = ()) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Every row with its number, from 1, and its values by column; it need not have others than the wanted ones."""
        raise NotImplementedError

    def rows(
        self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken, optional: Sequence[str] = ()
    ) -> Iterator[Row]:
        """The wanted columns of every row; `columns` names all of them where there is no header.

        Optional columns are None in rows of named values that lack them.
        """
        for number, record in self.objects(wanted):
            missing = [name for name in wanted if name not in record and name not in optional]
            if missing:
                broken(
                    f"{self.path} {self.unit} {number}: expected the key {missing[0]!r}, got {listed(record)}; "
                    "add it, or name the right one."
                )
            else:
                yield number, [record.get(name) for name in wanted]


class FieldTable(Table):
    """Rows of fields whose names are in the first row, if anywhere. A subclass has `_fields`."""

    path: Path
    named: ClassVar[bool] = False

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The fields of the first line."""
        for _, fields in self._fields():
            return tuple(fields)
        raise InputError(f"{self.where} is empty: expected {self.unit}s of fields; fetch or write it again.")

    def rows(
        self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken, optional: Sequence[str] = ()
    ) -> Iterator[Row]:
        """The wanted columns of every line, which must all be there; blank lines are skipped."""
        names = self.first if columns is None else tuple(columns)
        for name in wanted:
            if names.count(name) > 1:
                raise InputError(f"{self.where} has {names.count(name)} columns named {name!r}: rename all but one.")
        positions = [names.index(name) for name in wanted]
        rows = self._fields()
        if columns is None:
            next(rows, None)
        for number, fields in rows:
            if len(fields) == len(names):
                yield number, [fields[position] for position in positions]
            elif fields not in ([""], []):
                broken(f"{self.where} {self.unit} {number}: {self._misfit(fields, len(names))}")

    def _fields(self) -> Iterator[tuple[int, list[str]]]:
        """The fields of every row, with the line on which it begins."""
        raise NotImplementedError

    def _misfit(self, fields: Sequence[str], expected: int) -> str:
        """What to say of a row with more or fewer fields than there are columns."""
        return f"expected {expected} fields, got {len(fields)}; correct the {self.unit}."


@dataclass(frozen=True)
class DelimitedTable(FieldTable):
    """A TSV or CSV file."""

    path: Path
    delimiter: str
    quoting: str
    encoding: str

    @property
    def written(self) -> str:
        """Delimiter and encoding."""
        return described(Dialect(None, self.quoting, self.encoding, self.delimiter))

    def _misfit(self, fields: Sequence[str], expected: int) -> str:
        """Also says if another delimiter would fit."""
        line = self.delimiter.join(fields)
        other = next((name for sign, name in NAMES.items() if line.count(sign) == expected - 1 > 0), None)
        if other is not None and len(fields) == 1:
            fix = f"it is written with a {other} between fields: write all lines with one delimiter"
        else:
            fix = "correct the line, or check format, delimiter and quoting"
        name = NAMES.get(self.delimiter, repr(self.delimiter))
        return f"expected {expected} fields, got {len(fields)} (fields end with a {name}); {fix}."

    def _fields(self) -> Iterator[tuple[int, list[str]]]:
        """The fields of every row, with the line on which it begins."""
        if self.quoting == "none":
            for number, line in enumerate(lines(self.path, self.encoding), 1):
                yield number, line.removesuffix("\n").removesuffix("\r").split(self.delimiter)
            return
        characters = 0  # of the lines of one row, which together may not be longer than one line may be

        def counted() -> Iterator[str]:
            nonlocal characters
            for line in lines(self.path, self.encoding):
                characters += len(line)
                if characters > MAX_LINE:
                    raise InputError(
                        f"{self.path} has a row of more than {MAX_LINE:,} characters: close its quotation marks, split "
                        "the row, or set quoting: none."
                    )
                yield line

        # Strict, because otherwise a quotation mark that is never closed swallows the rest of the file unnoticed.
        reader = csv.reader(counted(), delimiter=self.delimiter, strict=True)
        while True:
            characters, start = 0, reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise InputError(
                    f"{self.path} line {start}: {error}; close or double the quotation mark, or set quoting: none."
                ) from None
            yield start, fields


@dataclass(frozen=True)
class SheetTable(FieldTable):
    """A sheet of an Excel file, whose cells are read as texts."""

    path: Path
    sheet: str
    cells: tuple[tuple[int, list[str]], ...]
    unit: ClassVar[str] = "row"

    @property
    def where(self) -> str:
        """The file and the sheet."""
        return f"{self.path} (sheet {self.sheet!r})"

    @property
    def written(self) -> str:
        """The sheet."""
        return f"sheet {self.sheet!r}"

    def _fields(self) -> Iterator[tuple[int, list[str]]]:
        return iter(self.cells)


@dataclass(frozen=True)
class JsonTable(Table):
    """A file of one JSON object per line."""

    path: Path
    encoding: str

    @property
    def written(self) -> str:
        """The encoding."""
        return described(Dialect(encoding=self.encoding))

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The keys of the first object."""
        for _, record in self.objects():
            return tuple(record)
        raise InputError(f"{self.path} is empty: expected one JSON object per line; fetch or write it again.")

    def objects(self, wanted: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every object with its line, whatever keys it has; blank lines are skipped."""
        for number, line in enumerate(lines(self.path, self.encoding), 1):
            if not line.strip():
                continue
            try:
                record = parse_json(line)
            except ValueError as error:
                raise InputError(
                    f"{self.path} line {number}: expected a JSON object, got invalid JSON ({error}); correct the line."
                ) from None
            if not isinstance(record, dict):
                raise InputError(
                    f"{self.path} line {number}: expected a JSON object, got a {type(record).__name__}; "
                    "write one object per line."
                )
            yield number, record


@dataclass(frozen=True)
class ColumnTable(Table):
    """Rows of a source that knows its columns, such as Parquet."""

    path: Path | str
    columns: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterable[Mapping[str, Any]]]
    """The wanted columns of every row."""
    unit: ClassVar[str] = "row"

    @property
    def first(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.columns

    def objects(self, wanted: Sequence[str] = ()) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The wanted columns of every row."""
        return enumerate(self.read(wanted), 1)


def open_parquet(path: Path) -> ColumnTable:
    """A Parquet file, read through pyarrow if it is installed."""
    check_file(path)
    try:
        module = import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(
            f"{path} is a Parquet file, which needs pyarrow: install headwise[parquet], or use another format."
        ) from None
    try:
        file = module.ParquetFile(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise InputError(f"{path} is not a Parquet file ({error}): fetch it again, or set its format.") from None

    def read(wanted: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        batches = file.iter_batches(columns=list(wanted))
        return chain.from_iterable(batch.to_pylist() for batch in batches)

    return ColumnTable(path, tuple(file.schema_arrow.names), read)


def hub_rows(data: Any, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The wanted columns of a split of the Hub, with classes by their names; -1 is a label that is kept secret."""
    classes = {name: getattr(data.features[name], "names", None) for name in wanted}
    for record in data:
        values = {name: record[name] for name in wanted}
        for name, names in classes.items():
            if names is not None and isinstance(values[name], int):
                values[name] = names[values[name]] if values[name] >= 0 else None
        yield values


@dataclass(frozen=True)
class Hub:
    """A data set's name on the Hugging Face Hub, its configuration, and its names for our splits."""

    name: str
    config: str | None = None
    splits: Mapping[str, str] = field(default_factory=lambda: dict(SPLITS))

    def table(self, split: str, *, network: bool) -> ColumnTable:
        """The rows of a split, read through `datasets`; without the network only from the local cache."""
        try:
            library = import_module("datasets")
        except ImportError:
            raise InputError(
                f"hub: {self.name!r} is a data set on the Hub, which needs the library datasets: install "
                "headwise[hub], or give files."
            ) from None
        where = f"{self.name}{f'/{self.config}' if self.config else ''} on the Hub, split {self.splits[split]}"
        try:
            with _network(network, library):
                data = library.load_dataset(self.name, self.config, split=self.splits[split])
            return ColumnTable(where, tuple(data.column_names), partial(hub_rows, data))
        except (OSError, ValueError, RuntimeError) as error:  # what `datasets` raises for names, files and connections
            reason = " ".join(str(error).split())
            if network:
                message = f"could not be loaded ({reason}); check hub, hub_config and hub_splits."
            else:
                message = (
                    f"this is a Hub name, it is not in the local cache, and no network was allowed ({reason}); "
                    "pass download=True, or give files."
                )
            raise InputError(f"{where}: {message}") from None


@contextmanager
def _network(allowed: bool, library: ModuleType) -> Iterator[None]:
    """Without permission both libraries are switched to their cache; a ban by the environment stays in force."""
    switches = [library.config, import_module("huggingface_hub.constants")]
    before = [getattr(module, "HF_HUB_OFFLINE", False) for module in switches]
    try:
        for module, offline in zip(switches, before, strict=True):
            module.HF_HUB_OFFLINE = offline or not allowed
        yield
    finally:
        for module, offline in zip(switches, before, strict=True):
            module.HF_HUB_OFFLINE = offline


def open_table(path: Path, dialect: Dialect | None = None) -> Table:
    """The table in a file; what the dialect leaves open is detected."""
    return _open(path, resolved(path, dialect or Dialect()))


def _open(path: Path, dialect: Dialect) -> Table:
    if dialect.format == "parquet":
        return open_parquet(path)
    if dialect.format == "xlsx":
        from headwise.data.spreadsheets import open_sheet

        return SheetTable(path, *open_sheet(path, dialect.sheet))
    if dialect.format == "jsonl":
        return JsonTable(path, str(dialect.encoding))
    return DelimitedTable(path, str(dialect.delimiter), str(dialect.quoting), str(dialect.encoding))


@dataclass(frozen=True)
class Detected:
    """How a file is written, as far as one can see from it."""

    path: Path
    dialect: Dialect
    """Its format, delimiter, quoting, encoding and sheet."""
    columns: tuple[str, ...]
    """The fields of the first row, or the names of the columns."""
    header: bool
    """Whether the first row looks like names of columns."""

    def __str__(self) -> str:
        """For people: "train.csv: csv, ; as delimiter, latin-1 (cp1252)"."""
        parts = [str(self.dialect.format), described(self.dialect)]
        return f"{self.path.name}: {', '.join(part for part in [*parts, '' if self.header else 'no header'] if part)}"


def detect_table(path: Path, dialect: Dialect | None = None) -> Detected:
    """Detect how a file of rows is written: its format, delimiter, encoding, columns, and whether it has a header.

    Only the first rows are read. `Dialect(delimiter=";", encoding="latin-1", sheet="data")` sets what should not be
    detected; the same keys are options of a task. Files that are no table are refused with an InputError, and so is a
    spreadsheet with several sheets if none is named.
    """
    found = resolved(path, dialect or Dialect())
    table = _open(path, found)
    if isinstance(table, SheetTable):
        found = replace(found, sheet=table.sheet)
    return Detected(path, found, table.first, table.named or looks_like_names(table.first))


def looks_like_names(fields: Sequence[str]) -> bool:
    """Whether these may be the names of columns: none is a number, a sentence, or there twice.

    Some may be empty: pandas writes its index under no name, and spreadsheets have empty columns.
    """
    names = [each for each in fields if each.strip()]
    if not names or len(set(names)) < len(names):
        return False
    return not any(is_number(each) or len(each) > 60 or len(each.split()) > 6 for each in names)


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Layout:
    """Names of the columns that hold the texts and the label; without a header, of all columns in order."""

    texts: tuple[str | tuple[str, ...], ...]
    """The column of each text, or the columns that make it up."""
    label: str
    columns: tuple[str, ...] | None = None
    only: tuple[str, str] | None = None
    """A column and the value that a row must have there to count, in files that have this column."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of all texts, one after the other."""
        return tuple(name for text in self.texts for name in ((text,) if isinstance(text, str) else text))

    def fits(self, table: Table) -> bool:
        """Whether the first line of the table looks like this layout."""
        if self.columns is None or table.named:
            return set(self.text_columns) <= set(table.first)
        return len(self.columns) == len(table.first)

    def known(self, table: Table) -> tuple[str, ...]:
        """The columns that the table has in this layout."""
        return table.first if self.columns is None or table.named else self.columns


def choose(layouts: Sequence[Layout], table: Table, *, labelled: bool) -> Layout:
    """The layout that fits the table, or the first one, whose misfit is then the thing to report.

    A header that names the texts is proof, the more so if it names the label; a mere count of fields is not. Unless
    `labelled`, a file without a header may lack the column of the label.
    """
    candidates = list(layouts)
    if not labelled:
        for layout in layouts:
            bare = layout.columns and tuple(name for name in layout.columns if name != layout.label)
            candidates.append(replace(layout, columns=bare))
    candidates.sort(key=lambda layout: (layout.columns is not None, layout.label not in layout.known(table)))
    return next((layout for layout in candidates if layout.fits(table)), layouts[0])

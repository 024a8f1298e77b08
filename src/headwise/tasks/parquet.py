"""Parquet files, read through pyarrow when it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.tasks.layout import Broken, Row
from headwise.tasks.text_file import check_file


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file."""

    path: Path

    unit = "row"
    named = True

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._file.schema_arrow.names)

    def rows(self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken) -> Iterator[Row]:
        """The wanted columns of every row, counted from 1."""
        number = 0
        for batch in self._file.iter_batches(columns=list(wanted)):
            values = batch.to_pydict()
            for row in zip(*(values[name] for name in wanted), strict=True):
                number += 1
                yield number, list(row)

    @cached_property
    def _file(self) -> Any:
        check_file(self.path)
        try:
            module = import_module("pyarrow.parquet")
        except ImportError:
            raise InputError(
                f"{self.path} is a Parquet file, which needs pyarrow: install headwise[parquet], or use another format."
            ) from None
        try:
            return module.ParquetFile(self.path)
        except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
            raise InputError(
                f"{self.path} is not a Parquet file ({error}): fetch it again, or set its format."
            ) from None

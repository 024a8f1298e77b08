"""Files of one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.json_text import parse_json
from headwise.tasks.layout import Broken, Row
from headwise.tasks.text_file import lines


@dataclass(frozen=True)
class JsonTable:
    """A JSON Lines file."""

    path: Path
    encoding: str

    unit = "line"
    named = True

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The keys of the first object."""
        for _, record in self.objects():
            return tuple(record)
        raise InputError(f"{self.path} is empty: expected one JSON object per line; fetch or write it again.")

    def rows(self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken) -> Iterator[Row]:
        """The wanted keys of every object; blank lines are passed over."""
        for line, record in self.objects():
            missing = [name for name in wanted if name not in record]
            if missing:
                broken(
                    f"{self.path} line {line}: expected the key {missing[0]!r}, got {', '.join(map(repr, record))}; "
                    "add it, or name the right one."
                )
            else:
                yield line, [record[name] for name in wanted]

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every object with its line, whatever keys it has; blank lines are passed over."""
        for number, line in enumerate(lines(self.path, self.encoding), 1):
            if line.strip():
                yield number, self._parsed(line, number)

    def _parsed(self, line: str, number: int) -> dict[str, Any]:
        try:
            record = parse_json(line)
        except ValueError as error:
            raise InputError(
                f"{self.path} line {number}: expected a JSON object, got invalid JSON ({error}); mend the line."
            ) from None
        if not isinstance(record, dict):
            raise InputError(
                f"{self.path} line {number}: expected a JSON object, got a {type(record).__name__}; "
                "write one object per line."
            )
        return record

"""JSON documents that headwise wrote: read strictly, and checked against a schema, in the place where they are read.

What comes after may then rely on every key that the schema names, on its type, and on every number being finite.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headwise.errors import InputError
from headwise.experiments.recipe_errors import expected
from headwise.json_text import parse_json

# Larger ones fit into no array.
LARGEST = 2**63 - 1
LONGEST_VALUE = 60

Count = Annotated[int, Field(ge=0, le=LARGEST)]


class Document(BaseModel):
    """A JSON object; keys that are not named here are allowed, and nothing may rely on them."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


def parse(text: str, *, finite: bool = True) -> Any:
    """The value of a JSON text; what is not JSON, or has no finite numbers, is a ValueError with the reason."""
    content = parse_json(text, parse_int=_whole)
    try:
        json.dumps(content, ensure_ascii=False, allow_nan=not finite).encode()
    except UnicodeEncodeError:
        raise ValueError("a half of a surrogate pair in a text") from None
    except ValueError:
        raise ValueError(_first_infinite(content)) from None
    return content


def read(path: Path, fix: str) -> Any:
    """The value of a JSON file; `fix` is what the user can do about a damaged one."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path, error, fix) from error


def read_checked(path: Path, schema: type[Document], fix: str) -> dict[str, Any]:
    """The JSON object of a file that has all that a schema asks for."""
    return check(read(path, fix), schema, path, fix)


def check(content: Any, schema: type[Document], path: Path, fix: str) -> dict[str, Any]:
    """The content of a file, if it has all that a schema asks for; the first thing that is wrong is named."""
    try:
        schema.model_validate(content)
    except ValidationError as error:
        raise damaged(path, _sentence(error, content), fix) from error
    checked: dict[str, Any] = content
    return checked


def damaged(path: Path, reason: Exception | str, fix: str) -> InputError:
    """What to say about a file that cannot be used as it is."""
    if isinstance(reason, OSError):
        reason = reason.strerror or str(reason)
    said = " ".join(str(reason).split())[:240]
    return InputError(f"{path} is damaged ({said}): {fix}.")


def finite(content: Any) -> Any:
    """The same plain data with null in the place of numbers that JSON does not know."""
    if isinstance(content, dict):
        return {name: finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _whole(digits: str) -> int:
    number = int(digits)
    if abs(number) > LARGEST:
        raise ValueError(f"the number {digits[:12]}... has {len(digits)} digits, expected a smaller one")
    return number


def _first_infinite(content: Any, where: str = "") -> str:
    """The place of the first number that is not finite, in words; nothing if all are."""
    if isinstance(content, float) and not math.isfinite(content):
        return f"{where or 'the content'} is {content}, expected a finite number"
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    found = (_first_infinite(value, f"{where}.{name}" if where else str(name)) for name, value in parts)
    return next((each for each in found if each), "")


def _sentence(error: ValidationError, content: Any) -> str:
    """The first thing that pydantic found, by its key path."""
    first = error.errors()[0]
    location = first["loc"]
    missing = [str(location[-1])] if first["type"] == "missing" else []
    where = ".".join([*_path(location[: len(location) - len(missing)], content), *missing])
    if missing:
        return f"{where} is missing"
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{where}: {reason}" if where else reason
    shown = json.dumps(first["input"], ensure_ascii=False)
    shown = shown if len(shown) <= LONGEST_VALUE else f"{shown[:LONGEST_VALUE]}..."
    return f"{where or 'the content'} is {shown}, {expected(first['type'], reason)}"


def _path(location: tuple[str | int, ...], content: Any) -> list[str]:
    """Where in the document: without the names that pydantic adds for alternatives."""
    path: list[str] = []
    for part in location:
        below = dict(enumerate(content)) if isinstance(content, list) else content
        if isinstance(below, dict) and part in below:
            path.append(str(part))
            content = below[part]
    return path

"""JSON documents that headwise wrote: read strictly, and checked against a schema, in the place where they are read.

What comes after may then rely on every key that the schema names, on its type, and on every number being finite.
"""

from __future__ import annotations

import json
import math
from dataclasses import is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headwise.errors import InputError, choices
from headwise.limits import parse_json


def sentence(error: ValidationError, kind: type[BaseModel], needs: str = "every recipe needs it") -> str:
    """What is wrong first, and where; `kind` is what was checked, `needs` is said of a key that is missing."""
    found: dict[tuple[str | int, ...], Any] = {}
    for each in reversed(error.errors()):  # the first of each position
        location = each["loc"]
        # Pydantic marks the key of a mapping, and alternatives.
        marked = location[-1:] == ("[key]",) or (len(location) > 1 and isinstance(location[-2], int))
        found[location[:-1] if marked else location] = each
    location, first = next(reversed(found.items()))
    where = ".".join(str(part) for part in location)
    more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
    if first["type"] == "extra_forbidden":
        known, old = _keys_at(location[:-1], kind)
        near = get_close_matches(str(location[-1]), [*known, *old], n=1)
        key = old.get(near[0], near[0]) if near else str(location[-1])
        return f"unknown key {where!r}: {choices(key, known)}.{more}"
    if first["type"] == "missing":
        return f"key {where!r} is missing: {needs}.{more}"
    reason = first["msg"].removeprefix("Value error, ")
    if not where:
        return f"{reason}.{more}"
    return f"{where} is {first['input']!r:.200}: {_expected(first['type'], reason)}.{more}"


def _expected(kind: str, reason: str) -> str:
    return "expected " + _WORDS.get(kind, reason.removeprefix("Input should be ").removeprefix("a valid "))


# Where pydantic's own words are those of a Python programmer.
_WORDS = {
    "bool_type": "true or false",
    "dict_type": "keys with values",
    "int_type": "a whole number",
    "invalid_key": "a text as the key",
    "model_type": "keys with values",
    "string_pattern_mismatch": "letters, digits, dots, hyphens and underscores, starting with a letter or digit",
    "string_type": "text",
    "too_short": "at least one",
    "tuple_type": "a list, in brackets",
    "float_type": "a number",
}


def _keys_at(location: tuple[str | int, ...], whole: type[BaseModel]) -> tuple[list[str], dict[str, str]]:
    """The keys that a part of a recipe may have, and names that some of them had in earlier versions."""

    def is_model(kind: Any) -> bool:
        return isinstance(kind, type) and issubclass(kind, BaseModel)

    kind: Any = whole
    for part in location:
        if is_model(kind):
            field = kind.model_fields.get(str(part))
            annotation = None if field is None else field.annotation
            below = (annotation, *get_args(annotation))
            # A model, or models by name.
            kind = next((each for each in below if is_model(each) or any(map(is_model, get_args(each)))), None)
        else:  # a mapping, and this a key of it
            kind = next((each for each in get_args(kind) if is_model(each)), None)
    return (list(kind.model_fields), getattr(kind, "old_names", {})) if is_model(kind) else ([], {})


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
    """Plain data: dataclasses by field, arrays as lists, and null in the place of numbers that JSON does not know."""
    if is_dataclass(content):
        content = vars(content)
    elif hasattr(content, "tolist"):  # an array, or a number of numpy
        content = content.tolist()
    if isinstance(content, dict):
        return {str(name): finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def plain(content: Any) -> dict[str, Any]:
    """A dataclass or a mapping as plain data, ready for JSON."""
    data: dict[str, Any] = finite(content)
    return data


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
    """The first thing that pydantic found, by its key path: without the names that it adds for alternatives."""
    first = error.errors()[0]
    path: list[str] = []
    for part in first["loc"]:
        inside = dict(enumerate(content)) if isinstance(content, list) else content
        if isinstance(inside, dict) and part in inside:
            path.append(str(part))
            content = inside[part]
    if first["type"] == "missing":
        return f"{'.'.join([*path, str(first['loc'][-1])])} is missing"
    where, reason = ".".join(path), first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"{where}: {reason}" if where else reason
    shown = json.dumps(first["input"], ensure_ascii=False)
    shown = shown if len(shown) <= LONGEST_VALUE else f"{shown[:LONGEST_VALUE]}..."
    return f"{where or 'the content'} is {shown}, {_expected(first['type'], reason)}"

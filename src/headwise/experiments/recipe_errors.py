"""What pydantic found in a recipe, as one sentence of ours."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from headwise.errors import choices


def sentence(error: ValidationError, kind: type[BaseModel]) -> str:
    """What is wrong first, and where; `kind` is what was checked."""
    found = {_place(each["loc"]): each for each in reversed(error.errors())}  # the first of each place
    location, first = next(reversed(found.items()))
    where = ".".join(str(part) for part in location)
    more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
    if first["type"] == "extra_forbidden":
        known = _keys_at(location[:-1], kind)
        return f"unknown key {where!r}: {choices(str(location[-1]), known)}.{more}"
    if first["type"] == "missing":
        return f"key {where!r} is missing: every recipe needs it.{more}"
    reason = first["msg"].removeprefix("Value error, ")
    if not where:
        return f"{reason}.{more}"
    return f"{where} is {first['input']!r:.200}: {expected(first['type'], reason)}.{more}"


def _place(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Where in the file: without the marks that pydantic adds for the key of a mapping and for alternatives."""
    marked = location[-1:] == ("[key]",) or (len(location) > 1 and isinstance(location[-2], int))
    return location[:-1] if marked else location


def expected(kind: str, reason: str) -> str:
    """What pydantic asks for, in our words."""
    if kind in _WORDS:
        return f"expected {_WORDS[kind]}"
    return "expected " + reason.removeprefix("Input should be ").removeprefix("a valid ")


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


def _keys_at(location: tuple[str | int, ...], whole: type[BaseModel]) -> list[str]:
    kind: Any = whole
    for part in location:
        if not _is_model(kind):  # a mapping, and this a key of it
            kind = next((each for each in get_args(kind) if _is_model(each)), None)
            if kind is None:
                return []
            continue
        annotation = kind.model_fields[str(part)].annotation if str(part) in kind.model_fields else None
        inner = next((each for each in (annotation, *get_args(annotation)) if _leads_on(each)), None)
        if inner is None:
            return []
        kind = inner
    return list(kind.model_fields) if _is_model(kind) else []


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _leads_on(kind: Any) -> bool:
    """Whether there are keys below: of a model, or of models by name."""
    return _is_model(kind) or (get_origin(kind) is dict and any(_is_model(each) for each in get_args(kind)))

"""From labels as they are written to classes and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwise.errors import InputError, choices
from headwise.tasks.split import Label

if TYPE_CHECKING:
    from headwise.tasks.examples import Examples

RULES = ("drop", "keep", "error")


@dataclass(frozen=True)
class Unlabelled:
    """Which written labels mean that there is none, and what becomes of their rows."""

    values: tuple[str, ...] = ()
    rule: str = "error"

    def covers(self, label: str) -> bool:
        """Whether a written label means that there is none; an empty one always does."""
        return not label or label in self.values

    def drops(self, place: str) -> bool:
        """Whether such a row is dropped rather than kept; raises when there should be none."""
        if self.rule == "error":
            raise InputError(
                f"{place}: expected a label, got none; fill it in, or set unlabelled.rule to drop or keep."
            )
        return self.rule == "drop"


def label_text(value: Any) -> str:
    """A label as text, whatever type the file gave it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    # A column of whole numbers with gaps comes as floats
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def discovered(examples: Examples, aliases: Mapping[str, str]) -> tuple[str, ...]:
    """The classes that occur, in order; whole numbers in the order of numbers."""
    _check_no_gap(examples)
    found = {aliases.get(label, label) for label in examples.labels if label is not None}
    if all(label.removeprefix("-").isdecimal() for label in found):
        return tuple(sorted(found, key=int))
    return tuple(sorted(found))


def _check_no_gap(examples: Examples) -> None:
    """Refuse a class named NaN: that is how tables and JSON write a label that is not there."""
    for index, label in enumerate(examples.labels):
        if label is not None and label.lower() == "nan":
            raise InputError(
                f"{examples.place(index)}: the label is NaN, expected a class; fill it in, or add {label!r} to "
                "unlabelled.values."
            )


def class_indices(examples: Examples, names: Sequence[str], aliases: Mapping[str, str]) -> tuple[Label, ...]:
    """The index of each example's class."""
    index = _index(names, aliases)
    return tuple(
        None if label is None else _looked_up(label, index, names, place=(examples, number))
        for number, label in enumerate(examples.labels)
    )


def _index(names: Sequence[str], aliases: Mapping[str, str]) -> dict[str, int]:
    """Written label -> class; as written comes first, in any case of letters second."""
    exact = {name: place for place, name in enumerate(names)}
    exact |= {written: exact[name] for written, name in aliases.items()}
    folded = {written.casefold(): place for written, place in reversed(exact.items())}
    return {**folded, **exact}


def _looked_up(label: str, index: Mapping[str, int], names: Sequence[str], place: tuple[Examples, int]) -> int:
    found = index.get(label, index.get(label.casefold()))
    if found is None:
        examples, number = place
        raise InputError(
            f"{examples.place(number)}: unknown label {label!r}; {choices(label, names)}; correct it, or map it with "
            "label_names or unlabelled."
        )
    return found


def numbers(examples: Examples) -> tuple[Label, ...]:
    """The number of each example."""
    return tuple(
        None if label is None else _number(label, place=(examples, number))
        for number, label in enumerate(examples.labels)
    )


def _number(label: str, place: tuple[Examples, int]) -> float:
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        examples, number = place
        raise InputError(f"{examples.place(number)}: expected a finite number as the label, got {label!r}; correct it.")
    return value


def check_classes(labels: Iterable[Label], names: Sequence[str], where: str) -> None:
    """Refuse to train a classifier on fewer than two classes."""
    present = {label for label in labels if isinstance(label, int)}
    if len(present) < 2:
        only = f"only the class {names[min(present)]!r}" if present else "no labels"
        raise InputError(
            f"{where} has {only}: training needs at least two classes; add examples, or check the label column."
        )

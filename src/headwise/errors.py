"""What goes wrong, by whose hand. Every message says what, where, what was expected, what came, and the way out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


class HeadwiseError(Exception):
    """The root: catch this to catch everything that headwise raises on purpose."""


class InputError(HeadwiseError, ValueError):
    """A value that the caller gave is wrong."""


class BusyError(InputError):
    """Another process is writing to the same output."""


class UnsupportedModelError(HeadwiseError, TypeError):
    """The model has no attention that headwise can see or guide."""


class StateError(HeadwiseError, RuntimeError):
    """The right call at the wrong time."""


class DiskError(HeadwiseError, OSError):
    """Something could not be written; what was there before is whole."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C, with what was kept as its message, such as "the scores so far are kept"."""


class HeadwiseWarning(UserWarning):
    """Something works, but not as one might think."""


def is_panic(error: BaseException) -> bool:
    """Whether a library written in Rust gave up, such as tokenizers: no Exception, and of a type nobody can import."""
    return type(error).__name__ == "PanicException"


LONGEST_MESSAGE = 1480
LONGEST_LIST = 300


def one_line(message: str) -> str:
    """A message without control characters and line breaks; of a very long one, its beginning and its end."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", message)
    if len(plain) <= LONGEST_MESSAGE:
        return plain
    return f"{plain[: LONGEST_MESSAGE - 400]} ... {plain[-380:]}"


def listed(values: Iterable[object]) -> str:
    """Values in quotes, with commas; of many or long ones the first."""
    shown = ", ".join(f"{value!r:.80}" for value in values)
    return shown if len(shown) <= LONGEST_LIST else f"{shown[:LONGEST_LIST]} ..."


def choices(name: str, known: Iterable[str]) -> str:
    """Text for an unknown name: the nearest known one, and all of them."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(names)}"

"""Arrays as numpy prints them, which is how SciFact's CSV files hold sentences and ids.

    ['A sentence.' "It's another."
     'A third one.']

Every piece is a string as Python writes it; between pieces is white space, or a comma where a list was printed.
"""

from __future__ import annotations

import ast
import re

# Only the escapes that Python itself writes, so that reading a piece cannot warn.
_ESCAPE = r"""\\(?:[\\'"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"""
_PIECE = re.compile(rf"""('(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*")(\s*,?\s*)""")
_NUMBERS = re.compile(r"(?:\d+(?:[\s,]+|$))*")


def strings(text: str) -> list[str]:
    """The strings of a printed array; ValueError, with what is wrong, for anything else."""
    body, found, place = _body(text), [], 0
    while place < len(body):
        piece = _PIECE.match(body, place)
        if piece is None:
            raise ValueError(_trouble(body[place:]))
        place = piece.end()
        if not piece[2] and place < len(body):
            raise ValueError(f"two strings without a space between them at {body[place - 1 : place + 20]!r}")
        found.append(_unescaped(piece[1]))
    return found


def numbers(text: str) -> list[str]:
    """The whole numbers of a printed array, as text; ValueError for anything else."""
    body = _body(text)
    good = _NUMBERS.match(body)
    end = good.end() if good else 0
    if end < len(body):
        raise ValueError(_trouble(body[end:]))
    return re.findall(r"\d+", body)


def _body(text: str) -> str:
    bare = text.strip()
    if len(bare) < 2 or bare[0] != "[" or bare[-1] != "]":
        raise ValueError(f"no brackets around {bare[:40]!r}")
    return bare[1:-1].strip()


def _unescaped(piece: str) -> str:
    try:
        return str(ast.literal_eval(piece))
    except (ValueError, SyntaxError):
        raise ValueError(f"a string that Python cannot read at {piece[:40]!r}") from None


def _trouble(rest: str) -> str:
    return "an array that numpy cut short with '...'" if rest.startswith("...") else f"something else at {rest[:40]!r}"

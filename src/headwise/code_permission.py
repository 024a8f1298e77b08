"""Permission to run Python code that a file names, such as `source: package.module:function` in a recipe.

A recipe, a record or an analysis may come from somebody else, so none of them alone can make headwise import anything.
The permission lasts for a with block of this thread; processes that headwise starts are given it with their work, never
by an environment variable or a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from headwise.errors import InputError

_ALLOWED: ContextVar[bool] = ContextVar("headwise_code_allowed", default=False)


@contextmanager
def allowing_code(allowed: bool = True) -> Iterator[None]:
    """Inside the with block, files may name Python code, or may not.

    with allowing_code():
        recipe = read_recipe("mine.yaml")
    """
    token = _ALLOWED.set(allowed)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def code_allowed() -> bool:
    """Whether files may name Python code just now."""
    return _ALLOWED.get()


def refuse_code(named: str, where: str) -> None:
    """Refuse code that a file names, unless that is allowed.

    Args:
        named: the code, such as package.module:function; empty if there is none.
        where: the key that names it, such as guides.dependency.pattern.source.
    """
    if named and not code_allowed():
        raise InputError(
            f"{where} names Python code ({named:.80}), and no file may do so without permission: pass allow_code=True "
            "if you trust it, or pass the function itself from Python."
        )

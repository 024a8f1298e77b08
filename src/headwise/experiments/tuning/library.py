"""The way to Optuna, which is installed only where it is wanted."""

from __future__ import annotations

from typing import Any

from headwise.errors import InputError


def optuna() -> Any:
    """Optuna, kept from talking over the result."""
    try:
        import optuna as library
    except ImportError:
        raise InputError("headwise tune needs Optuna: install it by pip install 'headwise[tune]'.") from None
    library.logging.set_verbosity(library.logging.ERROR)
    return library


def storage_errors() -> tuple[type[Exception], ...]:
    """What a database raises that cannot be reached, or does not do what it should."""
    from sqlalchemy.exc import SQLAlchemyError

    return (SQLAlchemyError, optuna().exceptions.StorageInternalError)

"""Data sets of the Hugging Face Hub, read through `datasets` if it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from headwise.data.layouts import Broken, Row
from headwise.errors import InputError

SPLITS = {"train": "train", "validation": "validation", "test": "test"}


@dataclass(frozen=True)
class Hub:
    """A data set's name on the Hub, its configuration, and its names for our splits."""

    name: str
    config: str | None = None
    splits: Mapping[str, str] = field(default_factory=lambda: dict(SPLITS))

    def table(self, split: str, *, network: bool) -> HubTable:
        """The rows of a split; without the network only from the local cache."""
        try:
            library = import_module("datasets")
        except ImportError:
            raise InputError(
                f"hub: {self.name!r} is a data set on the Hub, which needs the library datasets: install "
                "headwise[hub], or give files."
            ) from None
        where = f"{self.name}{f'/{self.config}' if self.config else ''} on the Hub, split {self.splits[split]}"
        try:
            with _network(network, library):
                return HubTable(where, library.load_dataset(self.name, self.config, split=self.splits[split]))
        except (OSError, ValueError, RuntimeError) as error:  # what `datasets` raises for names, files and connections
            reason = " ".join(str(error).split())
            if network:
                message = f"could not be loaded ({reason}); check hub, hub_config and hub_splits."
            else:
                message = (
                    f"this is a Hub name, it is not in the local cache, and no network was allowed ({reason}); "
                    "pass download=True, or give files."
                )
            raise InputError(f"{where}: {message}") from None


@dataclass(frozen=True)
class HubTable:
    """A loaded split."""

    where: str
    data: Any

    unit = "row"
    named = True

    @property
    def first(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.data.column_names)

    def rows(self, wanted: Sequence[str], columns: Sequence[str] | None, broken: Broken) -> Iterator[Row]:
        """The wanted columns of every row, counted from 1; classes by their names."""
        classes = {name: getattr(self.data.features[name], "names", None) for name in wanted}
        for number, record in enumerate(self.data, 1):
            values = [record[name] for name in wanted]
            for index, name in enumerate(wanted):
                value, names = values[index], classes[name]
                if names is not None and isinstance(value, int):  # -1 is a label that is kept secret
                    values[index] = names[value] if value >= 0 else None
            yield number, values


@contextmanager
def _network(allowed: bool, library: ModuleType) -> Iterator[None]:
    """Without permission both libraries are switched to their cache; a ban by the environment stays in force."""
    switches = [library.config, import_module("huggingface_hub.constants")]
    before = [getattr(module, "HF_HUB_OFFLINE", False) for module in switches]
    try:
        for module, offline in zip(switches, before, strict=True):
            module.HF_HUB_OFFLINE = offline or not allowed
        yield
    finally:
        for module, offline in zip(switches, before, strict=True):
            module.HF_HUB_OFFLINE = offline

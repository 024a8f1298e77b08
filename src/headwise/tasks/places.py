"""Finding the file of a split below a data root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headwise.errors import InputError


@dataclass(frozen=True)
class Places:
    """Where a task's files lie: folders below the root, names in them by split, and the user's own files."""

    names: Mapping[str, tuple[str, ...]]
    folders: tuple[str, ...] = ("",)
    own: Mapping[str, str] = field(default_factory=dict)
    guessed: bool = False
    """Whether the names are but a guess, to be forgotten as soon as the user names a file."""

    def naming(self, own: Mapping[str, str]) -> Places:
        """The same with the user's own files."""
        return replace(self, own=own, names={} if self.guessed else self.names)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have a file, by the table or by the user."""
        return tuple(dict.fromkeys([*self.names, *self.own]))

    def find(self, split: str, root: Path | None, task: str) -> Path:
        """The file of a split."""
        if split in self.own:
            return self._own(split, root, task)
        if root is None:
            raise InputError(
                f"task {task!r}: the {split} split is looked for below a data root, and none was given; "
                f"give one, or an absolute path in files.{split}."
            )
        names = self.names[split]
        homes = [root / folder for folder in self.folders]
        found = _first(self._home(homes), names)
        if found is None:
            raise InputError(_missing(split, task, names, homes))
        return found

    def available(self, root: Path | None) -> tuple[str, ...]:
        """The splits whose file is there."""
        return tuple(split for split in self.splits if self._present(split, root))

    def _present(self, split: str, root: Path | None) -> bool:
        try:
            return self.find(split, root, "").is_file()
        except InputError:
            return False

    def _own(self, split: str, root: Path | None, task: str) -> Path:
        path = Path(self.own[split]).expanduser()
        if root is None and not path.is_absolute():
            raise InputError(
                f"task {task!r}: files.{split} {str(path)!r} is relative to a data root, and none was given; "
                "give one, or an absolute path."
            )
        # An absolute path joined to a root stays as it is.
        tried = list(dict.fromkeys((root or Path()) / folder / path for folder in ("", *self.folders)))
        for place in tried:
            if place.exists():
                return place
        raise InputError(
            f"task {task!r}: files.{split} does not exist as {' or '.join(map(str, tried))} (data root: {root}); "
            "correct the path or the root."
        )

    def _home(self, homes: Sequence[Path]) -> Path:
        """The first folder with a file of any split, so that one split never comes from a neighbour's folder."""
        names = [name for names in self.names.values() for name in names]
        return next((home for home in homes if _first(home, names)), homes[0])


def _first(home: Path, names: Sequence[str]) -> Path | None:
    candidates = (home / f"{name}{ending}" for name in names for ending in ("", ".gz"))
    return next((path for path in candidates if path.exists()), None)


def _missing(split: str, task: str, names: Sequence[str], homes: Sequence[Path]) -> str:
    way_out = f"give files.{split}"
    if split == "validation":
        way_out += ", or set data.validation_fraction to take it from train"
    tried = f"{' or '.join(names)} in {' or '.join(map(str, homes))}"
    return f"task {task!r}: no {split} split was found; expected {tried}; {way_out}."

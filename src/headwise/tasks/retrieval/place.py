"""Where the files of a collection lie: in a folder, or in a zip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from headwise.errors import InputError
from headwise.tasks.zipped import is_archive, members


@dataclass(frozen=True)
class Place:
    """The names of the files and where they are."""

    root: Path
    names: tuple[str, ...]
    archive: Path | None = None

    def find(self, *names: str) -> Path | None:
        """The first of these files that is there, plain or gzipped."""
        present = (name for plain in names for name in (plain, f"{plain}.gz") if name in self.names)
        name = next(present, None)
        return None if name is None else self.root / name

    def on_disk(self, paths: Iterable[Path]) -> tuple[Path, ...]:
        """The files that hold these: themselves, or the zip that they are in."""
        return tuple(paths) if self.archive is None else (self.archive,)


def places(folder: Path) -> tuple[Place, ...]:
    """Where to look: in the folder itself, then in its zip if it holds exactly one; a zip may also be named itself."""
    if is_archive(folder):
        return (_inside(folder),)
    if folder.is_file():
        raise InputError(f"{folder} is a file: expected a folder with a collection, or a zip of one; name that.")
    if not folder.is_dir():
        raise InputError(f"{folder} does not exist: correct the path or put the collection there.")
    archives = [path for path in folder.iterdir() if is_archive(path)]
    return (_folder(folder), *(map(_inside, archives) if len(archives) == 1 else ()))


def _folder(folder: Path) -> Place:
    found = [path for part in (folder, folder / "qrels") if part.is_dir() for path in part.iterdir() if path.is_file()]
    return Place(folder, tuple(sorted(path.relative_to(folder).as_posix() for path in found)))


def _inside(archive: Path) -> Place:
    """The files of a zip; if all lie in one folder, as in the downloads of BEIR, that folder is the root."""
    names = members(archive)
    tops = {PurePosixPath(name).parts[0] for name in names if "/" in name and not name.startswith("qrels/")}
    top = tops.pop() if len(tops) == 1 and all("/" in name for name in names) else ""
    short = sorted(name.removeprefix(f"{top}/") if top else name for name in names)
    return Place(archive / top, tuple(short), archive)

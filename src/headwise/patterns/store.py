"""The store of knowledge: worked out once per data set, kept on disk under a hash of its content, for all runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np

from headwise.disk import cache_folder, locked, user_cache, writing
from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.patterns import arrays as mapped
from headwise.patterns.arrays import FORMAT, Arrays, flatten, join
from headwise.patterns.base import options_of
from headwise.patterns.knowledge import Builder, Knowledge, Resources, Texts, WordMatrix
from headwise.patterns.parallel import SMALL, Processes, apply, checked_workers, cut, end_workers

# The name of a store: a hash of all that decides what it holds.


def store_key(pattern: Knowledge, examples: Sequence[Texts], corpus: Sequence[Texts], resources: Resources) -> str:
    """A hash of the pattern, its options, its sources, and the texts in their order.

    The corpus counts only for patterns that draw on it. Model, seed and longest length never do.
    """
    content = hashlib.sha256(_plain(pattern, about(pattern, resources)).encode())
    _add(content, examples, f"pattern {pattern.name}: example")
    if pattern.from_corpus:
        _add(content, corpus, f"pattern {pattern.name}: corpus example")
    return content.hexdigest()[:32]


def about(pattern: Knowledge, resources: Resources) -> dict[str, Any]:
    """What decides the values besides the texts."""
    return {
        "format": FORMAT,
        "name": pattern.name,
        "options": options_of(pattern),
        "fingerprint": pattern.fingerprint(resources),
    }


def _plain(pattern: Knowledge, data: dict[str, Any]) -> str:
    try:
        return json.dumps(data, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise StateError(f"pattern {pattern.name}: its options and fingerprint must be plain data: {error}.") from error


def _add(content: Any, examples: Sequence[Texts], what: str) -> None:
    """Lengths go in as well: otherwise ("ab", "c") and ("a", "bc") would be the same."""
    content.update(b"%d:" % len(examples))
    for number, texts in enumerate(examples):
        if not isinstance(texts, tuple | list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{what} {number}: expected a tuple of texts such as ('one', 'two'), got {texts!r:.100}.")
        content.update(b"%d:" % len(texts))
        for text in texts:
            encoded = text.encode("utf-8", "surrogatepass")
            content.update(b"%d:" % len(encoded))
            content.update(encoded)


# An unfinished store: its finished parts, each in a folder of its own, so that a kill costs only what was running.


@dataclass(frozen=True)
class Parts:
    """The parts of one store. A part is a range of examples; the next build may cut the rest otherwise."""

    folder: Path
    key: str
    total: int
    places: list[range] = field(default_factory=list)
    """Which examples are done."""

    @property
    def done(self) -> int:
        """How many examples are done."""
        return sum(map(len, self.places))

    def restore(self) -> None:
        """Find the parts that an earlier build has left; what is damaged counts as not done."""
        found = map(_range, self.folder.iterdir() if self.folder.is_dir() else ())
        for place in sorted(filter(None, found), key=lambda place: place.start):
            if place.start < max((each.stop for each in self.places), default=0):
                continue
            try:
                self._read(place)
            except mapped.Damage:
                continue
            self.places.append(place)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """First and one after last of the examples that are still to be done."""
        start = 0
        for place in sorted([*self.places, range(self.total, self.total)], key=lambda place: place.start):
            if start < place.start:
                yield start, place.start
            start = place.stop

    def save(self, place: range, arrays: Arrays) -> None:
        """Keep a finished part."""
        mapped.write(self.folder / _name(place), arrays, {"key": self._key(place)})
        self.places.append(place)

    def joined(self) -> Arrays:
        """All parts as one."""
        return join([self._read(place) for place in sorted(self.places, key=lambda place: place.start)])

    def remove(self) -> None:
        """Forget all parts."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.places.clear()

    def _read(self, place: range) -> Arrays:
        return mapped.read(self.folder / _name(place), self._key(place), len(place))

    def _key(self, place: range) -> str:
        return f"{self.key}:{_name(place)}:{self.total}"


def _name(place: range) -> str:
    return f"{place.start:09d}-{place.stop:09d}"


def _range(path: Path) -> range | None:
    match = re.fullmatch(r"(\d{9,})-(\d{9,})", path.name)
    return range(int(match[1]), int(match[2])) if match else None


__all__ = ["Stored", "default_cache", "gather", "store_key"]

Progress = Callable[[int, int], None]
# For messages about the disk.
WHAT = "the knowledge cache"

NOTHING = Resources()
# The stamps of the folders whose hashes this process has worked out once.
_verified: set[tuple[Any, ...] | None] = set()


class Stored(Sequence[WordMatrix]):
    """The matrices of a data set, mapped from files: only what is looked at takes memory, once for all processes.

    Spans, rows and columns are uint16 where they fit, else int32: widen them before you multiply. All are read-only.
    """

    def __init__(self, folder: Path, key: str, built: bool = False, places: Sequence[int] | None = None) -> None:
        """Open a folder that `gather` has made.

        Args:
            folder: where it is.
            key: the hash of its content.
            built: whether it was worked out now, or found.
            places: which of its examples to show; None: all.
        """
        self.folder, self.key, self.built = folder, key, built
        try:
            arrays = mapped.load(folder)
        except mapped.Damage as damage:
            raise StateError(
                f"{folder} is no longer there as it was ({damage}): gather the knowledge again."
            ) from damage
        # As plain arrays, since slices of memmap objects are slow to make; they still look into the file.
        self._arrays = {name: array.view(np.ndarray) for name, array in arrays.items()}
        self._places = range(len(self._arrays["words"]) - 1) if places is None else places

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> WordMatrix: ...
    @overload
    def __getitem__(self, index: slice) -> list[WordMatrix]: ...
    def __getitem__(self, index: int | slice) -> WordMatrix | list[WordMatrix]:
        """What is known about an example."""
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        arrays, place = self._arrays, self._places[index]
        words = slice(*arrays["words"][place : place + 2].tolist())
        entries = slice(*arrays["entries"][place : place + 2].tolist())
        return WordMatrix(
            arrays["spans"][words], arrays["rows"][entries], arrays["columns"][entries], arrays["values"][entries]
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process goes the place, not the content."""
        return Stored, (self.folder, self.key, self.built, self._places)

    def subset(self, places: Sequence[int]) -> Stored:
        """The examples at these places, in this order."""
        return Stored(self.folder, self.key, self.built, [self._places[place] for place in places])


def gather(
    pattern: Knowledge,
    examples: Sequence[Texts],
    *,
    corpus: Sequence[Texts] = (),
    resources: Resources = NOTHING,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    rebuild: bool = False,
) -> Stored:
    """What a pattern knows about the words of each example: found in the cache, or worked out now and kept there.

    Args:
        pattern: the kind of knowledge, with its options.
        examples: the one or two texts of each example.
        corpus: the training texts, for the patterns that count words in them.
        resources: what else the pattern may draw on.
        cache: the folder that keeps all stores; None: `default_cache()`.
        workers: how many processes work; None: one for each core that this process may use.
        progress: is told how many of how many examples are done, those of an interrupted build included.
        rebuild: work it out again even if it is there.
    """
    workers = checked_workers(workers)
    if not len(examples):
        raise InputError(f"pattern {pattern.name}: there are no examples to gather knowledge about; give at least one.")
    key = store_key(pattern, examples, corpus, resources)
    folder = Path(cache or default_cache()).expanduser() / f"{pattern.name}-{key}"
    # Without the lock first: an entry that is there can be read where nothing can be written.
    if not rebuild and _fault(folder, key, len(examples)) is None:
        return Stored(folder, key)
    with locked(folder, WHAT):
        fault = "" if rebuild else _fault(folder, key, len(examples))
        if fault is None:  # another process has built it while we waited
            return Stored(folder, key)
        _make_way(folder, fault)
        parts = Parts(folder.with_name(f"{folder.name}.parts"), key, len(examples))
        if rebuild:
            parts.remove()
        job = _Job(pattern, list(examples), list(corpus) if pattern.from_corpus else (), resources, workers)
        _build(folder, job, parts, progress or (lambda done, total: None))
    return Stored(folder, key, built=True)


def default_cache() -> Path:
    """Where stores are kept: $HEADWISE_CACHE, else headwise/knowledge in the user's cache folder."""
    return cache_folder() or user_cache() / "knowledge"


@dataclass(frozen=True)
class _Job:
    """What is to be built."""

    pattern: Knowledge
    examples: Sequence[Texts]
    corpus: Sequence[Texts]
    resources: Resources
    workers: int

    def ready(self) -> _Work:
        """What the workers are to do; going through the corpus comes first."""
        return _Work(self.pattern.name, self.pattern.builder(self.corpus, self.resources, Processes(self.workers)))

    def work_out(self, work: _Work, gaps: Sequence[tuple[int, int]]) -> Generator[tuple[range, Arrays], None, None]:
        """The parts of some stretches of the examples, as they are done."""
        workers = self.workers if sum(stop - start for start, stop in gaps) >= SMALL else 1
        places = [place for start, stop in gaps for place in cut(start, stop, workers)]
        items = [(place, self.examples[place.start : place.stop]) for place in places]
        yield from apply(work, items, workers=workers, ordered=False)


@dataclass(frozen=True)
class _Work:
    """What a worker does with a part."""

    pattern: str
    builder: Builder

    def __call__(self, item: tuple[range, Sequence[Texts]]) -> tuple[range, Arrays]:
        place, examples = item
        return place, flatten(self.pattern, self.builder(examples), examples, place.start)


def _build(folder: Path, job: _Job, parts: Parts, progress: Progress) -> None:
    """Work out the parts that are missing, then put all together."""
    parts.restore()
    if gaps := list(parts.gaps()):  # else only the last step was missing: spare the corpus
        work = job.ready()
        progress(parts.done, parts.total)
        with closing(job.work_out(work, gaps)) as finished:  # an error here ends the workers at once
            for place, arrays in finished:
                with writing(folder.parent, WHAT, mapped.Damage):
                    parts.save(place, arrays)
                progress(parts.done, parts.total)
        end_workers()  # or the next pattern would be loaded on top of this one
    with writing(folder.parent, WHAT, mapped.Damage):
        joined = parts.joined()
        counts = {"examples": parts.total, "words": len(joined["spans"]), "entries": len(joined["rows"])}
        mapped.write(folder, joined, {**about(job.pattern, job.resources), "key": parts.key, "counts": counts})
    parts.remove()


def _fault(folder: Path, key: str, examples: int) -> str | None:
    """What is wrong with a store: None if nothing is, an empty text if there is none."""
    if not os.path.lexists(folder):
        return ""
    stamp = mapped.stamp(folder)
    try:
        mapped.read(folder, key, examples, hashes=stamp not in _verified)
    except mapped.Damage as damage:
        return str(damage)
    _verified.add(stamp)  # never None: then a file is missing
    return None


def _make_way(folder: Path, fault: str) -> None:
    """Refuse to replace what is not ours, and say so where something is replaced."""
    if os.path.lexists(folder) and not mapped.is_ours(folder):
        raise InputError(
            f"{folder} stands where knowledge should be kept, and was not made by headwise: move it away, or choose "
            "another cache folder."
        )
    if fault:
        warnings.warn(f"{folder} is damaged and is built again: {fault}.", HeadwiseWarning, stacklevel=3)

"""`check_files`: everything about the files of a data set that one should know before training on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from headwise.errors import InputError
from headwise.experiments.data_check.balance import (
    Balance,
    Lengths,
    Numbers,
    Tokens,
    count_words,
    label_balance,
    label_numbers,
    label_tolerance,
    token_lengths,
    word_lengths,
)
from headwise.experiments.data_check.data_files import Choice, DataFile, Reading, given_files, read_files
from headwise.experiments.data_check.leakage import THRESHOLD, Duplicates, Leak, find_duplicates, find_leaks
from headwise.experiments.data_check.simple_baselines import FIRST, LENGTH, MAJORITY, SECOND, Baselines, run_baselines
from headwise.training import Encoder, Listener, Silence, check_length, find_encoder

# What a check found, as plain data.


@dataclass(frozen=True)
class Finding:
    """Something that one should look into."""

    kind: str
    message: str


@dataclass(frozen=True)
class FileReport:
    """One file."""

    name: str
    role: str
    path: str
    rows: int
    """Examples, without those that are empty or broken."""
    empty: tuple[int, ...]
    """Lines that lack a text."""
    broken: tuple[str, ...]
    """What is wrong with lines that cannot be read."""
    labels: Balance | Numbers | None
    """None if it has no labels."""
    duplicates: Duplicates
    words: dict[str, Lengths]
    tokens: Tokens | None


@dataclass(frozen=True)
class DataReport:
    """All files, what they share, and how far one gets without reading."""

    task: str
    texts: tuple[str, ...]
    classes: tuple[str, ...]
    files: tuple[FileReport, ...]
    leaks: tuple[Leak, ...]
    baselines: Baselines | None
    notes: tuple[str, ...]
    """What was guessed or left out."""
    findings: tuple[Finding, ...] = ()
    """What is wrong, in plain sentences."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


# What is wrong with a data set, in plain sentences.


# From here on a class is so much rarer than another that accuracy hides it.
IMBALANCE = 3.0
# Below this share of a file, repeated examples and cut texts hardly change a result.
MANY = 0.01
# Below this share, texts that two files share may be short common ones.
SHARED_TEXTS = 0.1
# How many classes are named.
NAMED = 5


def findings(report: DataReport) -> Iterator[Finding]:
    """All that is worth a warning: about files, then leaks, then what can be had without reading."""
    for file in report.files:
        yield from _rows(file)
        yield from _labels(file)
        yield from _twice(file)
    yield from _imbalances(report.files)
    for leak in report.leaks:
        yield from _leak(leak)
    if report.baselines is not None:
        yield from _partial_input(report.baselines, report.texts)


def _rows(file: FileReport) -> Iterator[Finding]:
    if file.broken:
        text = f"{file.name}: rows that cannot be read: {len(file.broken)}; first: {file.broken[0]}"
        yield Finding("broken_rows", text)
    if file.empty:
        yield Finding("empty_texts", f"{file.name}: rows without a text: {len(file.empty)}; first: {file.empty[0]}")
    if file.tokens is not None and file.tokens.share >= MANY:
        cut = _part(file.tokens.cut, file.rows)
        yield Finding("cut_texts", f"{file.name}: longer than {file.tokens.limit} tokens, so it would be cut: {cut}")


def _labels(file: FileReport) -> Iterator[Finding]:
    if file.labels is not None and file.labels.missing:
        yield Finding("missing_labels", f"{file.name}: no label: {_part(file.labels.missing, file.rows)}")
    if not isinstance(file.labels, Balance):
        return
    absent = [name for name, count in file.labels.counts.items() if not count]
    if max(file.labels.shares.values()) == 1:
        only = max(file.labels.counts, key=file.labels.counts.__getitem__)
        yield Finding("one_class", f"{file.name}: all labels are {only!r}, so there is nothing to tell apart")
    elif absent:
        more = f" and {len(absent) - NAMED} more" if len(absent) > NAMED else ""
        text = f"{file.name}: no example of {', '.join(map(repr, absent[:NAMED]))}{more}"
        yield Finding("absent_classes", text)


def _twice(file: FileReport) -> Iterator[Finding]:
    contradicting, repeated = file.duplicates.contradicting, file.duplicates.repeated
    if contradicting.count:
        first = " and ".join(map(str, contradicting.examples[0]))
        text = f"{file.name}: the same texts with contradicting labels: {contradicting.count} times; first: {first}"
        yield Finding("contradictions", text)
    if repeated.count and repeated.count >= MANY * file.rows:
        yield Finding("duplicates", f"{file.name}: repeats of an earlier example: {_part(repeated.count, file.rows)}")


def _imbalances(files: Sequence[FileReport]) -> Iterator[Finding]:
    """One for all files in which the same two classes are the most frequent and the rarest."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for file in files:
        if isinstance(file.labels, Balance) and file.labels.imbalance >= IMBALANCE:
            present = {name: count for name, count in file.labels.counts.items() if count}
            ends = max(present, key=present.__getitem__), min(present, key=present.__getitem__)
            found.setdefault(ends, {})[file.name] = file.labels.imbalance
    for (top, rare), times in found.items():
        what = f"{top!r} is up to {max(times.values()):.1f} times as frequent as {rare!r}"
        yield Finding("imbalance", f"{', '.join(times)}: {what}, so accuracy alone hides the rare class")


def _leak(leak: Leak) -> Iterator[Finding]:
    kinds = {
        "leak": (leak.exact, f"also in {leak.first}"),
        "swapped_leak": (leak.swapped, f"in {leak.first} with the two texts swapped"),
        "near_leak": (leak.near, f"almost the same as one in {leak.first}"),
    }
    for kind, (shared, what) in kinds.items():
        if shared is not None and shared.count:
            same = "" if shared.same_label is None else f", {shared.same_label:.1%} of them with the same label"
            least = "" if shared.complete else "at least "
            yield Finding(kind, f"{leak.second}: {what}: {least}{_examples(shared.count)} ({shared.share:.1%}){same}")
    for name, shared in (leak.texts or {}).items():
        if shared.share >= SHARED_TEXTS:
            text = f"{leak.second}: {name} also in {leak.first}: {_examples(shared.count)} ({shared.share:.1%})"
            yield Finding("shared_texts", text)


def _partial_input(baselines: Baselines, texts: Sequence[str]) -> Iterator[Finding]:
    """Baselines that should not work, and do: their whole interval is above what takes no input at all."""
    numbers = baselines.chance is None
    usual = baselines.of(MAJORITY)
    # The most frequent class of train may be a rare one of test, and then is too easy to beat.
    floor = 0.0 if usual is None else max(usual.scores["accuracy"].value, baselines.chance or 0.0)
    told = "the mean 0" if numbers else f"the most frequent class {floor:.1%}"
    for name, what, danger in (
        (FIRST, f"{texts[0]} alone", f"without reading {texts[-1]}"),
        (SECOND, f"{texts[-1]} alone", f"without reading {texts[0]}"),
        (LENGTH, "the number of words alone", "by counting words"),
    ):
        found = baselines.of(name)
        score = None if found is None else found.scores["pearson" if numbers else "accuracy"]
        if score is not None and score.low > floor:
            value = f"a correlation of {score.value:.2f}" if numbers else f"an accuracy of {score.value:.1%}"
            text = f"{what} gives {value} on {baselines.scored_on}, {told}: a model may look good {danger}"
            yield Finding("length" if name == LENGTH else "partial_input", text)


def _part(count: int, total: int) -> str:
    return f"{_examples(count)} ({count / total:.1%})"


def _examples(count: int) -> str:
    return "1 example" if count == 1 else f"{count} examples"


# With fewer examples all is done before one could read how far it is.
LONG = 20_000
USUAL_LENGTH = 128

TokenCount = Callable[[DataFile], Tokens]


@dataclass(frozen=True)
class CheckSettings:
    """What may differ from one check to the next."""

    seed: int = 0
    """Decides which examples baselines learn from, and their folds."""
    near: float = THRESHOLD
    """How alike near-duplicates are."""
    model: str | None = None
    """An encoder, to count its tokens."""
    max_length: int | None = None
    """Tokens that it would be given; if left out 128, or as many as it takes."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if not 0 < self.near <= 1:
            raise InputError(f"near: expected a number above 0 and at most 1, got {self.near!r}; {THRESHOLD} is usual.")
        if self.max_length is not None and self.model is None:
            raise InputError(f"max_length {self.max_length} counts tokens of a model: name one, or leave it out.")


def check_files(
    files: Sequence[str | Path],
    choice: Choice | None = None,
    settings: CheckSettings | None = None,
    listener: Listener | None = None,
) -> DataReport:
    """Check the files of a data set.

    Args:
        files: what each is for is told by its name, or by `train=FILE`; else the first is train and the last test.
        choice: the task or the columns; guessed from the first file if left out.
        settings: seed, near-duplicates, and an encoder to count tokens with.
        listener: hears how far it is if there are many examples.

    Returns:
        The report, whose findings say what is wrong.
    """
    settings = settings or CheckSettings()
    counting = None if settings.model is None else _counting(find_encoder(settings.model), settings.max_length)
    reading = read_files(given_files([str(file) for file in files]), choice or Choice())
    long = sum(map(len, reading.files)) >= LONG
    return _report(reading, settings, counting, (listener if long else None) or Silence())


def _counting(encoder: Encoder, max_length: int | None) -> TokenCount:
    """How tokens are counted; a limit that the encoder cannot take is refused."""
    if max_length is not None:
        check_length(encoder, max_length)
    return partial(
        token_lengths, encoder=encoder, limit=max_length or min(USUAL_LENGTH, encoder.longest or USUAL_LENGTH)
    )


def _report(reading: Reading, settings: CheckSettings, counting: TokenCount | None, listener: Listener) -> DataReport:
    labels = [label for file in reading.files for label in file.labels]
    tolerance = label_tolerance(labels, numbers=reading.numbers)
    leaks = find_leaks(reading.files, reading.texts, tolerance, listener, settings.near)
    baselines = run_baselines(reading.files, numbers=reading.numbers, seed=settings.seed, listener=listener)
    about = f"no baselines: {baselines}" if isinstance(baselines, str) else baselines.told()
    report = DataReport(
        task=reading.task,
        texts=reading.texts,
        classes=reading.classes,
        files=tuple(_file_report(file, reading, counting, tolerance) for file in reading.files),
        leaks=tuple(leaks),
        baselines=None if isinstance(baselines, str) else baselines,
        notes=(*reading.notes, about),
    )
    return replace(report, findings=tuple(findings(report)))


def _file_report(file: DataFile, reading: Reading, counting: TokenCount | None, tolerance: float) -> FileReport:
    spread = label_numbers(file.labels) if reading.numbers else label_balance(file.labels, reading.classes)
    return FileReport(
        name=file.name,
        role=file.role,
        path=file.path,
        rows=len(file),
        empty=file.empty,
        broken=file.broken,
        labels=spread,
        duplicates=find_duplicates(file, tolerance),
        words=word_lengths(count_words(file), reading.texts),
        tokens=None if counting is None else counting(file),
    )

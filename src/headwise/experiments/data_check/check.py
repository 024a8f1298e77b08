"""`check_files`: everything about the files of a data set that one should know before training on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headwise.errors import InputError
from headwise.experiments.data_check.balance import label_balance, label_numbers, label_tolerance
from headwise.experiments.data_check.baselines import run_baselines
from headwise.experiments.data_check.choice import Choice
from headwise.experiments.data_check.data_file import DataFile
from headwise.experiments.data_check.duplicates import find_duplicates
from headwise.experiments.data_check.findings import findings
from headwise.experiments.data_check.leakage import find_leaks
from headwise.experiments.data_check.lengths import Tokens, count_words, token_lengths, word_lengths
from headwise.experiments.data_check.near import THRESHOLD
from headwise.experiments.data_check.reading import Reading, read_files
from headwise.experiments.data_check.report import DataReport, FileReport
from headwise.experiments.data_check.roles import given_files
from headwise.training import Encoder, Listener, Silence, check_length, find_encoder

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

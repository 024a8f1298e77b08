"""`check_files`: what one should know about the files of a data set before training on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.data.checked_files import TEST, TRAIN, VALIDATION, DataFile, read_files
from headwise.data.encode import encode
from headwise.data.examples import Label, Split, odd_spellings, spellings_of
from headwise.data.leakage import Duplicates, Leak, Progress, find_duplicates, find_leaks
from headwise.data.marks import MarkReport, mark_findings, mark_report, token_marks
from headwise.data.near_duplicates import THRESHOLD, words_and_signs
from headwise.data.simple_baselines import FIRST, LENGTH, MAJORITY, SECOND, Baselines, Features, run_baselines
from headwise.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PERCENTS = (5, 25, 50, 75, 95, 99)
TOGETHER = "together"
USUAL_LENGTH = 128
# No text is as long: nothing is cut while tokens are counted.
ENDLESS = 2**30
# With fewer examples all is done before one could read how far it is.
LONG = 20_000
# Numbers that differ by up to this part of their range say the same.
TOLERANCE = 0.1
# From here on a class is so much rarer than another that accuracy hides it.
IMBALANCE = 3.0
# Below this share of a file, repeated examples and cut texts hardly change a result.
MANY = 0.01
# Below this share, texts that two files share may be short common ones.
SHARED_TEXTS = 0.1
# How many absent classes are named.
NAMED = 5


@dataclass(frozen=True)
class Balance:
    """How often each class occurs."""

    counts: dict[str, int]
    shares: dict[str, float]
    """Of the examples that have a label."""
    missing: int
    """Examples without one."""
    imbalance: float
    """How many times the most frequent class is as frequent as the rarest that occurs."""


@dataclass(frozen=True)
class Numbers:
    """Where labels that are numbers lie."""

    low: float
    high: float
    mean: float
    deviation: float
    """Standard deviation of the sample; 0 for one example."""
    missing: int
    """Examples without one."""


@dataclass(frozen=True)
class Lengths:
    """Percentiles of the numbers of words or tokens: so many percent of the texts are at most so long."""

    percentiles: dict[int, int]
    longest: int


@dataclass(frozen=True)
class Tokens:
    """Lengths in tokens of a tokenizer, with special ones, and what a limit would cut."""

    lengths: Lengths
    limit: int
    cut: int
    """Examples that are longer."""
    share: float


@dataclass(frozen=True)
class FileReport:
    """One file."""

    name: str
    role: str
    path: str
    written: str
    """How it is written, as detected: delimiter, encoding, sheet."""
    rows: int
    """Examples, without those that are empty or broken."""
    empty: tuple[int, ...]
    """Lines that lack a text."""
    broken: tuple[str, ...]
    """What is wrong with lines that cannot be read."""
    labels: Balance | Numbers | None
    """None if it has no labels."""
    spellings: str
    """Labels that are read as another one, such as 'Yes' (3) as 'yes'."""
    duplicates: Duplicates
    words: dict[str, Lengths]
    """Of each text and, for pairs, of both together."""
    tokens: Tokens | None
    marks: MarkReport | None = None
    """If the task has marks and the file has them."""


@dataclass(frozen=True)
class Finding:
    """Something that one should look into."""

    kind: str
    message: str


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


def check_files(
    files: Sequence[str | Path],
    *,
    task: str | None = None,
    texts: Sequence[str] = (),
    label: str | None = None,
    columns: Sequence[str] = (),
    written: Mapping[str, Any] | None = None,
    marks: Mapping[str, Any] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    max_length: int = USUAL_LENGTH,
    near: float = THRESHOLD,
    seed: int = 0,
    encoder: Features | None = None,
    progress: Progress | None = None,
) -> DataReport:
    """Check the files of a data set.

    Args:
        files: the name of each says what it is for, or `train=FILE` does; else the first is train and the last test.
        task: whose columns they have; guessed from the first file if left out.
        texts: columns of one text or two.
        label: column of the label.
        columns: all columns, of files without a header.
        written: what is not to be detected: delimiter, encoding, quoting or sheet, as in the task of a recipe.
        marks: where marked words come from, as in the task of a recipe.
        tokenizer: of a model, to count its tokens.
        max_length: tokens beyond which the model would cut.
        near: how similar near-duplicates are, above 0 and at most 1.
        seed: decides which examples baselines learn from, and their folds.
        encoder: computes features of texts, for one more baseline: logistic regression on them.
        progress: is called with how far the check is if there are many examples.

    Returns:
        The report, whose findings say what is wrong.
    """
    if not 0 < near <= 1:
        raise InputError(f"near: expected a number above 0 and at most 1, got {near!r}; {THRESHOLD} is usual.")
    reader, classes, data, notes = read_files(
        files, task=task, texts=texts, label=label, columns=columns, written=written, marks=marks
    )
    names = tuple(text if isinstance(text, str) else " - ".join(text) for text in reader.layouts[0].texts)
    numbers = reader.kind == "regression"
    if numbers and encoder is not None:
        raise InputError(
            f"encoder=...: logistic regression on frozen features predicts classes, and the labels of {data[0].path} "
            f"are numbers ({reader.name}); leave it out, or read the labels as classes with task=..."
        )
    show = progress if progress and sum(map(len, data)) >= LONG else lambda what, done, total: None
    labels = [each for file in data for each in file.labels if each is not None]
    # How far two labels may be apart and still agree: classes not at all.
    tolerance = TOLERANCE * (max(labels) - min(labels)) if numbers and labels else 0.0
    leaks = find_leaks(data, names, tolerance, near=near, progress=show)
    baselines = run_baselines(
        data, numbers=numbers, seed=seed, features=encoder, log=lambda message: show(message, 0, 1)
    )
    about = f"no baselines: {baselines}" if isinstance(baselines, str) else baselines.summary()
    reports = []
    for file in data:
        texts_of, tokens = file.examples.texts, None
        counts = np.array([[len(words_and_signs(text)) for text in each] for each in texts_of], dtype=np.int64)
        words = {name: lengths_of(counts[:, number]) for number, name in enumerate(names)}
        if len(names) > 1:
            words[TOGETHER] = lengths_of(counts.sum(1))
        if tokenizer is not None:
            split = Split(tuple(texts_of), (None,) * len(file))
            token_counts = encode(split, tokenizer, ENDLESS).lengths
            cut = int((token_counts > max_length).sum())
            tokens = Tokens(lengths_of(token_counts), max_length, cut, cut / len(file))
        reports.append(
            FileReport(
                name=file.name,
                role=file.role,
                path=file.path,
                written=file.examples.written,
                rows=len(file),
                empty=tuple(file.examples.empty),
                broken=tuple(file.examples.broken),
                labels=_numbers(file.labels) if numbers else _balance(file.labels, classes),
                spellings=""
                if numbers
                else odd_spellings(spellings_of(filter(None, file.examples.labels), reader.aliases)),
                duplicates=find_duplicates(file, tolerance),
                words=words,
                tokens=tokens,
                marks=_marks(file, tokenizer, max_length),
            )
        )
    report = DataReport(
        task=reader.name,
        texts=names,
        classes=classes,
        files=tuple(reports),
        leaks=tuple(leaks),
        baselines=None if isinstance(baselines, str) else baselines,
        notes=(*notes, *_written(data), about),
    )
    return replace(report, findings=tuple(starmap(Finding, _findings(report))))


def _written(data: Sequence[DataFile]) -> Iterator[str]:
    """How the files are written, with those that are written the same way in one sentence."""
    names: dict[str, list[str]] = {}
    for file in data:
        names.setdefault(file.examples.written, []).append(file.name)
    yield from (f"{', '.join(files)}: {written}" for written, files in names.items() if written)


def _marks(file: DataFile, tokenizer: PreTrainedTokenizerBase | None, max_length: int) -> MarkReport | None:
    if file.marked is None:
        return None
    tokens, texts, spans = None, tuple(file.examples.texts), tuple(file.marked.spans)
    if tokenizer is not None and any(spans):
        split = Split(texts, file.labels, spans).subset(index for index, each in enumerate(spans) if each)
        whole = encode(split, tokenizer, ENDLESS, spans=True, offsets=True)
        tokens = token_marks(split, whole, encode(split, tokenizer, max_length, spans=True), max_length)
    return mark_report(texts, file.marked, tokens)


def _balance(labels: Sequence[Label], classes: Sequence[str]) -> Balance | None:
    known = Counter(label for label in labels if label is not None)
    if not known:
        return None
    counts = {name: known[number] for number, name in enumerate(classes)}
    total, occurring = known.total(), [count for count in counts.values() if count]
    return Balance(
        counts=counts,
        shares={name: count / total for name, count in counts.items()},
        missing=len(labels) - total,
        imbalance=max(occurring) / min(occurring),
    )


def _numbers(labels: Sequence[Label]) -> Numbers | None:
    values = np.array([label for label in labels if label is not None], dtype=np.float64)
    if not len(values):
        return None
    return Numbers(
        low=float(values.min()),
        high=float(values.max()),
        mean=float(values.mean()),
        deviation=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        missing=len(labels) - len(values),
    )


def lengths_of(counts: NDArray[np.int64]) -> Lengths:
    """Percentiles that occur: the smallest length that so many percent do not exceed."""
    values = np.percentile(counts, PERCENTS, method="inverted_cdf")
    return Lengths(dict(zip(PERCENTS, map(int, values), strict=True)), int(counts.max()))


def _findings(report: DataReport) -> Iterator[tuple[str, str]]:
    """Kind and message of all that is worth a warning: about files, leaks, and what can be had without reading."""
    for file in report.files:
        yield from _file_findings(file)
    # One finding for all files in which the same two classes are the most frequent and the rarest.
    imbalances: dict[tuple[str, str], dict[str, float]] = {}
    for file in report.files:
        if isinstance(file.labels, Balance) and file.labels.imbalance >= IMBALANCE:
            present = {name: count for name, count in file.labels.counts.items() if count}
            ends = max(present, key=present.__getitem__), min(present, key=present.__getitem__)
            imbalances.setdefault(ends, {})[file.name] = file.labels.imbalance
    for (top, rare), times in imbalances.items():
        what = f"{top!r} is up to {max(times.values()):.1f} times as frequent as {rare!r}"
        yield "imbalance", f"{', '.join(times)}: {what}, so accuracy alone hides the rare class"
    for leak in report.leaks:
        yield from _leak_findings(leak)
    if report.baselines is not None:
        yield from _baseline_findings(report.baselines, report.texts)


def _file_findings(file: FileReport) -> Iterator[tuple[str, str]]:
    name = file.name
    if file.broken:
        yield "broken_rows", f"{name}: rows that cannot be read: {len(file.broken)}; first: {file.broken[0]}"
    if file.empty:
        yield "empty_texts", f"{name}: rows without a text: {len(file.empty)}; first: {file.empty[0]}"
    if file.tokens is not None and file.tokens.share >= MANY:
        cut = _examples(file.tokens.cut, file.rows)
        yield "cut_texts", f"{name}: longer than {file.tokens.limit} tokens, so it would be cut: {cut}"
    if file.labels is not None and file.labels.missing:
        yield "missing_labels", f"{name}: no label: {_examples(file.labels.missing, file.rows)}"
    if file.spellings:
        yield "spellings", f"{name}: labels are read as one: {file.spellings}"
    if isinstance(file.labels, Balance):
        counts = file.labels.counts
        absent = [each for each, count in counts.items() if not count]
        if max(file.labels.shares.values()) == 1:
            only = max(counts, key=counts.__getitem__)
            yield "one_class", f"{name}: all labels are {only!r}, so there is nothing to learn"
        elif absent:
            yield "absent_classes", f"{name}: no example of {_some(absent)}"
        if single := [each for each, count in counts.items() if count == 1 and file.role == TRAIN]:
            yield "rare_classes", f"{name}: a single example of {_some(single)}, so none can be held out"
    contradicting, repeated = file.duplicates.contradicting, file.duplicates.repeated
    if contradicting.count:
        first = " and ".join(map(str, contradicting.examples[0]))
        text = f"{name}: the same texts with contradicting labels: {contradicting.count} times; first: {first}"
        yield "contradictions", text
    if repeated.count and repeated.count >= MANY * file.rows:
        yield "duplicates", f"{name}: repeats of an earlier example: {_examples(repeated.count, file.rows)}"
    if file.marks is not None:
        yield from mark_findings(name, file.marks, needed=file.role not in (VALIDATION, TEST))


def _some(names: Sequence[str]) -> str:
    """The first of some classes, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(map(repr, names[:NAMED]))}{more}"


def _leak_findings(leak: Leak) -> Iterator[tuple[str, str]]:
    kinds = {
        "leak": (leak.exact, f"also in {leak.first}"),
        "swapped_leak": (leak.swapped, f"in {leak.first} with the two texts swapped"),
        "near_leak": (leak.near, f"almost the same as one in {leak.first}"),
    }
    for kind, (shared, what) in kinds.items():
        if shared is not None and shared.count:
            same = "" if shared.same_label is None else f", {shared.same_label:.1%} of them with the same label"
            least = "" if shared.complete else "at least "
            examples = _examples(shared.count, share=shared.share)
            yield kind, f"{leak.second}: {what}: {least}{examples}{same}"
    for name, shared in (leak.texts or {}).items():
        if shared.share >= SHARED_TEXTS:
            examples = _examples(shared.count, share=shared.share)
            yield "shared_texts", f"{leak.second}: {name} also in {leak.first}: {examples}"


def _baseline_findings(baselines: Baselines, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Baselines that should not work, and do: their whole interval is above what takes no input at all."""
    numbers = baselines.chance is None
    usual = baselines.scores_of(MAJORITY)
    # The most frequent class of train may be a rare one of test, and then is too easy to beat.
    floor = 0.0 if usual is None else max(usual["accuracy"].value, baselines.chance or 0.0)
    compared = "the mean 0" if numbers else f"the most frequent class {floor:.1%}"
    for name, what, danger in (
        (FIRST, f"{texts[0]} alone", f"without reading {texts[-1]}"),
        (SECOND, f"{texts[-1]} alone", f"without reading {texts[0]}"),
        (LENGTH, "the number of words alone", "by counting words"),
    ):
        scores = baselines.scores_of(name)
        score = None if scores is None else scores["pearson" if numbers else "accuracy"]
        if score is not None and score.low > floor:
            value = f"a correlation of {score.value:.2f}" if numbers else f"an accuracy of {score.value:.1%}"
            text = f"{what} gives {value} on {baselines.scored_on}, {compared}: a model may look good {danger}"
            yield "length" if name == LENGTH else "partial_input", text


def _examples(count: int, total: int = 1, *, share: float | None = None) -> str:
    """A number of examples and their share."""
    share = count / total if share is None else share
    return f"{'1 example' if count == 1 else f'{count} examples'} ({share:.1%})"

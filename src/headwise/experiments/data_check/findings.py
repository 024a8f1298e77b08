"""What is wrong with a data set, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwise.experiments.data_check.balance import Balance
from headwise.experiments.data_check.baselines import FIRST, LENGTH, MAJORITY, SECOND, Baselines
from headwise.experiments.data_check.leakage import Leak
from headwise.experiments.data_check.report import DataReport, FileReport, Finding

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

"""Marks: which words decide the label of an example, checked against its text, and how much they say."""

from __future__ import annotations

import logging
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from headwise.data.examples import Examples, Spans, Split
from headwise.data.mark_sources import EXPORTED, EXPORTS, FINDERS, Marks, NotFoundError, OutsideError, Span
from headwise.data.near_duplicates import word_positions
from headwise.errors import HeadwiseWarning, InputError, listed

if TYPE_CHECKING:
    from headwise.data.encode import Encoded

logger = logging.getLogger(__name__)


# From this share of the marks or the marked examples on, a finding is worth a line.
MANY = 0.01
WHOLE_TEXTS = 0.1


@dataclass
class Marked:
    """The marks of the examples of a file, and what was wrong with them."""

    spans: list[Spans] = field(default_factory=list)
    total: int = 0
    """Marks that lie in their text."""
    cut: int = 0
    """Marks that begin or end inside a word."""
    not_found: list[int] = field(default_factory=list)
    """Lines whose selected text is not part of the text."""
    outside: list[str] = field(default_factory=list)
    """Marks that end beyond their text, in words."""
    broken: list[str] = field(default_factory=list)
    """Marks that cannot be read, in words."""


@dataclass(frozen=True)
class TokenMarks:
    """How marks lie on the tokens of a model."""

    share: float
    """Median share of the tokens of a marked example, without special ones, that are marked."""
    split: int
    """Marks that begin or end inside a token."""
    limit: int
    """The number of tokens from which an example is cut."""
    lost: int
    """Marked examples that lose all marks when they are cut."""
    shortened: int
    """Marked examples that lose some of them."""


@dataclass(frozen=True)
class MarkReport:
    """How much is marked in a file, and which marks cannot be used."""

    examples: int
    """Marked ones."""
    share: float
    """Of all examples."""
    marks: int
    words: float | None
    """Median share of the words of a marked example that are marked; None if no example is."""
    every_word: int
    """Examples whose words are all marked."""
    cut: int
    """Marks that begin or end inside a word."""
    not_found: tuple[int, ...]
    """Lines whose selected text is not part of the text."""
    outside: tuple[str, ...]
    """Marks that are not inside their text, in words."""
    broken: tuple[str, ...]
    """Marks that cannot be read, in words."""
    tokens: TokenMarks | None


def mark_examples(
    marks: Marks, examples: Examples, root: Path | None, *, required: bool = True, strict: bool = True
) -> Marked | None:
    """Find the marks of all examples; stars that are marks are taken out of the texts.

    Args:
        marks: where they come from.
        examples: with the columns that `Marks.extra` names.
        root: the folder that the file of a lexicon is relative to.
        required: whether some examples must be marked, as in training.
        strict: whether the first mark that cannot be used is refused; otherwise such marks are counted.

    Returns:
        The marks; None if they are not required and the file has no column of them.
    """
    try:
        for name in marks.columns:
            if name not in examples.extra[0]:
                raise InputError(
                    f"{examples.where} has no column {name!r}, only {listed(examples.columns)}: name the column of "
                    f"marks in marks.{marks.source}."
                )
        find = FINDERS[marks.source](marks, examples, root)
    except InputError:
        if required:
            raise
        return None
    result = Marked()
    for index, texts in enumerate(examples.texts):
        spans: Spans = ()
        try:
            spans = _checked(marks, texts, find(index), result)
        except NotFoundError:
            result.not_found.append(examples.lines[index])
        except InputError as error:
            message = f"{examples.position(index)}: {error}"
            if strict:
                raise InputError(message) from None
            (result.outside if isinstance(error, OutsideError) else result.broken).append(message)
        result.spans.append(spans)
    if required:
        _check_use(marks, examples, result)
    return result


def _checked(marks: Marks, texts: Sequence[str], spans: Iterable[Span], result: Marked) -> Spans:
    """The marks of an example, in order and without overlaps; refuses those that are not inside their text."""
    checked = []
    cut = 0
    words: dict[int, list[tuple[int, int]]] = {}
    for sentence, start, end in spans:
        if not 0 <= sentence < len(texts):
            raise OutsideError(
                f"the mark {[sentence, start, end]} is in text {sentence}, expected 0 to {len(texts) - 1}; correct it."
            )
        length = len(texts[sentence])
        if not 0 <= start < end <= length:
            raise OutsideError(
                f"the mark [{start}, {end}] is not inside its text, which has {length} characters: expected "
                f"0 <= start < end <= {length}; correct it, or set broken_rows: drop."
            )
        if sentence not in words:
            words[sentence] = word_positions(texts[sentence])
        split = [word for edge in (start, end) for word in _word_around(words[sentence], edge)]
        cut += bool(split)
        if marks.widen and split:
            start, end = min(start, split[0][0]), max(end, split[-1][1])
        checked.append((sentence, start, end))
    result.total += len(checked)
    result.cut += cut
    merged: list[Span] = []
    for sentence, start, end in sorted(checked):
        if merged and merged[-1][0] == sentence and start < merged[-1][2]:
            _, start, last = merged.pop()
            end = max(end, last)
        merged.append((sentence, start, end))
    return tuple(merged)


def _word_around(words: Sequence[tuple[int, int]], edge: int) -> Sequence[tuple[int, int]]:
    """The word that a position is inside of, if it is inside of one; the words are in order."""
    index = bisect_left(words, (edge,)) - 1  # the last word that begins before it
    return words[index : index + 1] if index >= 0 and words[index][1] > edge else ()


def words_marked(texts: Sequence[str], spans: Spans) -> tuple[int, int]:
    """How many words of an example are marked, at least in part, and how many it has."""
    words = [(number, *word) for number, text in enumerate(texts) for word in word_positions(text)]
    marked = sum(
        any(number == sentence and first < end and start < last for sentence, start, end in spans)
        for number, first, last in words
    )
    return marked, len(words)


def _check_use(marks: Marks, examples: Examples, result: Marked) -> None:
    """Refuse marks that say nothing, and warn of those that could not be used."""
    marked = [(texts, spans) for texts, spans in zip(examples.texts, result.spans, strict=True) if spans]
    if not marked:
        raise InputError(f"{examples.where}: no example is marked, {_why_none(marks, result)}.")
    counts = starmap(words_marked, marked)
    if all(words == total for words, total in counts):
        raise InputError(
            f"{examples.where}: marks.{marks.source} marks every word of all {len(marked)} marked examples, which says "
            "nothing about where to look: expected only the words that decide the label; name another source."
        )
    for problem, where in (
        ("a selected text that is not part of the text", [f"line {line}" for line in result.not_found]),
        ("marks that are not inside the text", result.outside),
        ("marks that cannot be read", result.broken),
    ):
        if where:
            warnings.warn(
                f"{examples.where}: {len(where)} of {len(examples.texts)} examples have {problem} and stay unmarked; "
                f"first: {where[0]}",
                HeadwiseWarning,
                stacklevel=2,
            )
    logger.info(
        "%s: %d of %d examples are marked; %d of %d marks cut a word",
        *(examples.where, len(marked), len(examples.texts), result.cut, result.total),
    )


def _why_none(marks: Marks, result: Marked) -> str:
    if result.not_found:
        return (
            f"because no text in {marks.columns[0]!r} is part of the text of its example ({len(result.not_found)} were "
            "looked for); name the right column, or the right text with marks.text"
        )
    if marks.source == "stars":
        return "because no text has words between stars; write them as *this*"
    if marks.source == "lexicon":
        return f"because no term of {marks.file} occurs in a text; name another lexicon"
    what = {"edit_of": "no text differs from", "twin_id": "no texts of one id differ by"}.get(
        marks.source, "nothing is marked in"
    )
    column = EXPORTED if marks.source in EXPORTS else marks.file or ", ".join(marks.columns)
    return f"because {what} {column!r}; add marks, or name another source"


def mark_report(texts: Sequence[tuple[str, ...]], marked: Marked, tokens: TokenMarks | None) -> MarkReport:
    """How much of some texts is marked.

    Args:
        texts: of all examples.
        marked: their marks.
        tokens: what `token_marks` says of them, if there is a tokenizer.
    """
    pairs = [(text, spans) for text, spans in zip(texts, marked.spans, strict=True) if spans]
    counts = [(words, total) for words, total in starmap(words_marked, pairs) if total]
    return MarkReport(
        examples=len(pairs),
        share=len(pairs) / len(texts),
        marks=marked.total,
        words=median(words / total for words, total in counts) if counts else None,
        every_word=sum(words == total for words, total in counts),
        cut=marked.cut,
        not_found=tuple(marked.not_found),
        outside=tuple(marked.outside),
        broken=tuple(marked.broken),
        tokens=tokens,
    )


def token_marks(split: Split, whole: Encoded, cut: Encoded, limit: int) -> TokenMarks:
    """How the marks of examples lie on tokens.

    Args:
        split: marked examples.
        whole: these, encoded with spans and offsets, and not cut.
        cut: these, encoded with spans and cut to `limit` tokens.
        limit: the number of tokens that a model takes.
    """
    if whole.deciding is None or cut.deciding is None or whole.offsets is None or whole.sources is None:
        raise InputError("marks on tokens: expected examples that are encoded with spans=True and offsets=True.")
    kept = [(int(before.sum()), int(after.sum())) for before, after in zip(whole.deciding, cut.deciding, strict=True)]
    shares, split_marks = [], 0
    for index, (texts, spans) in enumerate(zip(split.texts, split.spans or (), strict=True)):
        part = slice(whole.starts[index], whole.starts[index + 1])
        offsets, sources = whole.offsets[part], whole.sources[part]  # [T,2], [T]
        shares.append(kept[index][0] / max(1, int((sources >= 0).sum())))
        for sentence, start, end in spans:
            tokens = offsets[sources == sentence].tolist()
            # Some tokenizers count the blank before a word to its token.
            split_marks += any(
                first < edge < last and texts[sentence][first:edge].strip() != ""
                for first, last in tokens
                for edge in (start, end)
            )
    return TokenMarks(
        share=median(shares),
        split=split_marks,
        limit=limit,
        lost=sum(before > 0 and not after for before, after in kept),
        shortened=sum(before > after > 0 for before, after in kept),
    )


def mark_findings(name: str, report: MarkReport, *, needed: bool) -> Iterator[tuple[str, str]]:
    """Kind and message of what is wrong with the marks of a file; `needed` if it must have some."""
    if needed and not report.examples:
        yield "no_marks", f"{name}: no example is marked"
    if report.not_found:
        count = f"{len(report.not_found)}; first: line {report.not_found[0]}"
        yield "marks_not_found", f"{name}: examples whose selected text is not part of the text: {count}"
    for kind, what, problems in (
        ("marks_outside", "marks that are not inside their text", report.outside),
        ("broken_marks", "marks that cannot be read", report.broken),
    ):
        if problems:
            yield kind, f"{name}: examples with {what}: {len(problems)}; first: {problems[0]}"
    if report.examples and report.every_word >= WHOLE_TEXTS * report.examples:
        share = report.every_word / report.examples
        what = "which says nothing about where to look" if share == 1 else "and these say nothing about where to look"
        yield "marks_everywhere", f"{name}: every word is marked in {share:.1%} of the marked examples, {what}"
    if report.cut and report.cut >= MANY * report.marks:
        yield "cut_words", f"{name}: {report.cut} of {report.marks} marks begin or end inside a word"
    tokens = report.tokens
    if tokens is not None and tokens.lost + tokens.shortened:
        yield (
            "lost_marks",
            f"{name}: cut to {tokens.limit} tokens, {tokens.lost} of {report.examples} marked examples lose all marks "
            f"and {tokens.shortened} lose some",
        )

"""Where marks come from: columns, the text itself, a lexicon, or the twin of an example.

Each source is a function that returns how to find the marks of one example. Exports of annotation tools are read by
`annotation_exports`, which adds the column EXPORTED.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any

from headwise.data.examples import Examples
from headwise.data.near_duplicates import word_positions
from headwise.data.readers import JsonTable
from headwise.data.text_files import lines
from headwise.errors import InputError
from headwise.limits import parse_json

COLUMNS = ("column", "spans", "tokens", "evidence", "edit_of", "twin_id")
"""Sources that are columns of the files."""
EXPORTS = ("doccano", "label_studio", "eraser")
"""Sources that are ways to write a whole file."""
FILES = ("lexicon", "ssa")
"""Sources that are files beside those of the examples."""
SOURCES = (*COLUMNS, "stars", *EXPORTS, *FILES)
EXPORTED = "marks"
"""The column of spans that `headwise mark` writes, and that readers of exports add."""
AGREEMENTS = ("any", "majority", "all")
UNITS = ("characters", "tokens")

_HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# A star inside a word, as in f*ck, is none of ours; but signs that are written without blanks are words.
_STARS = re.compile(rf"(?<![^\W{_HAN}])(?<!\*)\*(?=[^\s*])([^*]+)(?<=[^\s*])\*(?!\*)(?![^\W{_HAN}])")
_TOKEN = re.compile(r"\S+")
ERASER_TOKEN = re.compile(r"[^ \r\n]+")
_STOP = re.compile(r"[.;:!?]")

Span = tuple[int, int, int]
Find = Callable[[int], Iterable[Span]]
"""The number of an example -> its marks, before they are checked."""


@dataclass(frozen=True)
class Marks:
    """Where the marked words of a task come from: the option `marks` of a recipe."""

    source: str
    """One of SOURCES."""
    columns: tuple[str, ...] = ()
    file: str = ""
    """Relative to the data root."""
    texts: tuple[str, ...] = ("text",)
    """The column of each text of an example."""
    sentence: int | None = None
    """The text that the marks are in; None if they say so, or if all texts are searched."""
    unit: str = "characters"
    """Of spans: characters, or tokens between white space."""
    agreement: str = "majority"
    """How many annotators must mark a token: any, majority or all."""
    widen: bool = True
    """Whether marks that cut a word are widened to the whole word."""
    names: tuple[str, ...] = ()
    """Which names of spans count in the export of a tool; empty for all."""
    threshold: float | None = None
    """The score from which a token counts for SSA; None for the tokens that its model pools."""

    @property
    def extra(self) -> tuple[str, ...]:
        """The columns that must be read beside texts and label."""
        if self.source in EXPORTS:
            return (EXPORTED,)
        # The sentences that make up the text, before they are joined
        return (*self.columns, self.texts[self.sentence or 0]) if self.source == "evidence" else self.columns

    @property
    def join_lists(self) -> bool:
        """Whether a text may be a list of sentences."""
        return self.source == "evidence"

    def plain(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """The texts of an example as the model reads them: without the stars of marks."""
        return tuple(_STARS.sub(r"\1", text) for text in texts) if self.source == "stars" else texts


class NotFoundError(InputError):
    """A selected text that is not part of the text."""


class OutsideError(InputError):
    """A mark that is not inside its text."""


def _parsed(cell: Any, name: str, expected: str) -> Any:
    """The value of a cell, which TSV and CSV files hold as JSON; None if it is empty."""
    if isinstance(cell, str):
        if not cell.strip():
            return None
        try:
            return parse_json(cell)
        except ValueError as error:
            raise InputError(
                f"column {name!r} holds {cell!r:.60}, which is no JSON ({error}): expected {expected}; correct it."
            ) from None
    return None if cell in ([], {}) else cell


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _column(marks: Marks, examples: Examples, root: Path | None) -> Find:
    """A selected text, or a list of them, each found in the text."""

    def find(index: int) -> Iterator[Span]:
        cell = examples.extra[index][marks.columns[0]]
        sentence = marks.sentence or 0
        for selected in cell if isinstance(cell, list) else [cell]:
            if selected is not None and not isinstance(selected, str):
                raise InputError(f"expected a part of the text in {marks.columns[0]!r}, got {selected!r:.60}.")
            if selected and selected.strip():
                yield sentence, *_found(selected, examples.texts[index][sentence])

    return find


def _found(selected: str, text: str) -> tuple[int, int]:
    """Where a selected text is: as written, else in any case and white space; best without cutting a word."""
    words = r"\s+".join(map(re.escape, selected.split()))
    for pattern in (re.escape(selected.strip()), f"(?i:{words})"):
        occurrences = [match.span() for match in re.finditer(pattern, text)]
        if occurrences:
            inside = {edge for first, last in word_positions(text) for edge in range(first + 1, last)}
            return next((span for span in occurrences if not inside & set(span)), occurrences[0])
    raise NotFoundError


def _spans(marks: Marks, examples: Examples, root: Path | None) -> Find:
    """Spans in a column: [start, end], [sentence, start, end], {start, end}, or one of these alone."""
    name = marks.extra[0]
    shape = "[[start, end], ...]" if marks.sentence is not None else "[[sentence, start, end], ...]"
    expected = f"{shape} in whole numbers"

    def find(index: int) -> Iterator[Span]:
        value = _parsed(examples.extra[index].get(name), name, expected)
        items = value if isinstance(value, list) else [] if value is None else [value]
        for item in [items] if items and all(map(_whole, items)) else items:
            numbers = item
            if isinstance(item, Mapping):
                numbers = [item.get(key) for key in ("start", "end")]
            elif isinstance(item, list) and len(item) == 3 and isinstance(item[2], str):
                numbers = item[:2]  # with the name of the span
            if isinstance(numbers, list) and len(numbers) == 2 and marks.sentence is not None:
                numbers = [marks.sentence, *numbers]
            if not isinstance(numbers, list) or len(numbers) != 3 or not all(map(_whole, numbers)):
                raise InputError(f"column {name!r} holds the mark {item!r:.60}: expected {expected}; correct it.")
            span = (numbers[0], numbers[1], numbers[2])
            yield span if marks.unit == "characters" else _of_tokens(span, examples.texts[index])

    return find


@lru_cache(maxsize=4)  # a text has many marks
def _token_positions(text: str, pattern: re.Pattern[str] = _TOKEN) -> list[tuple[int, int]]:
    return [match.span() for match in pattern.finditer(text)]


def _of_tokens(span: Span, texts: Sequence[str], pattern: re.Pattern[str] = _TOKEN) -> Span:
    """The characters of a span of tokens."""
    sentence, start, end = span
    if not 0 <= sentence < len(texts):
        return span  # refused where all marks are checked
    tokens = _token_positions(texts[sentence], pattern)
    if not 0 <= start < end <= len(tokens):
        raise OutsideError(
            f"the mark [{start}, {end}] is not inside its text, which has {len(tokens)} tokens between white space: "
            f"expected 0 <= start < end <= {len(tokens)}; correct it, or set broken_rows: drop."
        )
    return sentence, tokens[start][0], tokens[end - 1][1]


def _tokens(marks: Marks, examples: Examples, root: Path | None) -> Find:
    """Masks over the tokens between white space, of one annotator or several."""
    sentence = marks.sentence or 0

    def masks(index: int) -> Iterator[list[bool]]:
        for name in marks.columns:
            cell = examples.extra[index][name]
            if isinstance(cell, str) and re.fullmatch(r"[01](\s+[01])*", cell.strip()):
                cell = [int(each) for each in cell.split()]
            value = _parsed(cell, name, "a list of 0 and 1")
            nested = isinstance(value, list) and any(isinstance(each, list) for each in value)
            for mask in value if nested else [] if value is None else [value]:
                if not isinstance(mask, list) or any(each not in (0, 1) for each in mask):
                    raise InputError(f"column {name!r} holds {mask!r:.60}: expected a list of 0 and 1; correct it.")
                if mask:
                    yield [bool(each) for each in mask]

    def find(index: int) -> Iterator[Span]:
        tokens = _token_positions(examples.texts[index][sentence])
        annotators = list(masks(index))
        for mask in annotators:
            if len(mask) != len(tokens):
                raise InputError(
                    f"a mask in {' and '.join(map(repr, marks.columns))} has {len(mask)} values and the text has "
                    f"{len(tokens)} tokens between white space: expected one value for each; correct it."
                )
        enough = {"any": 1, "majority": len(annotators) // 2 + 1, "all": len(annotators)}[marks.agreement]
        for votes, token in zip(zip(*annotators, strict=True), tokens, strict=False):
            if sum(votes) >= enough:
                yield sentence, *token

    return find


def _evidence(marks: Marks, examples: Examples, root: Path | None) -> Find:
    """Numbers of sentences, which are the items of a list or the lines of a text; or ERASER's spans of tokens."""
    column, sentence = marks.columns[0], marks.sentence or 0
    expected = "numbers of sentences, or evidence with start_token and end_token"

    def flat(value: Any) -> Iterator[Any]:
        if _whole(value) or (isinstance(value, Mapping) and "start_token" in value):
            yield value
        elif isinstance(value, list | Mapping):
            inside = [value["sentences"]] if isinstance(value, Mapping) and "sentences" in value else value
            for each in inside.values() if isinstance(inside, Mapping) else inside:
                yield from flat(each)
        elif value is not None:
            raise InputError(f"column {column!r} holds {value!r:.60}: expected {expected}; correct it.")

    def find(index: int) -> Iterator[Span]:
        texts = examples.texts[index]
        positions = _sentences(examples.extra[index].get(marks.texts[sentence]), texts[sentence])
        for item in flat(_parsed(examples.extra[index][column], column, expected)):
            if isinstance(item, Mapping):
                start, end = item["start_token"], item.get("end_token", -1)
                if not _whole(start) or not _whole(end):
                    raise InputError(f"column {column!r} holds {item!r:.90}: expected {expected}; correct it.")
                if start >= 0:  # -1 where only the sentence is known
                    yield _of_tokens((sentence, start, end), texts, ERASER_TOKEN)
            elif not 0 <= item < len(positions):
                raise OutsideError(
                    f"{column!r} names sentence {item} of a text that has {len(positions)}: expected 0 to "
                    f"{len(positions) - 1}; correct it, or set broken_rows: drop."
                )
            else:
                yield sentence, *positions[item]

    return find


def _sentences(cell: Any, text: str) -> list[tuple[int, int]]:
    """Where the sentences are that a text was joined from; of one that was not, its lines."""
    if not isinstance(cell, list):
        return [match.span() for match in re.finditer(r"[^\r\n]+", text) if match[0].strip()]
    positions, start = [], max(0, text.find(" ".join(cell)))
    for each in cell:
        positions.append((start, start + len(each)))
        start += len(each) + 1
    return positions


def edited_words(text: str, twin: str) -> list[tuple[int, int]]:
    """The words of a text that its twin does not have in the same place, whatever their case."""
    positions = word_positions(text)
    words = [text[start:end].casefold() for start, end in positions]
    others = [twin[start:end].casefold() for start, end in word_positions(twin)]
    edits = SequenceMatcher(None, words, others, autojunk=False).get_opcodes()
    return [word for kind, start, end, *_ in edits if kind != "equal" for word in positions[start:end]]


def _edit_of(marks: Marks, examples: Examples, root: Path | None) -> Find:
    """The words that differ from the text in a column."""
    column, sentence = marks.columns[0], marks.sentence or 0

    def find(index: int) -> Iterator[Span]:
        twin = examples.extra[index][column]
        if twin is not None and not isinstance(twin, str):
            raise InputError(f"column {column!r} holds {twin!r:.60}: expected the text of the twin; correct it.")
        if twin and twin.strip():
            yield from ((sentence, *word) for word in edited_words(examples.texts[index][sentence], twin))

    return find


def _twin_id(marks: Marks, examples: Examples, root: Path | None) -> Find:
    """The words that differ from the other rows with the same id, as far as their label differs, too."""
    rows: dict[str, list[int]] = defaultdict(list)
    keys = [str("" if row[marks.columns[0]] is None else row[marks.columns[0]]).strip() for row in examples.extra]
    for index, key in enumerate(keys):
        rows[key].append(index)

    def find(index: int) -> Iterator[Span]:
        others = [each for each in rows[keys[index]] if each != index] if keys[index] else []
        others = [each for each in others if examples.labels[each] != examples.labels[index]] or others
        for other in others:
            for number, (text, twin) in enumerate(zip(examples.texts[index], examples.texts[other], strict=True)):
                if marks.sentence in (None, number):
                    yield from ((number, *word) for word in edited_words(text, twin))

    return find


def _stars(marks: Marks, examples: Examples, root: Path | None) -> Find:
    """The words between stars, which are taken out of the texts."""
    found: list[list[Span]] = []
    for texts in examples.texts:
        spans = []
        for number, text in enumerate(texts):
            for taken, match in enumerate(_STARS.finditer(text)):
                start = match.start() - 2 * taken
                spans.append((number, start, start + len(match[1])))
        found.append(spans)
    examples.texts = [marks.plain(texts) for texts in examples.texts]
    return found.__getitem__


def _lexicon(marks: Marks, examples: Examples, root: Path | None) -> Find:
    """The terms of a file, the longest first."""
    path = (root or Path()) / Path(marks.file).expanduser()
    terms: dict[str, dict[tuple[str, ...], None]] = defaultdict(dict)
    for line in lines(path, "utf-8"):
        pieces = tuple(line[start:end].casefold() for start, end in _pieces(line.strip()))
        while pieces and _STOP.fullmatch(pieces[-1]):
            pieces = pieces[:-1]
        if pieces:
            terms[pieces[0]][pieces] = None
    if not terms:
        raise InputError(f"{path} has no term: expected a lexicon with one term on each line; name another file.")
    lengths = {first: sorted({len(term) for term in known}, reverse=True) for first, known in terms.items()}

    def find(index: int) -> Iterator[Span]:
        for number, text in enumerate(examples.texts[index]):
            if marks.sentence not in (None, number):
                continue
            pieces = _pieces(text)
            words = tuple(text[start:end].casefold() for start, end in pieces)
            position = 0
            while position < len(words):
                known = terms.get(words[position], {})
                candidates = (length for length in lengths.get(words[position], ()))
                length = next((each for each in candidates if words[position : position + each] in known), 0)
                if length:
                    yield number, pieces[position][0], pieces[position + length - 1][1]
                position += length or 1

    return find


def _pieces(text: str) -> list[tuple[int, int]]:
    """Words, and the signs between them that end a sentence, which no term goes across unless it has them."""
    words = word_positions(text)
    gaps = zip([0, *(end for _, end in words)], [*(start for start, _ in words), len(text)], strict=True)
    signs = [match.span() for gap in gaps for match in _STOP.finditer(text, *gap)]
    return sorted([*words, *signs])


def _ssa(marks: Marks, examples: Examples, root: Path | None) -> Find:
    """The tokens that matter to a model with self-supervised attention, as `headwise tokens` writes them."""
    path = (root or Path()) / Path(marks.file).expanduser()
    scored: dict[tuple[str, ...], list[Span]] = {}
    for number, row in JsonTable(path, "utf-8").objects():
        try:
            pairs = zip(row["tokens"], row["offsets"], strict=True)
            scored[tuple(row["texts"])] = [
                (int(token["segment"]), int(start), int(end))
                for token, (start, end) in pairs
                if token["score"] is not None
                and (token["kept"] if marks.threshold is None else token["score"] >= marks.threshold)
            ]
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{path} line {number}: expected the token scores of an example; write the file with `headwise tokens`."
            ) from None
    return lambda index: scored.get(examples.texts[index], [])


FINDERS: dict[str, Callable[[Marks, Examples, Path | None], Find]] = {
    "column": _column,
    "spans": _spans,
    "tokens": _tokens,
    "evidence": _evidence,
    "edit_of": _edit_of,
    "twin_id": _twin_id,
    "stars": _stars,
    "lexicon": _lexicon,
    "ssa": _ssa,
    **dict.fromkeys(EXPORTS, _spans),
}

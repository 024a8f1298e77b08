"""Cross-genre-IR (Zuo et al. 2020): claims from the news and the research papers behind them.

A split is a CSV or TSV file whose name has the word train, dev, validation or test in it, with the columns Hypothesis
(the claim), Premise (title and abstract, or a passage of them), PMID and Entails (1 or 0, true or false). A JSON file
with the same word in its name may map the text of a claim to a list of PMIDs; it then says what answers the claim, else
Entails does. As a pair to train on, a row counts as an answer if either of them says so.

Claims have no ids, so they get one made of their text: c and the first 12 hexadecimal digits of the SHA-256 of the
text in UTF-8, its white space made single spaces. A PMID is one document. It may come with several texts, since the
released training file adds passages of the right papers as further positives: the longest, the first of them where
several are as long, is the document, and every row stays a pair of its split. If there is a corpus.jsonl as in BEIR,
the documents are those instead.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headwise.data.text_files import whole_text
from headwise.errors import InputError
from headwise.limits import parse_json
from headwise.retrieval.collections import (
    SPLITS,
    Collection,
    Document,
    GivenPair,
    Location,
    Qrels,
    Splits,
    beir_documents,
    checked_pmid,
    in_order,
    open_delimited,
    table_records,
)

COLUMNS = ("Hypothesis", "Premise", "PMID", "Entails")
TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
NEEDS = (
    "a CSV or TSV file with the columns Hypothesis, Premise, PMID and Entails per split, named with train, dev, "
    "validation or test"
)


@dataclass(frozen=True)
class PairRow:
    """A row of a table."""

    line: int
    claim_id: str
    claim: str
    document: str
    text: str
    relevant: bool


def pair_rows(path: Path, *, consistent: bool = False) -> Iterator[PairRow]:
    """The rows of a table, checked.

    Args:
        path: a CSV or TSV file.
        consistent: refuse a paper that both answers and does not answer a claim, since only Entails decides.
    """
    labels: dict[tuple[str, str], bool] = {}
    truth = {"1": True, "0": False, "true": True, "false": False}
    for record in table_records(path, COLUMNS):
        if ".tsv" in path.name.lower():
            record = type(record)(path, record.line, {name: _unquoted(each) for name, each in record.values.items()})
        relevant = truth.get(record.value("Entails").strip().lower())
        if relevant is None:
            got = record.value("Entails")
            record.refuse(f"expected 1, 0, true or false as Entails, got {got!r}; correct the line.")
        text = record.value("Premise").strip()
        if not text:
            record.refuse(f"document {record.value('PMID')!r} is empty; write its text, or take it out.")
        document, claim = record.pmid("PMID"), single_spaces(record.claim("Hypothesis"))
        id = claim_id(claim)
        if consistent and labels.setdefault((id, document), relevant) != relevant:
            record.refuse(
                f"PMID {document!r} both answers and does not answer the claim {claim[:60]!r}; make its rows agree in "
                "Entails."
            )
        yield PairRow(record.line, id, claim, document, text, relevant)


def read_answers(path: Path) -> dict[str, list[str]]:
    """Claim -> PMIDs of a JSON file."""
    content = _content(path)
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: expected a JSON object of claims and lists of PMIDs, got a {type(content).__name__}; correct it."
        )
    answers: dict[str, list[str]] = {}
    for claim, documents in content.items():
        if not claim.strip() or not isinstance(documents, list):
            raise InputError(
                f"{path}: expected a list of PMIDs for the claim {claim[:60]!r}, got {documents!r}; correct it."
            )
        answers.setdefault(single_spaces(claim), []).extend(checked_pmid(each, str(path)) for each in documents)
    return answers


def read(location: Location, name: str) -> Collection:
    """The collection of files in which `find_tables` finds some."""
    tables, splits = find_tables(location), Splits()
    answers = _answer_files(location, tables, splits.notes)
    # PMID -> length of its longest text, and the file and line of that text
    longest: dict[str, tuple[int, Path, int]] = {}
    given: dict[str, Callable[[], Iterator[GivenPair]]] = {}
    for split in in_order({**tables, **answers}):
        table, answer_file = tables.get(split), answers.get(split)
        judged: dict[str, dict[str, int]] = {}
        for claim, papers in (read_answers(answer_file) if answer_file else {}).items():
            splits.claims.setdefault(claim_id(claim), claim)
            judged[claim_id(claim)] = dict.fromkeys(papers, 1)
        for row in pair_rows(table, consistent=answer_file is None) if table else ():
            splits.claims.setdefault(row.claim_id, row.claim)
            grades = judged.setdefault(row.claim_id, {})
            if answer_file is None and row.relevant:
                grades[row.document] = 1
            if table and len(row.text) > longest.get(row.document, (0,))[0]:
                longest[row.document] = (len(row.text), table, row.line)
        if path := answer_file or table:
            splits.add(split, path, judged)
        if table:
            given[split] = partial(_given_pairs, table, splits.qrels.get(split, {}))

    def documents() -> Iterator[Document]:
        for path in (tables[split] for split in in_order(tables)):
            for row in pair_rows(path):
                if longest[row.document][1:] == (path, row.line):
                    yield Document(row.document, "", row.text)

    corpus = location.find("corpus.jsonl")
    if corpus is None:
        files, source = location.on_disk(*(tables[split] for split in in_order(tables))), documents
    else:
        files, source = location.on_disk(corpus), beir_documents(corpus)
    return Collection(name, "cross-genre", files, source, given=given, **vars(splits))


def _given_pairs(path: Path, qrels: Qrels) -> Iterator[GivenPair]:
    for row in pair_rows(path):
        # What the JSON calls an answer is no negative, whatever Entails says.
        relevant = row.relevant or row.document in qrels.get(row.claim_id, {})
        yield GivenPair(row.claim_id, row.document, row.text, relevant)


def find_tables(location: Location) -> dict[str, Path]:
    """Split -> its table: one with at least two of the columns, so that a missing one is reported when it is read."""
    named = [name for name in location.names if name.lower().endswith(TABLES) and _splits(name)]
    return _by_split(
        location, [name for name in named if len({*COLUMNS} & {*open_delimited(location.root / name).first}) >= 2]
    )


def _answer_files(location: Location, tables: dict[str, Path], notes: list[str]) -> dict[str, Path]:
    """Split -> its JSON file of answers; dev and validation are the same split."""
    names = []
    for name in location.names:
        if name.lower().endswith(".json") and _splits(name):
            if _may_be_answers(location.root / name):
                names.append(name)
            else:
                notes.append(f"{location.root / name}: ignored, since it maps no claims to lists of PMIDs")
    answers = _by_split(location, names)
    for split in list(answers):
        other = {"dev": "validation", "validation": "dev"}.get(split, "")
        if split not in tables and other in tables:
            answers[other] = answers.pop(split)
    return answers


def _may_be_answers(path: Path) -> bool:
    """Whether a JSON maps to lists, mostly: settings (train_config.json) do not, but one bad value is a mistake."""
    try:
        content = _content(path)
    except InputError:
        return True  # a damaged file may be the answers, so it is refused when they are read
    lists = [isinstance(value, list) for value in content.values()] if isinstance(content, dict) else [False]
    return 2 * sum(lists) >= len(lists)


def _content(path: Path) -> Any:
    try:
        return parse_json(whole_text(path, "utf-8"))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: expected a JSON object, got invalid JSON ({error}); correct the file.") from None


def _splits(name: str) -> list[str]:
    """The splits in a file's name: its words or, if none is one, beginnings of words, as in trainset.csv."""
    words = "|".join(SPLITS)
    name = name.lower()
    return list(
        dict.fromkeys(re.findall(rf"(?<![a-z])({words})(?![a-z])", name) or re.findall(rf"(?<![a-z])({words})", name))
    )


def _by_split(location: Location, names: list[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for name in names:
        path, (split, *others) = location.root / name, _splits(name)
        if others:
            raise InputError(f"{path} is named after the splits {split!r} and {others[0]!r}: rename it after one.")
        if split in files:
            raise InputError(f"{files[split]} and {path} are both of the split {split!r}: keep one, or rename one.")
        files[split] = path
    return files


def claim_id(text: str) -> str:
    """The id of a claim, made of its text."""
    return "c" + hashlib.sha256(single_spaces(text).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def single_spaces(text: str) -> str:
    """The text with every run of white space as one space, and none around it."""
    return " ".join(text.split())


def _unquoted(field: str) -> str:
    """A field of a TSV file without the quotation marks that pandas puts around text with quotation marks."""
    inner = field[1:-1]
    if len(field) < 2 or field[0] != '"' or field[-1] != '"' or '"' in inner.replace('""', ""):
        return field
    return inner.replace('""', '"')

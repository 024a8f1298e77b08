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
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    Files,
    GivenPair,
    beir_documents,
    checked_id,
    in_order,
    on_disk,
    open_delimited,
    table_records,
)

COLUMNS = ("Hypothesis", "Premise", "PMID", "Entails")
TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TRUTH = {"1": True, "0": False, "true": True, "false": False}


@dataclass(frozen=True)
class PairRow(GivenPair):
    """A row of a table."""

    line: int
    claim_text: str


def pair_rows(path: Path, *, consistent: bool = False) -> Iterator[PairRow]:
    """The rows of a table, checked.

    Args:
        path: a CSV or TSV file.
        consistent: refuse a paper that both answers and does not answer a claim, since only Entails decides.
    """
    labels: dict[tuple[str, str], bool] = {}
    for record in table_records(path, COLUMNS):
        if ".tsv" in path.name.lower():
            record = replace(record, values={name: _unquoted(each) for name, each in record.values.items()})
        relevant = TRUTH.get(record.value("Entails").strip().lower())
        if relevant is None:
            got = record.value("Entails")
            record.refuse(f"expected 1, 0, true or false as Entails, got {got!r}; correct the line.")
        text = record.value("Premise").strip()
        if not text:
            record.refuse(f"document {record.value('PMID')!r} is empty; write its text, or take it out.")
        document, claim = record.id("PMID", number=True), _single_spaces(record.claim("Hypothesis"))
        id = _claim_id(claim)
        if consistent and labels.setdefault((id, document), relevant) != relevant:
            record.refuse(
                f"PMID {document!r} both answers and does not answer the claim {claim[:60]!r}; make its rows agree in "
                "Entails."
            )
        yield PairRow(id, document, text, relevant, record.line, claim)


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
        pmids = [checked_id(each, str(path), number=True) for each in documents]
        answers.setdefault(_single_spaces(claim), []).extend(pmids)
    return answers


def read(files: Files, name: str) -> Collection:
    """The collection of files in which `find_tables` finds some."""
    tables = find_tables(files)
    # PMID -> length of its longest text, and the file and line of that text
    longest: dict[str, tuple[int, Path, int]] = {}

    def longest_texts() -> Iterator[Document]:
        for path in (tables[split] for split in in_order(tables)):
            for row in pair_rows(path):
                if longest[row.document][1:] == (path, row.line):
                    yield Document(row.document, "", row.text)

    corpus = files.get("corpus.jsonl")
    sources = [corpus] if corpus else [tables[split] for split in in_order(tables)]
    documents = partial(beir_documents, corpus) if corpus else longest_texts
    collection = Collection(name, "cross-genre", on_disk(*sources), documents)
    answers = _answer_files(files, tables, collection.notes)
    for split in in_order({**tables, **answers}):
        table, answer_file = tables.get(split), answers.get(split)
        judged: dict[str, dict[str, int]] = {}
        for claim, papers in (read_answers(answer_file) if answer_file else {}).items():
            collection.claims.setdefault(_claim_id(claim), claim)
            judged[_claim_id(claim)] = dict.fromkeys(papers, 1)
        for row in pair_rows(table, consistent=answer_file is None) if table else ():
            collection.claims.setdefault(row.claim, row.claim_text)
            grades = judged.setdefault(row.claim, {})
            if answer_file is None and row.relevant:
                grades[row.document] = 1
            if table and len(row.text) > longest.get(row.document, (0,))[0]:
                longest[row.document] = (len(row.text), table, row.line)
        if path := answer_file or table:
            collection.add_split(split, path, judged)
        if table:
            collection.given[split] = partial(_given_pairs, collection, split, table)
    return collection


def _given_pairs(collection: Collection, split: str, path: Path) -> Iterator[GivenPair]:
    for row in pair_rows(path):
        # What the JSON calls an answer is no negative, whatever Entails says.
        relevant = row.relevant or row.document in collection.qrels.get(split, {}).get(row.claim, {})
        yield replace(row, relevant=relevant)


def find_tables(files: Files) -> dict[str, Path]:
    """Split -> its table: one with at least two of the columns, so that a missing one is reported when it is read."""
    named = {name: path for name, path in files.items() if name.lower().endswith(TABLES) and _splits(name)}
    first = {name: {*open_delimited(path).first} for name, path in named.items()}
    return _by_split({name: named[name] for name in named if len(first[name].intersection(COLUMNS)) >= 2})


def _answer_files(files: Files, tables: dict[str, Path], notes: list[str]) -> dict[str, Path]:
    """Split -> its JSON file of answers; dev and validation are the same split."""
    named = {}
    for name, path in files.items():
        if name.lower().endswith(".json") and _splits(name):
            try:  # settings (train_config.json) do not map to lists, mostly, but one bad value is a mistake
                content = _content(path)
                lists = (
                    [isinstance(value, list) for value in content.values()] if isinstance(content, dict) else [False]
                )
            except InputError:
                lists = [True]  # a damaged file may be the answers, so it is refused when they are read
            if 2 * sum(lists) >= len(lists):
                named[name] = path
            else:
                notes.append(f"{path}: ignored, since it maps no claims to lists of PMIDs")
    answers = _by_split(named)
    for split, other in (("dev", "validation"), ("validation", "dev")):
        if split in answers and split not in tables and other in tables:
            answers[other] = answers.pop(split)
    return answers


def _content(path: Path) -> Any:
    try:
        return parse_json(whole_text(path, "utf-8"))
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: expected a JSON object, got invalid JSON ({error}); correct the file.") from None


def _splits(name: str) -> list[str]:
    """The splits in a file's name: its words or, if none is one, beginnings of words, as in trainset.csv."""
    begins = rf"(?<![a-z])({'|'.join(SPLITS)})"
    return list(dict.fromkeys(re.findall(rf"{begins}(?![a-z])", name.lower()) or re.findall(begins, name.lower())))


def _by_split(files: Files) -> dict[str, Path]:
    by_split: dict[str, Path] = {}
    for name, path in files.items():
        split, *others = _splits(name)
        if others:
            raise InputError(f"{path} is named after the splits {split!r} and {others[0]!r}: rename it after one.")
        if split in by_split:
            raise InputError(f"{by_split[split]} and {path} are both of the split {split!r}: keep one, or rename one.")
        by_split[split] = path
    return by_split


def _claim_id(claim: str) -> str:
    return "c" + hashlib.sha256(claim.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _single_spaces(text: str) -> str:
    return " ".join(text.split())


def _unquoted(field: str) -> str:
    """A field of a TSV file without the quotation marks that pandas puts around text with quotation marks."""
    inner = field[1:-1]
    if len(field) < 2 or field[0] != '"' or field[-1] != '"' or '"' in inner.replace('""', ""):
        return field
    return inner.replace('""', '"')

"""Reading a collection in the layout of BEIR, SciFact or Cross-genre-IR, or papers without claims.

BEIR: corpus.jsonl (`_id`, `text` and perhaps `title`), queries.jsonl (`_id`, `text`) and qrels/*.tsv, each of which is
a split; other keys are ignored. Judgements may also be in TREC's form, and then be named .txt, .qrels or .trec.

SciFact: CSV files as exported from the Hub (claims_*.csv with one row per piece of evidence, and corpus_train.csv), or
the authors' JSON Lines (claims_*.jsonl, corpus.jsonl). The name after claims_ is the split. What answers a claim is
`gold`. With "evidence" it is an abstract that supports or contradicts the claim; claims without any, which SciFact
labels NEI, are then in no split's judgements. With "cited" it is every abstract that the claim cites, as in BEIR.
Claims of the test part have neither, so it is no split.

Cross-genre-IR: see cross_genre.py. A table of papers, or a folder of text files: see papers.py. A data set of
ir_datasets: see irds.py. Every file may be gzipped, and all of them may be in one zip.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

from headwise.data.text_files import gzipped
from headwise.errors import InputError, choices
from headwise.retrieval import cross_genre, irds
from headwise.retrieval.collections import (
    Collection,
    Document,
    Files,
    Record,
    beir_documents,
    checked_id,
    find_files,
    in_order,
    json_records,
    on_disk,
    open_delimited,
    table_records,
    unique_documents,
)
from headwise.retrieval.papers import ENDINGS, Columns, find_table, find_texts, is_table, read_table, read_texts
from headwise.retrieval.trec import qrels_rows, read_qrels

LAYOUTS = ("beir", "scifact", "cross-genre", "table", "text")
GOLDS = ("evidence", "cited")
NEEDS = {
    "beir": "corpus.jsonl and queries.jsonl (and qrels/*.tsv to train and to score)",
    "scifact": "claims_*.csv and corpus_train.csv, or claims_*.jsonl and corpus.jsonl",
    "cross-genre": "a CSV or TSV file with the columns Hypothesis, Premise, PMID and Entails per split, named with "
    "train, dev, validation or test",
    "table": f"one file that ends in {', '.join(ENDINGS)}, with a column of texts",
    "text": "text files (.txt) and nothing else",
}


def read_collection(
    folder: Path,
    layout: str | None = None,
    *,
    gold: str = "evidence",
    drop_unknown: bool = False,
    columns: Columns | None = None,
    download: bool = False,
) -> Collection:
    """Read a collection: claims and judgements into memory, documents as a stream.

    Args:
        folder: a folder with the files, or with one zip of them, or such a zip; or a table of papers; or the id of a
            data set of ir_datasets, such as irds:beir/scifact/test.
        layout: one of LAYOUTS; None decides by the names of the files.
        gold: what answers a claim of SciFact: "evidence" or "cited".
        drop_unknown: leave out judgements of documents that are not in the corpus, instead of refusing them.
        columns: of a table of papers; None decides by their names.
        download: let ir_datasets download the data set.
    """
    for what, value, known in (("layout", "beir" if layout is None else layout, LAYOUTS), ("gold", gold, GOLDS)):
        if value not in known:
            raise InputError(f"unknown {what} {value!r}: {choices(value, known)}.")
    if id := irds.dataset_id(folder):
        return replace(irds.read(id, download=download), drop_unknown=drop_unknown)
    if is_table(folder) and layout in (None, "table"):
        kind = "table"
        files: Files = {folder.name.removesuffix(".gz"): folder}
    else:
        kind, files = _find_layout(folder, LAYOUTS if layout is None else (layout,))
    if gold != "evidence" and kind != "scifact":
        raise InputError(f"gold: {gold} is for SciFact, and {folder} is in the layout {kind}: leave gold out.")
    if columns not in (None, Columns()) and kind != "table":
        raise InputError(f"{folder} is in the layout {kind}, and columns are chosen of a table: leave them out.")
    name = folder.resolve().name.removesuffix(".zip")
    if kind == "table" and (table := find_table(files)):
        collection = read_table(table, columns or Columns())
    elif kind == "text":
        collection = read_texts(find_texts(files), name)
    elif kind == "scifact":
        collection = _read_scifact(files, name, gold)
    else:
        collection = (_read_beir if kind == "beir" else cross_genre.read)(files, name)
    return replace(collection, folder=folder, drop_unknown=drop_unknown)


def _find_layout(folder: Path, layouts: tuple[str, ...]) -> tuple[str, Files]:
    searched = find_files(folder)
    for files in searched:
        by_name = {"beir": {"corpus.jsonl", "queries.jsonl"} <= files.keys(), "scifact": _find_scifact(files) != []}
        papers = {"table": find_table(files) is not None, "text": find_texts(files) != []}
        fitting = [layout for layout in layouts if by_name.get(layout)]
        if len(fitting) > 1:
            raise InputError(f"{folder} holds files as in {' and in '.join(fitting)}: say which, as layout.")
        # Only Cross-genre-IR is recognised by the content of its files, so they are opened last.
        if not fitting and "cross-genre" in layouts and cross_genre.find_tables(files):
            fitting = ["cross-genre"]
        fitting = fitting or [layout for layout in layouts if papers.get(layout)]
        if fitting:
            return fitting[0], files
    names = [name + ".gz" * gzipped(path) for files in searched for name, path in files.items()]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    needs = "; ".join(f"{layout} needs {NEEDS[layout]}" for layout in layouts)
    raise InputError(f"{folder} holds no collection, but {shown or 'no files'}: {needs}; put those files there.")


# BEIR


def _read_beir(files: Files, name: str) -> Collection:
    corpus, queries = files["corpus.jsonl"], files["queries.jsonl"]
    collection = Collection(name, "beir", on_disk(corpus), partial(beir_documents, corpus))
    lines: dict[str, int] = {}
    for record in json_records(queries):
        id = record.id("_id")
        if id in lines:
            record.refuse(
                f"claim id {id!r} was on line {lines[id]} before; keep one of the two, or give one another id."
            )
        collection.claims[id], lines[id] = record.claim("text"), record.line
    if not lines:
        raise InputError(f"{queries} is empty: expected one JSON object per line; fetch or write it again.")
    splits = _qrels_files(files, collection.notes)
    for split in in_order(splits):
        path, judged = splits[split], read_qrels(splits[split])
        if unknown := judged.keys() - lines.keys():
            line, claim = next((line, claim) for line, claim, _, _ in qrels_rows(path) if claim in unknown)
            more = f", nor are {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise InputError(
                f"{path} line {line}: claim {claim!r} is not in {queries}{more}; add it there, or take its judgements "
                "out."
            )
        collection.add_split(split, path, judged)
        if split not in collection.qrels:
            raise InputError(f"{path} has no judgement above 0: expected a document that answers a claim; add one.")
    if not splits:
        collection.notes.append("no qrels/*.tsv: the claims can be searched for, but not trained on or scored")
    return collection


def _qrels_files(files: Files, notes: list[str]) -> dict[str, Path]:
    """Split -> its file of judgements, by the name without its ending."""
    splits: dict[str, Path] = {}
    for name, path in files.items():
        plain = PurePosixPath(name)
        if not name.startswith("qrels/") or plain.suffix not in (".tsv", ".txt", ".qrels", ".trec"):
            continue
        if plain.suffix == ".txt":  # which may be a README
            try:
                next(qrels_rows(path))
            except (InputError, StopIteration):
                notes.append(f"{path}: ignored, since it does not begin with a judgement")
                continue
        if plain.stem in splits:
            raise InputError(f"{splits[plain.stem]} and {path} are both of the split {plain.stem!r}: keep one of them.")
        splits[plain.stem] = path
    return splits


# SciFact: rows of a CSV file are turned into objects as in the JSON Lines.


def _csv_claims(path: Path) -> Iterator[Record]:
    columns = ["id", "claim", "evidence_doc_id", "evidence_label", "cited_doc_ids"]
    if marked := SENTENCES in open_delimited(path).first:
        columns.append(SENTENCES)
    for row in table_records(path, columns):
        label, evidence = row.value("evidence_label").strip(), {}
        if label not in NO_ANSWER:
            sentences = _array(row, SENTENCES, "[0 2]") if marked else []
            evidence = {row.id("evidence_doc_id", number=True): [{"label": label, "sentences": sentences}]}
        cited = _array(row, "cited_doc_ids", "[13734012 5152028]")
        yield replace(row, values={**row.values, "evidence": evidence, "cited_doc_ids": cited})


def _csv_papers(path: Path) -> Iterator[Record]:
    for row in table_records(path, ("doc_id", "title", "abstract")):
        yield replace(row, values={**row.values, "abstract": _array(row, "abstract", "['One sentence.' 'Another.']")})


def _array(record: Record, column: str, example: str) -> list[str]:
    try:
        return printed_array(record.value(column))
    except ValueError as error:
        record.refuse(f"expected {column} such as {example}, got {error}; correct the line.")


SENTENCES = "evidence_sentences"
ANSWER, NO_ANSWER = ("SUPPORT", "CONTRADICT"), ("", "NEI")
# The ending of the files of claims -> the file of the documents, which is the first of these.
CORPORA = {".csv": ("corpus_train.csv", "corpus.csv"), ".jsonl": ("corpus.jsonl",)}


def _find_scifact(files: Files) -> list[tuple[str, Path, dict[str, Path]]]:
    """For each ending that is there: it, the file of the documents, and of each split that of its claims."""
    forms = []
    for ending, corpora in CORPORA.items():
        corpus = [files[name] for name in corpora if name in files]
        names = [name for name in files if name.startswith("claims_") and name.endswith(ending)]
        if corpus and names:
            claims = {name.split(".")[0].removeprefix("claims_"): files[name] for name in names}
            forms.append((ending, corpus[0], claims))
    return forms


def _read_scifact(files: Files, name: str, gold: str) -> Collection:
    ending, corpus, splits = _find_scifact(files)[0]
    claims, papers = (_csv_claims, _csv_papers) if ending == ".csv" else (json_records, json_records)
    documents = partial(unique_documents, papers, corpus, _scifact_document)
    evidence_of: dict[str, dict[str, list[int]]] = {}  # document -> claim -> its sentences
    spans = partial(_evidence_spans, papers, corpus, evidence_of)
    collection = Collection(name, "scifact", on_disk(corpus), documents, evidence=spans)
    first: dict[str, tuple[Path, int]] = {}
    for split in in_order(splits):
        path, judged = splits[split], dict[str, dict[str, int]]()
        for record in claims(path):
            id, text = record.id("id"), record.claim("claim")
            known = first.setdefault(id, (path, record.line))
            same_file = ending == ".csv" and known[0] == path  # where a claim has a line for each piece of evidence
            if known != (path, record.line) and not (same_file and collection.claims[id] == text):
                record.refuse(
                    f"claim id {id!r} was on line {known[1]} of {known[0]} before"
                    f"{' with another text' if same_file else ''}; keep one of the two, or give one another id."
                )
            collection.claims[id] = text
            evidence, cited = _scifact_answers(record)
            judged.setdefault(id, {}).update(dict.fromkeys(evidence if gold == "evidence" else cited, 1))
            for document, pieces in record.values.get("evidence", {}).items():
                try:
                    numbers = [int(number) for piece in pieces for number in piece.get("sentences", ())]
                except (TypeError, ValueError):
                    record.refuse(f"expected numbers of sentences as evidence, got {pieces!r}; correct the line.")
                evidence_of.setdefault(str(document), {}).setdefault(id, []).extend(numbers)
        answer = "evidence" if gold == "evidence" else "cited document"
        collection.add_split(split, path, judged, answer=answer)
    return collection


def _scifact_answers(record: Record) -> tuple[list[str], list[str]]:
    """Documents with evidence, and cited documents; claims of the test part have neither."""
    cited, evidence = record.values.get("cited_doc_ids", []), record.values.get("evidence", {})
    if not isinstance(cited, list):
        record.refuse(f"expected a list as 'cited_doc_ids', got {cited!r}; correct the line.")
    try:
        labels = {document: [str(piece["label"]) for piece in pieces] for document, pieces in evidence.items()}
    except (AttributeError, TypeError, KeyError):
        example = '{"13734012": [{"label": "SUPPORT"}]}'
        record.refuse(f"expected evidence such as {example}, got {evidence!r}; correct the line.")
    for label in (label for each in labels.values() for label in each):
        if label not in (*ANSWER, *NO_ANSWER):
            record.refuse(f"unknown label {label!r}; {choices(label, (*ANSWER, 'NEI'))}.")
    answering = [document for document, each in labels.items() if not {*ANSWER}.isdisjoint(each)]
    where = f"{record.path} line {record.line}"
    return [checked_id(each, where) for each in answering], [checked_id(each, where) for each in cited]


def _scifact_document(record: Record) -> Document:
    sentences = record.value("abstract")
    if not isinstance(sentences, list):
        record.refuse(f"expected a list of sentences as abstract, got {sentences!r}; correct the line.")
    text = " ".join(record.text(sentence, "a sentence") for sentence in sentences)
    return record.document(record.id("doc_id"), text.strip())


def _evidence_spans(
    papers: Callable[[Path], Iterator[Record]], corpus: Path, evidence: Mapping[str, Mapping[str, list[int]]]
) -> dict[tuple[str, str], tuple[tuple[int, int], ...]]:
    """Where the evidence is: (claim, document) -> (start, end) of its sentences in title and text."""
    spans: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}
    for record in papers(corpus):
        document = _scifact_document(record)
        whole, position, places = document.whole, len(document.whole) - len(document.text), list[tuple[int, int]]()
        for sentence in (record.text(each, "a sentence").strip() for each in record.value("abstract")):
            start = whole.find(sentence, position)
            position = start + len(sentence)
            places.append((start, position))
        for claim, numbers in evidence.get(document.id, {}).items():
            spans[claim, document.id] = tuple(places[number] for number in sorted({*numbers}) if number < len(places))
    return spans


# Only the escapes that Python itself writes, so that reading a string cannot warn.
_ESCAPE = r"""\\(?:[\\'"nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})"""
_ITEM = re.compile(rf"""(\d+|'(?:[^'\\\n]|{_ESCAPE})*'|"(?:[^"\\\n]|{_ESCAPE})*")(?:\s*,\s*|\s+|$)""")


def printed_array(text: str) -> list[str]:
    """The strings or whole numbers of an array as numpy or Python prints it; ValueError for anything else."""
    body = text.strip()
    if len(body) < 2 or body[0] != "[" or body[-1] != "]":
        raise ValueError(f"no brackets around {body[:40]!r}")
    body, items, start = body[1:-1].strip(), [], 0
    while start < len(body):
        item = _ITEM.match(body, start)
        if item is None:
            rest = body[start:]
            cut = rest.startswith("...")
            raise ValueError("an array that numpy cut short with '...'" if cut else f"something else at {rest[:40]!r}")
        try:
            items.append(item[1] if item[1].isdecimal() else str(ast.literal_eval(item[1])))
        except (ValueError, SyntaxError):
            raise ValueError(f"a string that Python cannot read at {item[1][:40]!r}") from None
        start = item.end()
    return items

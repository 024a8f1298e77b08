"""Cross-genre-IR (Zuo et al. 2020): claims from the news and the research papers behind them.

A split is a CSV or TSV file whose name has the word train, dev, validation or test in it, with the columns Hypothesis
(the claim), Premise (title and abstract, or a passage of them), PMID and Entails (1 or 0, true or false). Beside it may
lie a JSON with the same word in its name that maps the text of a claim to a list of PMIDs; it then says what answers
the claim, else Entails does. As a pair to train on, a row counts as an answer if either of them says so.

Claims have no ids, so they get one made of their text: c and the first 12 hexadecimal digits of the SHA-256 of the
text in UTF-8, its white space made single spaces. A PMID is one document. It may come with several texts, since the
released training file adds passages of the right papers as further positives: the longest, the first of them where
several are as long, is the document, and every row stays a pair of its split. If there is a corpus.jsonl as in BEIR,
the documents are those instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headwise.errors import InputError
from headwise.tasks.retrieval import beir
from headwise.tasks.retrieval.collection import Collection, Document, GivenPair, Qrels
from headwise.tasks.retrieval.cross_genre_files import (
    PairRow,
    SplitFiles,
    agreeing_rows,
    claim_id,
    find_splits,
    find_tables,
    pair_rows,
    read_answers,
    single_spaces,
)
from headwise.tasks.retrieval.place import Place

NEEDS = (
    "a CSV or TSV file with the columns Hypothesis, Premise, PMID and Entails per split, named with train, dev, "
    "validation or test"
)


def fits(place: Place) -> bool:
    """Whether there is a table with such columns."""
    return bool(find_tables(place))


def read(place: Place, name: str) -> Collection:
    """The collection in a place that fits."""
    splits, notes = find_splits(place)
    tables = [files.table for files in splits if files.table]
    if not tables:
        raise InputError(f"{place.root} holds no collection as in Cross-genre-IR: it needs {NEEDS}.")
    pairs = _Pairs(notes=notes)
    for files in splits:
        pairs.read(files)
    corpus = place.find("corpus.jsonl")
    return Collection(
        name,
        "cross-genre",
        place.on_disk(tables if corpus is None else [corpus]),
        pairs.documents if corpus is None else beir.read_documents(corpus),
        pairs.claims,
        pairs.qrels,
        places=pairs.places,
        given={files.split: _given(files.table, pairs.qrels.get(files.split, {})) for files in splits if files.table},
        members=pairs.members,
        notes=tuple(pairs.notes),
    )


def _given(path: Path, qrels: Qrels) -> Callable[[], Iterator[GivenPair]]:
    def given() -> Iterator[GivenPair]:
        for row in pair_rows(path):
            claim = claim_id(row.claim)
            # What the JSON calls an answer is no negative, whatever Entails says.
            relevant = row.relevant or row.document in qrels.get(claim, {})
            yield GivenPair(claim, row.document, row.text, relevant)

    return given


@dataclass
class _Pairs:
    """What has been read so far: claims and judgements, and of the texts only where the longest of each PMID is."""

    claims: dict[str, str] = field(default_factory=dict)
    qrels: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    places: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _tables: list[Path] = field(default_factory=list)
    # PMID -> length of its longest text, the file and the line where that is
    _longest: dict[str, tuple[int, Path, int]] = field(default_factory=dict)

    def read(self, files: SplitFiles) -> None:
        """Take in the pairs and the answers of a split."""
        answers = {} if files.answers is None else read_answers(files.answers)
        judged = {self._claim(claim): dict.fromkeys(documents, 1) for claim, documents in answers.items()}
        self._tables += [files.table] if files.table else []
        checked = agreeing_rows if files.answers is None else pair_rows
        for row in checked(files.table) if files.table else ():
            found = judged.setdefault(self._claim(row.claim), {})
            self._measure(row)
            if files.answers is None and row.relevant:
                found[row.document] = 1
        self._keep(files, judged)

    def documents(self) -> Iterator[Document]:
        """One document per PMID, streamed from the tables a second time."""
        for path in self._tables:
            for row in pair_rows(path):
                if self._longest[row.document][1:] == (path, row.line):
                    yield Document(row.document, "", row.text)

    def _claim(self, text: str) -> str:
        id = claim_id(text)
        self.claims.setdefault(id, single_spaces(text))
        return id

    def _measure(self, row: PairRow) -> None:
        length, _, _ = self._longest.get(row.document, (0, None, 0))
        if len(row.text) > length:
            self._longest[row.document] = (len(row.text), row.path, row.line)

    def _keep(self, files: SplitFiles, judged: dict[str, dict[str, int]]) -> None:
        place = files.answers or files.table
        answered = {claim: documents for claim, documents in judged.items() if documents}
        self.members[files.split] = tuple(judged)
        if answered and place:
            self.qrels[files.split], self.places[files.split] = answered, place
        if left := len(judged) - len(answered):
            self.notes.append(f"{place}: {left} claims without any paper that answers them have no judgements")

"""Collections that no reader of Headwise takes as they are, written in the layout of BEIR for studies/search.py.

cisi      1,460 papers of library science and 112 questions, of which 76 are judged; no split to fit anything on
nfcorpus  3,395 medical papers and 325 titles of web pages each for dev and test. The texts of both are lower-cased
          and have no stop words, numbers and punctuation, which encoders are not trained on. Judgements have three
          grades: 3 for direct links, 2 for indirect ones, 1 for marginal ones
pubmedqa  the abstracts of 1,000 papers without their titles, since the question is the title; the 500 questions of
          the official test part are test, the others dev
"""

import csv
import gzip
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

Papers = dict[str, tuple[str, str]]
"""Id -> title and text."""
Judged = dict[str, dict[str, int]]


def prepared(name: str, source: Path, folder: Path) -> Path:
    """The folder of a collection; it is written if it does not exist, otherwise `source` has it."""
    if name not in READERS:
        return source / name
    target = folder / name
    if not (target / "qrels" / "test.tsv").is_file():
        (target / "qrels").mkdir(parents=True, exist_ok=True)
        papers, claims, splits = READERS[name](source / name)
        rows = ({"_id": id, "title": title, "text": text} for id, (title, text) in papers.items())
        write_lines(target / "corpus.jsonl", map(as_json, rows))
        write_lines(target / "queries.jsonl", (as_json({"_id": id, "text": text}) for id, text in claims.items()))
        for split, judged in splits.items():  # that of test comes last
            with (target / "qrels" / f"{split}.tsv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, delimiter="\t", lineterminator="\n")
                writer.writerow(["query-id", "corpus-id", "score"])
                writer.writerows((claim, *each) for claim, grades in judged.items() for each in grades.items())
    return target


def as_json(row: dict[str, str]) -> str:
    return json.dumps(row, ensure_ascii=False)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def text_of(path: Path, encoding: str = "utf-8") -> str:
    """A file that may be packed."""
    content = path.read_bytes() if path.is_file() else gzip.decompress(path.with_name(path.name + ".gz").read_bytes())
    return content.decode(encoding)


def cisi(source: Path) -> tuple[Papers, dict[str, str], dict[str, Judged]]:
    def records(name: str) -> Iterable[tuple[str, dict[str, str]]]:
        """Id and fields by their letter; lines that begin with a dot and a letter name them."""
        for record in re.split(r"^\.I ", text_of(source / name, "latin-1"), flags=re.MULTILINE)[1:]:
            id, *parts = re.split(r"^\.([A-Z])[ \t]*$", record, flags=re.MULTILINE)
            fields = zip(parts[::2], parts[1::2], strict=True)
            yield id.strip(), {letter: " ".join(text.split()) for letter, text in fields}

    papers = {id: (fields.get("T", ""), fields.get("W", "")) for id, fields in records("CISI.ALL")}
    claims = {id: fields["W"] for id, fields in records("CISI.QRY")}
    judged: Judged = {}
    for line in text_of(source / "CISI.REL").splitlines():
        claim, paper = line.split()[:2]
        judged.setdefault(claim, {})[paper] = 1
    return papers, claims, {"test": judged}


def nfcorpus(source: Path) -> tuple[Papers, dict[str, str], dict[str, Judged]]:
    rows = map(json.loads, text_of(source / "docs.jsonl").splitlines())
    papers = {row["id"]: ("", row["text"]) for row in rows}
    claims: dict[str, str] = {}
    splits: dict[str, Judged] = {"dev": {}, "test": {}}
    for split, judged in splits.items():
        claims |= dict(line.split("\t") for line in text_of(source / f"{split}.titles.queries").splitlines())
        for line in text_of(source / f"{split}.3-2-1.qrel").splitlines():
            claim, _, paper, grade = line.split()
            judged.setdefault(claim, {})[paper] = int(grade)
    return papers, claims, splits


def pubmedqa(source: Path) -> tuple[Papers, dict[str, str], dict[str, Judged]]:
    rows = json.loads(text_of(source / "ori_pqal.json"))
    test = json.loads(text_of(source / "test_ground_truth.json"))
    papers = {id: ("", " ".join(row["CONTEXTS"])) for id, row in rows.items()}
    claims = {f"q{id}": row["QUESTION"] for id, row in rows.items()}
    splits: dict[str, Judged] = {"dev": {}, "test": {}}
    for id in rows:
        splits["test" if id in test else "dev"][f"q{id}"] = {id: 1}
    return papers, claims, splits


READERS: dict[str, Callable[[Path], tuple[Papers, dict[str, str], dict[str, Judged]]]] = {
    "cisi": cisi,
    "nfcorpus": nfcorpus,
    "pubmedqa": pubmedqa,
}

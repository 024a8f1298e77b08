"""Data sets with rationales that no reader of Headwise takes as they are, written as JSONL for studies/guiding.py.

Each set becomes FOLDER/SET/{train,validation,test}.jsonl. `marks` has the spans of characters in `text` that people
marked. What has no split is divided by a hash, always in the same way; rows that share a text stay together.

    sst        sentences of the Stanford Sentiment Treebank, positive or negative; words whose label has the same sign
    evidence   passages of clinical trials and a question about them, three classes; the sentence that answers it
    scifact    a claim and an abstract that supports or contradicts it; the sentences that do so
    tweets-to-sst2         tweets with the words that annotators selected; the test is dev of SST-2
    cad-nli-to-revised     original inference pairs with the words that a person changed in the premise; the test is
                           pairs with a changed premise
"""

import ast
import csv
import gzip
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from headwise.data.mark_sources import edited_words

Row = dict[str, Any]
SPLITS = ("train", "validation", "test")
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "\\/": "/"}


def prepared(name: str, source: Path, folder: Path) -> Path:
    """The folder that has the files of a set; they are written if they do not exist, otherwise `source`."""
    if name not in READERS:
        return source
    if not (folder / name / "test.jsonl").is_file():
        rows: dict[str, list[str]] = {split: [] for split in SPLITS}
        for split, row in READERS[name](source):
            rows[split].append(json.dumps(row, ensure_ascii=False) + "\n")
        (folder / name).mkdir(parents=True, exist_ok=True)
        for split in SPLITS:  # that of test comes last
            # Some files are sorted by label, and the first rows of a sorted file are no sample of it.
            mixed = sorted(rows[split], key=lambda row: hashlib.sha256(row.encode()).digest())
            (folder / name / f"{split}.jsonl").write_text("".join(mixed), encoding="utf-8")
    return folder


def lines(path: Path) -> Iterator[str]:
    """The lines of a file that may be packed."""
    content = path.read_bytes() if path.is_file() else gzip.decompress(path.with_name(path.name + ".gz").read_bytes())
    return iter(content.decode("utf-8").rstrip("\n").split("\n"))


def split_of(group: str) -> str:
    """Half of the groups for train, 10 % for validation, 40 % for test."""
    position = hashlib.sha256(group.encode()).digest()[0]
    return "train" if position < 128 else "validation" if position < 154 else "test"


def sst(source: Path) -> Iterator[tuple[str, Row]]:
    for split, name in zip(SPLITS, ("train.txt", "dev.txt", "test.txt"), strict=True):
        for line in lines(source / "sst_trees" / name):
            sign = int(line[1]) - 2
            words: list[str] = []
            marks, start = [], 0
            for value, word in re.findall(r"\((\d) ([^()]+)\)", line):
                for written, character in BRACKETS.items():
                    word = word.replace(written, character)
                if (int(value) - 2) * sign > 0:
                    marks.append([start, start + len(word)])
                start += len(word) + 1
                words.append(word)
            if sign:
                yield split, {"text": " ".join(words), "label": "positive" if sign > 0 else "negative", "marks": marks}


def evidence(source: Path) -> Iterator[tuple[str, Row]]:
    for line in lines(source / "evidence_inference_v2/prompts_with_span.jsonl"):
        row = json.loads(line)
        question = f"{row['outcome']}: {row['intervention']} compared with {row['comparator']}"
        label = row["label"].removesuffix("d").removeprefix("significantly ")  # two spellings of one class
        yield (
            split_of(row["pmcid"]),
            {"text": row["passage"], "question": question, "label": label, "marks": [row["span"]]},
        )


def scifact(source: Path) -> Iterator[tuple[str, Row]]:
    """Test claims are those of the validation file; a tenth of the training claims is held out for validation."""
    with zipfile.ZipFile(source / "scifact/scifact_csv.zip") as packed:

        def table(name: str) -> Iterator[Row]:
            return csv.DictReader(io.TextIOWrapper(packed.open(name), encoding="utf-8", newline=""))

        abstracts = {row["doc_id"]: row["abstract"] for row in table("corpus_train.csv")}
        for name in ("claims_train.csv", "claims_validation.csv"):
            for row in table(name):
                if not row["evidence_label"]:
                    continue
                sentences = [ast.literal_eval(each) for each in abstracts[row["evidence_doc_id"]][1:-1].split("\n ")]
                evidence = {int(each) for each in row["evidence_sentences"].strip("[]").split()}
                marks, start = [], 0
                for number, sentence in enumerate(sentences):
                    if number in evidence:
                        marks.append([start, start + len(sentence)])
                    start += len(sentence) + 1
                held_out = hashlib.sha256(row["claim"].encode()).digest()[0] < 26
                split = "test" if "validation" in name else "validation" if held_out else "train"
                example = {"claim": row["claim"], "abstract": " ".join(sentences), "label": row["evidence_label"]}
                yield split, {**example, "marks": marks}


def tweets_to_sst2(source: Path) -> Iterator[tuple[str, Row]]:
    """A fifth of the tweets is for validation."""
    for row in csv.DictReader(lines(source / "tweet_sentiment_extraction/train.csv")):
        if row["sentiment"] == "neutral" or not row["text"].strip():
            continue
        start = row["text"].index(row["selected_text"])
        held_out = hashlib.sha256(row["text"].encode()).digest()[0] < 51
        marks = [[start, start + len(row["selected_text"])]]
        yield "validation" if held_out else "train", {"text": row["text"], "label": row["sentiment"], "marks": marks}
    for row in csv.DictReader(lines(source / "glue/SST-2/dev.tsv"), delimiter="\t", quoting=csv.QUOTE_NONE):
        label = "positive" if row["label"] == "1" else "negative"
        yield "test", {"text": row["sentence"].strip(), "label": label, "marks": []}


def cad_nli_to_revised(source: Path) -> Iterator[tuple[str, Row]]:
    def table(folder: str, name: str) -> list[Row]:
        return list(
            csv.DictReader(lines(source / f"cad-nli/{folder}/{name}.tsv"), delimiter="\t", quoting=csv.QUOTE_NONE)
        )

    for split, name in zip(SPLITS[:2], ("train", "dev"), strict=True):
        revised: dict[str, list[str]] = {}
        for row in table("revised_premise", name):
            revised.setdefault(row["sentence2"], []).append(row["sentence1"])
        for row in table("original", name):
            premise = row["sentence1"]
            words = {word for other in revised.get(row["sentence2"], ()) for word in edited_words(premise, other)}
            yield split, {**row, "marks": [list(word) for word in sorted(words)]}
    for row in table("revised_premise", "test"):
        yield "test", {**row, "marks": []}


READERS: dict[str, Callable[[Path], Iterable[tuple[str, Row]]]] = {
    "sst": sst,
    "evidence": evidence,
    "scifact": scifact,
    "tweets-to-sst2": tweets_to_sst2,
    "cad-nli-to-revised": cad_nli_to_revised,
}

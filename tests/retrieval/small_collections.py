"""Small collections in every layout, and a look at refusals."""

import json
import zipfile
from pathlib import Path

import pytest

from headwise.errors import InputError


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode())
    return path


def table(*rows: tuple[object, ...], delimiter: str = "\t") -> str:
    return "".join(delimiter.join(map(str, row)) + "\n" for row in rows)


def json_lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


CORPUS = json_lines(
    {"_id": "d1", "title": "Sleep", "text": "Sleep helps.", "metadata": {"year": 2020}},
    {"_id": 2, "text": "Tea does not."},
    {"_id": "d3", "title": "Only a title", "text": ""},
)
QUERIES = json_lines(
    {"_id": "c1", "text": "sleep is good", "metadata": {}},
    {"_id": 7, "text": "tea is good"},
    {"_id": "c3", "text": "nobody judged this"},
)
QRELS_HEADER = ("query-id", "corpus-id", "score")
BEIR = {
    "corpus.jsonl": CORPUS,
    "queries.jsonl": QUERIES,
    "qrels/train.tsv": table(QRELS_HEADER, ("c1", "d1", 1), ("c1", 2, 0)),
    "qrels/test.tsv": table(QRELS_HEADER, (7, 2, 2)),
}

CLAIMS = "id,claim,evidence_doc_id,evidence_label,evidence_sentences,cited_doc_ids\n"
SCIFACT = {
    "claims_train.csv": CLAIMS
    + '1,"Sleep, they say, helps.",10,SUPPORT,[0],[10]\n'
    + '1,"Sleep, they say, helps.",10,SUPPORT,[2 3],[10]\n'
    + '1,"Sleep, they say, helps.",11,CONTRADICT,[1],[10]\n'
    + "2,Tea helps.,,,[],[ 11 12]\n",
    "claims_validation.csv": CLAIMS + "3,Coffee helps.,12,CONTRADICT,[0],[12]\n",
    "claims_test.csv": CLAIMS + "4,Milk helps.,,,[],[]\n",
    "corpus_train.csv": "doc_id,title,abstract,structured\n"
    + '10,On sleep ,"[\'Sleep helps.   \\n\'\n ""It\'s so."" \'Really.\']",False\n'
    + "11,On tea,['No.'],True\n"
    + "12,On coffee,['Maybe.'],False\n",
}

ALLENAI = {
    "claims_train.jsonl": json_lines(
        {
            "id": 1,
            "claim": "Sleep, they say, helps.",
            "evidence": {
                "10": [{"sentences": [0], "label": "SUPPORT"}, {"sentences": [2, 3], "label": "SUPPORT"}],
                "11": [{"sentences": [1], "label": "CONTRADICT"}],
            },
            "cited_doc_ids": [10],
        },
        {"id": 2, "claim": "Tea helps.", "evidence": {}, "cited_doc_ids": [11, 12]},
    ),
    "claims_dev.jsonl": json_lines(
        {
            "id": 3,
            "claim": "Coffee helps.",
            "evidence": {"12": [{"sentences": [0], "label": "CONTRADICT"}]},
            "cited_doc_ids": [12],
        }
    ),
    "claims_test.jsonl": json_lines({"id": 4, "claim": "Milk helps."}),
    "corpus.jsonl": json_lines(
        {"doc_id": 10, "title": "On sleep ", "abstract": ["Sleep helps.   \n", "It's so.", "Really."]},
        {"doc_id": 11, "title": "On tea", "abstract": ["No."], "structured": True},
        {"doc_id": 12, "title": "On coffee", "abstract": ["Maybe."]},
    ),
}

PAIRS = ("Hypothesis", "Premise", "PMID", "Entails")
CROSS_GENRE = {
    "train_data.csv": table(
        PAIRS,
        ("sleep helps", "Sleep. It helps a lot.", 10, 1),
        ("sleep helps", "It helps.", 10, 1),
        ("sleep helps", "Tea. It is wet.", 11, 0),
        ("tea helps", "Sleep. It helps.", 10, 0),
        delimiter=",",
    ),
    "dev_data.tsv": table(
        PAIRS,
        ('"he said ""yes"" twice"', "Tea. It is wet and warm.", 11, "True"),
        ("coffee helps", "Coffee. Maybe.", "12", "false"),
    ),
    "dev_data_claim_pmid_dict.json": json.dumps({'he said "yes" twice\n': ["11"], "coffee  helps\n": [12, 11]}),
}


def lay_out(root: Path, files: dict[str, str], **changes: str | None) -> Path:
    """Write the files, some of them changed; None leaves one out, and in names of changes __ is a dot."""
    for name, content in {**files, **{key.replace("__", "."): value for key, value in changes.items()}}.items():
        if content is not None:
            write(root / name, content)
    return root


def pack(archive: Path, files: dict[str, str]) -> Path:
    archive.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return archive


def refusal(call, *arguments, **options) -> str:
    """The one sentence of an InputError."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message

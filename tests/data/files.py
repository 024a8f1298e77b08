"""Small files in the layouts of the real data sets."""

import json
from pathlib import Path

from headwise.data import TASKS
from headwise.data.task import FileTask


def write(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode(encoding))
    return path


def table(*rows: tuple[object, ...], delimiter: str = "\t", end: str = "\n") -> str:
    return "".join(delimiter.join(map(str, row)) + end for row in rows)


def json_lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


GLUE_PAIR = ("index", "sentence1", "sentence2", "label")
MNLI = ("index", "genre", "sentence1", "sentence2", "label1", "gold_label")
STSB = ("index", "genre", "sentence1", "sentence2", "score")
MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
XNLI = ("language", "gold_label", "sentence1_parse", "sentence1", "sentence2", "pairID")
AG_PAIR = ("label", "news1-sentence1", "news1-sentence2", "news2-sentence1", "news2-sentence2")
SICK = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")

# task -> file -> content; each has two labelled examples per split, and texts "a", "b" and "c", "d"
LAYOUTS: dict[str, dict[str, str]] = {
    "multinli": {
        "multinli_1.0/multinli_1.0_train.jsonl": json_lines(
            {"gold_label": "neutral", "sentence1": "a", "sentence2": "b", "genre": "x"},
            {"gold_label": "-", "sentence1": "", "sentence2": "", "genre": "x"},
            {"gold_label": "contradiction", "sentence1": "c", "sentence2": "d", "genre": "x"},
        ),
        "multinli_1.0/multinli_1.0_dev_matched.txt": table(
            ("gold_label", "sentence1", "sentence2"), ("neutral", "a", "b"), ("contradiction", "c", "d")
        ),
    },
    "snli": {
        "snli_1.0/snli_1.0_train.jsonl": json_lines(
            {"gold_label": "neutral", "sentence1": "a", "sentence2": "b"},
            {"gold_label": "contradiction", "sentence1": "c", "sentence2": "d"},
        ),
        "snli_1.0/dev.tsv": table(
            ("pairID", "gold_label", "sentence1", "sentence2"),
            (1, "neutral", "a", "b"),
            (2, "-", "x", "y"),
            (3, "contradiction", "c", "d"),
        ),
    },
    "mednli": {
        f"mednli/mli_{part}_v1.jsonl": json_lines(
            {"sentence1": "a", "sentence2": "b", "gold_label": "entailment", "pairID": "1"},
            {"sentence1": "c", "sentence2": "d", "gold_label": "neutral", "pairID": "2"},
        )
        for part in ("train", "dev", "test")
    },
    "sick": {
        "SICK_train.txt": table(SICK, (1, "a", "b", 4.5, "NEUTRAL"), (2, "c", "d", 3, "ENTAILMENT")),
        "SICK_trial.txt": table(SICK, (1, "a", "b", 4.5, "neutral"), (2, "c", "d", 3, "entailment")),
        "SICK_test_annotated.txt": table(
            SICK, (1, "a", "b", 4.5, "NEUTRAL"), (2, "c", "d", 3, "CONTRADICTION"), end="\r\n"
        ),
    },
    "scitail": {
        "scitail/tsv_format/scitail_1.0_train.tsv": table(("a", "b", "entails"), ("c", "d", "neutral")),
        "scitail/snli_format/scitail_1.0_dev.txt": json_lines(
            {"sentence1": "a", "sentence2": "b", "gold_label": "entailment"},
            {"sentence1": "c", "sentence2": "d", "gold_label": "neutral"},
        ),
    },
    "cola": {
        "CoLA/train.tsv": table(("gj04", 1, "", "a"), ("gj04", 0, "*", "c")),
        "CoLA/dev.tsv": table(("gj04", 1, "", "a"), ("gj04", 0, "*", "c")),
        "CoLA/test.tsv": table(("index", "sentence"), (0, "a"), (1, "c")),
    },
    "sst2": {
        "SST-2/train.tsv": table(("sentence", "label"), ("a", 1), ("c", 0)),
        "SST-2/dev.tsv": table(("sentence", "label"), ("a", 1), ("c", 0)),
        "SST-2/test.tsv": table(("index", "sentence"), (0, "a"), (1, "c")),
    },
    "mrpc": {
        "MRPC/msr_paraphrase_train.txt": "\ufeff" + table(MRPC, (1, 1, 2, "a", "b"), (0, 3, 4, "c", "d")),
        "MRPC/dev.tsv": table(MRPC, (1, 1, 2, "a", "b"), (0, 3, 4, "c", "d")),
        "MRPC/test.tsv": table(("index", *MRPC[1:]), (0, 1, 2, "a", "b"), (1, 3, 4, "c", "d")),
    },
    "qqp": {
        "glue_data/QQP/train.tsv": table(
            ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
            (0, 1, 2, "a", "b", 1),
            (1, 3, 4, "cut"),
            (2, 3, 4, "c", "d", 0),
        ),
        "glue_data/QQP/test.tsv": table(("id", "question1", "question2"), (0, "a", "b"), (1, "c", "d")),
    },
    "stsb": {
        "glue/STS-B/train.tsv": table(STSB, (0, "x", "a", "b", "5.000"), (1, "x", "c", "d", "0.5")),
        "glue/STS-B/dev.tsv": table(STSB, (0, "x", "a", "b", "5.000"), (1, "x", "c", "d", "0.5")),
        "glue/STS-B/test.tsv": table(STSB[:-1], (0, "x", "a", "b"), (1, "x", "c", "d")),
    },
    "mnli": {
        "MNLI/train.tsv": table(
            MNLI, (0, "x", "a", "b", "neutral", "neutral"), (1, "x", "c", "d", "", "contradiction")
        ),
        "MNLI/dev_matched.tsv": table(MNLI, (0, "x", "a", "b", "", "neutral"), (1, "x", "c", "d", "", "contradiction")),
        "MNLI/dev_mismatched.tsv": table(MNLI, (0, "x", "a", "b", "", "neutral"), (1, "x", "c", "d", "", "entailment")),
        "MNLI/test_matched.tsv": table(MNLI[:4], (0, "x", "a", "b"), (1, "x", "c", "d")),
        "MNLI/test_mismatched.tsv": table(MNLI[:4], (0, "x", "a", "b"), (1, "x", "c", "d")),
    },
    "qnli": {
        "QNLI/train.tsv": table(
            ("index", "question", "sentence", "label"), (0, "a", "b", "entailment"), (1, "c", "d", "not_entailment")
        ),
        "QNLI/test.tsv": table(("index", "question", "sentence"), (0, "a", "b"), (1, "c", "d")),
    },
    "rte": {
        "RTE/train.tsv": table(GLUE_PAIR, (0, "a", "b", "entailment"), (1, "c", "d", "not_entailment")),
        "RTE/dev.tsv": table(GLUE_PAIR, (0, "a", "b", "entailment"), (1, "c", "d", "not_entailment")),
        "RTE/test.tsv": table(GLUE_PAIR[:-1], (0, "a", "b"), (1, "c", "d")),
    },
    "wnli": {
        "train.tsv": table(GLUE_PAIR, (0, "a", "b", 1), (1, "c", "d", 0)),
        "dev.tsv": table(GLUE_PAIR, (0, "a", "b", 1), (1, "c", "d", 0)),
    },
    "ax": {"AX/AX.tsv": table(GLUE_PAIR[:-1], (0, "a", "b"), (1, "c", "d"))},
    "cmnli": {
        "cmnli_public/train.json": json_lines(
            {"sentence1": "a", "sentence2": "b", "label": "neutral"},
            {"sentence1": "x", "sentence2": "y", "label": "-"},
            {"sentence1": "c", "sentence2": "d", "label": "entailment"},
        ),
        "cmnli_public/test.json": json_lines(
            {"id": 0, "sentence1": "a", "sentence2": "b"}, {"id": 1, "sentence1": "c", "sentence2": "d"}
        ),
    },
    "imdb": {
        "imdb/train.csv": table(("review", "sentiment"), ("a", "positive"), ("c", "negative"), delimiter=","),
        "imdb/test.jsonl": json_lines({"text": "a", "label": 1}, {"text": "c", "label": 0}),
    },
    "ag-pair": {
        f"ag-pair/{part}.tsv": table(AG_PAIR, ("same", "a", "", "b", ""), ("different", "c", "", "d", ""))
        for part in ("train", "test")
    },
    "pairs": {
        "train.csv": table(("sentence1", "sentence2", "label"), ("a", "b", "x"), ("c", "d", "y"), delimiter=","),
        "validation.tsv": table(("label", "sentence1", "sentence2"), ("x", "a", "b"), ("y", "c", "d")),
        "test.jsonl": json_lines({"sentence1": "a", "sentence2": "b"}, {"sentence1": "c", "sentence2": "d"}),
    },
    "sentences": {
        "train.tsv": table(("sentence", "label"), ("a", "x"), ("c", "y")),
        "dev.jsonl": json_lines({"sentence": "a", "label": "x"}, {"sentence": "c", "label": "y"}),
    },
    "pairs-regression": {
        "train.tsv": table(("sentence1", "sentence2", "label"), ("a", "b", 1.5), ("c", "d", -2)),
        "dev.jsonl": json_lines(
            {"sentence1": "a", "sentence2": "b", "label": 1.5}, {"sentence1": "c", "sentence2": "d", "label": -2}
        ),
    },
    "sentences-regression": {"train.tsv": table(("sentence", "label"), ("a", 1.5), ("c", -2))},
}
LAYOUTS["sick-r"] = LAYOUTS["sick"]
for language in ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"):
    LAYOUTS[f"xnli-{language}"] = {
        f"XNLI-MT-1.0/multinli/multinli.train.{language}.tsv": table(
            ("premise", "hypo", "label"), ("a", "b", "neutral"), ("c", "d", "contradictory")
        ),
        "XNLI-1.0/xnli.dev.tsv": table(
            XNLI,
            (language, "neutral", "x", "a", "b", 1),
            ("xx", "entailment", "x", "other", "language", 1),
            (language, "contradiction", "x", "c", "d", 2),
        ),
        "XNLI-1.0/xnli.test.jsonl": json_lines(
            {"language": language, "gold_label": "neutral", "sentence1": "a", "sentence2": "b"},
            {"language": language, "gold_label": "entailment", "sentence1": "c", "sentence2": "d"},
        ),
    }
# As published: every field in quotation marks, no header, classes from 1
for name, folder, fields in (
    ("ag", "ag_news_csv", ("title", "description")),
    ("dbpedia", "dbpedia_csv", ("title", "content")),
    ("yahoo", "yahoo_answers_csv", ("title", "question", "answer")),
    ("sogou", "sogou_news_csv", ("title", "content")),
    ("yelp-polarity", "yelp_review_polarity_csv", ("review",)),
    ("yelp-full", "yelp_review_full_csv", ("review",)),
):
    empty = ',""' * (len(fields) - 1)
    LAYOUTS[name] = {f"{folder}/{part}.csv": f'"2","a"{empty}\n"1","c"{empty}\n' for part in ("train", "test")}
FILE_TASKS = [name for name in TASKS if isinstance(TASKS[name], FileTask)]


def write_layout(name: str, root: Path) -> None:
    for place, content in LAYOUTS[name].items():
        write(root / place, content)

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


def tsv(*rows: str, **options: str) -> str:
    """Rows whose fields are written with spaces between them; _ is an empty one."""
    return table(*(row.replace("_ ", " ").split(" ") for row in rows), **options)


def jsonl(keys: str, *rows: str) -> str:
    """Objects with these keys, and values written as the fields of `tsv`."""
    values = (row.replace("_ ", " ").split(" ") for row in rows)
    return json_lines(*(dict(zip(keys.split(), each, strict=True)) for each in values))


MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
XNLI = ("language", "gold_label", "sentence1_parse", "sentence1", "sentence2", "pairID")
AG_PAIR = ("label", "news1-sentence1", "news1-sentence2", "news2-sentence1", "news2-sentence2")
GLUE_PAIR = "index sentence1 sentence2 label"
UNLABELLED_PAIR = tsv("index sentence1 sentence2", "0 a b", "1 c d")
MNLI = "index genre sentence1 sentence2 label1 gold_label"
STSB = "index genre sentence1 sentence2 score"
SICK = "pair_ID sentence_A sentence_B relatedness_score entailment_judgment"
GOLD = "sentence1 sentence2 gold_label"

# task -> file -> content; each has two labelled examples per split, and texts "a", "b" and "c", "d"
LAYOUTS: dict[str, dict[str, str]] = {
    "multinli": {
        "multinli_1.0/multinli_1.0_train.jsonl": jsonl(GOLD, "a b neutral", "_ _ -", "c d contradiction"),
        "multinli_1.0/multinli_1.0_dev_matched.txt": tsv(
            "gold_label sentence1 sentence2", "neutral a b", "contradiction c d"
        ),
    },
    "snli": {
        "snli_1.0/snli_1.0_train.jsonl": jsonl(GOLD, "a b neutral", "c d contradiction"),
        "snli_1.0/dev.tsv": tsv(
            "pairID gold_label sentence1 sentence2", "1 neutral a b", "2 - x y", "3 contradiction c d"
        ),
    },
    "mednli": {
        f"mednli/mli_{part}_v1.jsonl": jsonl(f"{GOLD} pairID", "a b entailment 1", "c d neutral 2")
        for part in ("train", "dev", "test")
    },
    "sick": {
        "SICK_train.txt": tsv(SICK, "1 a b 4.5 NEUTRAL", "2 c d 3 ENTAILMENT"),
        "SICK_trial.txt": tsv(SICK, "1 a b 4.5 neutral", "2 c d 3 entailment"),
        "SICK_test_annotated.txt": tsv(SICK, "1 a b 4.5 NEUTRAL", "2 c d 3 CONTRADICTION", end="\r\n"),
    },
    "scitail": {
        "scitail/tsv_format/scitail_1.0_train.tsv": tsv("a b entails", "c d neutral"),
        "scitail/snli_format/scitail_1.0_dev.txt": jsonl(GOLD, "a b entailment", "c d neutral"),
    },
    "cola": {
        **{f"CoLA/{part}.tsv": tsv("gj04 1 _ a", "gj04 0 * c") for part in ("train", "dev")},
        "CoLA/test.tsv": tsv("index sentence", "0 a", "1 c"),
    },
    "sst2": {
        **{f"SST-2/{part}.tsv": tsv("sentence label", "a 1", "c 0") for part in ("train", "dev")},
        "SST-2/test.tsv": tsv("index sentence", "0 a", "1 c"),
    },
    "mrpc": {
        "MRPC/msr_paraphrase_train.txt": "\ufeff" + table(MRPC, (1, 1, 2, "a", "b"), (0, 3, 4, "c", "d")),
        "MRPC/dev.tsv": table(MRPC, (1, 1, 2, "a", "b"), (0, 3, 4, "c", "d")),
        "MRPC/test.tsv": table(("index", *MRPC[1:]), (0, 1, 2, "a", "b"), (1, 3, 4, "c", "d")),
    },
    "qqp": {
        "glue_data/QQP/train.tsv": tsv(
            "id qid1 qid2 question1 question2 is_duplicate", "0 1 2 a b 1", "1 3 4 cut", "2 3 4 c d 0"
        ),
        "glue_data/QQP/test.tsv": tsv("id question1 question2", "0 a b", "1 c d"),
    },
    "stsb": {
        **{f"glue/STS-B/{part}.tsv": tsv(STSB, "0 x a b 5.000", "1 x c d 0.5") for part in ("train", "dev")},
        "glue/STS-B/test.tsv": tsv("index genre sentence1 sentence2", "0 x a b", "1 x c d"),
    },
    "mnli": {
        "MNLI/train.tsv": tsv(MNLI, "0 x a b neutral neutral", "1 x c d _ contradiction"),
        "MNLI/dev_matched.tsv": tsv(MNLI, "0 x a b _ neutral", "1 x c d _ contradiction"),
        "MNLI/dev_mismatched.tsv": tsv(MNLI, "0 x a b _ neutral", "1 x c d _ entailment"),
        **{
            f"MNLI/test_{part}.tsv": tsv("index genre sentence1 sentence2", "0 x a b", "1 x c d")
            for part in ("matched", "mismatched")
        },
    },
    "qnli": {
        "QNLI/train.tsv": tsv("index question sentence label", "0 a b entailment", "1 c d not_entailment"),
        "QNLI/test.tsv": tsv("index question sentence", "0 a b", "1 c d"),
    },
    "rte": {
        **{f"RTE/{part}.tsv": tsv(GLUE_PAIR, "0 a b entailment", "1 c d not_entailment") for part in ("train", "dev")},
        "RTE/test.tsv": UNLABELLED_PAIR,
    },
    "wnli": {f"{part}.tsv": tsv(GLUE_PAIR, "0 a b 1", "1 c d 0") for part in ("train", "dev")},
    "ax": {"AX/AX.tsv": UNLABELLED_PAIR},
    "cmnli": {
        "cmnli_public/train.json": jsonl("sentence1 sentence2 label", "a b neutral", "x y -", "c d entailment"),
        "cmnli_public/test.json": jsonl("id sentence1 sentence2", "0 a b", "1 c d"),
    },
    "mqp": {"mqp/mqp.csv": tsv("1 a b 1", "1 c d 0", delimiter=",")},
    "imdb": {
        "imdb/train.csv": tsv("review sentiment", "a positive", "c negative", delimiter=","),
        "imdb/test.jsonl": json_lines({"text": "a", "label": 1}, {"text": "c", "label": 0}),
    },
    "ag-pair": {
        f"ag-pair/{part}.tsv": table(AG_PAIR, ("same", "a", "", "b", ""), ("different", "c", "", "d", ""))
        for part in ("train", "test")
    },
    "pairs": {
        "train.csv": tsv("sentence1 sentence2 label", "a b x", "c d y", delimiter=","),
        "validation.tsv": tsv("label sentence1 sentence2", "x a b", "y c d"),
        "test.jsonl": jsonl("sentence1 sentence2", "a b", "c d"),
    },
    "sentences": {
        "train.tsv": tsv("sentence label", "a x", "c y"),
        "dev.jsonl": jsonl("sentence label", "a x", "c y"),
    },
    "pairs-regression": {
        "train.tsv": tsv("sentence1 sentence2 label", "a b 1.5", "c d -2"),
        "dev.jsonl": json_lines(
            {"sentence1": "a", "sentence2": "b", "label": 1.5}, {"sentence1": "c", "sentence2": "d", "label": -2}
        ),
    },
    "sentences-regression": {"train.tsv": tsv("sentence label", "a 1.5", "c -2")},
    "sentences-labels": {
        "train.tsv": tsv("sentence label", "a x;y", "c y"),
        "dev.jsonl": json_lines({"sentence": "a", "label": ["x"]}, {"sentence": "c", "label": []}),
    },
    "pairs-labels": {"train.tsv": tsv("sentence1 sentence2 label", "a b x;y", "c d y")},
    "token-labels": {
        "train.conll": "a O\n\nc B-X\n",
        "dev.jsonl": json_lines({"tokens": ["a"], "labels": ["O"]}, {"tokens": ["c"], "labels": ["B-X"]}),
    },
}
LAYOUTS["sick-r"] = LAYOUTS["sick"]
for language in ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh"):
    LAYOUTS[f"xnli-{language}"] = {
        f"XNLI-MT-1.0/multinli/multinli.train.{language}.tsv": tsv(
            "premise hypo label", "a b neutral", "c d contradictory"
        ),
        "XNLI-1.0/xnli.dev.tsv": tsv(
            " ".join(XNLI),
            f"{language} neutral x a b 1",
            "xx entailment x other language 1",
            f"{language} contradiction x c d 2",
        ),
        "XNLI-1.0/xnli.test.jsonl": jsonl(f"language {GOLD}", f"{language} a b neutral", f"{language} c d entailment"),
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

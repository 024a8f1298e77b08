"""GLUE, as its files come out of the benchmark's own zip archives."""

from __future__ import annotations

from headwise.data.examples import Unlabelled
from headwise.data.layouts import Layout, Places
from headwise.data.task import DISAGREED, NLI_LABELS, FileTask, named, numbered, places, row

SOURCE = "https://gluebenchmark.com/tasks"
PAIR = named("sentence1", "sentence2", label="label")
ENTAILED = ("entailment", "not_entailment")
ACCURACY = ("accuracy",)
TEST = Unlabelled(rule="keep")  # the labels of the test files are kept by the benchmark


def _below(*folders: str, **names: str) -> Places:
    files = names or {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    above = ("", "glue/", "GLUE/", "glue_data/")
    return places((*(f"{place}{folder}" for folder in folders for place in above), ""), files)


GLUE: tuple[FileTask, ...] = (
    row(
        "cola",
        "Is the sentence acceptable English?",
        SOURCE,
        places=_below("CoLA"),
        # train and dev have no header, test has one
        layouts=(
            Layout(("sentence",), "label", columns=("source", "label", "mark", "sentence")),
            named("sentence", label="label"),
        ),
        **numbered("unacceptable", "acceptable"),
        unlabelled=TEST,
        metrics=("matthews",),
    ),
    row(
        "sst2",
        "Is the review positive or negative?",
        SOURCE,
        places=_below("SST-2"),
        layouts=(named("sentence", label="label"),),
        **numbered("negative", "positive"),
        unlabelled=TEST,
        metrics=ACCURACY,
    ),
    row(
        "mrpc",
        "Do the two sentences say the same?",
        SOURCE,
        places=_below(
            "MRPC",
            train="train.tsv msr_paraphrase_train.txt",
            validation="dev.tsv",
            test="test.tsv msr_paraphrase_test.txt",
        ),
        layouts=(named("#1 String", "#2 String", label="Quality"),),
        **numbered("not_equivalent", "equivalent"),
        unlabelled=TEST,
        metrics=("accuracy", "f1"),
    ),
    row(
        "qqp",
        "Do the two questions ask the same?",
        SOURCE,
        places=_below("QQP"),
        layouts=(named("question1", "question2", label="is_duplicate"),),
        **numbered("not_duplicate", "duplicate"),
        unlabelled=TEST,
        broken_rows="drop",  # the file as published has a few cut lines and empty questions
        metrics=("accuracy", "f1"),
    ),
    row(
        "stsb",
        "How similar are the two sentences, from 0 to 5?",
        SOURCE,
        kind="regression",
        places=_below("STS-B"),
        layouts=(named("sentence1", "sentence2", label="score"),),
        unlabelled=TEST,
    ),
    row(
        "mnli",
        "Does the premise entail, contradict or leave open the hypothesis? Matched and mismatched genres.",
        SOURCE,
        places=_below(
            "MNLI",
            train="train.tsv",
            validation="dev_matched.tsv",
            validation_mismatched="dev_mismatched.tsv",
            test="test_matched.tsv",
            test_mismatched="test_mismatched.tsv",
        ),
        layouts=(named("sentence1", "sentence2", label="gold_label"),),
        known_labels=NLI_LABELS,
        unlabelled=DISAGREED,
        metrics=ACCURACY,
    ),
    row(
        "qnli",
        "Does the sentence answer the question?",
        SOURCE,
        places=_below("QNLI"),
        layouts=(named("question", "sentence", label="label"),),
        known_labels=ENTAILED,
        unlabelled=TEST,
        metrics=ACCURACY,
    ),
    row(
        "rte",
        "Does the first text entail the second?",
        SOURCE,
        places=_below("RTE"),
        layouts=(PAIR,),
        known_labels=ENTAILED,
        unlabelled=TEST,
        metrics=ACCURACY,
    ),
    row(
        "wnli",
        "Does the sentence with the pronoun resolved follow?",
        SOURCE,
        places=_below("WNLI"),
        layouts=(PAIR,),
        **numbered("not_entailment", "entailment"),
        unlabelled=TEST,
        metrics=ACCURACY,
    ),
    row(
        "ax",
        "GLUE's diagnostic pairs, for a model trained on mnli; test only.",
        SOURCE,
        places=_below("AX", "diagnostic", test="AX.tsv diagnostic.tsv diagnostic-full.tsv"),
        # the full file is the one with labels
        layouts=(PAIR, named("Premise", "Hypothesis", label="Label")),
        known_labels=NLI_LABELS,
        unlabelled=TEST,
        metrics=("matthews",),
    ),
)

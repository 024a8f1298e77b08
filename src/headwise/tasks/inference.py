"""Natural language inference and relatedness, in the layouts of the original distributions."""

from __future__ import annotations

from headwise.tasks.file_task import FileTask
from headwise.tasks.layout import Layout
from headwise.tasks.rows import DISAGREED, NLI_LABELS, named, places, row

STANFORD = (named("sentence1", "sentence2", label="gold_label"),)
QUESTION = "Does the premise entail, contradict or leave open the hypothesis?"
SICK = places(
    ("sick", "SICK", ""),
    {"train": "SICK_train.txt", "validation": "SICK_trial.txt", "test": "SICK_test_annotated.txt"},
)

INFERENCE: tuple[FileTask, ...] = (
    row(
        "multinli",
        f"{QUESTION} Many genres.",
        "https://cims.nyu.edu/~sbowman/multinli",
        places=places(
            ("multinli_1.0", "multinli", "MultiNLI", ""),
            {
                "train": "multinli_1.0_train.jsonl multinli_1.0_train.txt",
                "validation": "multinli_1.0_dev_matched.jsonl multinli_1.0_dev_matched.txt",
                "validation_mismatched": "multinli_1.0_dev_mismatched.jsonl multinli_1.0_dev_mismatched.txt",
            },
        ),
        layouts=STANFORD,
        known_labels=NLI_LABELS,
        unlabelled=DISAGREED,
    ),
    row(
        "snli",
        f"{QUESTION} Captions of pictures.",
        "https://nlp.stanford.edu/projects/snli",
        places=places(
            ("snli_1.0", "snli", "SNLI", ""),
            {
                "train": "snli_1.0_train.jsonl snli_1.0_train.txt snli_1.0_train.tsv train.jsonl train.tsv",
                "validation": "snli_1.0_dev.jsonl snli_1.0_dev.txt snli_1.0_dev.tsv dev.jsonl dev.tsv",
                "test": "snli_1.0_test.jsonl snli_1.0_test.txt snli_1.0_test.tsv test.jsonl test.tsv",
            },
        ),
        layouts=STANFORD,
        known_labels=NLI_LABELS,
        unlabelled=DISAGREED,
    ),
    row(
        "mednli",
        f"{QUESTION} Clinical notes; the files need a data use agreement.",
        "https://physionet.org/content/mednli",
        places=places(
            ("mednli", "MedNLI", ""),
            {"train": "mli_train_v1.jsonl", "validation": "mli_dev_v1.jsonl", "test": "mli_test_v1.jsonl"},
        ),
        layouts=STANFORD,
        known_labels=NLI_LABELS,
        unlabelled=DISAGREED,
    ),
    row(
        "sick",
        f"{QUESTION} Short sentences.",
        "https://zenodo.org/record/2787612",
        places=SICK,
        layouts=(named("sentence_A", "sentence_B", label="entailment_judgment"),),
        known_labels=NLI_LABELS,
    ),
    row(
        "sick-r",
        "How related are the two sentences, from 1 to 5? The pairs of sick.",
        "https://zenodo.org/record/2787612",
        kind="regression",
        places=SICK,
        layouts=(named("sentence_A", "sentence_B", label="relatedness_score"),),
    ),
    row(
        "scitail",
        "Does the sentence entail the answer to a science question, or not?",
        "https://allenai.org/data/scitail",
        places=places(
            ("scitail", "SciTailV1.1", "SciTailV1", ""),
            {
                split: f"tsv_format/scitail_1.0_{part}.tsv scitail_1.0_{part}.tsv "
                f"snli_format/scitail_1.0_{part}.txt scitail_1.0_{part}.txt scitail_1.0_{part}.jsonl"
                for split, part in {"train": "train", "validation": "dev", "test": "test"}.items()
            },
        ),
        layouts=(
            Layout(("premise", "hypothesis"), "label", columns=("premise", "hypothesis", "label")),
            *STANFORD,
        ),
        known_labels=("entailment", "neutral"),
        aliases={"entails": "entailment"},
    ),
)

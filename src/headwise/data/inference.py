"""Natural language inference and relatedness, in the layouts of the original distributions."""

from __future__ import annotations

from headwise.data.layouts import Layout
from headwise.data.task import DISAGREED, NLI_LABELS, FileTask, named, places, row

# Natural language inference in other languages than English.


QUESTION = "Does the premise entail, contradict or leave open the hypothesis?"
LANGUAGES = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "hi": "Hindi",
    "ru": "Russian",
    "sw": "Swahili",
    "th": "Thai",
    "tr": "Turkish",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
}


def _xnli(code: str, language: str) -> FileTask:
    """XNLI has one file for all languages; its training part is MultiNLI by machine translation, a file for each."""
    return row(
        f"xnli-{code}",
        f"{QUESTION} {language}; train is machine translation.",
        "https://github.com/facebookresearch/XNLI",
        places=places(
            ("xnli", "XNLI", ""),
            {
                "train": f"XNLI-MT-1.0/multinli/multinli.train.{code}.tsv multinli/multinli.train.{code}.tsv "
                f"multinli.train.{code}.tsv",
                "validation": "XNLI-1.0/xnli.dev.tsv xnli.dev.tsv XNLI-1.0/xnli.dev.jsonl xnli.dev.jsonl",
                "test": "XNLI-1.0/xnli.test.tsv xnli.test.tsv XNLI-1.0/xnli.test.jsonl xnli.test.jsonl",
            },
        ),
        layouts=(
            Layout(("sentence1", "sentence2"), "gold_label", only=("language", code)),
            named("premise", "hypo", label="label"),
        ),
        known_labels=NLI_LABELS,
        aliases={"contradictory": "contradiction"},
        metrics=("accuracy",),
    )


CROSS_LINGUAL: tuple[FileTask, ...] = (
    *(_xnli(code, language) for code, language in LANGUAGES.items()),
    row(
        "cmnli",
        f"{QUESTION} Chinese; labels of test are kept by the benchmark CLUE.",
        "https://github.com/CLUEbenchmark/CLUE",
        places=places(
            ("cmnli_public", "cmnli", "CMNLI", "clue/cmnli", "CLUE/cmnli", ""),
            {"train": "train.json train.jsonl", "validation": "dev.json dev.jsonl", "test": "test.json test.jsonl"},
        ),
        layouts=(named("sentence1", "sentence2", label="label"),),
        known_labels=NLI_LABELS,
        unlabelled=DISAGREED,
        metrics=("accuracy",),
    ),
)


# Tasks for the user's own files: name the columns, and the rest is found.


SOURCE = "your own files"
FILES = places(
    ("",),
    {
        "train": "train.tsv train.csv train.jsonl train.parquet train.txt",
        "validation": "validation.tsv validation.csv validation.jsonl validation.parquet validation.txt "
        "dev.tsv dev.csv dev.jsonl dev.parquet dev.txt",
        "test": "test.tsv test.csv test.jsonl test.parquet test.txt",
    },
    guessed=True,
)
PAIRS = (named("sentence1", "sentence2", label="label"),)
SENTENCES = (named("sentence", label="label"),)

GENERIC: tuple[FileTask, ...] = (
    row("pairs", "Classes of pairs of texts.", SOURCE, places=FILES, layouts=PAIRS),
    row("sentences", "Classes of single texts.", SOURCE, places=FILES, layouts=SENTENCES),
    row("pairs-regression", "Numbers for pairs of texts.", SOURCE, kind="regression", places=FILES, layouts=PAIRS),
    row(
        "sentences-regression",
        "Numbers for single texts.",
        SOURCE,
        kind="regression",
        places=FILES,
        layouts=SENTENCES,
    ),
)

STANFORD = (named("sentence1", "sentence2", label="gold_label"),)
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

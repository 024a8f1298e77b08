"""Natural language inference in other languages than English."""

from __future__ import annotations

from headwise.tasks.file_task import FileTask
from headwise.tasks.layout import Layout
from headwise.tasks.rows import DISAGREED, NLI_LABELS, named, places, row

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

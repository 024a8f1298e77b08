"""Tasks for the user's own files: name the columns, and the rest is found."""

from __future__ import annotations

from headwise.tasks.file_task import FileTask
from headwise.tasks.rows import named, places, row

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

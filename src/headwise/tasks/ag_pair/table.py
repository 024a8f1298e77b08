"""Pairs of news as the authors write them: TSV with a header and without quotation marks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from headwise.disk import new_file, save_content
from headwise.errors import InputError
from headwise.tasks.ag_pair.counts import check_pairs, label_of
from headwise.tasks.ag_pair.news import News, read_news
from headwise.tasks.ag_pair.pairing import Pair, make_pairs

COLUMNS = ("label", "news1-sentence1", "news1-sentence2", "news2-sentence1", "news2-sentence2")


def pairs_table(news: Sequence[News], pairs: Sequence[Pair]) -> str:
    """The whole file."""
    rows = [COLUMNS]
    for pair in pairs:
        one, other = news[pair.first], news[pair.second]
        rows.append((label_of(news, pair), one.title, one.description, other.title, other.description))
    return "".join("\t".join(row) + "\n" for row in rows)


def write_pairs(
    source: Path, target: Path, *, seed: int = 0, rounds: int = 2, slot_order: str = "random", overwrite: bool = False
) -> dict[str, Any]:
    """Make the pairs of a file of news and write them, whole or not at all; what they look like in numbers."""
    with _new_table(target, overwrite=overwrite):
        news = read_news(source)
        pairs = make_pairs(news, seed=seed, rounds=rounds, slot_order=slot_order)
        counts = check_pairs(news, pairs, rounds=rounds)
        save_content(target, pairs_table(news, pairs))
    asked = {"news": str(source), "output": str(target), "seed": seed, "rounds": rounds, "slot_order": slot_order}
    return {**asked, **counts.as_dict()}


def _new_table(path: Path, *, overwrite: bool) -> AbstractContextManager[None]:
    """Lock the file for the block that writes it; refuses a place where no table can be, before any work is done."""
    if path.suffix != ".tsv" and not path.is_dir():
        raise InputError(f"--out {path}: pairs are written as TSV; name a file that ends in .tsv.")
    return new_file(path, "--out", replace=overwrite, example="train.tsv")

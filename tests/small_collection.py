"""A small collection of papers in the BEIR layout, for tests of recipes and commands of retrieval.

Every claim has words of its own. Papers that share them say "surely" if they answer the claim and "never" if not, so a
model can learn which is which, and BM25 cannot.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tiny_runs import WORDS

RIVALS = 5


def write_collection(folder: Path, *, train: int = 20, test: int = 6, seed: int = 0) -> Path:
    """Write it: claims t0, t1, ... and v0, v1, ...; the answer to t0 is the paper t0-yes."""
    chance = random.Random(seed)
    claims = {
        f"{kind}{number}": own_words(chance) for kind, count in (("t", train), ("v", test)) for number in range(count)
    }
    papers = [paper for claim, words in claims.items() for paper in papers_of(claim, words, chance)]
    chance.shuffle(papers)
    (folder / "qrels").mkdir(parents=True)
    lines(folder / "corpus.jsonl", papers)
    lines(folder / "queries.jsonl", [{"_id": claim, "text": " ".join(words)} for claim, words in claims.items()])
    for split, kind in (("train", "t"), ("test", "v")):
        rows = [f"{claim}\t{claim}-yes\t1\n" for claim in claims if claim.startswith(kind)]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")
    return folder


def own_words(chance: random.Random) -> list[str]:
    return [
        "".join(chance.choices("bdfgklmnprst", k=1) + chance.choices("aeiou", k=1)) * 3 + str(chance.randrange(10**6))
        for _ in range(5)
    ]


def papers_of(claim: str, words: list[str], chance: random.Random) -> list[dict[str, str]]:
    rows = [(f"{claim}-yes", "surely"), *((f"{claim}-no{number}", "never") for number in range(RIVALS))]
    return [
        {
            "_id": name,
            "title": " ".join(chance.sample(words, 2)),
            "text": " ".join([sign, *chance.choices(WORDS, k=4), words[0]]),
        }
        for name, sign in rows
    ]


def lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

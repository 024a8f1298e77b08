"""Which collection is meant, and which of its claims."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwise.errors import InputError, choices
from headwise.tasks.retrieval.collection import Collection, Qrels
from headwise.tasks.retrieval.read import read_collection

EVERY = "all"


@dataclass(frozen=True)
class CollectionChoice:
    """A folder, and how it is to be read."""

    folder: Path
    layout: str | None = None
    gold: str = "evidence"
    drop_unknown: bool = False

    def read(self) -> Collection:
        """Read claims and judgements; the documents are not read yet."""
        return read_collection(self.folder, self.layout, gold=self.gold)


@dataclass(frozen=True)
class Claims:
    """Claims of a collection with their judgements, as far as there are any."""

    split: str
    texts: dict[str, str]
    qrels: Qrels


def choose_claims(collection: Collection, split: str | None) -> Claims:
    """The claims of a split: the one that is named, else test, else the only one, else all claims."""
    if split is None:
        split = "test" if "test" in collection.qrels else next(iter(collection.qrels), EVERY)
        if len(collection.qrels) > 1 and split != "test":
            raise InputError(
                f"{collection.name} has no split named test but {', '.join(collection.qrels)}: choose one with "
                f"--split, or {EVERY} for every claim."
            )
    if split == EVERY:
        judged: dict[str, dict[str, int]] = {}
        for qrels in collection.qrels.values():
            for claim, grades in qrels.items():  # a claim may be judged in several splits
                judged.setdefault(claim, {}).update(grades)
        return Claims(split, dict(collection.claims), judged)
    if split not in collection.qrels:
        raise InputError(f"{collection.name} has no split {split!r}: {choices(split, [*collection.qrels, EVERY])}.")
    chosen = collection.qrels[split]
    return Claims(split, {claim: collection.claims[claim] for claim in chosen}, chosen)

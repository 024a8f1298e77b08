"""The knowledge that a recipe's guides need: computed from its training texts, or found where it was before."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from headwise.attention import Inputs
from headwise.data import Encoded, Split
from headwise.errors import HeadwiseWarning, InputError, Stopped
from headwise.experiments.recipe import Recipe
from headwise.experiments.splits import Splits
from headwise.guides import Regulariser, as_guides
from headwise.patterns import find_marks, mark_ids, special_ids
from headwise.patterns.base import Resources, Texts, WordMatrix, WordVectors
from headwise.patterns.store import Stored, about, gather
from headwise.training import Listener, Need, check_known, check_sources, find_encoder
from headwise.training.word_knowledge import input_embeddings


@dataclass(frozen=True)
class Sources:
    """What knowledge is made of besides texts, and where it is kept."""

    embeddings: Callable[[], WordVectors]
    """Gives the encoder's input embeddings, if a pattern draws on them."""
    data: Path | None = None
    """The folder below which the files that a recipe names lie."""
    cache: Path | None = None
    """None: HEADWISE_CACHE or the user's cache folder."""


@dataclass(frozen=True)
class Found:
    """The knowledge of one guide."""

    need: Need
    store: Stored
    """Of the whole training file, or of the training examples alone."""
    matrices: Sequence[WordMatrix]
    """Of the training examples."""
    about: dict[str, Any]
    """What decided it besides the texts: options, and versions and hashes of what it comes from."""
    seconds: float
    """That it took to build or find it."""

    def as_data(self) -> dict[str, Any]:
        """For the record of a run."""
        about = {name: self.about[name] for name in ("name", "options", "fingerprint")}
        return {"key": self.store.key, "form": self.need.form, **about, "examples": len(self.matrices)}

    @property
    def pairs(self) -> int:
        """How many pairs of words have a value; a word with itself is no pair."""
        return sum(int(np.count_nonzero(matrix.rows != matrix.columns)) for matrix in self.matrices)


@dataclass(frozen=True)
class Word:
    """A word of an example: the number of its text, its own number in it, its first character and the one after."""

    word: str
    text: int
    index: int
    start: int
    end: int


@dataclass(frozen=True)
class Pair:
    """Two words, and what is known of them."""

    first: Word
    second: Word
    value: float
    across: bool
    """Whether they stand in different texts."""


def gather_knowledge(
    needs: Sequence[Need],
    splits: Splits,
    sources: Sources,
    *,
    progress: Listener,
    workers: int | None = None,
    rebuild: bool = False,
) -> list[Found]:
    """Build or find what guides need to know about the training examples, which are the corpus as well.

    What does not depend on a corpus is built for the whole training file if at least half of it is used, so that seeds
    which hold out or leave out other parts of it share one store.

    Args:
        needs: of the guides, in their order.
        splits: the training examples. Where a limit cuts them, only those are looked at.
        sources: what else it is made of.
        progress: shows how far it is.
        workers: processes; None: as many as there are cores.
        rebuild: build again what is in the cache.
    """
    from_encoder = any(getattr(need.pattern, "source", None) == "embeddings" for need in needs)
    resources = Resources(sources.data, sources.embeddings() if from_encoder else None)
    check_sources(needs, resources)
    found: dict[str, Found] = {}  # by pattern, since guides may share one
    for need in needs:
        pattern = need.pattern
        if pattern.key in found:
            continue
        begin, shown = time.perf_counter(), False

        def report(done: int, total: int, what: str = f"knowledge {pattern.name}") -> None:
            nonlocal shown  # what is merely found needs no bar
            if shown:
                progress.advance(done)
            else:
                progress.start(what, total, done)
                shown = True

        few = 2 * len(splits.chosen) < len(splits.whole)  # then the rest of the file is not worth the time
        alone = pattern.from_corpus or splits.limited or few
        try:
            store = gather(
                pattern,
                splits.train.texts if alone else splits.whole.texts,
                corpus=splits.train.texts,
                progress=report,
                resources=resources,
                cache=sources.cache,
                workers=workers,
                rebuild=rebuild,
            )
        except KeyboardInterrupt:
            raise Stopped(f"what is done of {pattern.name} is kept, and the same command resumes it") from None
        finally:
            if shown:
                progress.end()
        matrices = store if alone else store.subset(splits.chosen)
        check_known(need, matrices)
        found[pattern.key] = Found(need, store, matrices, about(pattern, resources), time.perf_counter() - begin)
    return [replace(found[need.pattern.key], need=need) for need in needs]


def embeddings_of(recipe: Recipe, *, network: bool = False) -> WordVectors:
    """The input embeddings of a recipe's encoder, as it is before training."""
    return input_embeddings(find_encoder(recipe.model, network=network))


def strongest(matrix: WordMatrix, texts: Texts) -> list[Pair]:
    """The pairs of words of an example, those with the largest values first, equal ones in the order of the text."""
    counts, words = [0] * len(texts), []
    for text, start, end in matrix.spans.tolist():
        words.append(Word(texts[text][start:end], text, counts[text], start, end))
        counts[text] += 1
    pairs = []
    for entry in np.lexsort((matrix.columns, matrix.rows, -matrix.values)):
        first, second = words[matrix.rows[entry]], words[matrix.columns[entry]]
        if first is not second:  # a word with itself is no pair
            pairs.append(Pair(first, second, float(matrix.values[entry]), first.text != second.text))
    return pairs


# -- how many training examples have what a guide looks for: a guide to full stops needs full stops --------------------

# Below this share of the examples a guide is hardly there, which is worth a word.
FEW = 0.1
# Marks on more than this part of the tokens hardly say anything.
TOO_MUCH = 0.9
# Examples whose targets are computed at a time.
TOGETHER = 64


def count_targets(
    guides: Mapping[str, Mapping[str, Any]], train: Encoded, tokenizer: Any, progress: Listener
) -> dict[str, int]:
    """For each guide that looks for tokens of a kind, in how many training examples there are any; none is refused."""
    if not guides:
        return {}
    known, counts = mark_ids(tokenizer), {}
    for name, guide in as_guides(guides).named():
        found = {f"a {mark} token": _with_token(train, known.get(mark, ())) for mark in guide.marks}
        own = _with_target(guide, train, known, special_ids(tokenizer))
        if own is not None:
            found = {f"a target (it needs {guide.needs})": own}
        for what, count in found.items():
            if not count:
                raise InputError(
                    f"guide {name}: none of the {len(train)} training examples has {what}, so it would guide nothing; "
                    "take it away."
                )
            if count < FEW * len(train):
                progress.log(f"guide {name}: only {count} of {len(train)} training examples have {what}")
            counts[name] = count
    return counts


def count_marked(split: Split, train: Encoded, progress: Listener) -> int:
    """In how many training examples people marked tokens; none is refused, and what truncation loses is logged."""
    spans, deciding = split.spans or (), train.deciding or []
    found = [bool(tokens.any()) for tokens in deciding]
    count, lost = sum(found), sum(bool(each) and not some for each, some in zip(spans, found, strict=True))
    cut = f"; {lost} more lost all their marks by truncation: raise data.max_length" if lost else ""
    if not count:
        raise InputError(
            f"none of the {len(train)} training examples has a marked token{cut or ': check task.marks'}, so there is "
            "nothing to guide by; or leave the guide out."
        )
    share = float(np.median([tokens.mean() for tokens, some in zip(deciding, found, strict=True) if some]))
    progress.log(f"marks: {count} of {len(train)} training examples, {share:.0%} of their tokens (median){cut}")
    if share > TOO_MUCH:
        warnings.warn(
            f"the marks cover {share:.0%} of the tokens of an example (median): attention can hardly be guided by "
            "them; mark the few words that decide the label.",
            HeadwiseWarning,
            stacklevel=2,
        )
    return count


def _with_token(train: Encoded, ids: Sequence[int]) -> int:
    found = np.isin(train.ids, ids)
    return int(np.count_nonzero(np.add.reduceat(found, train.starts[:-1])))


def _with_target(
    guide: Regulariser, train: Encoded, known: Mapping[str, tuple[int, ...]], special_ids: Sequence[int]
) -> int | None:
    """The number of examples for which a guide has a target; None if it leaves that to the marks."""
    count = 0
    for start in range(0, len(train), TOGETHER):
        rows = [torch.from_numpy(train[row]["input_ids"]) for row in range(start, min(start + TOGETHER, len(train)))]
        ids = pad_sequence(rows, batch_first=True)
        valid = torch.arange(ids.shape[1]) < torch.tensor([[len(row)] for row in rows])
        special = torch.isin(ids, torch.tensor(list(special_ids)))
        marks = find_marks(ids, known, (*guide.marks, *guide.optional_marks))
        present = guide.has_target(Inputs(ids, valid, special, marks=marks), valid, special)
        if present is None:
            return None
        count += int(present.sum())
    return count

"""Knowledge about words in data sets and batches.

Shapes: B batch, K keys, T tokens of an example, N tokens of all examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import MODEL_MAPPING

from headwise.attention.pretrained import class_in, read_model, reason_of
from headwise.attention.surgery import pruned_class, pruned_in
from headwise.data import Encoded, Split, encode
from headwise.errors import InputError
from headwise.guides import Guide, Guides, as_guides
from headwise.patterns.align import token_matrix, token_vector, words_of_tokens
from headwise.patterns.base import Form, Knowledge, Resources, WordMatrix
from headwise.patterns.store import Progress, gather
from headwise.patterns.vectors import InputEmbeddings
from headwise.training.encoders import Encoder

Item = Mapping[str, Any]
AnyGuides = str | Guide | Guides | Mapping[str, Mapping[str, Any]] | Iterable[Guide]
UNCUT = 2**30  # tokens; the tokenizer needs a length


@dataclass(frozen=True)
class Need:
    """The knowledge that a guide reads from a batch."""

    guide: str
    """Its name, as in logs."""
    pattern: Knowledge
    form: Form

    @property
    def entry(self) -> str:
        """The name under which a batch carries it."""
        return self.pattern.entry(self.form)


def needs_of(guides: AnyGuides) -> list[Need]:
    """What these guides need; guides that need no knowledge are skipped."""
    if isinstance(guides, Mapping) and not guides:
        return []
    named: list[tuple[str, Any]] = list(as_guides(guides).named())
    patterns = ((name, guide, getattr(guide, "pattern", None)) for name, guide in named)
    return [Need(name, pattern, guide.on) for name, guide, pattern in patterns if isinstance(pattern, Knowledge)]


class WithKnowledge:
    """A data set whose examples carry knowledge: `item["knowledge"]` holds an array for each entry.

    An entry is [T,T] for maps and [T] for received attention, float32. Words and tokens are aligned at the beginning;
    entries are expanded when an example is read, since the maps of a whole data set would not fit into memory.
    """

    def __init__(
        self,
        data: Any,
        stores: Mapping[str, Sequence[WordMatrix]],
        needs: Iterable[Need],
        *,
        tokens: Encoded | None = None,
    ) -> None:
        """Align words and tokens.

        Args:
            data: an indexable data set of dicts; an `Encoded` with offsets, unless `tokens` is given.
            stores: for each pattern, by its key, what is known about the words of each example.
            needs: what the guides read.
            tokens: the positions of the tokens of `data` in their texts.
        """
        tokens = data if tokens is None else tokens
        offsets, sources = tokens.offsets, tokens.sources
        if offsets is None or sources is None:
            raise InputError(
                "the examples do not say where their tokens stand in the text: use encode(..., offsets=True)."
            )
        for key, matrices in stores.items():
            if not len(matrices) == len(tokens) == len(data):
                raise InputError(
                    f"knowledge {key} of {len(matrices)} examples, for {len(data)} examples of which {len(tokens)} "
                    "have tokens: expected as many of each; build it from the texts of these examples."
                )
        self._data, self._stores, self._starts = data, stores, tokens.starts
        self._needs = {need.entry: need for need in needs}
        self._words: dict[str, NDArray[np.int32]] = {}  # [N] by pattern: the word of each token, -1 for none
        for key in {need.pattern.key for need in self._needs.values()}:
            words = self._words[key] = np.full(len(tokens.ids), -1, np.int32)
            for example, matrix in enumerate(stores[key]):
                part = self._part(example)
                words[part] = words_of_tokens(offsets[part], sources[part], matrix.spans)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each example has."""
        return np.diff(self._starts)

    @property
    def labels(self) -> Any:
        """The labels of the data set."""
        return self._data.labels

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An example with its knowledge."""
        example = range(len(self))[index]
        known = {}
        for entry, need in self._needs.items():
            expand = token_matrix if need.form == "map" else token_vector
            words = self._words[need.pattern.key][self._part(example)]
            known[entry] = expand(self._stores[need.pattern.key][example], words)
        return {**self._data[example], "knowledge": known}

    def _part(self, example: int) -> slice:
        return slice(self._starts[example], self._starts[example + 1])


class Carried(dict[str, Tensor]):
    """The knowledge of a batch by entry; `to` moves it like a tensor, for loops that move every part of a batch."""

    def to(self, *args: Any, **options: Any) -> Carried:
        """The same on another device or of another type."""
        return Carried({entry: tensor.to(*args, **options) for entry, tensor in self.items()})


@dataclass(frozen=True)
class KnowledgeCollator:
    """Adds `batch["knowledge"]` to the batch of another collator, unless the examples carry no knowledge."""

    collate: Callable[[list[Any]], Any]
    """Returns input_ids and attention_mask, padded on either side."""

    def __call__(self, items: Sequence[Item]) -> dict[str, Any]:
        """A batch: [B,K,K] for maps and [B,K] for received attention, 0 at padding."""
        known = [item["knowledge"] for item in items if "knowledge" in item]
        if known and len(known) < len(items):
            raise InputError(
                f"{len(items) - len(known)} of the {len(items)} examples of a batch carry no knowledge: use "
                "add_knowledge on the whole data set."
            )
        rest = [{name: value for name, value in item.items() if name != "knowledge"} for item in items]
        batch = dict(self.collate(rest))
        if not known:
            return batch
        mask = batch.get("attention_mask")
        if mask is None or mask.dim() != 2:
            raise InputError(
                "the collator gives no attention_mask of examples by tokens, so knowledge cannot be padded: use one "
                "that does, such as transformers' DataCollatorWithPadding."
            )
        real: Tensor = mask.cpu() != 0  # [B,K]
        for example, (tokens, entries) in enumerate(zip(real.sum(1).tolist(), known, strict=True)):
            expected = len(next(iter(entries.values())))
            if tokens != expected:
                raise InputError(
                    f"example {example} of a batch has {tokens} tokens, but knowledge for {expected}: let the collator "
                    "pad only, and cut texts before add_knowledge."
                )
        batch["knowledge"] = Carried()
        for entry in known[0]:
            arrays = [entries[entry] for entries in known]
            cells = real if arrays[0].ndim == 1 else real.unsqueeze(1) & real.unsqueeze(2)
            padded = torch.zeros(cells.shape)
            padded[cells] = torch.from_numpy(np.concatenate([array.ravel() for array in arrays]))
            batch["knowledge"][entry] = padded
        return batch


def add_knowledge(
    data: Any,
    texts: Iterable[str | Sequence[str]],
    guides: AnyGuides,
    *,
    tokenizer: Any,
    corpus: Iterable[str | Sequence[str]] | None = None,
    resources: Resources | None = None,
    cache: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Give a data set the knowledge that guides need; it is computed once, and read from the cache the next time.

    With transformers' Trainer:

        guides = hw.Match("pmi", weight=hw.auto(0.1))
        model = hw.guide(model, guides, tokenizer=tokenizer)
        train = add_knowledge(train, texts, guides, tokenizer=tokenizer)
        collator = KnowledgeCollator(DataCollatorWithPadding(tokenizer))
        arguments = TrainingArguments("run", remove_unused_columns=False)
        Trainer(model, arguments, train_dataset=train, data_collator=collator).train()

    Guides act in training only, so evaluation data need none; the collator takes both.

    Args:
        data: an indexable data set of dicts with input_ids, made of `texts` with this tokenizer, cut or not.
        texts: the text of each example, or its two texts.
        guides: as for `hw.guide`; those that need no knowledge are skipped.
        tokenizer: a fast tokenizer.
        corpus: the texts to count words in, if not `texts`.
        resources: other sources of knowledge, such as an encoder's input embeddings.
        cache: the folder for computed knowledge; by default HEADWISE_CACHE or the user's cache folder.
        workers: processes; by default one per core.
        progress: called with how many of how many examples are done.

    Returns:
        A data set that adds item["knowledge"]; `data` itself if no guide needs any.
    """
    needs = needs_of(guides)
    if not needs:
        return data
    examples = _as_texts(texts)
    counted = examples if corpus is None else _as_texts(corpus)
    resources = resources or Resources()
    check_sources(needs, resources)
    tokens = _tokens_of(data, examples, tokenizer)
    options: dict[str, Any] = {"resources": resources, "cache": cache, "workers": workers, "progress": progress}
    stores = {}
    for need in needs:
        used = counted if need.pattern.from_corpus else ()
        stores[need.pattern.key] = gather(need.pattern, examples, corpus=used, **options)
    for need in needs:
        check_known(need, stores[need.pattern.key])
    return WithKnowledge(data, stores, needs, tokens=tokens)


def _as_texts(texts: Iterable[str | Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """One or two texts for each example, whichever way they were given."""
    examples = tuple((each,) if isinstance(each, str) else tuple(each) for each in texts)
    for number, each in enumerate(examples):
        if not 1 <= len(each) <= 2 or len(each) != len(examples[0]) or not all(isinstance(text, str) for text in each):
            raise InputError(
                f"texts: example {number} is {each!r:.80}; expected one text, or two, and as many for all examples."
            )
    return examples


def _tokens_of(data: Any, texts: Sequence[tuple[str, ...]], tokenizer: Any) -> Encoded:
    """The tokens that the examples of a data set have, with their offsets: tokenise again, and compare.

    Args:
        data: an indexable data set of dicts with input_ids, and attention_mask if they are padded.
        texts: what the input_ids were made of; they may have been cut, at any length and in either text.
        tokenizer: what made them.
    """
    if len(data) != len(texts):
        raise InputError(f"{len(data)} examples, but {len(texts)} texts: expected as many; give each example its own.")
    uncut = encode(Split(tuple(texts), (None,) * len(texts)), tokenizer, UNCUT, offsets=True)
    if uncut.offsets is None or uncut.sources is None:  # never: offsets=True
        raise InputError("the tokenizer gives no offsets: load a fast tokenizer.")
    kept = []
    for example, text in enumerate(texts):
        part = slice(uncut.starts[example], uncut.starts[example + 1])
        item = data[example]
        ids = np.asarray(item["input_ids"], np.int64)
        if "attention_mask" in item:
            ids = ids[np.asarray(item["attention_mask"]) != 0]
        indices = _kept(ids, uncut.ids[part], uncut.sources[part], left=tokenizer.truncation_side == "left")
        if indices is None:
            raise InputError(
                f"example {example}: its input_ids are not what {type(tokenizer).__name__} makes of {text!r:.80}; give "
                "the texts in the order of the data set, and the tokenizer that made it."
            )
        kept.append(part.start + indices)
    order = np.concatenate(kept)
    return replace(
        uncut,
        ids=uncut.ids[order],
        starts=np.cumsum([0, *map(len, kept)], dtype=np.int64),
        types=None,
        offsets=uncut.offsets[order],
        sources=uncut.sources[order],
    )


def _kept(
    ids: NDArray[np.int64], uncut: NDArray[np.int32], sources: NDArray[np.int8], *, left: bool
) -> NDArray[np.int64] | None:
    """[T] which of the uncut tokens [U] an example still has; None if it does not come from them."""
    if len(ids) == len(uncut):
        return np.arange(len(ids)) if np.array_equal(ids, uncut) else None
    first, second = (np.flatnonzero(sources == number) for number in (0, 1))
    room = len(ids) - (len(uncut) - len(first) - len(second))  # for words: special tokens are never cut
    sizes = [room if len(first) else 0]  # how many tokens may be left of the first text
    if len(first) and len(second):  # up to where the token that follows it uncut stands now
        sizes = np.flatnonzero(ids[int(first[0]) :] == uncut[first[-1] + 1]).tolist()
    for size in sizes:
        if 0 <= size <= len(first) and 0 <= room - size <= len(second):
            lost = [
                text[: len(text) - length] if left else text[length:]
                for text, length in ((first, size), (second, room - size))
            ]
            indices = np.delete(np.arange(len(uncut)), np.concatenate(lost))
            if np.array_equal(uncut[indices], ids):
                return indices
    return None


def check_sources(needs: Iterable[Need], resources: Resources) -> None:
    """Refuse what is missing for any of them before the first one is built."""
    for need in needs:
        need.pattern.fingerprint(resources)


def check_known(need: Need, matrices: Sequence[WordMatrix]) -> None:
    """Refuse knowledge without a single value, since it would guide nothing."""
    if not any(len(matrix.values) for matrix in matrices):
        raise InputError(
            f"guide {need.guide}: {need.pattern.name} {need.pattern.unknown} of the {len(matrices)} training "
            "examples, so it would guide nothing; check the text columns, or remove the guide."
        )


def input_embeddings(encoder: Encoder) -> InputEmbeddings:
    """The input embeddings of an encoder as vectors of words; its weights are loaded for this."""
    try:
        with torch.random.fork_rng(devices=[]):  # weights that the file lacks, such as a pooler, start at random
            kind = pruned_class(class_in(MODEL_MAPPING, encoder.config, "text"), pruned_in(encoder.config))
            model = read_model(kind, encoder.path, local_only=encoder.local_only, called=encoder.name)
    except Exception as error:  # other people's files, in which anything may be wrong
        reason = reason_of(error).rstrip(".")
        raise InputError(f"model {encoder.name!r}: its embeddings cannot be loaded ({reason}).") from error
    return InputEmbeddings(encoder.tokenizer, model.get_input_embeddings().weight)

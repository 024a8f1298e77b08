"""Knowledge about words, brought to the tokens of batches.

Shapes: B batch, K keys, T tokens of an example, N tokens of all examples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from transformers import MODEL_MAPPING

from headwise.attention.pretrained import class_in, read_model, reason_of
from headwise.attention.surgery import pruned_class, pruned_in
from headwise.data import Encoded
from headwise.errors import InputError
from headwise.guides import Guide, Guides, as_guides
from headwise.patterns.align import token_matrix, token_vector, words_of_tokens
from headwise.patterns.base import Form
from headwise.patterns.knowledge import Knowledge, Resources, WordMatrix
from headwise.patterns.store import Progress, gather
from headwise.training.encoders import Encoder
from headwise.training.ssa_data import as_texts, tokens_of

Item = Mapping[str, Any]
AnyGuides = str | Guide | Guides | Mapping[str, Mapping[str, Any]] | Iterable[Guide]


@dataclass(frozen=True)
class Need:
    """The knowledge that a guide wants to see in a batch."""

    guide: str
    """Its name, as in logs."""
    pattern: Knowledge
    form: Form

    @property
    def entry(self) -> str:
        """The name under which a batch carries it."""
        return self.pattern.entry(self.form)


def needs_of(guides: AnyGuides) -> list[Need]:
    """What these guides need; guides that need no knowledge are passed over."""
    if isinstance(guides, Mapping) and not guides:
        return []
    named = [(name, guide, getattr(guide, "pattern", None)) for name, guide in as_guides(guides).named()]
    return [Need(name, found, guide.on) for name, guide, found in named if isinstance(found, Knowledge)]  # type: ignore[attr-defined]


class WithKnowledge:
    """A data set whose examples carry knowledge: `item["knowledge"]` holds an array for each entry.

    An entry is [T,T] for maps and [T] for received attention, float32. Maps are unfolded when an example is asked for,
    since those of a whole data set would not fit into memory; all else is worked out at the beginning.
    """

    def __init__(
        self,
        data: Any,
        stores: Mapping[str, Sequence[WordMatrix]],
        needs: Iterable[Need],
        *,
        tokens: Encoded | None = None,
    ) -> None:
        """Bring words and tokens together.

        Args:
            data: an indexable data set of dicts; an `Encoded` with offsets, unless `tokens` is given.
            stores: for each pattern, by its key, what is known about the words of each example.
            needs: what the guides want to see.
            tokens: where the tokens of `data` stand in their texts.
        """
        tokens = data if tokens is None else tokens
        _check_sizes(data, stores, tokens)
        self._data, self._stores, self._starts = data, stores, tokens.starts
        wanted = {need.entry: need for need in needs}.values()
        words = {key: _words(tokens, stores[key]) for key in {need.pattern.key for need in wanted}}
        self._vectors = {
            need.entry: _vectors(tokens, stores[need.pattern.key], words[need.pattern.key])
            for need in wanted
            if need.form == "received"
        }
        self._maps = {need.entry: need.pattern.key for need in wanted if need.form == "map"}
        self._words = {key: words[key] for key in self._maps.values()}

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
        place = range(len(self))[index]
        part = slice(self._starts[place], self._starts[place + 1])
        known = {entry: values[part] for entry, values in self._vectors.items()}
        for entry, key in self._maps.items():
            known[entry] = token_matrix(self._stores[key][place], self._words[key][part])
        return {**self._data[place], "knowledge": known}


class Carried(dict[str, Tensor]):
    """The knowledge of a batch by entry; `to` moves it like a tensor, for loops that move every part of a batch."""

    def to(self, *args: Any, **options: Any) -> Carried:
        """The same elsewhere."""
        return Carried({entry: tensor.to(*args, **options) for entry, tensor in self.items()})


@dataclass(frozen=True)
class KnowledgeCollator:
    """Adds `batch["knowledge"]` to what another collator makes; examples without knowledge give a batch without it."""

    collate: Callable[[list[Any]], Any]
    """Makes input_ids and attention_mask, padded on either side."""

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
        if known:
            real = _real(batch, [len(next(iter(each.values()))) for each in known])
            batch["knowledge"] = Carried({entry: _padded([each[entry] for each in known], real) for entry in known[0]})
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
    """Give a data set the knowledge that guides need; it is worked out once, and found again the next time.

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
        guides: as for `hw.guide`; those that need no knowledge are passed over.
        tokenizer: a fast tokenizer.
        corpus: the texts to count words in, if not `texts`.
        resources: what else knowledge may draw on, such as an encoder's input embeddings.
        cache: the folder for what was worked out; if not given, HEADWISE_CACHE or the user's cache folder.
        workers: processes; if not given, as many as there are cores.
        progress: told how many of how many examples are done.

    Returns:
        A data set that adds item["knowledge"]; `data` itself if no guide needs any.
    """
    needs = needs_of(guides)
    if not needs:
        return data
    examples = as_texts(texts)
    counted = examples if corpus is None else as_texts(corpus)
    resources = resources or Resources()
    check_sources(needs, resources)
    tokens = tokens_of(data, examples, tokenizer)
    stores = {
        need.pattern.key: gather(
            need.pattern,
            examples,
            corpus=counted if need.pattern.from_corpus else (),
            resources=resources,
            cache=cache,
            workers=workers,
            progress=progress,
        )
        for need in needs
    }
    for need in needs:
        check_known(need, stores[need.pattern.key])
    return WithKnowledge(data, stores, needs, tokens=tokens)


def check_sources(needs: Iterable[Need], resources: Resources) -> None:
    """Refuse what is missing for any of them before the first one is built."""
    for need in needs:
        need.pattern.fingerprint(resources)


def check_known(need: Need, matrices: Sequence[WordMatrix]) -> None:
    """Refuse knowledge that knows nothing, since it would guide nothing."""
    if not any(len(matrix.values) for matrix in matrices):
        raise InputError(
            f"guide {need.guide}: {need.pattern.name} knows nothing about any word of the {len(matrices)} training "
            "examples, so it would guide nothing; check the text columns, or take it away."
        )


def _check_sizes(data: Any, stores: Mapping[str, Sequence[WordMatrix]], tokens: Encoded) -> None:
    if tokens.offsets is None or tokens.sources is None:
        raise InputError("the examples do not say where their tokens stand in the text: use encode(..., offsets=True).")
    for key, matrices in stores.items():
        if not len(matrices) == len(tokens) == len(data):
            raise InputError(
                f"knowledge {key} of {len(matrices)} examples, for {len(data)} examples of which {len(tokens)} have "
                "tokens: expected as many of each; build it from the texts of these examples."
            )


def _words(tokens: Encoded, matrices: Sequence[WordMatrix]) -> NDArray[np.int32]:
    """[N] the word of each token, -1 for none."""
    words = np.full(len(tokens.ids), -1, np.int32)
    for place, matrix in enumerate(matrices):
        part = slice(tokens.starts[place], tokens.starts[place + 1])
        words[part] = words_of_tokens(tokens.offsets[part], tokens.sources[part], matrix.spans)  # type: ignore[index]
    return words


def _vectors(tokens: Encoded, matrices: Sequence[WordMatrix], words: NDArray[np.int32]) -> NDArray[np.float32]:
    """[N] what each token should receive."""
    values = np.zeros(len(words), np.float32)
    for place, matrix in enumerate(matrices):
        part = slice(tokens.starts[place], tokens.starts[place + 1])
        values[part] = token_vector(matrix, words[part])
    return values


def _real(batch: Mapping[str, Any], lengths: Sequence[int]) -> Tensor:
    """[B,K] where the tokens of a batch are."""
    mask = batch.get("attention_mask")
    if mask is None or mask.dim() != 2:
        raise InputError(
            "the collator gives no attention_mask of examples by tokens, so knowledge cannot be padded: use one that "
            "does, such as transformers' DataCollatorWithPadding."
        )
    real: Tensor = mask.cpu() != 0
    for example, (found, expected) in enumerate(zip(real.sum(1).tolist(), lengths, strict=True)):
        if found != expected:
            raise InputError(
                f"example {example} of a batch has {found} tokens, but knowledge for {expected}: let the collator pad "
                "only, and cut texts before add_knowledge."
            )
    return real


def _padded(arrays: Sequence[NDArray[np.float32]], real: Tensor) -> Tensor:
    """[B,K] or [B,K,K] all examples poured in at once, since a mask is filled row by row."""
    if arrays[0].ndim == 2:
        real = real.unsqueeze(1) & real.unsqueeze(2)
    batch = torch.zeros(real.shape)
    batch[real] = torch.from_numpy(np.concatenate([array.ravel() for array in arrays]))
    return batch


# An encoder's input embeddings as vectors of words.


class InputEmbeddings:
    """The vector of a word is the mean of the embeddings of its sub-words, as it is split inside a sentence.

        Resources(embeddings=InputEmbeddings(tokenizer, model.get_input_embeddings().weight))

    A word is unknown if a part of it is the unknown token. The embeddings are copied: training does not change them.
    It can be sent to other processes.
    """

    def __init__(self, tokenizer: Any, weight: Tensor) -> None:
        """From a fast tokenizer of transformers and the matrix [T,D] of the encoder."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise InputError("InputEmbeddings needs a fast tokenizer (tokenizer.json), but this one is not.")
        if weight.ndim != 2 or not weight.is_floating_point():
            raise InputError(
                f"InputEmbeddings needs a matrix of floating-point numbers, got {weight.dtype} of shape "
                f"{tuple(weight.shape)}: pass model.get_input_embeddings().weight."
            )
        self._splitter = Tokenizer.from_str(backend.to_str())
        self._splitter.no_truncation()
        self._splitter.no_padding()
        self._matrix: NDArray[np.float32] = weight.detach().to("cpu", torch.float32, copy=True).numpy()
        self._unknown = tokenizer.unk_token_id
        self._spaced = _sees_spaces(self._splitter)

    @classmethod
    def of(cls, encoder: Encoder) -> InputEmbeddings:
        """Those of an encoder that was found, whose weights are loaded for this."""
        try:
            with torch.random.fork_rng(devices=[]):  # weights that the file lacks, such as a pooler, start at random
                kind = pruned_class(class_in(MODEL_MAPPING, encoder.config, "text"), pruned_in(encoder.config))
                model = read_model(kind, encoder.path, local_only=encoder.local_only)
        except Exception as error:  # other people's files, in which anything may be wrong
            reason = reason_of(error).rstrip(".")
            raise InputError(f"model {encoder.name!r}: its embeddings cannot be loaded ({reason}).") from error
        return cls(encoder.tokenizer, model.get_input_embeddings().weight)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the matrix and of the tokenizer."""
        content = hashlib.sha256(np.ascontiguousarray(self._matrix).data)
        content.update(repr((self._matrix.shape, self._unknown)).encode())
        content.update(self._splitter.to_str().encode())
        return content.hexdigest()

    def look_up(self, words: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """[n,D] the vectors, and [n] which words are known."""
        vectors = np.zeros((len(words), self._matrix.shape[1]), np.float32)
        known = np.zeros(len(words), np.bool_)
        parts = self._splitter.encode_batch([self._inside(word) for word in words], add_special_tokens=False)
        for place, ids in enumerate(part.ids for part in parts):
            if ids and self._unknown not in ids and max(ids) < len(self._matrix):
                vectors[place], known[place] = self._matrix[ids].mean(0), True
        return vectors, known

    def _inside(self, word: str) -> str:
        """As it stands in a sentence: behind a space, unless it is a mark, which follows the word before it."""
        return f" {word}" if self._spaced and word[:1].isalnum() else word


def _sees_spaces(splitter: Tokenizer) -> bool:
    """Whether the sub-words of a word differ behind a space, and the tokenizer does not add one by itself."""
    steps = list(_steps(json.loads(splitter.to_str())["pre_tokenizer"]))
    return any(
        step["type"] == "ByteLevel" or (step["type"] == "Metaspace" and step.get("prepend_scheme") == "never")
        for step in steps
    )


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    if step is not None:
        yield step
        for inner in step.get("pretokenizers", ()):
            yield from _steps(inner)

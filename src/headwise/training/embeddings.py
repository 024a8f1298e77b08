"""An encoder's input embeddings as vectors of words.

Shapes: n words, T tokens of the vocabulary, D size of an embedding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from transformers import MODEL_MAPPING

from headwise.attention.pretrained import class_in, read_model, reason_of
from headwise.attention.pruned_class import pruned_class
from headwise.attention.surgery import pruned_in
from headwise.errors import InputError
from headwise.training.encoders import Encoder


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

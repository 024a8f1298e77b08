"""A re-ranker: how well a paper answers a claim, by a classifier with one logit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from torch import nn

from headwise.errors import InputError
from headwise.tasks import Collator, Split, encode
from headwise.training.encoders import Encoder
from headwise.training.first_token import first_token_only
from headwise.training.predict import predict_logits
from headwise.training.saving import load_classifier_folder

RECORD = "headwise.json"
# Tokens at a time, where the caller does not say how many pairs: few enough for the caches of a processor, and many
# for other devices, which we have not measured.
TOKENS = 2048
TOKENS_ELSEWHERE = 32768
# The longest pair where neither model nor tokenizer says so.
LENGTH = 512


@dataclass(frozen=True)
class Reranker:
    """A classifier with one logit, and how texts are cut for it.

    The model is an ordinary one of transformers: `hw.gate(reranker.model, ...)`, `hw.capture` and `hw.guide` work.
    """

    model: nn.Module
    tokenizer: Any
    max_length: int

    def __post_init__(self) -> None:
        """Refuse a classifier of classes."""
        logits = getattr(getattr(self.model, "config", None), "num_labels", None)
        if logits != 1:
            raise InputError(
                f"a re-ranker has one logit, and this model has {logits}: train one with `task: {{name: retrieval}}`, "
                "or load a cross-encoder with a single output."
            )

    @classmethod
    def load(cls, folder: Path | str) -> Reranker:
        """Load a run of headwise, or any folder with such a classifier, as CrossEncoder saves it."""
        folder = Path(folder).expanduser()
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder} holds no model: expected a folder with a config.json; name a re-ranker's.")
        head, length = _settings(folder)
        model, tokenizer = load_classifier_folder(folder, head)
        if head == "pooler":
            _check_classifier(folder, model.config)
        if length is None:
            length = Encoder(str(folder), str(folder), True, tokenizer, model.config).longest or LENGTH
        return cls(model, tokenizer, length)

    def predict(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        batch: int | None = None,
        precision: str = "fp32",
        after_batch: Callable[[int], None] | None = None,
    ) -> numpy.ndarray:
        """[N] the logit of every pair of a claim and a text, in their order; higher is better.

        These are what CrossEncoder gives with an Identity for its activation. Neither the order of the pairs nor the
        batch changes them beyond rounding.

        Args:
            pairs: claim and text.
            batch: pairs at a time; None: as many as make up 2048 tokens on a processor, 32768 on other devices.
            precision: fp32, or bf16 for matrix products in bfloat16.
            after_batch: told how many pairs are done.
        """
        if not pairs:
            return numpy.empty(0, numpy.float32)
        texts = tuple((claim, text) for claim, text in pairs)
        encoded = encode(Split(texts, (None,) * len(texts)), self.tokenizer, self.max_length)
        collate = Collator.of(self.tokenizer, "ranking", max_length=self.max_length)
        with first_token_only(self.model):
            logits = predict_logits(
                self.model,
                encoded,
                collate,
                batch=batch or len(pairs),
                tokens=None if batch else self._tokens,
                precision=precision,
                after_batch=after_batch,
            )
        scores: numpy.ndarray = logits[:, 0]
        return scores

    def rank(self, claim: str, texts: Sequence[str], **options: Any) -> list[tuple[int, float]]:
        """The places of the texts with their scores, the best first; of equal ones the earlier. Options of predict."""
        scores = self.predict([(claim, text) for text in texts], **options)
        return [(int(place), float(scores[place])) for place in numpy.argsort(-scores, kind="stable")]

    @property
    def _tokens(self) -> int:
        return TOKENS if next(self.model.parameters()).device.type == "cpu" else TOKENS_ELSEWHERE


def _settings(folder: Path) -> tuple[str, int | None]:
    """The head and the longest pair of a run of headwise; the usual head and None for other folders."""
    path = folder / RECORD
    if not path.is_file():
        return "pooler", None
    try:
        recipe = json.loads(path.read_text(encoding="utf-8"))["asked"]["recipe"]
        return str(recipe["head"]), int(recipe["data"]["max_length"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}): train again.") from error


def _check_classifier(folder: Path, config: Any) -> None:
    """Refuse a model whose logit would be a matter of chance."""
    names = config.architectures or []
    if not any(name.endswith("ForSequenceClassification") for name in names):
        raise InputError(
            f"{folder} holds a {', '.join(names) or 'model'} without a classifier, which cannot order papers: name a "
            "trained re-ranker."
        )

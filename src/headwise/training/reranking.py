"""A re-ranker: how well a paper answers a claim, by a classifier with one logit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from torch import nn

from headwise.errors import InputError
from headwise.ssa import supervision_of
from headwise.tasks import Collator, Split, encode
from headwise.training.encoders import Encoder
from headwise.training.first_token import first_token_only
from headwise.training.loading import run_settings
from headwise.training.predict import predict_logits, tokens_at_a_time
from headwise.training.saving import architectures_in, holds_classifier, in_one_sentence, load_classifier_folder
from headwise.training.token_numbers import check_vocabulary

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
        head, length = run_settings(folder)
        model, tokenizer = load_classifier_folder(folder, head)
        with in_one_sentence(folder):
            check_vocabulary(tokenizer, model)
        if head == "pooler" and supervision_of(model) is None:
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
                tokens=None if batch else tokens_at_a_time(self.model),
                precision=precision,
                after_batch=after_batch,
            )
        scores: numpy.ndarray = logits[:, 0]
        return scores

    def rank(self, claim: str, texts: Sequence[str], **options: Any) -> list[tuple[int, float]]:
        """The places of the texts with their scores, the best first; of equal ones the earlier. Options of predict."""
        scores = self.predict([(claim, text) for text in texts], **options)
        return [(int(place), float(scores[place])) for place in numpy.argsort(-scores, kind="stable")]


def _check_classifier(folder: Path, config: Any) -> None:
    """Refuse a model whose logit would be a matter of chance."""
    if not holds_classifier(config):
        names = ", ".join(architectures_in(config)) or "model"
        raise InputError(
            f"{folder} holds a {names} without a classifier, which cannot order papers: name a trained re-ranker."
        )

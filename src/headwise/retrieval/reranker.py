"""A re-ranker: how well a paper answers a claim, by a cross-encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from torch import nn

from headwise.attention.pretrained import check_vocabulary
from headwise.data import Collator, Split, encode
from headwise.errors import InputError
from headwise.ssa import supervision_of
from headwise.training.encoders import Encoder
from headwise.training.predict import first_token_only, packed_linears, predict_logits, tokens_at_a_time
from headwise.training.saving import (
    architectures_in,
    holds_classifier,
    in_one_sentence,
    load_classifier_folder,
    run_settings,
)

# The longest pair where neither model nor tokenizer says so.
LENGTH = 512
# The parts of a template, and where config.json may have one.
FIELDS = ("{claim}", "{text}")
TEMPLATE_KEY = "headwise_template"


@dataclass(frozen=True)
class Reranker:
    """A classifier with one logit or two, and how texts are cut for it.

    Of two logits (of no and yes), the score is the second minus the first, which orders as the probability of yes does.
    The model is an ordinary one of transformers: `hw.gate(reranker.model, ...)`, `hw.capture` and `hw.guide` work.
    """

    model: nn.Module
    tokenizer: Any
    max_length: int
    template: str | None = None
    """For a model that reads claim and text as one string: how it is written, such as "Query: {claim} Text: {text}"."""
    folder: Path | None = None
    """Where it was loaded from."""

    def __post_init__(self) -> None:
        """Refuse a classifier of classes, and a template that leaves something out."""
        logits = getattr(getattr(self.model, "config", None), "num_labels", None)
        if logits not in (1, 2):
            raise InputError(
                f"a re-ranker has one logit or two, and this model has {logits}: train one with `task: {{name: "
                "retrieval}`, or load a cross-encoder."
            )
        if self.template is not None and not all(self.template.count(part) == 1 for part in FIELDS):
            raise InputError(
                f"template {self.template!r}: expected {FIELDS[0]} and {FIELDS[1]} in it, each once, as in "
                "'Query: {claim} Text: {text}'."
            )

    @classmethod
    def load(cls, folder: Path | str, *, template: str | None = None) -> Reranker:
        """Load a run of headwise, or any folder with such a classifier, as CrossEncoder saves it.

        Args:
            folder: with config.json, weights and tokenizer.
            template: for a model that reads one string instead of a pair, with {claim} and {text}; None: the
                `headwise_template` of its config.json, or a pair without that.
        """
        folder = Path(folder).expanduser()
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder} holds no model: expected a folder with a config.json; name a re-ranker's.")
        head, length = run_settings(folder)
        model, tokenizer = load_classifier_folder(folder, head)
        with in_one_sentence(folder):
            check_vocabulary(tokenizer, model)
        # Without a classifier among its weights the logit would be random.
        if head == "cls" and supervision_of(model) is None and not holds_classifier(model.config):
            names = ", ".join(architectures_in(model.config)) or "model"
            raise InputError(
                f"{folder} holds a {names} without a classifier, which cannot order papers: name a trained re-ranker."
            )
        if length is None:
            length = Encoder(str(folder), str(folder), True, tokenizer, model.config).longest or LENGTH
        return cls(model, tokenizer, length, template or getattr(model.config, TEMPLATE_KEY, None), folder)

    def predict(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        batch: int | None = None,
        precision: str = "fp32",
        after_batch: Callable[[int], None] | None = None,
    ) -> numpy.ndarray:
        """[N] the score of every pair of a claim and a text, in their order; higher is better.

        These are the logits of CrossEncoder with an Identity for its activation. Neither the order of the pairs nor the
        batch changes them beyond rounding.

        Args:
            pairs: claim and text.
            batch: pairs at a time; None: as many as make up 2048 tokens on a processor, 32768 on other devices.
            precision: fp32, or bf16 for matrix products in bfloat16.
            after_batch: called with the number of pairs done so far.
        """
        if not pairs:
            return numpy.empty(0, numpy.float32)
        texts = tuple(self._input(claim, text) for claim, text in pairs)
        encoded = encode(Split(texts, (None,) * len(texts)), self.tokenizer, self.max_length)
        collate = Collator.of(self.tokenizer, "ranking", max_length=self.max_length)
        with first_token_only(self.model), packed_linears(self.model) if precision == "fp32" else nullcontext():
            logits = predict_logits(
                self.model,
                encoded,
                collate,
                batch=batch or len(pairs),
                tokens=None if batch else tokens_at_a_time(self.model),
                precision=precision,
                after_batch=after_batch,
            )
        scores: numpy.ndarray = logits[:, -1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]
        return scores

    def _input(self, claim: str, text: str) -> tuple[str, ...]:
        """What the tokenizer gets: a pair, or one string. Not by `format`: braces of a text would be fields."""
        if self.template is None:
            return claim, text
        before, after = self.template.split(FIELDS[0])
        return (f"{before.replace(FIELDS[1], text)}{claim}{after.replace(FIELDS[1], text)}",)

    def rank(self, claim: str, texts: Sequence[str], **options: Any) -> list[tuple[int, float]]:
        """The positions of the texts with their scores, the best first; of equal ones the earlier.

        Options are those of `predict`.
        """
        scores = self.predict([(claim, text) for text in texts], **options)
        return [(int(position), float(scores[position])) for position in numpy.argsort(-scores, kind="stable")]

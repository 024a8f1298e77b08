"""A re-ranker: how well a paper answers a claim, by a classifier with one logit, and the loss over a claim's papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from headwise.attention.pretrained import check_vocabulary
from headwise.data import Collator, Split, encode
from headwise.errors import InputError
from headwise.ssa import supervision_of
from headwise.training.encoders import Encoder
from headwise.training.predict import first_token_only, predict_logits, tokens_at_a_time
from headwise.training.saving import (
    architectures_in,
    holds_classifier,
    in_one_sentence,
    load_classifier_folder,
    run_settings,
)

# The longest pair where neither model nor tokenizer says so.
LENGTH = 512
Item = dict[str, Any]


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
        # Without a classifier among its weights the logit would be random.
        if head == "cls" and supervision_of(model) is None and not holds_classifier(model.config):
            names = ", ".join(architectures_in(model.config)) or "model"
            raise InputError(
                f"{folder} holds a {names} without a classifier, which cannot order papers: name a trained re-ranker."
            )
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

        These are the scores of CrossEncoder with an Identity for its activation. Neither the order of the pairs nor the
        batch changes them beyond rounding.

        Args:
            pairs: claim and text.
            batch: pairs at a time; None: as many as make up 2048 tokens on a processor, 32768 on other devices.
            precision: fp32, or bf16 for matrix products in bfloat16.
            after_batch: called with the number of pairs done so far.
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
        """The positions of the texts with their scores, the best first; of equal ones the earlier.

        Options are those of `predict`.
        """
        scores = self.predict([(claim, text) for text in texts], **options)
        return [(int(position), float(scores[position])) for position in numpy.argsort(-scores, kind="stable")]


def listwise_loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """Softmax over a claim's candidates, for all claims of a batch.

    The mean over claims, and over the positives p of each, of -log e^{s_p} / (e^{s_p} + sum_n e^{s_n}). n runs over the
    claim's negatives, so positives do not compete with each other. The pairs of a claim stand together, positives
    first, and every claim has both kinds: so a claim begins where a positive follows a negative.

    Args:
        outputs: of the model: one logit for each pair, [B,1].
        labels: 1 for positives, 0 for negatives, [B] or [B,1].
        num_items_in_batch: labels in the whole accumulated batch, if this is a part of it: its mean then counts by its
            share of the pairs.
    """
    scores, positive = outputs.logits.float().flatten(), labels.flatten() > 0.5  # [B]
    before = torch.cat([positive.new_zeros(1), positive[:-1]])
    starts = (positive & ~before).nonzero().flatten().tolist()
    sizes = [end - start for start, end in zip(starts, [*starts[1:], len(positive)], strict=True)]
    losses = [
        softplus(part[~mine].logsumexp(0) - part[mine]).mean()
        for part, mine in zip(scores.split(sizes), positive.split(sizes), strict=True)
    ]
    mean = torch.stack(losses).mean()
    return mean if num_items_in_batch is None else mean * labels.numel() / num_items_in_batch


@dataclass(frozen=True, eq=False)
class Groups:
    """A data set whose items are the claims of another one: each is the list of its pairs."""

    data: Any
    groups: Sequence[str]

    @cached_property
    def _parts(self) -> list[range]:
        ends = numpy.cumsum([sum(1 for _ in each) for _, each in groupby(self.groups)]).tolist()
        return [range(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    @cached_property
    def lengths(self) -> numpy.ndarray:
        """Tokens of the longest pair of each claim."""
        lengths = numpy.asarray(self.data.lengths)
        return numpy.array([lengths[part.start : part.stop].max() for part in self._parts])

    def __len__(self) -> int:
        """How many claims there are."""
        return len(self._parts)

    def __getitem__(self, index: int) -> list[Item]:
        """The pairs of a claim."""
        return [self.data[position] for position in self._parts[index]]


def collate_groups(collate: Callable[[list[Item]], dict[str, Tensor]], groups: list[list[Item]]) -> dict[str, Tensor]:
    """One batch of the pairs of several claims, claim after claim."""
    return collate(list(chain.from_iterable(groups)))

"""Rationale: attention should go to the words that people marked."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.errors import InputError
from headwise.guides.base import Guide, check_choice, mean_over_examples, register_guide, token_permutation
from headwise.guides.weights import Weight

FORMS = ("log", "hinge", "kl")
NO_MASK = (
    "guide {name}: the batch has no rationale_mask, which says which tokens are marked: use "
    "headwise.data.RationaleCollator, and TrainingArguments(remove_unused_columns=False), which keeps the column; in a "
    "recipe, give the task `marks`."
)


@register_guide("rationale")
class Rationale(Guide):
    """Rationale: chosen heads should attend to the tokens that people marked as the reason of the label.

    Let a_k be the attention that token k gets from a head, as a share of what all tokens of the text get, R the marked
    tokens of the example, and m = sum of a_k over R the mass on them. The loss is the mean over heads, and over the
    examples with marks, of

        form="log"      -log m
        form="hinge"    max(0, log(mass / m)), which stops pulling as soon as m reaches `mass`
        form="kl"       sum over R of t log(t / a_k), with t = 1/|R|: the marked tokens should get equal shares

    `queries` says whose attention counts: "all" tokens (received attention), or "cls", the first token alone. Neither
    needs stored maps. Examples without marks are left out; in evaluation nothing is needed at all.

    Attention on special tokens such as [CLS] and [SEP] costs nothing: heads use them to do nothing, and a guide that
    forbids it takes accuracy on pairs of texts. special_tokens=True takes shares of all attention. So that they are
    known, pass tokenizer=... to guide(), or special_tokens_mask=... with the batch.

    Its control is shuffle=True: as many random tokens of the same text are marked instead, for each text always the
    same ones. Marks are shown to matter only if the guide beats this control, too.

    The batch carries the marks as `rationale_mask` [B,K], not 0 at marked tokens (`headwise.data.RationaleCollator`).
    References: Stacey et al. 2022 (arXiv 2104.08142) guide [CLS] rows by explanations in natural language inference;
    Bao et al. 2018 (arXiv 1808.09367) map rationales to attention. Relations: Match pulls heads to patterns that
    follow from position or vocabulary; this pulls them to what people say about one example.
    """

    reads_marks: ClassVar[bool] = True

    weight: Weight = 0.1
    """Factor in the loss: a number, a schedule, or auto(share). The default is a number, since a share of the task's
    gradient vanishes with it as soon as a few examples are learned by heart. Raise it with care."""
    special_tokens: bool = False
    """Whether attention on special tokens such as [CLS] and [SEP] counts as missing."""
    layers: object = "last:half"
    """Guided layers: "all", "first:N", "last:N", "first:half", a number or numbers, from 0."""
    form: Literal["log", "hinge", "kl"] = "log"
    """How missing attention counts."""
    queries: Literal["all", "cls"] = "all"
    """Whose attention: that of all tokens, or of the first one."""
    mass: float = 0.5
    """The share of attention on the marked tokens at which form="hinge" stops."""
    shuffle: bool = False
    """The control: random tokens of the text are marked instead."""

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        check_choice(self, "form", FORMS)
        check_choice(self, "queries", ("all", "cls"))
        check_choice(self, "shuffle", (True, False))
        if isinstance(self.mass, bool) or not isinstance(self.mass, int | float) or not 0 < self.mass < 1:
            raise InputError(f"{self.name}(mass={self.mass!r}): expected a number between 0 and 1.")
        if self.queries == "cls" and self.dropout == "after":
            raise InputError(
                f"{self.name}(queries='cls', dropout='after'): attention of the first token is seen before dropout; "
                "drop one of the two."
            )

    @property
    def what(self) -> What:
        """Received attention, or the row of the first token: both cost almost nothing."""
        return "received" if self.queries == "all" else "cls"

    @property
    def needs(self) -> str:
        """What a user must have."""
        return "marked words"

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The loss of one batch."""
        marked = self._marked(maps, inputs)  # [B,K]
        attention = maps.stacked()  # [B,M,K]
        attention = attention.to(torch.promote_types(attention.dtype, torch.float32))
        attention = attention * self.positions(maps).unsqueeze(1)
        tiny = torch.finfo(attention.dtype).tiny
        shares = attention / attention.sum(2, keepdim=True).clamp_min(tiny)
        counts = marked.sum(1)
        return mean_over_examples(self._distance(shares, marked, counts).mean(1), counts)

    def _marked(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """[B,K] the marked tokens that count."""
        if inputs.rationale_mask is None:
            raise InputError(NO_MASK.format(name=self.name))
        marked = inputs.rationale_mask != 0
        if marked.shape != maps.valid.shape:
            raise InputError(
                f"guide {self.name}: rationale_mask is {list(marked.shape)}: expected a value per token of the batch, "
                f"{list(maps.valid.shape)}."
            )
        marked = marked & self.positions(maps)
        if not self.shuffle:
            return marked
        if maps.special is None:
            raise InputError(
                f"{self.name}(shuffle=True) does not know which tokens are special: pass tokenizer=... to guide(), or "
                "special_tokens_mask=... with the batch."
            )
        permutation = token_permutation(self, inputs, maps.valid, maps.valid & ~maps.special)
        return marked.gather(1, permutation)

    def _distance(self, shares: Tensor, marked: Tensor, counts: Tensor) -> Tensor:
        """[B,M] the loss of each map."""
        tiny = torch.finfo(shares.dtype).tiny
        rows = marked.unsqueeze(1)  # [B,1,K]
        if self.form == "kl":
            count = counts.clamp_min(1).to(shares.dtype).unsqueeze(1)  # [B,1]
            return -(rows * shares.clamp_min(tiny).log()).sum(2) / count - count.log()
        missing = -(shares * rows).sum(2).clamp_min(tiny).log()
        if self.form == "hinge":
            return (missing + math.log(self.mass)).clamp_min(0)
        return missing

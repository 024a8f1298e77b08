"""Alignment: a token should attend to equal tokens of the other text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from headwise.attention import AttentionRecord, Inputs, What
from headwise.errors import InputError
from headwise.guides.base import Guide, check_choice, mean_over_examples, register_guide, token_permutation
from headwise.guides.match import DISTANCES
from headwise.guides.weights import Auto, Weight
from headwise.patterns.fixed import PUNCTUATION, SEPARATOR


@register_guide("alignment")
class Alignment(Guide):
    """Alignment: in a pair of texts, a token should attend to the equal tokens of the other text.

    With n_q the number of tokens of the other text that have the id of token q, the target of q is

        T_qk = 1 / n_q  if k is one of them, else 0

    and with A the map of a head and d as in Match (mse, kl or cosine)

        sum over q of idf(q) d(A_q, T_q)  /  sum over q of idf(q),    over the tokens q with n_q > 0

    as a mean over heads, and over the examples that have any such token. Special tokens and punctuation neither have
    nor are a target. The second text begins behind the first separator. Tokens are pieces of words: what a tokenizer
    writes in two ways, such as a word with and without a space before it (RoBERTa), is not equal.

    `idf(q)` is the weight of rare tokens: log((1 + N) / (1 + N_q)) for N training examples of which N_q contain the
    token. Recipes count the training examples. In your own script count them with `fitted`, or else all tokens weigh
    the same:

        guide = hw.Alignment().fitted(train["input_ids"])

    Few heads are enough, and they should be heads that the task hardly needs:

        importance = hw.head_importance(model, loader)
        guide = hw.Alignment(heads=importance.bottom(0.1))

    By default it is the first head of each layer. The default weight decays to 0 within 300 steps: the guide shows the
    heads the way and then leaves them free. On heads that are in use, a strong guide of this form costs accuracy.

    Relations: `wordsim` with `on: map` also knows similar words, but joins all words of an example, in its own text
    as well, and weighs all rows the same. Xia et al. (2021, arXiv 2102.10934) multiply the scores in the first layer
    of BERT by similarities of words; this teaches chosen heads, and the model that is saved is an ordinary one.

    It computes the maps of the guided heads only. In layers that see a window only (ModernBERT's local ones) most of
    the other text cannot be reached: choose the others with `layers`.
    """

    padding_rows: ClassVar[bool] = True

    weight: Weight = Auto(0.03, decay=300)
    """Factor in the loss: a number, a schedule or auto(share); by default a share that falls to 0 within 300 steps."""
    heads: Any = "first:1"
    """Guided heads of these layers, best some of the least important: (layer, head) pairs, or the other forms."""
    distance: Literal["mse", "kl", "cosine"] = "kl"
    """How far attention is from the target, as in Match."""
    idf: Any = field(default=None, repr=False)
    """The weight of each token id, {id: weight}; others get the largest of them. None: all weigh the same."""
    shuffle: bool = False
    """Whether equal tokens are replaced by as many random tokens of the same text: the control of this guide."""

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        check_choice(self, "distance", tuple(DISTANCES))
        check_choice(self, "shuffle", (True, False))
        if self.idf is None:
            return
        if not isinstance(self.idf, Mapping) or not self.idf:
            raise InputError(f"alignment(idf={self.idf!r:.80}): expected a mapping from token ids to weights, or None.")
        for number, value in self.idf.items():
            good = type(number) is int and isinstance(value, int | float) and not isinstance(value, bool)
            if not good or not 0 <= value < math.inf:
                raise InputError(
                    f"alignment(idf={{{number!r}: {value!r}}}): expected a token id with a weight of 0 or more."
                )
        if not any(self.idf.values()):
            raise InputError("alignment(idf=...): all weights are 0, so it would guide nothing; leave idf out.")
        ordered = sorted(self.idf.items())
        # Sorted, so that a batch is looked up at once. Not a field: equal guides have equal mappings.
        table = torch.tensor([number for number, _ in ordered]), torch.tensor([float(value) for _, value in ordered])
        object.__setattr__(self, "_table", table)

    @property
    def what(self) -> What:
        """Maps."""
        return "map"

    @property
    def needs(self) -> str:
        """Pairs of texts."""
        return "pairs of texts, a tokenizer"

    @property
    def marks(self) -> tuple[str, ...]:
        """Separators."""
        return (SEPARATOR,)

    @property
    def optional_marks(self) -> tuple[str, ...]:
        """Punctuation, which is left out."""
        return (PUNCTUATION,)

    def fitted(self, examples: Iterable[Any]) -> Guide:
        """The same guide with the IDF of the tokens of these training examples, unless it has one already.

        Args:
            examples: the token ids of each example, as a tokenizer returns them.
        """
        return self if self.idf is not None else replace(self, idf=token_idf(examples))

    def has_target(self, inputs: Inputs, valid: Tensor, special: Tensor | None) -> Tensor:
        """[B] whether the two texts have a token in common."""
        return self._equal(inputs, valid, special).flatten(1).any(1)

    def __call__(self, maps: AttentionRecord, inputs: Inputs) -> Tensor:
        """The loss of one batch."""
        equal = self._equal(inputs, maps.valid, maps.special)  # [B,Q,K]
        precise = torch.promote_types(next(iter(maps.values())).dtype, torch.float32)
        target = equal.to(precise) / equal.sum(2, keepdim=True).clamp_min(1)
        weights = self._idf_of(inputs).to(precise) * (equal.any(2) & self.positions(maps))  # [B,Q]
        total = weights.sum(1, keepdim=True)  # [B,1]
        weights = weights / total.clamp_min(torch.finfo(weights.dtype).tiny)
        distance = DISTANCES[self.distance]
        if distance.per_key:
            weights = weights / maps.valid.sum(1, keepdim=True).clamp_min(1)
        rows = target.unsqueeze(1)  # [B,1,Q,K]
        each = [
            (distance(maps[layer].to(precise), rows) * weights.unsqueeze(1)).sum(2) for layer in maps.heads
        ]  # [B,n]
        return mean_over_examples(torch.cat(each, 1).mean(1), total[:, 0])

    def _equal(self, inputs: Inputs, valid: Tensor, special: Tensor | None) -> Tensor:
        """[B,Q,K] which tokens should attend to which; with `shuffle` to others of the same text."""
        if inputs.input_ids is None or SEPARATOR not in inputs.marks:
            raise InputError(
                "alignment does not know where the second text begins: call the model with input_ids, and pass "
                "tokenizer=... to guide()."
            )
        separator = inputs.marks[SEPARATOR] & valid
        words, behind = valid & ~separator, separator.cumsum(1) > 0
        for left_out in (special, inputs.marks.get(PUNCTUATION)):
            words = words if left_out is None else words & ~left_out
        first, second = words & ~behind, words & behind
        across = first.unsqueeze(2) & second.unsqueeze(1)
        ids = inputs.input_ids
        equal = (ids.unsqueeze(2) == ids.unsqueeze(1)) & (across | across.transpose(1, 2))
        if not self.shuffle:
            return equal
        # Partners stay in their text: only which of its tokens they are is left to chance.
        order = torch.where(
            first, token_permutation(self, inputs, valid, first), token_permutation(self, inputs, valid, second)
        )
        return equal.gather(2, order.unsqueeze(1).expand_as(equal))

    def _idf_of(self, inputs: Inputs) -> Tensor:
        """[B,K] the weight of each token."""
        ids: Any = inputs.input_ids
        if self.idf is None:
            return torch.ones(ids.shape, device=ids.device)
        known, values = (each.to(ids.device) for each in self._table)  # type: ignore[attr-defined]
        index = torch.searchsorted(known, ids.to(known.dtype)).clamp_max(len(known) - 1)
        return torch.where(known[index] == ids, values[index], values.max())


def token_idf(examples: Iterable[Any]) -> dict[int, float]:
    """The inverse document frequency of every token: log((1 + N) / (1 + N_t)), N_t of N examples contain token t."""
    counts: Counter[int] = Counter()
    total = 0
    for ids in examples:
        counts.update(set(ids.tolist() if hasattr(ids, "tolist") else map(int, ids)))
        total += 1
    if not counts:
        raise InputError("alignment counts the tokens of training examples, but got none: pass their input_ids.")
    return {number: math.log((1 + total) / (1 + count)) for number, count in sorted(counts.items())}

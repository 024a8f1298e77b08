"""What each query may see: attention masks of any form, brought into the one form that the kernels use."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Some models hide by adding the lowest number of their type, others by adding -10000; exp(-745) is zero already.
LOWEST_SEEN = -5000.0


@dataclass(frozen=True)
class Window:
    """What one piece (some heads of one example) needs to know."""

    keys: slice
    """The keys between the first and the last that anybody may see."""
    valid: Tensor
    """[Q,1] 1 where the query is a token, 0 where it is padding: padding computes its output but has no vote."""
    bias: Tensor | None
    """[1 or n, 1 or Q, K] to add to the scores; None if every query sees every key of the window."""
    blind: Tensor | None
    """[1 or n, Q, 1] True where a query sees nothing; None if there is no such query."""


class Visibility:
    """The mask of one attention call."""

    def __init__(self, mask: Tensor | None, valid: Tensor | None, like: Tensor, keys: int) -> None:
        """Read a mask.

        Args:
            mask: None, or boolean (True = may be seen) or additive, [B or 1, H or 1, Q or 1, K].
            valid: [B,L] True where a position is a token; None if all are.
            like: the query, [B,H,Q,D].
            keys: number of keys.
        """
        batch, _, queries, _ = like.shape
        dtype = torch.promote_types(like.dtype, torch.float32)
        self._valid = torch.ones(1, queries, 1, dtype=dtype) if valid is None else valid.to(dtype).unsqueeze(-1)
        self._bias: Tensor | None = None
        self._blind: Tensor | None = None
        self._keys = keys
        self._spans = [(0, keys)] * batch
        if mask is None:
            return
        if mask.dtype == torch.bool and mask.shape[1] == 1 and mask.shape[2] == 1:
            self._spans, contiguous = _spans(mask.expand(batch, 1, 1, keys)[:, 0, 0])
            if contiguous:
                return
        self._bias = additive(mask, dtype).expand(batch, -1, -1, -1)
        blind = blind_rows(mask).expand(batch, -1, queries).unsqueeze(-1)
        self._blind = blind if bool(blind.any()) else None

    @property
    def narrows(self) -> bool:
        """Whether some example has keys outside its window."""
        return any(span != (0, self._keys) for span in self._spans)

    def window(self, example: int, heads: slice) -> Window:
        """What these heads of an example see."""
        keys = slice(*self._spans[example])
        bias = None if self._bias is None else _of_heads(self._bias[example], heads)[..., keys]
        blind = None if self._blind is None else _of_heads(self._blind[example], heads)
        return Window(keys, self._valid[example if len(self._valid) > 1 else 0], bias, blind)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as numbers to add to the scores. The lowest finite number, not -inf: a blind row must not turn to NaN."""
    if mask.dtype != torch.bool:
        return mask.to(dtype).clamp(min=torch.finfo(dtype).min)
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return bias.masked_fill_(~mask, torch.finfo(dtype).min)


def blind_rows(mask: Tensor) -> Tensor:
    """[B,H,Q] True where a query sees no key."""
    return ~visible(mask).any(-1)


def visible(mask: Tensor) -> Tensor:
    """A mask as booleans: an additive mask hides what it lowers so far that no number type has anything left."""
    return mask if mask.dtype == torch.bool else mask > LOWEST_SEEN


def narrow(mask: Tensor | None) -> Tensor | None:
    """Undo the expansion of a key mask over queries: [B,1,Q,K] with equal rows becomes [B,1,1,K]."""
    if mask is not None and mask.shape[2] > 1 and mask.stride(2) == 0:
        return mask[:, :, :1]
    return mask


def valid_positions(mask: Tensor | None, batch: int) -> Tensor | None:
    """[B,L] which positions are tokens, read off a self-attention mask; None if all are.

    In an encoder a token may see itself and padding may not be seen by anybody, itself included: so the diagonal tells
    them apart in key masks and in sliding windows alike.
    """
    if mask is None:
        return None
    seen = visible(mask).any(1)  # over heads: [B,Q,K]
    valid = seen[:, 0] if seen.shape[1] == 1 else seen.diagonal(dim1=1, dim2=2)
    return valid.expand(batch, -1)


def _of_heads(whole: Tensor, heads: slice) -> Tensor:
    """Cut [H or 1, ...] to these heads."""
    return whole if whole.shape[0] == 1 else whole[heads]


def _spans(seen: Tensor) -> tuple[list[tuple[int, int]], bool]:
    """First and end of what is seen in each row of [B,K], and whether all rows are free of holes."""
    count = seen.sum(1)
    first = seen.to(torch.uint8).argmax(1)
    end = seen.shape[1] - seen.flip(1).to(torch.uint8).argmax(1)
    nothing = count == 0
    first, end = first.masked_fill(nothing, 0), end.masked_fill(nothing, seen.shape[1])
    return list(zip(first.tolist(), end.tolist(), strict=True)), bool((end - first == count).all())

"""Attention dropout as a function of a weight's position: every way to compute attention drops the same weights.

A weight is kept or dropped by a hash of two keys: one of its row (example, head, query) and one of its column (key).
Both come from the seed of the layer. No mask is stored: the backward pass computes it again from the keys, which are as
small as the rows. Without a seed from outside, each layer draws one number from torch's generator, so that
`torch.manual_seed` decides, and all ways to compute attention leave the generator in the same state.

Shapes: B batch, H heads, Q queries, K keys, S positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.attention.maps import pick

# Odd numbers whose bits look random.
_GOLDEN, _MIX_1, _MIX_2 = -7046029254386353131, -4658895280553007687, -7723592293110705685

# Masks are computed for so many bytes of hashes at a time, which stay in the caches of a processor.
PART_BYTES = 1 << 20


def keep(result: Tensor, rows: Tensor, columns: Tensor, lowest_kept: int, bits: Tensor, spare: Tensor) -> Tensor:
    """Fill with 1 where an attention weight is kept and 0 where it is dropped.

    `rows` and `columns` are int32 and broadcast to the shape of the result; `bits` and `spare` are int32 of its shape
    and are overwritten. TorchScript runs this function.
    """
    torch.bitwise_xor(rows, columns, out=bits)
    bits.mul_(-1640531527)
    torch.bitwise_right_shift(bits, 15, out=spare)
    bits.bitwise_xor_(spare).mul_(739982445)
    torch.ge(bits, lowest_kept, out=result)
    return result


def lowest_kept(rate: float) -> int:
    """Hashes below this number are dropped: they are spread evenly over the integers of 32 bits."""
    return min(int(rate * 2**32), 2**32 - 1) - 2**31


@dataclass(frozen=True)
class Dropout:
    """Which attention weights of one layer are dropped."""

    rate: float
    rows: Tensor
    """[B,H,Q] int32"""
    columns: Tensor
    """[B,K] int32"""

    def kept(self, dtype: torch.dtype = torch.bool) -> Tensor:
        """[B,H,Q,K] 1 where a weight is kept."""
        shape, device = (*self.rows.shape, self.columns.shape[1]), self.rows.device
        result = torch.empty(shape, dtype=dtype, device=device)
        step = max(1, PART_BYTES // max(1, 4 * result[:1].numel()))
        buffers = torch.empty(2, min(step, shape[0]), *shape[1:], dtype=torch.int32, device=device)
        for start in range(0, shape[0], step):
            part = slice(start, min(start + step, shape[0]))
            bits, spare = buffers[:, : part.stop - start]
            rows, columns = self.rows[part, ..., None], self.columns[part, None, None]
            keep(result[part], rows, columns, lowest_kept(self.rate), bits, spare)
        return result

    def factors(self, dtype: torch.dtype) -> Tensor:
        """[B,H,Q,K] 0 where a weight is dropped, else 1 / (1 - rate)."""
        return self.kept(dtype).mul_(1 / (1 - self.rate))

    def examples(self, those: slice) -> Dropout:
        """Of some examples."""
        return replace(self, rows=self.rows[those], columns=self.columns[those])

    def heads(self, those: Sequence[int]) -> Dropout:
        """Of some heads."""
        return replace(self, rows=pick(self.rows, those))


def drop(
    rate: float,
    shape: tuple[int, int, int, int],
    *,
    seed: Tensor | None = None,
    examples: Tensor | None = None,
    first: Tensor | None = None,
    device: torch.device | None = None,
) -> Dropout:
    """What dropout drops of the maps [B,H,Q,K] of one layer.

    Args:
        rate: the share of weights that are dropped.
        shape: of the maps.
        seed: of the layer in this step; by default a number from torch's generator.
        examples: [B] a number per example; by default its index in the batch.
        first: [B] the index of the first token, where positions count from; by default 0.
        device: of the maps.
    """
    batch, heads, queries, keys = shape
    seed = torch.randint(2**62, ()) if seed is None else seed
    seed = mix(seed).to(device)
    examples = torch.arange(batch, device=device) if examples is None else examples
    origin = torch.zeros(1, dtype=torch.int64, device=device) if first is None else first
    query_positions = torch.arange(queries, device=device) - origin[:, None]  # [B or 1,Q]
    key_positions = torch.arange(keys, device=device) - origin[:, None]  # [B or 1,K]
    of_examples = mix(examples ^ seed)[:, None, None]  # [B,1,1]
    of_heads = torch.arange(heads, device=device)[:, None] * _MIX_1
    rows = mix(of_examples + of_heads + query_positions[:, None] * _GOLDEN)
    columns = mix(~seed + key_positions * _GOLDEN)
    return Dropout(rate, _upper_half(rows), _upper_half(columns).expand(batch, -1))


def kept_heads(rate: float, heads: Sequence[int], seed: Tensor, examples: Tensor) -> Tensor:
    """[B,n] which of these heads of a layer each example keeps; at least one.

    Decided by a hash of seed, example and number of the head, as attention weights are.

    Args:
        rate: the probability that a head is silenced.
        heads: their numbers.
        seed: of the layer in this step.
        examples: [B] a number per example.
    """
    numbers = torch.tensor(list(heads), device=examples.device) * _MIX_1
    own = mix(seed ^ _GOLDEN).to(examples.device)  # another than that of the layer's weights
    # The lower half: `mix` gives no negative numbers.
    bits = (mix(mix(examples ^ own)[:, None] + numbers) & (2**32 - 1)) - 2**31  # [B,n]
    # A head with the largest number of its example would be the last to be silenced.
    return (bits >= lowest_kept(rate)) | (bits == bits.amax(1, keepdim=True))


def mix(numbers: Tensor) -> Tensor:
    """Spread integers of 64 bits evenly over all of them; neighbours become strangers."""
    numbers = (numbers ^ (numbers >> 30)) * _MIX_1
    numbers = (numbers ^ (numbers >> 27)) * _MIX_2
    return numbers ^ (numbers >> 31)


def _upper_half(numbers: Tensor) -> Tensor:
    return (numbers >> 32).to(torch.int32)


def step_seed(seed: int, step: int) -> Tensor:
    """The seed of one step of a training run; a tensor, since torch.compile would compile again for each number."""
    return mix(mix(torch.tensor(seed)) + step)


def example_numbers(ids: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """[B] a number for the tokens of each example, whatever its padding; [B] the index of its first token."""
    positions = torch.arange(ids.shape[1], device=ids.device)[None]
    first = None
    if valid is not None:
        first = valid.to(torch.uint8).argmax(1)
        positions = positions - first[:, None]
    mixed = mix(ids.to(torch.int64) * _GOLDEN + positions)
    return (mixed if valid is None else mixed * valid).sum(1), first

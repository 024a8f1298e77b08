"""Attention with received attention on the CPU, tile by tile, so that no map is ever stored.

Shapes: B batch, H heads, Q queries, K keys, D head size.

A piece of work is one example, or some of its heads. Its scores are produced in tiles that stay in the core's own
cache, used at once, and forgotten. With row maxima c and row sums l,

    E_qk = exp(s_qk - c_q),   A = E / l,   lse_q = c_q + log l_q,
    out = A V,                received_k = sum over valid q of A_qk.

The backward pass rebuilds A_qk = exp(s_qk - lse_q) from the saved lse. Two rank-one terms ride along in matrix products
as one more column: -lse in the scores ([q, -lse] [k, 1]^T), and the gradient g of `received` in the gradient of A
([dO, valid] [V, g]^T = dO V^T + valid_q g_k). So `received` costs no pass of its own over the tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.attention.loops import backward_piece, fast, forward_piece
from headwise.attention.visibility import Visibility
from headwise.attention.workers import run_pieces

# Bytes of one score tile: the backward pass holds two, which should fit a core's own cache.
TILE_BYTES = 1 << 20

# Pieces to make for every thread, so that a late thread does not leave the others idle.
PIECES_PER_THREAD = 4


@dataclass(frozen=True)
class Piece:
    """Some heads of one example."""

    example: int
    heads: slice


@dataclass(frozen=True)
class Problem:
    """What forward and backward share: the inputs and how they are cut. Both must cut alike, for dropout's sake."""

    query: Tensor  # [B,H,Q,D]
    key: Tensor  # [B,H,K,D]
    value: Tensor  # [B,H,K,D]
    visibility: Visibility
    scale: float
    dropout: float
    seed: int
    after_dropout: bool

    @property
    def compute(self) -> torch.dtype:
        """Half-precision inputs are computed in float32."""
        return torch.promote_types(self.query.dtype, torch.float32)

    def tile_shape(self) -> tuple[int, int]:
        """Heads and query rows of one tile; never depends on the number of threads, so neither does dropout."""
        _, heads, queries, _ = self.query.shape
        row_bytes = self.key.shape[2] * self.compute.itemsize
        blocks = -(-queries * row_bytes // TILE_BYTES)
        rows = -(-queries // blocks)
        return max(1, min(heads, TILE_BYTES // (rows * row_bytes))), rows

    def pieces(self) -> list[Piece]:
        """Whole examples if there are enough of them, else groups of heads that whole tiles fill."""
        batch, heads = self.query.shape[:2]
        step, _ = self.tile_shape()
        wanted = min(-(-heads // step), -(-PIECES_PER_THREAD * torch.get_num_threads() // batch))
        size = step * -(-heads // (step * max(1, wanted)))
        return [Piece(b, slice(h, min(heads, h + size))) for b in range(batch) for h in range(0, heads, size)]

    def options(self, piece: Piece) -> tuple[float, int, int, float, int, bool]:
        """Scale, tile shape, dropout rate in 2^-16ths, seed of the piece's first tile, what `received` sums."""
        step, rows = self.tile_shape()
        tiles_of_head_group = -(-self.query.shape[2] // rows)
        tiles_of_example = -(-self.query.shape[1] // step) * tiles_of_head_group
        number = piece.example * tiles_of_example + piece.heads.start // step * tiles_of_head_group
        rate = min(round(self.dropout * 65536), 65535) / 65536
        return self.scale, step, rows, rate, self.seed + number, self.after_dropout


def forward(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Return out [B,Q,H,D], received [B,H,K] and lse [B,H,Q]."""
    query, key, value = problem.query, problem.key, problem.value
    batch, heads, queries, _ = query.shape
    out = query.new_empty(batch, queries, heads, value.shape[3])
    received = torch.zeros(batch, heads, key.shape[2], dtype=problem.compute)
    lse = torch.empty(batch, heads, queries, dtype=problem.compute)
    run = fast(forward_piece)

    def work(piece: Piece) -> None:
        example, group = piece.example, piece.heads
        window = problem.visibility.window(example, group)
        run(
            query[example, group],
            key[example, group, window.keys],
            value[example, group, window.keys],
            window.valid,
            window.bias,
            window.blind,
            out[example, :, group],
            received[example, group, window.keys],
            lse[example, group],
            *problem.options(piece),
            torch.Generator(),
        )

    run_pieces(problem.pieces(), work)
    return out, received, lse


def backward(
    problem: Problem, out_gradient: Tensor, received_gradient: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value, each [B,L,H,D] (the layout the projections want)."""
    query, key, value = problem.query, problem.key, problem.value
    # Keys outside an example's window get no gradient and are never visited.
    allocate: Callable[..., Tensor] = torch.zeros if problem.visibility.narrows else torch.empty
    to_query, to_key, to_value = (
        allocate(source.transpose(1, 2).shape, dtype=source.dtype) for source in (query, key, value)
    )
    run = fast(backward_piece)

    def work(piece: Piece) -> None:
        example, group = piece.example, piece.heads
        window = problem.visibility.window(example, group)
        run(
            query[example, group],
            key[example, group, window.keys],
            value[example, group, window.keys],
            window.valid,
            window.bias,
            lse[example, group],
            out_gradient[example, :, group],
            received_gradient[example, group, window.keys],
            to_query[example, :, group],
            to_key[example, window.keys, group],
            to_value[example, window.keys, group],
            *problem.options(piece),
            torch.Generator(),
        )

    run_pieces(problem.pieces(), work)
    return to_query, to_key, to_value

"""The token head: how much each token matters, as the model itself would label it.

Shapes: B examples, T tokens, D size of a state, S positions with a decoder of their own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from headwise.errors import InputError


class TokenHead(nn.Module):
    """Two scores for each token: z = V LayerNorm(gelu(U h + a)) + c; its second softmax entry is P(token matters).

    With `positions` every position has a decoder V, c of its own (the authors' share_weight=0). Theirs has no bias that
    is ever used, and needs the full length at every call; ours has one, and takes shorter inputs.
    """

    def __init__(
        self, size: int, *, positions: int | None = None, spread: float = 0.02, epsilon: float = 1e-12
    ) -> None:
        """Fresh weights from N(0, spread)."""
        super().__init__()
        self.positions = positions
        self.transform = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size, eps=epsilon)
        places = () if positions is None else (positions,)
        self.decoder = nn.Parameter(torch.empty(*places, 2, size))  # [2,D] or [S,2,D]
        self.decoder_bias = nn.Parameter(torch.zeros(*places, 2))
        nn.init.normal_(self.transform.weight, std=spread)
        nn.init.zeros_(self.transform.bias)
        nn.init.normal_(self.decoder, std=spread)

    def forward(self, states: Tensor, places: Tensor) -> Tensor:
        """[B,T,D] states and [B,T] their positions in the text, from 0 -> [B,T,2]."""
        hidden = self.norm(gelu(self.transform(states)))
        if self.positions is None:
            return linear(hidden, self.decoder, self.decoder_bias)
        self._check(places, self.positions)
        decoder, bias = self.decoder[places], self.decoder_bias[places]  # [B,T,2,D], [B,T,2]
        return torch.einsum("btd,btcd->btc", hidden, decoder.to(hidden.dtype)) + bias

    @staticmethod
    def _check(places: Tensor, positions: int) -> None:
        if places.shape[1] <= positions:
            return  # no need to wait for the device
        longest = int(places.max()) + 1
        if longest > positions:
            raise InputError(
                f"the batch is {longest} tokens long, and this token head has a decoder for each of {positions} "
                f"positions (share_weight: false): tokenise with max_length={positions}, or train with share_weight: "
                "true."
            )

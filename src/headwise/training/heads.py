"""The classifier on top of the encoder: its own (`pooler`), or Eq. 7 of the attention-guiding paper (`relu`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import InputError

HEADS = ("pooler", "relu")


class ReluPooler(nn.Module):
    """In the place of a pooler: ReLU of the first token's state, h_CLS -> ReLU(h_CLS); no weights of its own."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        """[B,L,D] -> [B,D]."""
        return torch.relu(hidden_states[:, 0])


class ReluHead(nn.Module):
    """In the place of a classification head that sees all tokens: W ReLU(h_CLS) + b."""

    def __init__(self, size: int, labels: int, dropout: float) -> None:
        """Fresh weights."""
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(size, labels)
        nn.init.normal_(self.out_proj.weight, std=0.02)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, features: Tensor, **_: Any) -> Tensor:
        """[B,L,D] -> [B,C]."""
        logits: Tensor = self.out_proj(self.dropout(torch.relu(features[:, 0])))
        return logits


def change_head(model: Any, head: str) -> nn.Module:
    """Give a sequence classifier the head of this name.

    The paper prints y = W ReLU(h_CLS); its released code uses the pooler, as sequence classifiers do, and so do we by
    default. No architecture of transformers' BERT family has a ReLU there, so a saved
    folder holds the encoder and the head apart.
    """
    if head == "pooler":
        return model  # type: ignore[no-any-return]
    if head != "relu":
        raise InputError(f"head is {head!r}: expected one of {', '.join(HEADS)}.")
    base = model.base_model
    pooler, classifier = getattr(base, "pooler", None), getattr(model, "classifier", None)
    # A pooler that is a bare matrix (ALBERT) has its activation outside, where it cannot be replaced.
    if isinstance(pooler, nn.Module) and not isinstance(pooler, nn.Linear) and isinstance(classifier, nn.Linear):
        base.pooler = ReluPooler()
    elif isinstance(getattr(classifier, "out_proj", None), nn.Linear):
        dropout = getattr(model.config, "hidden_dropout_prob", 0.1)
        model.classifier = ReluHead(model.config.hidden_size, model.config.num_labels, dropout)
    else:
        raise InputError(f"head 'relu' is not known for {model.config.model_type} models: use head: pooler.")
    return model  # type: ignore[no-any-return]

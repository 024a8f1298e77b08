"""The classifier on top of the encoder: its own (`pooler`), or Eq. 7 of the attention-guiding paper (`relu`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from headwise.errors import InputError
from headwise.training.predict import evaluating, sorted_batches

HEADS = ("pooler", "relu")


class ReluPooler(nn.Module):
    """In the place of a pooler: ReLU of the first token's state, h_CLS -> ReLU(h_CLS); without weights."""

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


# -- a classifier without training: least squares on the vectors that the encoder gives --------------------------------


def fit_linear(model: Any, data: Any, collate: Callable[[list[Any]], dict[str, Tensor]]) -> None:
    """Set the last linear map of a classifier to the least-squares solution, in place.

    min over W, b of sum_x |W v(x) + b - y(x)|^2, with v(x) the vector that the map reads, in evaluation mode, and y(x)
    the one-hot class or the number; the solution of least norm where there are several. The authors' linear_eval.

    Args:
        model: a classifier whose own part is one linear map, such as BERT's.
        data: an `Encoded` data set with labels.
        collate: makes a batch of examples.
    """
    prefix = f"{model.base_model_prefix}."
    own = {name.rpartition(".")[0] for name, _ in model.named_parameters() if not name.startswith(prefix)}
    last = model.get_submodule(next(iter(own))) if len(own) == 1 else None
    if not isinstance(last, nn.Linear) or last.bias is None:
        raise InputError(
            f"linear: the classifier of {model.config.model_type} models is more than one linear map, so it cannot be "
            "fitted without training: use a BERT, or freeze: [encoder] instead."
        )
    vectors: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda _, inputs: vectors.append(inputs[0].double().cpu()))
    device, numbers = next(model.parameters()).device, []
    try:
        with evaluating(model), torch.inference_mode():
            for batch in sorted_batches(data, collate):
                numbers.append(batch.pop("labels"))
                model(**{name: tensor.to(device) for name, tensor in batch.items()})
    finally:
        handle.remove()
    labels = torch.cat(numbers).double().numpy()  # [X]
    targets = labels[:, None] if last.out_features == 1 else numpy.eye(last.out_features)[labels.astype(int)]  # [X,C]
    inputs = numpy.hstack([torch.cat(vectors).numpy(), numpy.ones((len(labels), 1))])  # [X,D+1]
    solution = torch.from_numpy(numpy.linalg.lstsq(inputs, targets, rcond=None)[0])  # [D+1,C]
    with torch.no_grad():
        last.weight.copy_(solution[:-1].T)
        last.bias.copy_(solution[-1])

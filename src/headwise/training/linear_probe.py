"""No training: a task's classifier fitted by least squares on the vectors that the encoder gives anyway.

Shapes: X examples, D size of a vector, C classes (1 for a number).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from headwise.errors import InputError
from headwise.training.importance_pass import sorted_batches
from headwise.training.predict import evaluating


def fit_linear(model: Any, data: Any, collate: Callable[[list[Any]], dict[str, Tensor]]) -> None:
    """Set the last linear map of a classifier to the least-squares solution, in place.

    min over W, b of sum_x |W v(x) + b - y(x)|^2, with v(x) the vector that the map reads, in evaluation mode, and y(x)
    the one-hot class or the number; the solution of least norm where there are several. The authors' linear_eval.

    Args:
        model: a classifier whose own part is one linear map, such as BERT's.
        data: an `Encoded` data set with labels.
        collate: makes a batch of examples.
    """
    last = _only_map(model)
    vectors, labels = _vectors(model, last, data, collate)
    targets = labels[:, None] if last.out_features == 1 else numpy.eye(last.out_features)[labels.astype(int)]  # [X,C]
    inputs = numpy.hstack([vectors, numpy.ones((len(vectors), 1))])  # [X,D+1]
    solution = torch.from_numpy(numpy.linalg.lstsq(inputs, targets, rcond=None)[0])  # [D+1,C]
    with torch.no_grad():
        last.weight.copy_(solution[:-1].T)
        last.bias.copy_(solution[-1])


def _only_map(model: Any) -> nn.Linear:
    """The one linear map above the encoder; more than that cannot be fitted in one go."""
    prefix = f"{model.base_model_prefix}."
    own = {name.rpartition(".")[0] for name, _ in model.named_parameters() if not name.startswith(prefix)}
    found = model.get_submodule(next(iter(own))) if len(own) == 1 else None
    if not isinstance(found, nn.Linear) or found.bias is None:
        raise InputError(
            f"linear: the classifier of {model.config.model_type} models is more than one linear map, so it cannot be "
            "fitted without training: use a BERT, or freeze: [encoder] instead."
        )
    return found


def _vectors(model: nn.Module, last: nn.Linear, data: Any, collate: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
    """[X,D] what the map reads, and [X] the labels, both in the order in which the examples came."""
    seen: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].double().cpu()))
    device, labels = next(model.parameters()).device, []
    try:
        with evaluating(model), torch.inference_mode():
            for batch in sorted_batches(data, collate):
                labels.append(batch.pop("labels"))
                model(**{name: tensor.to(device) for name, tensor in batch.items()})
    finally:
        handle.remove()
    return torch.cat(seen).numpy(), torch.cat(labels).double().numpy()

"""The classifier on top of the encoder: its own (`pooler`), or Eq. 7 of the attention-guiding paper (`relu`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headwise.attention.surgery import share_note
from headwise.errors import InputError, choices
from headwise.training.predict import evaluating, sorted_batches

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


# No training: a task's classifier fitted by least squares on the vectors that the encoder gives anyway.


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


# Several tasks, one encoder: each task has a head of its own, and a batch belongs to one task.


class MultiTask(nn.Module):
    """Classifiers that share one encoder.

        model = MultiTask({"sst2": first, "rte": second})
        model(task="rte", **batch).loss
        model.classifier("rte")          # an ordinary classifier of transformers on the shared encoder

    What lies in the encoder is shared (BERT's pooler too), what lies above it belongs to the task (of RoBERTa that is
    one more dense layer), so families differ in how much of a task is its own. The loss is that of the task's
    classifier: cross-entropy, or the mean squared error of a regression, as a mean over the batch.

    Where we differ from the authors' code: heads exist for the tasks at hand only (there: all 35), and the encoder is
    registered once.
    """

    accepts_loss_kwargs = False
    """The losses are means over the batch, whatever transformers' Trainer makes of the signature."""

    def __init__(self, classifiers: Mapping[str, Any]) -> None:
        """Put the heads of all classifiers on the encoder of the first one.

        Args:
            classifiers: sequence classifiers of one architecture by the name of their task; their own encoders, other
                than the first, are given up.
        """
        super().__init__()
        if not classifiers:
            raise InputError("no tasks: give at least one classifier.")
        self.tasks = tuple(classifiers)
        first = next(iter(classifiers.values()))
        for name, classifier in classifiers.items():
            if not isinstance(classifier, PreTrainedModel) or classifier.base_model is classifier:
                raise InputError(
                    f"task {name!r} has a {type(classifier).__name__}: expected a sequence classifier of transformers."
                )
            if type(classifier) is not type(first):
                raise InputError(
                    f"task {name!r} has a {type(classifier).__name__} and {self.tasks[0]!r} a {type(first).__name__}: "
                    "tasks share one encoder, so they need the same architecture."
                )
            if _sizes(classifier.base_model) != _sizes(first.base_model):
                raise InputError(
                    f"the encoder of task {name!r} is of another size than that of {self.tasks[0]!r}: tasks share one "
                    "encoder, so they need the same."
                )
        self.encoder: Any = first.base_model
        for classifier in classifiers.values():
            setattr(classifier, classifier.base_model_prefix, self.encoder)
        share_note(self.encoder, (classifier.config for classifier in classifiers.values()))
        # By number, since names of tasks may be anything; each head once, and the encoder in none of them.
        self.heads = nn.ModuleList(nn.ModuleDict(dict(_own_parts(each))) for each in classifiers.values())
        # Not registered: all their parts are, above.
        object.__setattr__(self, "_classifiers", dict(classifiers))
        self.last_task: str | None = None
        """The task of the latest forward pass in training mode."""

    @property
    def config(self) -> Any:
        """The encoder's."""
        return self.encoder.config

    def classifier(self, task: str) -> Any:
        """The classifier of a task; it shares its parameters with this model."""
        classifiers: dict[str, Any] = self.__dict__["_classifiers"]
        if task not in classifiers:
            raise InputError(f"unknown task {task!r}: {choices(str(task), classifiers)}.")
        return classifiers[task]

    def own_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of all heads."""
        return self.heads.parameters()

    def save_pretrained(self, folder: Path | str) -> None:
        """Write encoder and heads to a folder that `hw.load` loads; the tokenizer is saved by itself."""
        from headwise.training.saving import save_model  # imports this file

        save_model(self, Path(folder).expanduser())

    def forward(self, task: str | None = None, **inputs: Any) -> Any:
        """The outputs of one task's classifier."""
        if not isinstance(task, str):
            raise InputError(f"a batch belongs to one task: call the model with task=NAME, of {', '.join(self.tasks)}.")
        if self.training:
            self.last_task = task
        return self.classifier(task)(**inputs)

    def train(self, mode: bool = True) -> MultiTask:
        """As usual, and for the classifiers, which are not registered."""
        super().train(mode)
        for classifier in self.__dict__.get("_classifiers", {}).values():
            classifier.training = mode
        return self


def _sizes(encoder: nn.Module) -> dict[str, Any]:
    return {name: tensor.shape for name, tensor in encoder.state_dict().items()}


def _own_parts(classifier: Any) -> Iterable[tuple[str, nn.Module]]:
    """The parts of a classifier that are not the encoder."""
    return ((name, part) for name, part in classifier.named_children() if name != classifier.base_model_prefix)

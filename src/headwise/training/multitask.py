"""Several tasks, one encoder: each task has a head of its own, and a batch belongs to one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headwise.attention.surgery import share_note
from headwise.errors import InputError, choices


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
        from headwise.training.multitask_saving import save_model  # imports this file

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

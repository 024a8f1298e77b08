"""Several tasks, one encoder: the model, whose turn it is in each update, and the Trainer."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import Sampler
from transformers import PreTrainedModel

from headwise.attention.surgery import share_note
from headwise.errors import InputError, choices
from headwise.training.classifier import reads_means
from headwise.training.encoders import unlike_weights
from headwise.training.predict import predict_logits
from headwise.training.run_trainer import MEAN, LengthBuckets, RunTrainer, TaskData

SAMPLINGS = ("proportional", "square_root", "annealed")


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
            if reads_means(classifier):
                raise InputError(
                    f"task {name!r} has a classifier that reads means of tokens, by a hook on its encoder: tasks share "
                    "one encoder, so they need the head cls or relu."
                )
            if unlike_weights(classifier.base_model, first.base_model):
                raise InputError(
                    f"the encoder of task {name!r} is of another size than that of {self.tasks[0]!r}: tasks share one "
                    "encoder, so they need the same."
                )
        self.encoder: Any = first.base_model
        for classifier in classifiers.values():
            setattr(classifier, classifier.base_model_prefix, self.encoder)
        share_note(self.encoder, (classifier.config for classifier in classifiers.values()))
        # By number, since names of tasks may be anything; each head once, and the encoder in none of them.
        self.heads = nn.ModuleList(
            nn.ModuleDict({name: part for name, part in each.named_children() if name != each.base_model_prefix})
            for each in classifiers.values()
        )
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
        """Write encoder and heads to a folder that `hw.load` loads; the tokenizer is saved apart."""
        from headwise.training.saving import save_multitask  # imports this file

        save_multitask(self, None, Path(folder).expanduser())

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


# -- examples and batches ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JointData:
    """The training examples of all tasks, by (task, number), and the batches that are built of them."""

    tasks: Mapping[str, TaskData]

    def __len__(self) -> int:
        """How many examples all tasks have."""
        return sum(len(task.train) for task in self.tasks.values())

    def __getitem__(self, index: tuple[str, int]) -> tuple[str, Any]:
        """The task's name and the example."""
        name, number = index
        return name, self.tasks[name].train[number]

    def collate(self, items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """A batch of one task, with its name, which the model needs."""
        name = items[0][0]
        return {"task": name, **self.tasks[name].collate([example for _, example in items])}


def exponent(sampling: str, epoch: int, epochs: int) -> float:
    """The power of B_t, a task's updates per pass, to which its probability is proportional.

    annealed: 1 - 0.8 e / (E - 1) for epoch e from 0, so from 1 down to 0.2; 1 if there is one epoch only, where the
    authors' code divides by zero.
    """
    if sampling == "annealed":
        return 1.0 - 0.8 * min(epoch, epochs - 1) / (epochs - 1) if epochs > 1 else 1.0
    return 0.5 if sampling == "square_root" else 1.0


def tasks_of_epoch(updates: Sequence[int], sampling: str, epoch: int, epochs: int, seed: int) -> NDArray[numpy.int64]:
    """[B] the number of the task of each update, decided by seed and epoch alone.

    proportional: each task exactly B_t times, shuffled. Else B independent draws with probabilities in proportion to
    B_t ** exponent.
    """
    if sampling not in SAMPLINGS:
        raise InputError(f"sampling is {sampling!r}: {choices(sampling, SAMPLINGS)}.")
    random = numpy.random.default_rng([seed, epoch, 11])
    counts = numpy.asarray(updates)
    if sampling == "proportional":
        shuffled: NDArray[numpy.int64] = random.permutation(numpy.repeat(numpy.arange(len(counts)), counts))
        return shuffled
    weights = counts ** exponent(sampling, epoch, epochs)
    drawn: NDArray[numpy.int64] = random.choice(len(counts), size=counts.sum(), p=weights / weights.sum())
    return drawn


class TaskBatches(Sampler[list[tuple[str, int]]]):
    """Batches of one task each, as (task, number of the example).

    Every task goes through its own examples without replacement, pass after pass, in batches of similar length; where
    an epoch ends in the middle of a pass, the next one continues from there. All micro-batches of an update belong to
    one task. The authors' code draws every batch from a new shuffle, that is, with replacement.
    """

    def __init__(
        self,
        lengths: Mapping[str, Sequence[int]],
        *,
        batch: int,
        accumulation: int,
        sampling: str,
        epochs: int,
        seed: int,
        by_length: bool = True,
    ) -> None:
        """`lengths` are those of each task's examples."""
        self.batch_size, self.drop_last = batch, False  # accelerate reads these two
        self._accumulation, self._sampling, self._epochs, self._seed = accumulation, sampling, epochs, seed
        self._epoch = 0
        self._names, self._buckets = tuple(lengths), []
        for name, each in lengths.items():
            # By the name, so that a task's order does not depend on the other tasks.
            (own,) = numpy.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)
            self._buckets.append(LengthBuckets(each, batch * accumulation, int(own), by_length=by_length))

    @property
    def updates(self) -> list[int]:
        """B_t of each task."""
        return [len(buckets) for buckets in self._buckets]

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Micro-batches per epoch."""
        return sum(self.updates) * self._accumulation

    def __iter__(self) -> Iterator[list[tuple[str, int]]]:
        """The micro-batches of the epoch."""
        updates = self.updates
        done = numpy.zeros(len(updates), dtype=int)  # updates of each task, counted through all its passes
        passes: dict[int, tuple[int, list[list[int]]]] = {}  # of each task: the number of its pass, and the batches
        for epoch in range(self._epoch + 1):
            tasks = tasks_of_epoch(updates, self._sampling, epoch, self._epochs, self._seed)
            if epoch < self._epoch:
                done += numpy.bincount(tasks, minlength=len(done))
        for task in tasks:
            number, within = divmod(int(done[task]), updates[task])
            done[task] += 1
            if passes.get(task, (-1,))[0] != number:
                self._buckets[task].set_epoch(number)
                passes[task] = number, list(self._buckets[task])
            for part in parted(passes[task][1][within], self._accumulation):
                yield [(self._names[task], example) for example in part]


def parted(examples: list[int], parts: int) -> list[list[int]]:
    """An update's examples as micro-batches of about the same size; where there are too few, all are in each."""
    if len(examples) < parts:
        return [examples] * parts
    return [part.tolist() for part in numpy.array_split(numpy.asarray(examples), parts)]


class JointTrainer(RunTrainer):
    """The Trainer of a run on several tasks."""

    _examples = 0
    """Of this process, in the current update."""

    def examples(self) -> tuple[Any, Any]:
        """The training examples of all tasks, and how batches are built of them."""
        data = JointData(self.material.tasks)
        return data, data.collate

    def sampler(self, batch: int) -> Any:
        """Batches of one task each."""
        arguments: Any = self.args
        return TaskBatches(
            {name: task.train.lengths for name, task in self.material.tasks.items()},
            batch=batch,
            accumulation=arguments.gradient_accumulation_steps,
            sampling=str(self.material.sampling),
            epochs=ceil(arguments.max_steps / self.material.steps_per_epoch(arguments)),
            seed=arguments.seed,
            by_length=arguments.by_length,
        )

    def get_batch_samples(self, *args: Any, **options: Any) -> tuple[list[Any], Any]:
        """The micro-batches of an update, whose examples are counted."""
        batches, items = super().get_batch_samples(*args, **options)
        self._examples = sum(len(batch["input_ids"]) for batch in batches)
        return batches, items

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Weighted by examples: the last update of a pass has micro-batches of different sizes."""
        examples, batches = len(inputs["input_ids"]), self.current_gradient_accumulation_steps
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if batches > 1:
            loss = loss * (examples * batches / self._examples)
        return (loss, outputs) if return_outputs else loss

    def validate(self) -> dict[str, float]:
        """The metrics of all tasks as TASK/METRIC, and the mean of the main ones."""
        scores: dict[str, float] = {}
        main = []
        for name, task in self.material.tasks.items():
            classifier, batch = self.material.model.classifier(name), self.args.per_device_eval_batch_size
            found = task.score(predict_logits(classifier, task.validation, task.collate, batch=batch))
            scores |= {f"{name}/{metric}": value for metric, value in found.items()}
            main.append(found[task.primary])
        return {MEAN: float(numpy.mean(main)), **scores}

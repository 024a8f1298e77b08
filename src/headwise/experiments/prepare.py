"""Read and check everything that a recipe names, before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from headwise.attention.pretrained import check_tokens
from headwise.data import Collator, Encoded, encode
from headwise.errors import InputError
from headwise.experiments.outputs import scorer
from headwise.experiments.recipe import Recipe
from headwise.experiments.splits import Splits, read_splits
from headwise.guides import Guide, Guides, as_guides, guide
from headwise.training import (
    Encoder,
    Listener,
    Material,
    MultiTask,
    RunArguments,
    Silence,
    TaskData,
    check_length,
    find_encoder,
    freeze,
    load_classifier,
    run_arguments,
)
from headwise.training.fit import start_from, start_tasks_from

if TYPE_CHECKING:
    from headwise.training import Need, WithKnowledge


@dataclass(frozen=True)
class RunPaths:
    """Where a run reads and writes."""

    output: Path
    data: Path | None = None
    network: bool = False
    cache: Path | None = None
    """For knowledge computed from texts; None: HEADWISE_CACHE or the user's cache folder."""


@dataclass(frozen=True)
class PreparedTask:
    """One task, read and encoded."""

    splits: Splits
    encoded: dict[str, Encoded]
    collate: Collator


@dataclass(frozen=True)
class Prepared:
    """Everything read and checked; nothing written yet."""

    recipe: Recipe
    encoder: Encoder
    model: Any
    """A classifier, or a `MultiTask` if the recipe has `tasks`."""
    tasks: dict[str, PreparedTask]
    train: Encoded | WithKnowledge
    """The training examples of the first task, with knowledge if a guide needs any."""
    knowledge: dict[str, dict[str, Any]]
    """For each guide that needs knowledge, what identifies it: plain data."""
    targets: dict[str, int]
    """For each guide that looks for tokens of a kind or for marks, in how many training examples there are any."""
    heads_taken: tuple[str, ...] = ()
    """The tasks whose heads are those of `start_from`."""
    fresh_pooler: str | None = None
    """Why the pooler starts from fresh weights; None if it does not."""
    guides: Any = ()
    """The guides of the model, fitted to the training examples."""
    class_weights: dict[str, float] = field(default_factory=dict)
    """How much each class counts in the loss; empty if all count the same."""

    @property
    def only(self) -> PreparedTask:
        """The first task, which is the only one unless the recipe has `tasks`."""
        return next(iter(self.tasks.values()))

    @property
    def fingerprint(self) -> str:
        """A short hash of all examples, so that a run is resumed with those that it began with."""
        total = hashlib.sha256()
        for task, prepared in self.tasks.items():
            for split, part in prepared.encoded.items():
                name = f"{task}/{split}" if self.recipe.several else split
                total.update(f"{name} {len(part)}".encode())
                for array in (part.ids, part.starts, part.flat_labels):
                    total.update(array.tobytes())
        return total.hexdigest()[:16]

    @property
    def marks(self) -> str | None:
        """A short hash of the marked tokens of the training examples, where a guide reads them.

        Apart from the examples: a run without guides has the same ones, and is compared with this one.
        """
        deciding = self.only.encoded["train"].deciding
        return None if deciding is None else hashlib.sha256(numpy.concatenate(deciding).tobytes()).hexdigest()[:16]

    def material(self, report: Any) -> Material:
        """Model and data in the form that training needs; `report` shows how far the labelling of tokens is."""
        tasks = {}
        for name, prepared in self.tasks.items():
            splits, task = prepared.splits, prepared.splits.task
            tasks[name] = TaskData(
                train=prepared.encoded["train"],
                validation=prepared.encoded["validation"],
                collate=prepared.collate,
                score=scorer(splits, "validation"),
                primary=task.primary,
            )
        if self.recipe.several:
            return Material(self.model, tasks, sampling=self.recipe.sampling)
        ((name, data),) = tasks.items()
        task, loss, probing = self.only.splits.task, None, None
        collate = self.only.collate
        if self.only.encoded["train"].deciding is not None:
            collate = replace(collate, marks=True)
            data = replace(data, collate_train=collate)
        if self.knowledge:
            from headwise.training import KnowledgeCollator

            data = replace(data, train=self.train, collate_train=KnowledgeCollator(collate))
        if self.only.splits.first is not None:
            data, loss = of_ranking(data, self.only.splits)
        if self.class_weights:
            from headwise.training.class_weights import WeightedCrossEntropy

            loss = WeightedCrossEntropy(tuple(self.class_weights.values()))
        supervision = self.recipe.supervision
        if supervision is not None and supervision.learns_labels:
            from headwise.training.relabelling import Probing

            probing = Probing(self.only.encoded["train"], self.only.collate, task.kind, report.probing)
        return Material(self.model, {name: data}, loss=loss, probing=probing)

    def warm_up(self) -> Material | None:
        """Of a re-ranker with a warm-up, what is trained on before the claims."""
        from headwise.retrieval.ranking_loss import Groups, collate_groups, listwise_loss

        first, each = self.only.splits.first, self.only
        if first is None or first.warm_up is None:
            return None
        data = self.material(None).first
        train = Groups(each.encoded["warm_up"], first.warm_up.groups or ())
        data = replace(data, train=train, collate_train=partial(collate_groups, each.collate))
        return Material(self.model, {self.recipe.only.name: data}, loss=listwise_loss)

    def arguments(self, material: Material, folder: Path, **changes: Any) -> RunArguments:
        """The training arguments of the recipe, for a folder; `changes` are fields of its `training` block."""
        recipe = self.recipe
        return run_arguments(
            recipe.training.model_dump(exclude={"class_weights", "freeze", "snapshots"}) | changes,
            material,
            folder,
            seed=recipe.seed,
            by_length=recipe.data.buckets and recipe.data.padding == "dynamic",
            report_to=recipe.report_to,
        )


def prepare(recipe: Recipe, paths: RunPaths, progress: Listener | None = None) -> Prepared:
    """Read and check everything that a recipe names, so that mistakes are found before anything is written."""
    progress = progress or Silence()
    encoder = find_encoder(recipe.model, network=paths.network)
    tokenizer = encoder.tokenizer
    check_length(encoder, recipe.data.max_length)
    guides, supervision = as_guides(recipe.guides) if recipe.guides else (), recipe.supervision
    needs: list[Need] = []
    readers = [name for name, each in guides.named() if each.reads_marks] if guides else []
    if any(hasattr(each, "pattern") for each in guides):
        from headwise.training import needs_of

        needs = needs_of(recipe.guides)
    tasks: dict[str, PreparedTask] = {}
    classifiers: dict[str, Any] = {}
    for number, (name, part) in enumerate(recipe.parts.items()):
        length, encoded = part.data.max_length, {}
        try:
            splits = read_splits(part, paths.data, network=paths.network, cache=paths.cache, progress=progress)
            task = splits.task
            if readers and splits.train.spans is None:
                raise InputError(
                    f"guide {readers[0]} needs marked words, and task {task.name!r} has none: say where they are "
                    "(task.marks), or leave the guide out."
                )
            collate = Collator.of(tokenizer, task.kind, padding=part.data.padding, max_length=length)
            for split, part_of in splits.encoded.items():
                train = split == "train"
                words = train and supervision is not None and supervision.whole_words
                encoded[split] = encode(
                    part_of,
                    tokenizer,
                    length,
                    offsets=train and bool(needs),
                    words=words,
                    spans=train and bool(readers),
                    firsts=task.kind == "token_labels",
                )
        except InputError as error:
            raise (InputError(f"tasks.{name}: {error}") if recipe.several else error) from error
        tasks[name] = PreparedTask(splits, encoded, collate)
        # Heads of the same size would start with equal weights if the seed were the same.
        seed = (recipe.seed + 7919 * number) % 2**32
        classifiers[name] = load_classifier(
            encoder, labels=tuple(task.labels), head=recipe.head, seed=seed, kind=task.kind
        )
        for each in encoded.values():
            check_tokens(each.ids, tokenizer, classifiers[name])
    only, first = next(iter(tasks.values())), next(iter(classifiers.values()))
    model: Any = MultiTask(classifiers) if recipe.several else first
    heads_taken: tuple[str, ...] = ()
    if recipe.start_from is not None:
        heads_taken = tuple(start_tasks_from(model, Path(recipe.start_from)))
        fresh = [name for name in model.tasks if name not in heads_taken]
        progress.log(
            f"the encoder is that of {recipe.start_from}; heads taken: {', '.join(heads_taken) or 'none'}; heads that "
            f"start fresh: {', '.join(fresh) or 'none'}"
        )
    taken = recipe.start_from is not None or (supervision is not None and supervision.use_saved is not None)
    fresh_pooler: str | None = None if taken else first.fresh_pooler
    if supervision is not None:
        from headwise.ssa import self_supervise

        self_supervise(model, supervision, tokenizer=tokenizer, max_length=recipe.data.max_length)
        if supervision.use_saved is not None:
            start_from(model, supervision.use_saved)
    freeze(first, recipe.training.freeze)
    if any(isinstance(each, Guide) for each in guides):
        reached = [name for name, parameter in model.base_model.named_parameters() if parameter.requires_grad]
        if all(name.startswith("pooler.") for name in reached):  # nothing below the attention that guides look at
            raise InputError(
                "training.freeze leaves the guides nothing to change, as the whole encoder is frozen: leave a part of "
                "it out, or set guides to {}."
            )
    if guides:
        trained = [each.encoded["train"] for each in tasks.values()]
        guides = Guides(
            each.fitted(data[index]["input_ids"] for data in trained for index in range(len(data))) for each in guides
        )
        guide(model, guides, tokenizer=tokenizer, share_every=recipe.share_every)
    examples: Encoded | WithKnowledge = only.encoded["train"]
    targets, knowledge = {}, {}
    if any(each.marks for each in guides):
        from headwise.experiments.gather_knowledge import count_targets

        targets = count_targets(recipe.guides, only.encoded["train"], tokenizer, progress)
    if readers:
        from headwise.experiments.gather_knowledge import count_marked

        targets |= dict.fromkeys(readers, count_marked(only.splits.train, only.encoded["train"], progress))
    if needs:
        from headwise.experiments.gather_knowledge import Sources, gather_knowledge
        from headwise.patterns.vectors import InputEmbeddings
        from headwise.training import WithKnowledge

        vectors = model.get_input_embeddings().weight
        sources = Sources(lambda: InputEmbeddings(tokenizer, vectors), paths.data, paths.cache)
        found = gather_knowledge(needs, only.splits, sources, progress=progress)
        examples = WithKnowledge(only.encoded["train"], {each.need.pattern.key: each.matrices for each in found}, needs)
        knowledge = {each.need.guide: each.as_data() for each in found}
    weights: dict[str, float] = {}
    if recipe.training.class_weights is not None:
        from headwise.training.class_weights import class_weights

        splits = only.splits
        weights = class_weights(recipe.training.class_weights, splits.train.labels, splits.task.labels)
    return Prepared(
        recipe, encoder, model, tasks, examples, knowledge, targets, heads_taken, fresh_pooler, guides, weights
    )


def of_ranking(data: TaskData, splits: Splits) -> tuple[TaskData, Callable[..., Any] | None]:
    """The training data of a re-ranker, and its loss; None is the model's own."""
    from headwise.retrieval.ranking_loss import Groups, WithOffsets, collate_groups, listwise_loss, pairwise_loss

    first, claims = splits.first, getattr(splits.task, "loss", None) == "list"
    offsets = None if first is None else first.offsets
    train = data.train if offsets is None else WithOffsets(data.train, offsets)
    if not claims:
        return replace(data, train=train), None if offsets is None else pairwise_loss
    collate = partial(collate_groups, data.collate_train or data.collate)  # the batch size counts whole claims
    return replace(data, train=Groups(train, splits.train.groups or ()), collate_train=collate), listwise_loss

"""What a recipe trains, validates and tests on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from headwise.data import Split, Task
from headwise.data.grouped_holdout import hold_out_groups, stratified_holdout, text_groups
from headwise.errors import InputError, choices
from headwise.experiments.recipe import Recipe
from headwise.training import Listener, Silence

if TYPE_CHECKING:
    from headwise.experiments.final_score import FirstStage


@dataclass(frozen=True)
class Splits:
    """A task and its examples. `test` is None where the task has none."""

    task: Task
    train: Split
    validation: Split
    test: Split | None
    whole: Split
    """All of the training file, of which `train` is a part."""
    chosen: tuple[int, ...]
    """The indices of `train` in it."""
    limited: bool
    """Whether the recipe asks for so many training examples and no more."""
    first: FirstStage | None = None
    """Of ranking, what the first stage says."""

    @property
    def named(self) -> dict[str, Split]:
        """The splits that there are, by name."""
        named = {"train": self.train, "validation": self.validation}
        return named if self.test is None else named | {"test": self.test}

    @property
    def encoded(self) -> dict[str, Split]:
        """What a run turns into token ids: the splits, and the warm-up of a re-ranker that has one."""
        warm_up = None if self.first is None else self.first.warm_up
        return self.named if warm_up is None else self.named | {"warm_up": warm_up}


def read_splits(
    recipe: Recipe,
    root: Path | None,
    *,
    network: bool = False,
    cache: Path | None = None,
    progress: Listener | None = None,
) -> Splits:
    """Read the data of a recipe; parts are held out and left out by the recipe's seed."""
    task = recipe.build_task()
    if task.kind == "ranking":
        from headwise.experiments.ranking_splits import read_ranking_splits

        return read_ranking_splits(recipe, root, cache, progress or Silence())
    data, files = recipe.data, recipe.only.options.get("files") or {}
    fractions = {"validation": data.validation_fraction, "test": data.test_fraction}
    for name, fraction in fractions.items():
        if name in files and fraction is not None:
            raise InputError(
                f"both task.files.{name} and data.{name}_fraction are set: take one of them away, to say where the "
                f"{name} set comes from."
            )
    train = task.read("train", root, network=network)
    if not train.labelled:
        gaps = sum(label is None for label in train.labels)
        raise InputError(
            f"{gaps} of {len(train)} training examples of {task.name} have no label: fill them in, or set "
            "task.unlabelled={rule: drop}."
        )
    if data.whole_texts:
        train = _whole(train, progress or Silence())
    if data.min_words is not None:
        train = _of_length(train, data.min_words, progress or Silence())
    held_out, order = _hold_out(train, fractions, recipe, progress or Silence())
    validation, test = held_out.get("validation"), held_out.get("test")
    if validation is None:
        validation = task.read("validation", root, network=network)
    # A test file that the user names must be there; one that the task merely knows of need not.
    if test is None and ("test" in files or "test" in task.available(root)):
        test = task.read("test", root, network=network)
    if not validation.labelled:
        raise InputError(
            f"the validation set of {task.name} has no labels: set data.validation_fraction to hold some out."
        )
    # In the order of the file, so that the choice of examples is all that the fraction changes.
    indices = tuple(sorted(order[: max(1, round(len(order) * data.fraction))][: data.limit.get("train")]))
    chosen = train.subset(indices)
    if task.kind == "classification" and len(set(chosen.labels)) < 2:
        raise InputError(
            f"the training set of {task.name} has one class only ({len(chosen)} examples): there is nothing to learn; "
            "use more of it, or check the label column."
        )
    return Splits(
        task,
        chosen,
        _first(validation, data.limit.get("validation")),
        None if test is None else _first(test, data.limit.get("test")),
        whole=train,
        chosen=indices,
        limited="train" in data.limit,
    )


def _of_length(train: Split, least: int, progress: Listener) -> Split:
    """The examples whose first text has so many words."""
    kept = [index for index, texts in enumerate(train.texts) if len(texts[0].split()) >= least]
    if len(kept) < 2:
        longest = max((len(texts[0].split()) for texts in train.texts), default=0)
        raise InputError(
            f"data.min_words is {least}: it leaves {len(kept)} of {len(train)} training examples, and the longest "
            f"first text has {longest} words; lower it."
        )
    progress.log(f"{len(kept)} of {len(train)} training examples have {least} words or more in their first text")
    return train.subset(kept)


def _whole(train: Split, progress: Listener) -> Split:
    """The examples whose text is no part of a longer one, in whole words; equal texts all stay."""
    words = [text.split() for (text,) in train.texts]
    frequency = Counter(word for each in words for word in set(each))
    having: dict[str, list[str]] = defaultdict(list)  # word -> the texts kept so far that have it
    kept = []
    for index in sorted(range(len(words)), key=lambda index: -len(words[index])):
        text = f" {' '.join(words[index])} "
        # A text that contains this one has its rarest word, too.
        rarest = min(words[index], key=frequency.__getitem__, default="")
        if any(len(text) < len(other) and text in other for other in having[rarest]):
            continue
        kept.append(index)
        for word in set(words[index]):
            having[word].append(text)
    progress.log(f"{len(kept)} of {len(train)} training examples are whole texts: no part of another one")
    return train.subset(sorted(kept))


def _hold_out(
    train: Split, fractions: Mapping[str, float | None], recipe: Recipe, progress: Listener
) -> tuple[dict[str, Split], list[int]]:
    """The parts of train that are held out, by name, and the indices of the rest in the order of the seed."""
    generator = numpy.random.default_rng([recipe.seed, 7])
    order: list[int] = generator.permutation(len(train)).tolist()
    group_by, stratify = recipe.data.group_by, recipe.data.stratify
    grouped = group_by is not None or stratify
    groups: list[list[int]] = []
    if grouped:
        groups = [[index] for index in range(len(train))] if group_by is None else text_groups(train, group_by)
        groups = [groups[position] for position in generator.permutation(len(groups))]
    held_out: dict[str, Split] = {}
    for name, fraction in fractions.items():
        if fraction is None:
            continue
        count = round(len(train) * fraction)
        if not 0 < count < len(order):
            raise InputError(
                f"data.{name}_fraction is {fraction}: it would hold out {count} of {len(train)} training examples, "
                "which leaves nothing to use; change it or give a file."
            )
        chosen = order[:count]
        if grouped:
            if len(groups) < 2:
                raise InputError(
                    f"data.{name}_fraction is {fraction} and data.group_by is {group_by}: expected two or more "
                    f"different texts among the {len(order)} examples of train to choose from, got one; leave group_by "
                    "out, change the fractions or give a file."
                )
            positions = set(hold_out_groups([len(group) for group in groups], count))
            if stratify:  # of what is left, the part that is the fraction of all
                part = count / sum(map(len, groups))
                positions = set(stratified_holdout(groups, train.labels, part)) or positions
            chosen = [index for position in positions for index in groups[position]]
            groups = [group for position, group in enumerate(groups) if position not in positions]
            if group_by is not None:
                progress.log(
                    f"{len(chosen)} of {len(train)} training examples are held out for {name}: {len(positions)} groups "
                    f"by {group_by}, for data.{name}_fraction {fraction}"
                )
        held_out[name], taken = train.subset(sorted(chosen)), set(chosen)
        order = [index for index in order if index not in taken]
    return held_out, order


def read_split(recipe: Recipe, task: Task, name: str, root: Path | None, *, network: bool = False) -> Split:
    """One split as a run of the recipe has it; other files are read only if it was taken from them."""
    data = recipe.data
    if task.kind == "ranking":
        named = read_splits(recipe, root, network=network).named
        if name not in named:
            raise InputError(
                f"a re-ranker has no {name} split: {choices(name, named)}; test it with `headwise rerank`."
            )
        return named[name]
    if name == "train" or {"validation": data.validation_fraction, "test": data.test_fraction}.get(name) is not None:
        return read_splits(recipe, root, network=network).named[name]
    limit = next((most for split, most in data.limit.items() if split == name), None)
    return _first(task.read(name, root, network=network), limit)


def _first(split: Split, limit: int | None) -> Split:
    return split if limit is None or limit >= len(split) else split.subset(range(limit))

"""Use a finished run: score it on a split, or predict a file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from safetensors import SafetensorError
from torch import nn

from headwise.attention import pruned_heads
from headwise.attention.pretrained import check_vocabulary
from headwise.data import Collator, Split, Task, build_task, encode
from headwise.disk import disk_errors, draft_prefix, folder_lock, holds_nothing, new_file, ordinary_modes, save_content
from headwise.errors import InputError, choices
from headwise.experiments import record
from headwise.experiments.outputs import SEVERAL_LABELS, score_answers, tags_of
from headwise.experiments.recipe import Recipe
from headwise.experiments.splits import read_split
from headwise.ssa import remove_supervision, supervision_of
from headwise.text_formats import csv_text
from headwise.training import (
    Listener,
    Silence,
    load_classifier_folder,
    predict_logits,
    predictions_of,
    save_classifier,
)
from headwise.training.onnx_export import FILE as ONNX_FILE
from headwise.training.onnx_export import check_onnx, save_onnx
from headwise.training.predict import probabilities_of
from headwise.training.saving import check_classifier, in_one_sentence, load_multitask, load_task, load_tokenizer


@dataclass(frozen=True)
class Loaded:
    """A finished run, ready to predict."""

    recipe: Recipe
    task: Task
    model: nn.Module
    tokenizer: Any
    labels: tuple[str, ...]
    data: Path | None

    def logits(self, split: Split, batch: int | None, progress: Listener | None) -> numpy.ndarray:
        """[N,C] for every example of a split."""
        progress = progress or Silence()
        words = self.task.kind == "token_labels"
        encoded = encode(split, self.tokenizer, self.recipe.data.max_length, firsts=words)
        # As in training, since more padding or another batch would change the last bits.
        data, size = self.recipe.data, batch or self.recipe.training.per_device_eval_batch_size
        collate = Collator.of(self.tokenizer, self.task.kind, padding=data.padding, max_length=data.max_length)
        progress.start(self.recipe.name, len(split))
        logits = predict_logits(self.model, encoded, collate, batch=size, after_batch=progress.advance)
        progress.end()
        return logits

    def refuse_several_labels(self, what: str) -> None:
        """For what needs one answer to each text."""
        if self.task.kind in SEVERAL_LABELS:
            raise InputError(
                f"{what} needs one answer to each text, and this run has several labels ({self.task.kind}): "
                "give a run of a classifier or a regression."
            )

    def answer(self, logits: numpy.ndarray) -> tuple[str, dict[str, float]]:
        """What the model says of one example with these logits [C], and for classes the probability of each."""
        if not self.labels:
            return f"{float(logits[0]):.4f}", {}
        (parts,) = probabilities_of(logits[None], self.task.kind)
        chances = {label: round(float(part), 6) for label, part in zip(self.labels, parts, strict=True)}
        return self.labels[int(logits.argmax())], chances


def load_run(folder: Path, task: str | None = None) -> Loaded:
    """Load a finished run; of one on several tasks, the classifier of one of them."""
    content = record.finished_record(folder)
    recipe = record.task_recipe(content, folder, task)
    if task is None:
        model, tokenizer = load_classifier_folder(folder, recipe.head)
        if recipe.head == "cls":
            check_classifier(folder, model)
    else:
        model, tokenizer = load_task(folder, task), load_tokenizer(folder)
    return loaded(recipe, content, model, tokenizer, task)


def loaded(recipe: Recipe, content: dict[str, Any], model: nn.Module, tokenizer: Any, task: str | None) -> Loaded:
    """Put a run together from its record and its model, whose classes must be those that the record names."""
    results = content["results"] if task is None else content["results"]["tasks"][task]
    labels, classes = tuple(results["labels"]), int(model.config.num_labels)  # type: ignore[union-attr,arg-type]
    if labels and classes != len(labels):
        raise InputError(
            f"the model has {classes} classes, and its {record.NAME} names {len(labels)} ({', '.join(labels):.80}): "
            "one of the two files was changed; restore it, or train again."
        )
    with in_one_sentence(Path(str(tokenizer.name_or_path))):  # a damaged tokenizer may fail on any text
        check_vocabulary(tokenizer, model)
    built, data = recipe.build_task(), content["data"]
    if labels and not built.labels:  # the task took them from the training file, so they must be given to it again
        built = build_task(recipe.only.name, recipe.only.options | {"labels": list(labels)})
    return Loaded(recipe, built, model, tokenizer, labels, None if data is None else Path(data))


@dataclass(frozen=True)
class Source:
    """Where to look for data: a folder, if not the one of training, and whether the network may be used."""

    data: Path | None = None
    network: bool = False


def evaluate(
    run: Loaded,
    split: str,
    source: Source | None = None,
    *,
    batch: int | None = None,
    progress: Listener | None = None,
) -> dict[str, Any]:
    """The metrics of a run on one of its task's splits, held out and cut as in training."""
    source = source or Source()
    _check_kind(run)
    chosen = read_split(run.recipe, run.task, split, source.data or run.data, network=source.network)
    if not chosen.labelled:
        raise InputError(f"the {split} set of {run.task.name} has no labels, so it cannot be scored: use predict.")
    logits = run.logits(chosen, batch, progress)
    return {"split": split, "examples": len(chosen), "metrics": score_answers(run.task, chosen, logits)}


def predict(
    run: Loaded,
    source: Path | Sequence[tuple[str, ...]],
    *,
    columns: Sequence[str] = (),
    batch: int | None = None,
    explain: bool = False,
    progress: Listener | None = None,
) -> list[dict[str, Any]]:
    """One row per example: its columns in the file, the prediction, and for classes the probability of each.

    The prediction of a task with several labels is a list, as is that of one that labels words. With `explain` a row
    also has `words`: how much each word counts, see `score_words`.

    Args:
        run: a finished run.
        source: a file with or without labels, or texts: one or two for each example.
        columns: names of all columns in order, of a file without a header.
        batch: examples at a time.
        explain: whether to score the words.
        progress: shows how far it is.
    """
    _check_kind(run)
    if isinstance(source, Path):
        split = run.task.read_file(source, labelled=False, columns=columns)
    else:
        split = texts_of(run, source)
    logits = run.logits(split, batch, progress)
    rows = [dict(row) for row in split.rows or [{}] * len(split)]
    for row, answer in zip(rows, _answers(run, split, logits), strict=True):
        row.update(answer)
    if explain:
        from headwise.experiments.word_scores import score_words

        for row, scores in zip(rows, score_words(run, split, logits, batch=batch, progress=progress), strict=True):
            row["words"] = scores
    return rows


def texts_of(run: Loaded, examples: Sequence[tuple[str, ...]]) -> Split:
    """Examples from texts, as many for each as the task has."""
    for texts in examples:
        if len(texts) != run.task.sentences:
            raise InputError(
                f"the run takes {('one text', 'a text and its pair')[run.task.sentences - 1]} for each example, got "
                f"{len(texts)} {'text' if len(texts) == 1 else 'texts'}: "
                f"{'add pair=...' if run.task.sentences == 2 else 'leave pair out'}."
            )
        if not all(each.strip() for each in texts):
            raise InputError(f"expected text to predict, got {texts[-1]!r:.40} in {texts!r:.100}: write some words.")
    if run.task.kind == "token_labels":
        examples = [(" ".join(texts[0].split()),) for texts in examples]
    return Split(tuple(examples), (None,) * len(examples))


def _answers(run: Loaded, split: Split, logits: numpy.ndarray) -> Iterator[dict[str, Any]]:
    """What the model answers to each example."""
    if run.task.kind == "token_labels":
        yield from ({"prediction": tags} for tags in tags_of(run.labels, split, logits))
        return
    if not run.labels:
        yield from ({"prediction": float(value)} for value in predictions_of(logits))
        return
    for row, chosen in zip(logits, predictions_of(logits, run.task.kind), strict=True):
        label, chances = run.answer(row)
        several = run.task.kind == "multi_label"
        prediction = [name for name, given in zip(run.labels, chosen, strict=True) if given] if several else label
        yield {"prediction": prediction} | {f"probability_{name}": chance for name, chance in chances.items()}


def _check_kind(run: Loaded) -> None:
    if run.task.kind == "ranking":
        raise InputError(
            "this run is a re-ranker: score it with `headwise rerank`, or ask it about one claim with `headwise "
            "search`."
        )


def new_target(
    path: Path, *, overwrite: bool, option: str = "output", endings: tuple[str, ...] = (".tsv", ".csv", ".jsonl")
) -> AbstractContextManager[None]:
    """Lock a file for the block that writes it; one that cannot be written is refused before any work is done."""
    if path.suffix not in endings:
        raise InputError(f"{option} {path}: expected a name that ends in {', '.join(endings[:-1])} or {endings[-1]}.")
    return new_file(path, option, replace=overwrite)


def write_rows(rows: list[dict[str, Any]], path: Path) -> None:
    """Write predictions as TSV, CSV or JSONL, by the name of the file; all or nothing."""
    if path.suffix == ".jsonl":
        save_content(path, "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows))
    else:
        save_content(path, rows_text(rows, "\t" if path.suffix == ".tsv" else ","))


def rows_text(rows: list[dict[str, Any]], delimiter: str = "\t") -> str:
    """Predictions as TSV or CSV: several labels with ; between them, those of words with blanks, words with scores."""
    # Only predictions for words have no probabilities and are lists.
    between = ";" if rows and any(name.startswith("probability_") for name in rows[0]) else " "

    def cell(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return " ".join(f"{each['word']}({each['drop']:+.3f})" for each in value)
        return between.join(map(str, value)) if isinstance(value, list) else value

    return csv_text([{name: cell(value) for name, value in row.items()} for row in rows], delimiter=delimiter)


# All tasks of a finished run, ready to predict: several that share an encoder, or the one that there is.


@dataclass(frozen=True)
class RunTasks:
    """The tasks of a run by name; the models of a joint run share one encoder object."""

    folder: Path
    joint: bool
    runs: dict[str, Loaded]

    @property
    def first(self) -> Loaded:
        """Any of them, for what they have in common."""
        return next(iter(self.runs.values()))

    def refuse_pruned(self, what: str) -> None:
        """For what makes no sense, or is not there, without all heads."""
        gone = pruned_heads(self.first.model)
        if gone:
            layer, heads = next(iter(gone.items()))
            raise InputError(
                f"heads were pruned from the model of {self.folder} (layer {layer}: {', '.join(map(str, heads))}): "
                f"{what} needs a model with all its heads."
            )


def load_tasks(folder: Path, wanted: Sequence[str] = ()) -> RunTasks:
    """Load a finished run of either kind; `wanted` are the tasks to keep, all if none is named."""
    content = record.finished_record(folder)
    recipe = record.recipe_of(content, folder)
    if recipe.several:
        model, tokenizer = load_multitask(folder), load_tokenizer(folder)
        runs = {
            task: loaded(part, content, model.classifier(task), tokenizer, task) for task, part in recipe.parts.items()
        }
    else:
        runs = {recipe.only.name: load_run(folder)}
    for task in wanted:
        if task not in runs:
            raise InputError(f"task={task}: {choices(task, runs)}.")
    return RunTasks(folder, recipe.several, {task: run for task, run in runs.items() if not wanted or task in wanted})


# A run without anything of headwise in it: a plain classifier of transformers, or an ONNX file.


def export(run: Path, target: Path, task: str | None = None, *, onnx: bool = False) -> dict[str, Any]:
    """Write the classifier of a run, or of one of its tasks, to a new folder; all of it or nothing.

    What a plain classifier cannot compute is refused without `onnx`: the pooling of the hybrid model, and every head
    but cls.

    Args:
        run: the folder of a finished run.
        target: a new or empty folder.
        task: one of the tasks of a run on several.
        onnx: whether to write an ONNX file instead of a model of transformers.
    """
    disk = partial(
        disk_errors, f"{target} could not be written", "make room, or choose another folder.", SafetensorError
    )
    if onnx:
        check_onnx()
    _check_free(target)
    with folder_lock(target):
        _check_free(target)  # the last holder of the lock may have written it
        fresh = target.with_name(f"{draft_prefix(target)}folder.new")
        with disk():
            shutil.rmtree(fresh, ignore_errors=True)  # of a process that was killed
            fresh.mkdir()
        try:
            loaded = load_run(run, task)
            supervision = supervision_of(loaded.model)
            if not onnx:
                _check_plain(run, loaded)
            removed = supervision is not None and not supervision.pools
            if removed:
                remove_supervision(loaded.model)
            result: dict[str, Any] = {"run": str(run), "output": str(target), "token_head_removed": removed}
            with disk():
                if onnx:
                    result |= _write_onnx(loaded, fresh, target)
                else:
                    save_classifier(loaded.model, loaded.tokenizer, fresh, "cls")
                ordinary_modes(fresh)
                fresh.chmod(target.stat().st_mode & 0o777)  # the user may have made the folder for few
                for left in target.iterdir():  # the lock: a folder can take the place of an empty one only
                    left.unlink()
                fresh.replace(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return result


def _check_plain(run: Path, loaded: Loaded) -> None:
    """Refuse what a plain classifier of transformers does not compute."""
    supervision = supervision_of(loaded.model)
    if supervision is not None and supervision.pools:
        raise InputError(
            f"{run} is a hybrid model of SSA, whose classifier reads pooled tokens (cls_weight "
            f"{supervision.options.cls_weight:g}): plain transformers would give other answers; export it with "
            "onnx=True, load it with headwise.load, or train with `ssa: {model: cotraining}`."
        )
    if loaded.recipe.head != "cls":
        raise InputError(
            f"{run} has the head {loaded.recipe.head!r}, which no classifier of transformers has: export it with "
            "onnx=True, use `headwise predict`, or train with head: cls."
        )


def _write_onnx(loaded: Loaded, folder: Path, target: Path) -> dict[str, Any]:
    """Write an ONNX file into a folder that will be called `target`; what is in it."""
    max_length, pairs = loaded.recipe.data.max_length, loaded.task.sentences == 2
    written = save_onnx(loaded.model, loaded.tokenizer, folder, max_length=max_length, pairs=pairs)
    return {
        "file": str(target / ONNX_FILE),
        "head": loaded.recipe.head,
        "inputs": list(written.inputs),
        "largest_difference": written.largest_difference,
    }


def _check_free(target: Path) -> None:
    if (target.exists() and not target.is_dir()) or not holds_nothing(target):
        raise InputError(f"{target} exists already: choose another folder (output=...).")

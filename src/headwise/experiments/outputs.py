"""How a model is scored on the splits of a task, and what it answered to every example (outputs.json).

Tests between runs, example by example, need the answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from headwise import documents
from headwise.cache import digest
from headwise.data import Split, Task
from headwise.disk import write_atomically
from headwise.errors import InputError
from headwise.experiments.record import AGAIN, FINE_TUNED, FROZEN, MAJORITY, MEAN

if TYPE_CHECKING:
    from headwise.experiments.prepare import Prepared, PreparedTask
    from headwise.experiments.splits import Splits
    from headwise.training import Listener, Outcome, RunArguments

# Kinds of tasks whose answers are not one value for each example, so that outputs.json does not have them.
SEVERAL_LABELS = ("multi_label", "token_labels")
NAME = "outputs.json"
FORMAT = 1
# With fewer examples the features of the encoder are there before one could read how far they are.
LONG = 1000


def scorer(splits: Splits, name: str) -> Callable[[numpy.ndarray], dict[str, float]]:
    """A function from the logits on a labelled split, [N,C], to the metrics of its task.

    A re-ranker has a third of the final score here, so that what is best does not depend on a fit to few claims.
    """
    split, first = splits.named[name], splits.first
    if first is not None:
        weights = first.score.first.with_reranker()
        return lambda logits: first.measures(name, first.with_reranker(name, split, logits[:, 0]), weights)
    return lambda logits: score_answers(splits.task, split, logits)


def score_answers(task: Task, split: Split, logits: numpy.ndarray) -> dict[str, float]:
    """The metrics of the logits on a labelled split, of all tasks but rankings."""
    from headwise.metrics.label_sets import score_sets, score_words
    from headwise.training import predictions_of, score_logits

    if task.kind not in SEVERAL_LABELS:
        return score_logits(logits, [float(label or 0) for label in split.labels], task.metrics)
    labels: Any = split.labels
    if task.kind == "multi_label":
        return score_sets(task.metrics, predictions_of(logits, task.kind), numpy.asarray(labels))
    true = [[task.labels[index] for index in row] for row in labels]
    return score_words(task.metrics, tags_of(task.labels, split, logits), true)


def tags_of(classes: Sequence[str], split: Split, logits: numpy.ndarray) -> list[list[str]]:
    """The predicted class of each word of each example, from the logits [words,C] of all words."""
    from headwise.metrics.label_sets import in_sentences

    tags = [classes[index] for index in logits.argmax(1)]
    return in_sentences(tags, [texts[0].count(" ") + 1 for texts in split.texts])


def output_of(task: Task, split: Split, logits: numpy.ndarray) -> dict[str, Any]:
    """Predictions beside the labels."""
    from headwise.training import predictions_of

    labels = [float(label or 0) for label in split.labels]
    plain = int if task.kind == "classification" else float
    return {
        "kind": task.kind,
        "examples": examples_key(split),
        "gold": [plain(label) for label in labels],
        "predictions": [plain(value) for value in predictions_of(logits)],
    }


def examples_key(split: Split) -> str:
    """A short hash of texts and labels, whatever the tokenizer: runs with the same one can be paired by example."""
    total = hashlib.sha256()
    for texts, label in zip(split.texts, split.labels, strict=True):
        total.update(json.dumps([texts, label], ensure_ascii=False).encode())
    return total.hexdigest()[:16]


def write_outputs(folder: Path, outputs: Mapping[str, Any]) -> None:
    """Write them beside the record of a run."""
    content = {"format": FORMAT, "outputs": outputs}
    write_atomically(folder / NAME, json.dumps(content, ensure_ascii=False) + "\n")


def read_outputs(folder: Path) -> dict[str, Any]:
    """The outputs of a run; none of one that an older headwise trained."""
    from headwise.experiments.record_schema import OutputsFile

    path = folder / NAME
    if not path.is_file():
        return {}
    content = documents.read(path, AGAIN)
    if isinstance(content, dict) and content.get("format") != FORMAT:
        raise InputError(f"{path} has format {content.get('format')!r:.40}: this headwise reads format {FORMAT}.")
    outputs: dict[str, Any] = documents.check(content, OutputsFile, path, AGAIN)["outputs"]
    return outputs


# -- the results of a run ----------------------------------------------------------------------------------------------


def score_splits(prepared: Prepared, progress: Listener) -> tuple[dict[str, Any], dict[str, Any]]:
    """Score the model as it is now on every labelled split except train.

    Returns:
        The results: of one task `metrics` by split, `primary`, `labels`, `examples` and so on; of several the same by
        task in `tasks`, and in `metrics` the mean of the main metrics and all metrics as TASK/METRIC.
        The outputs: by split, of several tasks by TASK/SPLIT.
    """
    from headwise.training import predict_logits

    tasks: dict[str, dict[str, Any]] = {}
    outputs: dict[str, Any] = {}
    several, batch = prepared.recipe.several, prepared.recipe.training.per_device_eval_batch_size
    for name, each in prepared.tasks.items():
        task, model = each.splits.task, prepared.model.classifier(name) if several else prepared.model
        metrics: dict[str, dict[str, float] | None] = {}
        final: dict[str, Any] | None = None
        ranked: dict[str, numpy.ndarray] = {}
        for split, examples in each.splits.named.items():
            if split == "train":
                continue
            metrics[split] = None
            if not examples.labelled:
                of_task = f" of {name}" if several else ""
                progress.log(f"the {split} set{of_task} has no labels: it is not scored")
                continue
            logits = predict_logits(model, each.encoded[split], each.collate, batch=batch)
            if each.splits.first is not None:
                ranked[split] = logits[:, 0]
                continue
            metrics[split] = scorer(each.splits, split)(logits)
            if task.kind not in SEVERAL_LABELS:
                outputs[f"{name}/{split}" if several else split] = output_of(task, examples, logits)
        if each.splits.first is not None:
            from headwise.experiments.final_score import final_results

            scored, per_claim, final = final_results(each.splits, ranked)
            metrics |= scored
            for split, of_claims in per_claim.items():
                key = digest(each.splits.first.qrels[split])[:16]
                outputs[split] = {"kind": task.kind, "examples": key, "per_query": of_claims}
        tasks[name] = {
            "task": task.name,
            "kind": task.kind,
            "primary": task.primary,
            "labels": list(task.labels),
            "examples": {split: len(encoded) for split, encoded in each.encoded.items()},
            "truncated": {split: encoded.truncated for split, encoded in each.encoded.items()},
            "metrics": metrics,
            **({} if final is None else {"final": final}),
        }
    if not several:
        (only,) = tasks.values()
        groups = {split: part.groups for split, part in prepared.only.splits.named.items() if part.groups is not None}
        claims = {"claims": {split: len(set(group)) for split, group in groups.items()}} if groups else {}
        kept = ("metrics", "primary", "labels", "examples", "truncated", "final")
        kind = {"kind": only["kind"]} if only["kind"] in SEVERAL_LABELS else {}
        return {key: only[key] for key in kept if key in only} | kind | claims, outputs
    joined: dict[str, dict[str, float] | None] = {}
    for split in dict.fromkeys(split for each in tasks.values() for split in each["metrics"]):
        scored = {name: each["metrics"][split] for name, each in tasks.items() if each["metrics"].get(split)}
        named = {f"{name}/{metric}": value for name, scores in scored.items() for metric, value in scores.items()}
        if len(scored) == len(tasks):  # a mean over some of the tasks would be taken for one over all
            mean = numpy.mean([scores[tasks[name]["primary"]] for name, scores in scored.items()])
            named = {"mean": float(mean)} | named
        joined[split] = named or None
    return {"metrics": joined, "primary": "mean", "tasks": tasks}, outputs


def training_results(outcome: Outcome, *, guides: bool) -> dict[str, Any]:
    """Steps, times, evaluations, and what SSA and guides did.

    Of a guide: its last weight, its gradient share as the mean over all measurements, its first and last value.
    """
    results: dict[str, Any] = {
        "steps": outcome.steps,
        "best_step": outcome.best_step,
        "seconds_per_epoch": [round(seconds, 3) for seconds in outcome.seconds_per_epoch],
        "seconds_per_step": outcome.seconds_per_step,
    }
    if guides:
        logged: dict[str, list[float]] = {}
        for entry in outcome.log:
            for key, value in entry.items():
                logged.setdefault(key, []).append(value)
        results["guides"] = {}
        for name in sorted(key[6:-7] for key in logged if key.startswith("guide/") and key.endswith("_weight")):
            values, weights = logged[f"guide/{name}"], logged[f"guide/{name}_weight"]
            shares = logged.get(f"guide/{name}_share")
            share = sum(shares) / len(shares) if shares else None
            results["guides"][name] = {"weight": weights[-1], "share": share, "first": values[0], "last": values[-1]}
    if outcome.relabellings:
        results["ssa"] = outcome.relabellings
    return results | {"evaluations": outcome.evaluations}


# -- baselines: what the scores of a run stand beside ------------------------------------------------------------------


def measure_baselines(
    prepared: Prepared, arguments: RunArguments, cache: Path | None, progress: Listener
) -> dict[str, dict[str, Any]]:
    """For each task except rankings, before training: the constant prediction, and those of the frozen probe.

    The probe is for classes only, and takes at most a tenth of the time of the run. No random numbers are drawn, and
    the model is not changed.
    """
    measured: dict[str, dict[str, Any]] = {}
    probed: dict[str, dict[str, numpy.ndarray]] = {}
    share = _probed_share(prepared, arguments)
    for name, each in prepared.tasks.items():
        task = each.splits.task
        if task.kind == "regression":
            measured[name] = {MEAN: float(numpy.mean(each.encoded["train"].flat_labels))}
        elif task.kind == "classification":
            labels = numpy.asarray(each.splits.train.labels)
            from headwise.metrics.baselines import usual

            measured[name] = {MAJORITY: int(usual(labels, 1)[0])}
            if share is not None:
                from headwise.training.frozen_probe import chosen_rows

                splits = {split: each.encoded[split] for split in ("train", *_scored(each))}
                probed[name] = {split: chosen_rows(split, len(data), share) for split, data in splits.items()}
    if not probed:
        return measured
    from headwise.training import Silence
    from headwise.training.frozen_probe import SpecialIds, probe

    several, done = prepared.recipe.several, 0
    total = sum(len(part) for rows in probed.values() for part in rows.values())
    show = progress if total >= LONG else Silence()
    show.start("features of the frozen encoder", total)
    for name, rows in probed.items():
        each, before = prepared.tasks[name], done
        found = probe(
            prepared.model.encoder if several else prepared.model.base_model,
            {split: each.encoded[split] for split in rows},
            rows,
            each.collate,
            SpecialIds.of(prepared.encoder.tokenizer),
            pairs=len(each.splits.train.texts[0]) == 2,
            metric=each.splits.task.primary,
            cache=cache,
            after_batch=lambda count, before=before: show.advance(before + count),  # type: ignore[misc]
        )
        done += sum(map(len, rows.values()))
        measured[name][FROZEN] = {
            "examples": {split: len(part) for split, part in rows.items()},
            "C": found.penalty,
            "predictions": found.predictions,
        }
    show.end()
    return measured


def _scored(task: PreparedTask) -> list[str]:
    return [name for name, split in task.splits.named.items() if name != "train" and split.labelled]


def _probed_share(prepared: Prepared, arguments: RunArguments) -> float | None:
    """The share of the examples that the frozen probe can afford; None where training would not be compared with it."""
    if prepared.recipe.linear:  # such a run is a probe
        return None
    from headwise.training import distributed
    from headwise.training.frozen_probe import affordable_share

    needed = evaluated = 0
    evaluations = -(-arguments.max_steps // int(arguments.eval_steps or arguments.max_steps))
    for each in prepared.tasks.values():
        sizes = {split: len(each.encoded[split]) for split in _scored(each)}
        evaluated += evaluations * sizes["validation"] + sum(sizes.values())
        if each.splits.task.kind == "classification":
            needed += len(each.encoded["train"]) + sum(sizes.values())
    batch = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps * distributed.count()
    return affordable_share(needed, trained=arguments.max_steps * batch, evaluated=evaluated)


def score_baselines(
    prepared: Prepared, measured: Mapping[str, Mapping[str, Any]], outputs: Mapping[str, Any]
) -> dict[str, Any]:
    """By task, the scores of the baselines and of the trained model, all on the same examples.

    Args:
        prepared: the data.
        measured: as `measure_baselines` returns it.
        outputs: what the trained model answers, as `score_splits` returns it.
    """
    from headwise.metrics import score

    results = {}
    for name, constants in measured.items():
        each = prepared.tasks[name]
        task, frozen = each.splits.task, constants.get(FROZEN)
        whole = {split: len(each.encoded[split]) for split in ("train", *_scored(each))}
        used = whole if frozen is None else frozen["examples"]
        metrics: dict[str, dict[str, dict[str, float]]] = {}
        for split in _scored(each):
            rows = numpy.arange(whole[split])
            if used[split] < whole[split]:
                from headwise.training.frozen_probe import rows_of

                rows = rows_of(whole[split], used[split])
            output = outputs[f"{name}/{split}" if prepared.recipe.several else split]
            gold = numpy.asarray(output["gold"])[rows]
            systems = {
                system: numpy.full(len(gold), constants[system]) for system in (MAJORITY, MEAN) if system in constants
            }
            if frozen is not None:
                systems[FROZEN] = numpy.asarray(frozen["predictions"][split])
            systems[FINE_TUNED] = numpy.asarray(output["predictions"])[rows]
            metrics[split] = {system: score(task.metrics, answers, gold) for system, answers in systems.items()}
        results[name] = {
            "primary": task.primary,
            "examples": used,
            "of": whole,
            **({} if frozen is None else {"C": frozen["C"]}),
            "metrics": metrics,
        }
    return results

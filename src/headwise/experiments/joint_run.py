"""A run on several tasks, with important attention-head training (IAT) and its control if asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import numpy

from headwise import documents
from headwise.attention import family_of
from headwise.attention.families import head_weights
from headwise.disk import write_atomically
from headwise.errors import InputError, StateError
from headwise.experiments import record
from headwise.experiments.joint_recipe import JointRecipe
from headwise.experiments.outputs import output_of, scorer, write_outputs
from headwise.experiments.prepare import JointPart, JointPrepared, named_splits
from headwise.experiments.recipe import Recipe
from headwise.experiments.record_schema import ChosenFile
from headwise.experiments.text_formats import render_markdown
from headwise.heads.iat import IAT, important_heads
from headwise.heads.pruning import top_heads
from headwise.training import JointMaterial, Listener, Outcome, Part, ReportProgress, Settings, fit, predict_logits
from headwise.training import distributed as processes
from headwise.training.arguments import MEAN
from headwise.training.callbacks import Watch
from headwise.training.checkpoints import branch
from headwise.training.classifier import fit_linear
from headwise.training.fit import BEST, LAST, load_weights, save_weights
from headwise.training.iat_training import TrainImportantHeads, importance_on
from headwise.training.saving import save_multitask

# What a run needs to know of a recipe's kind: one task, or several.


# Below the folder of a run, until it is finished.
WORK = "unfinished"


class Job(Protocol):
    """Everything read and checked, ready to be trained."""

    @property
    def fingerprint(self) -> str:
        """A short hash of all examples, so that a run goes on with those that it began with."""

    @property
    def knowledge(self) -> dict[str, dict[str, Any]]:
        """For each guide that needs knowledge, what tells it from other knowledge."""

    def fit(self, work: Path, listener: Listener, watch: Watch | None = None) -> Outcome:
        """Train in a folder of its own, going on with what is there; `watch` is told of each evaluation."""

    def finish(self, outcome: Outcome, asked: dict[str, Any], folder: Path, listener: Listener) -> dict[str, Any]:
        """Score the model, write all but the record, and return the record."""


def settings_of(recipe: Recipe | JointRecipe) -> Settings:
    """The recipe's choices for training."""
    training = recipe.training
    names = set(Settings.__dataclass_fields__) & set(type(training).model_fields)
    chosen = {name: getattr(training, name) for name in names}
    return Settings(
        **chosen,
        seed=recipe.seed,
        share_every=recipe.share_every if isinstance(recipe, Recipe) else 0,
        by_length=recipe.data.buckets and recipe.data.padding == "dynamic",
        report_to=recipe.report_to,
    )


def write_log(folder: Path, outcome: Outcome) -> None:
    """Every logged step, one per line."""
    write_atomically(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in outcome.log))


# The model card of a run on several tasks.


def joint_card(content: dict[str, Any]) -> str:
    """The card of a finished run, from its record."""
    template = resources.files(__package__).joinpath("joint_card.md.jinja").read_text(encoding="utf-8")
    return render_markdown(
        template, recipe=content["asked"]["recipe"], happened=content["happened"], world=content["world"]
    )


# What happened in a run on several tasks.


Scores = dict[str, float]


@dataclass(frozen=True)
class Summary:
    """How a model did on every labelled split but train."""

    tasks: dict[str, dict[str, Any]]
    """Of each task what is known about it, and its metrics by split."""
    metrics: dict[str, Scores | None]
    """By split: the mean of the main metrics, and each task's metrics as TASK/METRIC."""
    outputs: dict[str, Any]
    """What the model answered to every example that was scored, by TASK/SPLIT."""

    def happened(self, outcome: Outcome, last: Summary) -> dict[str, Any]:
        """The record of a run whose best model this is."""
        return {
            "metrics": self.metrics,
            "last": last.metrics,
            "primary": MEAN,
            "tasks": self.tasks,
            "steps": outcome.steps,
            "best_step": outcome.best_step,
            "seconds_per_epoch": [round(seconds, 3) for seconds in outcome.seconds_per_epoch],
            "seconds_per_step": outcome.seconds_per_step,
            "evaluations": outcome.evaluations,
        }


def summarise_joint(prepared: JointPrepared, listener: Listener) -> Summary:
    """Score the model as it is now."""
    batch = prepared.recipe.training.evaluation_batch
    outputs: dict[str, Any] = {}
    tasks = {
        task: _task(prepared, task, part, batch, outputs, listener=listener) for task, part in prepared.parts.items()
    }
    splits = dict.fromkeys(name for each in tasks.values() for name in each["metrics"])
    return Summary(tasks, {split: _joined(tasks, split) for split in splits}, outputs)


def _task(
    prepared: JointPrepared, name: str, part: JointPart, batch: int, outputs: dict[str, Any], *, listener: Listener
) -> dict[str, Any]:
    """One task; what the model answered goes to `outputs`."""
    task = part.splits.task
    metrics: dict[str, Scores | None] = {}
    for split, examples in named_splits(part.splits).items():
        if split == "train":
            continue
        metrics[split] = None
        if examples.labelled:
            logits = predict_logits(prepared.model.classifier(name), part.encoded[split], part.collate, batch=batch)
            metrics[split] = scorer(task, examples, {})(logits)
            outputs[f"{name}/{split}"] = output_of(task, examples, logits, {})
        else:
            listener.tell(f"the {split} set of {name} has no labels: it is not scored")
    return {
        "task": task.name,
        "kind": task.kind,
        "primary": task.primary,
        "labels": list(task.labels),
        "examples": {split: len(encoded) for split, encoded in part.encoded.items()},
        "truncated": {split: encoded.truncated for split, encoded in part.encoded.items()},
        "metrics": metrics,
    }


def _joined(tasks: dict[str, dict[str, Any]], split: str) -> Scores | None:
    scored = {name: each["metrics"][split] for name, each in tasks.items() if each["metrics"].get(split)}
    if not scored:
        return None
    named = {f"{name}/{metric}": value for name, scores in scored.items() for metric, value in scores.items()}
    main = float(numpy.mean([scores[tasks[name]["primary"]] for name, scores in scored.items()]))
    # A mean over some of the tasks would be taken for one over all.
    return ({MEAN: main} if len(scored) == len(tasks) else {}) | named


TRUNK, ARM, CONTROL = "trunk", "iat", "control"
IMPORTANCE = "importance.json"


@dataclass
class JointJob:
    """Several tasks, ready to be trained."""

    prepared: JointPrepared
    material: JointMaterial
    chosen: dict[str, Any] | None = None
    """Of IAT: when it began, and the heads of each task with their importance."""
    work: Path | None = None
    control: Outcome | None = None

    @classmethod
    def of(cls, prepared: JointPrepared) -> JointJob:
        """With the data in the form that training needs; refuses an IAT without a step of its own."""
        parts = {
            task: Part(
                part.encoded["train"],
                part.encoded["validation"],
                part.collate,
                scorer(part.splits.task, part.splits.validation, {}),
                part.splits.task.primary,
            )
            for task, part in prepared.parts.items()
        }
        job = cls(prepared, JointMaterial.of(prepared.model, parts, prepared.recipe.sampling))
        if job.important is not None:
            job._check(job.important)
            if processes.count() > 1:
                raise InputError(
                    f"iat trains in one process, and {processes.count()} were started: leave the launcher out, or take "
                    "iat out of the recipe."
                )
        return job

    def _check(self, options: IAT) -> None:
        """Refuse now what would come to light only where IAT begins."""
        if not 0 < self.start < self.total:
            raise InputError(
                f"iat.start is {options.start} of {self.total} steps: expected at least one step before and one after "
                "it; change it, or train longer."
            )
        layers = head_weights(self.prepared.model)
        if not any(part.parameter.requires_grad for layer in layers for part in layer.parts):
            raise InputError("iat trains heads, and training.freeze keeps them all as they are: leave one of them out.")
        shape = family_of(self.prepared.model.encoder).shape
        try:
            top_heads(numpy.zeros(shape), options.heads, keep_per_layer=options.keep_per_layer)
        except InputError as error:
            raise InputError(f"iat.heads: {error}") from error

    @property
    def fingerprint(self) -> str:
        """A short hash of all examples of all tasks."""
        return self.prepared.fingerprint

    @property
    def knowledge(self) -> dict[str, dict[str, Any]]:
        """None: there are no guides on several tasks."""
        return {}

    @property
    def important(self) -> IAT | None:
        """The options of IAT."""
        return self.prepared.recipe.important

    @property
    def total(self) -> int:
        """Optimiser steps of the whole run."""
        settings = settings_of(self.prepared.recipe)
        return settings.total_steps(self.material.steps_per_epoch(settings, 1))

    @property
    def start(self) -> int:
        """The steps before IAT begins."""
        return 0 if self.important is None else int(self.important.start * self.total + 1e-9)

    def fit(self, work: Path, listener: Listener, watch: Watch | None = None) -> Outcome:
        """Train; with IAT first the trunk, then from its end once with important heads only and once as before.

        Both arms begin with the same weights, optimiser, random state and place in the data.
        """
        self.work = work
        settings, recipe = settings_of(self.prepared.recipe), self.prepared.recipe
        options = self.important
        if recipe.linear:
            return self._fit_linear(work, listener)
        if options is None:
            return fit(self.material, settings, work, [ReportProgress(listener, recipe.name)], watch=watch)
        report = ReportProgress(listener, f"{recipe.name}, all heads")
        trunk = fit(self.material, settings, work / TRUNK, [report], until=self.start, watch=watch)
        if trunk.interrupted:
            return trunk
        branch(work / TRUNK, work / ARM)
        self.chosen = self._choose(options, work / ARM / IMPORTANCE, listener)
        allowed = {task: numpy.asarray(each["heads"], dtype=bool) for task, each in self.chosen["tasks"].items()}
        callback = TrainImportantHeads(self.prepared.model, allowed, options)
        report = ReportProgress(listener, f"{recipe.name}, important heads")
        try:
            outcome = fit(self.material, settings, work / ARM, [callback, report], watch=watch)
        finally:
            callback.remove()  # the Trainer does not tell of an error
        if outcome.interrupted or not options.control:
            return outcome
        if outcome.asked_to_stop:  # too late for this arm, but not for the control
            return replace(outcome, interrupted=True)
        branch(work / TRUNK, work / CONTROL)
        report = ReportProgress(listener, f"{recipe.name}, control")
        self.control = fit(self.material, settings, work / CONTROL, [report])
        return self.control if self.control.interrupted else outcome

    def _fit_linear(self, work: Path, listener: Listener) -> Outcome:
        """No steps: the best model and the last one are the one that least squares gives."""
        for number, (task, part) in enumerate(self.prepared.parts.items()):
            listener.start(f"least squares for {task}", len(self.prepared.parts), number)
            fit_linear(self.prepared.model.classifier(task), part.encoded["train"], part.collate)
        listener.end()
        for name in (BEST, LAST) if processes.first() else ():  # of several processes, all have found the same
            save_weights(self.prepared.model, work / name)
        return Outcome(
            interrupted=False,
            steps=0,
            total_steps=0,
            best_step=0,
            seconds_per_epoch=[],
            seconds_per_step=None,
            evaluations=[],
        )

    def _choose(self, options: IAT, path: Path, listener: Listener) -> dict[str, Any]:
        """The heads of each task by their importance where the trunk ended; kept, so that a resumed run has them."""
        if path.is_file():
            return self._kept(path)
        found = {}
        for task, part in self.prepared.parts.items():
            data = part.encoded[options.split]
            listener.start(f"importance for {task}", min(len(data), options.examples))
            found[task] = importance_on(
                self.prepared.model.classifier(task),
                data,
                part.collate,
                granularity=options.granularity,
                normalise=options.normalise,
                examples=options.examples,
                seed=self.prepared.recipe.seed,
                after_batch=listener.advance,
            )
            listener.end()
        heads = important_heads({task: each.scores for task, each in found.items()}, options, self.prepared.recipe.seed)
        tasks = {
            task: {"heads": heads[task].astype(int).tolist(), "importance": each.as_dict()}
            for task, each in found.items()
        }
        chosen = {"step": self.start, "tasks": tasks}
        write_atomically(path, json.dumps(documents.finite(chosen)))
        return chosen

    def _kept(self, path: Path) -> dict[str, Any]:
        """The choice of a run that was stopped after it."""
        fix = "train again, in another folder"
        kept = documents.read_checked(path, ChosenFile, fix)
        shape = tuple(family_of(self.prepared.model.encoder).shape)
        shapes = {task: numpy.shape(each["heads"]) for task, each in kept["tasks"].items()}
        if shapes != dict.fromkeys(self.prepared.parts, shape):
            raise documents.damaged(path, "it does not name the heads of the tasks of this run", fix)
        return kept

    def finish(self, outcome: Outcome, asked: dict[str, Any], folder: Path, listener: Listener) -> dict[str, Any]:
        """Score and save the best and the last model; of IAT those of the control too, in a folder of their own."""
        if self.work is None:
            raise StateError("finish() came before fit().")
        if self.important is None:
            return self._keep(outcome, self.work, asked, folder, listener, {})
        more: dict[str, Any] = {"iat": self.chosen}
        if self.control is not None:
            recipe = self.prepared.recipe.without_iat()
            place = folder / CONTROL
            place.mkdir(exist_ok=True)
            theirs = self._keep(
                self.control, self.work / CONTROL, asked | {"recipe": recipe.as_data()}, place, listener, {}
            )
            record.write(place, theirs)
            more["control"] = {name: theirs["happened"][name] for name in ("metrics", "last", "best_step")}
        return self._keep(outcome, self.work / ARM, asked, folder, listener, more)

    def _keep(
        self,
        outcome: Outcome,
        work: Path,
        asked: dict[str, Any],
        folder: Path,
        listener: Listener,
        more: dict[str, Any],
    ) -> dict[str, Any]:
        """Write the best model to a folder and the last one below it; return the record."""
        model, tokenizer = self.prepared.model, self.prepared.encoder.tokenizer
        load_weights(model, work / LAST)
        last = summarise_joint(self.prepared, listener)
        (folder / LAST).mkdir(exist_ok=True)
        save_multitask(model, tokenizer, folder / LAST)
        load_weights(model, work / BEST)
        best = summarise_joint(self.prepared, listener)
        save_multitask(model, tokenizer, folder)
        if self.prepared.recipe.start_from is not None:
            more = {"heads_taken": list(self.prepared.taken), **more}
        content = record.compose(asked, best.happened(outcome, last) | more)
        write_log(folder, outcome)
        write_outputs(folder, best.outputs)
        write_atomically(folder / "README.md", joint_card(content))
        return content

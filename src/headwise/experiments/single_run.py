"""A run on one task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwise.disk import write_atomically
from headwise.experiments import record
from headwise.experiments.card import model_card
from headwise.experiments.happened import summarise
from headwise.experiments.job import WORK, settings_of, write_log
from headwise.experiments.outputs import write_outputs
from headwise.experiments.prepare import Prepared, fingerprint
from headwise.experiments.scoring import scorer
from headwise.experiments.snapshots import FOLDER as SNAPSHOTS
from headwise.experiments.snapshots import join_snapshots
from headwise.tasks.retrieval.task import RetrievalTask
from headwise.training import KnowledgeCollator, Listener, Material, Outcome, ReportProgress, fit, save_classifier
from headwise.training.listwise import by_claim
from headwise.training.relabelling import Probing
from headwise.training.saving import prepare_reranker
from headwise.training.snapshots import Snapshots
from headwise.training.watching import Watch


@dataclass(frozen=True)
class SingleJob:
    """One task, ready to be trained."""

    prepared: Prepared

    @property
    def fingerprint(self) -> str:
        """A short hash of all examples."""
        return fingerprint(self.prepared.encoded)

    @property
    def knowledge(self) -> dict[str, dict[str, Any]]:
        """For each guide that needs knowledge, what tells it from other knowledge."""
        return self.prepared.knowledge

    def fit(self, work: Path, listener: Listener, watch: Watch | None = None) -> Outcome:
        """Train."""
        prepared = self.prepared
        splits, task = prepared.splits, prepared.splits.task
        material = Material(
            model=prepared.model,
            train=prepared.train,
            validation=prepared.encoded["validation"],
            collate=prepared.collate,
            score=scorer(task, splits.validation, splits.gold.get("validation", {})),
            primary=task.primary,
        )
        if isinstance(task, RetrievalTask) and task.loss == "list":
            material = by_claim(material, splits.train.groups or ())
        report = ReportProgress(listener, prepared.recipe.name)
        supervision = prepared.recipe.supervision
        if supervision is not None and supervision.learns_labels:
            collate = prepared.collate.collate if isinstance(prepared.collate, KnowledgeCollator) else prepared.collate
            material = replace(material, probing=Probing(prepared.encoded["train"], collate, task.kind, report.probing))
        return fit(material, settings_of(prepared.recipe), work, [*self._snapshots(work), report], watch=watch)

    def _snapshots(self, work: Path) -> list[Snapshots]:
        """What looks at the heads from time to time, if the recipe asks for it."""
        prepared, count = self.prepared, self.prepared.recipe.training.snapshots
        if not count:
            return []
        collate = prepared.collate.collate if isinstance(prepared.collate, KnowledgeCollator) else prepared.collate
        return [Snapshots(prepared.model, prepared.encoded["validation"], collate, count, work / SNAPSHOTS)]

    def finish(self, outcome: Outcome, asked: dict[str, Any], folder: Path, listener: Listener) -> dict[str, Any]:
        """Score and save."""
        prepared = self.prepared
        happened, outputs = summarise(prepared, outcome, listener)
        content = record.compose(asked, happened)
        if prepared.splits.task.kind == "ranking":
            prepare_reranker(prepared.model, prepared.encoder.tokenizer, prepared.recipe.data.max_length)
        save_classifier(prepared.model, prepared.encoder.tokenizer, folder, prepared.recipe.head)
        write_log(folder, outcome)
        write_outputs(folder, outputs)
        looked_at = min(prepared.recipe.training.snapshots, len(prepared.encoded["validation"]))
        join_snapshots(folder / WORK, folder, looked_at)
        write_atomically(folder / "README.md", model_card(content))
        return content

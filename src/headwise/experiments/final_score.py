"""The final score of a re-ranker's run: BM25, cosine and re-ranker together, with weights fitted on validation.

What a run writes is never worse on validation than its own first stage: a re-ranker that does not help gets weight 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from headwise.metrics.ranking import ranking_per_query, ranking_scores_of
from headwise.retrieval.collections import Qrels
from headwise.retrieval.fusion import FinalScore, Fit, StageScores, Weights, fit_weights, fuse
from headwise.retrieval.pairs import Pairs

if TYPE_CHECKING:
    from headwise.experiments.splits import Splits

# The measures of every claim, by its id.
PerClaim = dict[str, dict[str, float]]


@dataclass(frozen=True)
class FirstStage:
    """What the first stage says about the claims of a run, and what is right."""

    score: FinalScore
    """Of BM25 and cosine alone; its `offset` is the factor of residual training."""
    scores: Mapping[str, Mapping[str, StageScores]]
    """Of all candidates, by split (validation, test) and claim."""
    qrels: Mapping[str, Qrels]
    """Of these claims, by split."""
    offsets: NDArray[Any] | None = None
    """[N] of each training pair, what is added to its logit in the loss; None without residual."""
    warm_up: Pairs | None = None
    """Titles and abstracts that are trained on before the claims."""

    def with_reranker(self, split: str, pairs: Any, logits: NDArray[Any]) -> dict[str, StageScores]:
        """The scores of all stages, by claim; papers that were not read have no score of the re-ranker.

        Args:
            split: validation or test.
            pairs: the candidates that were read, as `Pairs`.
            logits: [N] what the model says about them.
        """
        read: dict[str, dict[str, float]] = {}
        for claim, paper, logit in zip(pairs.groups or (), pairs.papers, logits.tolist(), strict=True):
            read.setdefault(claim, {})[paper] = logit
        return {
            claim: self.score.with_reranker(scores, read.get(claim, {})) for claim, scores in self.scores[split].items()
        }

    def measures(self, split: str, scores: Mapping[str, StageScores], weights: Weights) -> dict[str, float]:
        """The measures of a split, with the candidates in the order of the fused scores."""
        return ranking_scores_of(**self._ranked(split, scores, weights))

    def per_claim(self, split: str, scores: Mapping[str, StageScores], weights: Weights) -> PerClaim:
        """The measures of every claim."""
        return ranking_per_query(**self._ranked(split, scores, weights))

    def _ranked(self, split: str, scores: Mapping[str, StageScores], weights: Weights) -> dict[str, Any]:
        qrels = self.qrels[split]
        rows = [
            (score, qrels[claim].get(paper, 0) > 0, claim)
            for claim, each in scores.items()
            for paper, score in zip(each.documents, fuse(each, weights).tolist(), strict=True)
        ]
        logits, labels, groups = zip(*rows, strict=True)
        gold = {claim: sum(grade > 0 for grade in grades.values()) for claim, grades in qrels.items()}
        return {"logits": numpy.array(logits), "labels": numpy.array(labels), "groups": groups, "gold": gold}


def final_results(
    splits: Splits, logits: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, dict[str, float]], dict[str, PerClaim], dict[str, Any]]:
    """Fit the weights of the final score on validation, and score all splits with them.

    Args:
        splits: of a re-ranker.
        logits: [N] what the model says about the candidates, by split.

    Returns:
        The metrics by split, the same for every claim, and what the record keeps of the final score.
    """
    first: Any = splits.first
    task: Any = splits.task
    scores = {use: first.with_reranker(use, splits.named[use], each) for use, each in logits.items()}
    fit = fit_weights(
        scores["validation"],
        first.qrels["validation"],
        first=first.score.first,
        measure=task.primary,
        split="validation",
    )
    kept = {
        "stage": task.stage,
        "encoder": None if task.stage == "bm25" else task.encoder,
        "depth": task.validation_candidates,
        "offset": first.score.offset,
        "fit": fit.as_data(),
        "first_stage": {use: first.measures(use, each, first.score.first) for use, each in scores.items()},
    }
    metrics = {use: first.measures(use, each, fit.weights) for use, each in scores.items()}
    return metrics, {use: first.per_claim(use, each, fit.weights) for use, each in scores.items()}, kept


def final_sentences(results: Mapping[str, Any]) -> list[str]:
    """What a finished run says about its final score; nothing of a run of another kind."""
    final = results.get("final")
    if final is None:
        return []
    fit, depth = Fit.from_data(final["fit"]), final["depth"]
    after, before = (each["validation"][fit.measure] for each in (results["metrics"], final["first_stage"]))
    return [
        f"final score: {fit.weights}, of the best {depth} papers of the first stage",
        f"validation {fit.measure} {after:.4f}, against {before:.4f} of the first stage alone: {fit.note}",
    ]

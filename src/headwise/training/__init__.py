"""Training: the only place that knows transformers' Trainer.

What a run on one task without token labels and knowledge about words does not need is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwise.registry import lazy_names
from headwise.training.callbacks import Listener, ReportProgress, Silence
from headwise.training.encoders import BUILTIN, Encoder, check_length, find_encoder, freeze, load_classifier
from headwise.training.fit import Outcome, fit
from headwise.training.predict import predict_logits, predictions_of, score_logits
from headwise.training.run_trainer import Material, RunArguments, TaskData, run_arguments
from headwise.training.saving import load, load_classifier_folder, save_classifier
from headwise.training.trainer import GuideCallback, GuidedTrainer, log_losses

if TYPE_CHECKING:
    from headwise.training.multitask import MultiTask
    from headwise.training.relabelling import SSACallback, relabel
    from headwise.training.word_knowledge import (
        KnowledgeCollator,
        Need,
        WithKnowledge,
        add_knowledge,
        check_known,
        check_sources,
        needs_of,
    )

__all__ = [
    "BUILTIN",
    "Encoder",
    "GuideCallback",
    "GuidedTrainer",
    "KnowledgeCollator",
    "Listener",
    "Material",
    "MultiTask",
    "Need",
    "Outcome",
    "ReportProgress",
    "RunArguments",
    "SSACallback",
    "Silence",
    "TaskData",
    "WithKnowledge",
    "add_knowledge",
    "check_known",
    "check_length",
    "check_sources",
    "find_encoder",
    "fit",
    "freeze",
    "load",
    "load_classifier",
    "load_classifier_folder",
    "log_losses",
    "needs_of",
    "predict_logits",
    "predictions_of",
    "relabel",
    "run_arguments",
    "save_classifier",
    "score_logits",
]

__getattr__ = lazy_names(
    __name__,
    {
        "multitask": ("MultiTask",),
        "relabelling": ("SSACallback", "relabel"),
        "word_knowledge": (
            "KnowledgeCollator",
            "Need",
            "WithKnowledge",
            "add_knowledge",
            "check_known",
            "check_sources",
            "needs_of",
        ),
    },
)

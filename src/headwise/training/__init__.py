"""Training: the only place that knows transformers' Trainer."""

from headwise.training.encoders import BUILTIN, Encoder, check_length, find_encoder, load_classifier
from headwise.training.fit import Outcome, fit
from headwise.training.freezing import freeze
from headwise.training.knowledge import (
    KnowledgeCollator,
    Need,
    WithKnowledge,
    add_knowledge,
    check_known,
    check_sources,
    needs_of,
)
from headwise.training.loading import load
from headwise.training.logs import GuideLog, log_losses
from headwise.training.material import JointMaterial, Material, Part
from headwise.training.multitask import MultiTask
from headwise.training.predict import predict_logits, predictions_of, score_logits
from headwise.training.progress import Listener, ReportProgress, Silence
from headwise.training.relabelling import relabel
from headwise.training.reranking import Reranker
from headwise.training.saving import load_classifier_folder, save_classifier
from headwise.training.settings import Settings
from headwise.training.trainer import GuidedTrainer

__all__ = [
    "BUILTIN",
    "Encoder",
    "GuideLog",
    "GuidedTrainer",
    "JointMaterial",
    "KnowledgeCollator",
    "Listener",
    "Material",
    "MultiTask",
    "Need",
    "Outcome",
    "Part",
    "ReportProgress",
    "Reranker",
    "Settings",
    "Silence",
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
    "save_classifier",
    "score_logits",
]

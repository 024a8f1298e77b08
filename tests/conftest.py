"""Tiny random models of every family, and batches for them: no network, no weights."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import pytest
import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

pytest_plugins = ["tiny_runs", "tiny_joint", "small_sweeps", "small_tunes", "small_reports", "small_commands"]


@pytest.fixture(scope="session", autouse=True)
def _quick_and_alike(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Before anything else is made: the number of threads decides the last bits.

    And the Trainer collects garbage before it trains: that need not walk through all libraries each time. Nothing is
    read from the user's cache, or written to it.
    """
    os.environ["HEADWISE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
    "num_labels": 3,
    "pad_token_id": 1,
    "attention_probs_dropout_prob": 0.0,
    "hidden_dropout_prob": 0.0,
}

# family -> (class prefix, what differs from SIZES)
FUSED: dict[str, tuple[str, dict[str, object]]] = {
    "bert": ("Bert", {}),
    "roberta": ("Roberta", {}),
    "xlm-roberta": ("XLMRoberta", {}),
    "camembert": ("Camembert", {}),
    "albert": ("Albert", {"embedding_size": 16, "classifier_dropout_prob": 0.0}),
    "distilbert": ("DistilBert", {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0}),
    "electra": ("Electra", {"embedding_size": 16}),
    "ernie": ("Ernie", {}),
    "mobilebert": (
        "MobileBert",
        {"embedding_size": 16, "intra_bottleneck_size": 32, "true_hidden_size": 32, "num_feedforward_networks": 2},
    ),
    "modernbert": (
        "ModernBert",
        {
            "global_attn_every_n_layers": 2,
            "local_attention": 4,
            "attention_dropout": 0.0,
            "mlp_dropout": 0.0,
            "embedding_dropout": 0.0,
            "classifier_dropout": 0.0,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
    ),
}
EAGER: dict[str, tuple[str, dict[str, object]]] = {
    "deberta-v2": (
        "DebertaV2",
        {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
        },
    ),
    "mpnet": ("MPNet", {}),
}
FAMILIES = {**FUSED, **EAGER}
# One for each way to attention: fused, fused with windows and one matrix for query, key and value, and eager.
ROUTES = ("bert", "modernbert", "deberta-v2")

Build = Callable[..., PreTrainedModel]


def build_model(
    family: str, *, dropout: float = 0.0, dtype: torch.dtype = torch.float32, **changes: object
) -> PreTrainedModel:
    """A tiny classifier, the same each time; biases are random too, so that nothing is zero by chance."""
    prefix, special = FAMILIES[family]
    options = {**SIZES, "attention_probs_dropout_prob": dropout, **special}
    if "attention_dropout" in special:
        options["attention_dropout"] = dropout
    options.update(changes)
    torch.manual_seed(7)
    config = getattr(transformers, f"{prefix}Config")(**options)
    model = getattr(transformers, f"{prefix}ForSequenceClassification")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype)


def build_batch(*, size: int = 3, length: int = 12, padding: int = 0, left: bool = False) -> dict[str, Tensor]:
    """Sentences of different lengths; `padding` more columns of padding on top."""
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(5, 60, (size, length), generator=generator)
    mask = torch.ones(size, length, dtype=torch.long)
    for example in range(size):
        mask[example, length - 3 * example :] = 0
    extra = torch.zeros(size, padding, dtype=torch.long)
    ids = torch.cat([ids.masked_fill(mask == 0, 1), extra + 1], 1)
    mask = torch.cat([mask, extra], 1)
    if left:
        ids, mask = ids.flip(1), mask.flip(1)
    labels = torch.arange(size) % 3
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def pytest_configure(config: pytest.Config) -> None:
    # transformers uses it in its DeBERTa files, as soon as they are imported: not ours to mend.
    config.addinivalue_line("filterwarnings", "ignore:.torch.jit.script. is deprecated:DeprecationWarning")


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    """Every supported family in turn."""
    return str(request.param)


@pytest.fixture
def model() -> PreTrainedModel:
    """A tiny BERT in training mode, without dropout."""
    return build_model("bert").train()


@pytest.fixture
def batch() -> dict[str, Tensor]:
    """Three sentences of 12, 9 and 6 tokens."""
    return build_batch()


@pytest.fixture(autouse=True)
def _same_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    # For tiny models a second thread is only in the way, above all where other programs run beside the tests.
    torch.set_num_threads(1)

"""A saved tiny encoder with a tokenizer of single letters and words: what a user has in a folder."""

from __future__ import annotations

from pathlib import Path

from conftest import build_model
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = [f"word{number}" for number in range(50)]


def build_tokenizer(**options: object) -> PreTrainedTokenizerFast:
    """Cuts at 8 and pads to 8 by itself, as some saved tokenizers do."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[PAD]", "[CLS]", "[SEP]", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.enable_truncation(8)
    backend.enable_padding(pad_id=1, pad_token="[PAD]", length=8)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        **options,
    )


def save_encoder(folder: Path, family: str = "bert", *, tokenizer: dict[str, object] | None = None, **changes) -> Path:
    """The folder, with config, weights and tokenizer."""
    build_model(family, **changes).save_pretrained(folder)
    build_tokenizer(**(tokenizer or {})).save_pretrained(folder)
    return folder

"""Tiny classifiers with self-supervised attention, and batches of pairs for them."""

import torch
from conftest import build_batch, build_model
from training.tiny_encoder import build_tokenizer

import headwise as hw

# Its [PAD] is 1, [CLS] 2, [SEP] 3; ids above are text, the mask token among them.
TOKENIZER = build_tokenizer(mask_token="[MASK]")
CLS, SEP = 2, 3


# The weights and the blend of the authors, whose numbers can be written down; test_balance.py is about ours.
AUTHORS = {"aug_loss_weight": 0.3, "attention_threshold": 0.5, "normalise_blend": False}


def supervised(inner="bert", /, *, max_length=None, settings=AUTHORS, **options):
    """A model with SSA whose token head has something to say, so that some tokens are kept and some are not."""
    model = build_model(inner) if isinstance(inner, str) else inner
    torch.manual_seed(0)
    hw.self_supervise(model, {**settings, **options}, tokenizer=TOKENIZER, max_length=max_length)
    with torch.no_grad():
        for parameter in model.ssa.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model.eval()


def pairs(*, roberta=False):
    """Three pairs of texts of different lengths, padded on the right; the second separator is RoBERTa's."""
    batch = build_batch()
    ids, lengths = batch["input_ids"], batch["attention_mask"].sum(1).tolist()
    for example, length in enumerate(lengths):
        ids[example, 0], ids[example, 3], ids[example, length - 1] = CLS, SEP, SEP
        if roberta:
            ids[example, 4] = SEP
    return batch


def text_of(batch):
    """[B,T] which tokens are text, computed without the library."""
    ids = batch["input_ids"]
    return (batch["attention_mask"] == 1) & (ids != CLS) & (ids != SEP)


def labels_of(batch):
    """A label for each token, also where there should be none."""
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, 2, batch["input_ids"].shape, generator=generator).float()


def inputs_of(batch):
    return {name: value for name, value in batch.items() if name != "labels"}


def close(first, second, tolerance=1e-5):
    torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)

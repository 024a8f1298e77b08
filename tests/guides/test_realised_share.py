"""Automatic weights on a real encoder: the share that a run of 100 steps realises is the requested one."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup

import headwise as hw
from headwise.data.clinic.generator import generate
from headwise.training.encoders import builtin_folder

pytestmark = pytest.mark.slow  # 100 steps of a real encoder, each with measured gradients

STEPS, BATCH, RATE = 100, 16, 1e-4


def batches(tokenizer):
    """Short pairs of clinical sentences."""
    pairs = generate("train", STEPS * BATCH, seed=3)
    for start in range(0, len(pairs), BATCH):
        some = pairs[start : start + BATCH]
        texts = [pair.premise for pair in some], [pair.hypothesis for pair in some]
        labels = torch.tensor([pair.label for pair in some])
        yield {**tokenizer(*texts, padding=True, return_tensors="pt"), "labels": labels}


GUIDES = {"mdg": hw.MDG(weight=hw.auto(0.03)), "next": hw.Match("next", weight=hw.auto(0.1))}


@pytest.mark.parametrize("guide", GUIDES.values(), ids=GUIDES)
def test_the_realised_share_is_the_requested_one(guide):
    torch.manual_seed(0)
    folder = builtin_folder("builtin:minilm-l6")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.no_padding()
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3).train()
    torch.nn.init.normal_(model.bert.pooler.dense.weight, std=0.02)  # that of the file is untrained, and too small
    hw.guide(model, guide)
    guidance = hw.guides.guidance(model)
    head = [*model.bert.pooler.parameters(), *model.classifier.parameters()]
    rest = [each for each in model.parameters() if all(each is not other for other in head)]
    groups = [{"params": rest, "lr": RATE}, {"params": head, "lr": 10 * RATE}]
    optimiser = torch.optim.AdamW(groups, fused=True)
    schedule = get_linear_schedule_with_warmup(optimiser, 10, STEPS)
    shares = []
    for batch in batches(tokenizer):
        loss = model(**batch).loss
        shares += guidance.gradient_share().values()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
    assert len(shares) == STEPS
    realised = sum(shares) / STEPS
    assert abs(realised / guide.weight.share - 1) < 0.2, realised

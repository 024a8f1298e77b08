"""Rationale: loops over examples and heads; one case by hand; its control; what it refuses."""

import math
from functools import partial

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import record_of
from tiny_runs import SIGNS, build_tokenizer
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

import headwise as hw
from headwise.attention import Inputs
from headwise.errors import InputError

MARKS = [[0, 1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0], [0] * 8]


def slow(maps, valid, marked, positions, *, form="log", mass=0.5, queries="all"):
    """A number per example with marks; `maps` [B,M,Q,K] with rows of padding at 0."""
    values = []
    for example in range(len(maps)):
        keys = [k for k in range(maps.shape[-1]) if positions[example, k]]
        reason = [k for k in keys if marked[example, k]]
        if not reason:
            continue
        losses = []
        for one in maps[example]:
            row = (
                one[0]
                if queries == "cls"
                else sum(row for row, token in zip(one, valid[example], strict=True) if token)
            )
            total = sum(row[k] for k in keys)
            share = {k: row[k] / total for k in keys}
            on_marks = sum(share[k] for k in reason)
            if form == "log":
                losses.append(-torch.log(on_marks))
            elif form == "hinge":
                losses.append(torch.log(mass / on_marks) if on_marks < mass else on_marks * 0)
            else:
                losses.append(sum(1 / len(reason) * torch.log(1 / len(reason) / share[k]) for k in reason))
        values.append(sum(losses) / len(losses))
    return sum(values) / len(values)


def example(queries="all"):
    torch.manual_seed(0)
    valid = torch.arange(8) < torch.tensor([8, 6, 7])[:, None]
    special = torch.zeros_like(valid)
    special[:, 0] = True
    scores = torch.randn(3, 4, 8, 8, dtype=torch.float64) * 2
    maps = scores.masked_fill(~valid[:, None, None], -torch.inf).softmax(-1) * valid[:, None, :, None]
    maps.requires_grad_()
    record = record_of(maps, valid, layers=2, special=special)
    if queries == "cls":
        record.what = "cls"
        record.fill({0: maps[:, :2, 0], 1: maps[:, 2:, 0]}, valid, special)
    ids = torch.randint(5, 60, (3, 8))
    return maps, valid, special, record, Inputs(ids, valid.long(), None, rationale_mask=torch.tensor(MARKS))


@pytest.mark.parametrize("queries", ["all", "cls"])
@pytest.mark.parametrize(
    "options", [{}, {"form": "kl"}, {"form": "hinge", "mass": 0.3}, {"form": "hinge", "mass": 0.9}]
)
@pytest.mark.parametrize("special_tokens", [True, False])
def test_equals_the_slow_reference(options, queries, special_tokens):
    maps, valid, special, record, inputs = example(queries)
    guide = hw.Rationale(queries=queries, special_tokens=special_tokens, **options)
    positions = valid if special_tokens else valid & ~special
    expected = slow(maps, valid, torch.tensor(MARKS), positions, queries=queries, **options)
    actual = guide(record, inputs)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    mine, theirs = (torch.autograd.grad(value, maps, retain_graph=True)[0] for value in (actual, expected))
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_by_hand():
    """One head, three tokens; the marked one gets 0.2 + 0.4 + 0.9 of 3."""
    maps = torch.tensor([[[[0.5, 0.2, 0.3], [0.3, 0.4, 0.3], [0.1, 0.9, 0.0]]]])
    inputs = Inputs(None, None, None, rationale_mask=torch.tensor([[0, 1, 0]]))
    record = record_of(maps, torch.ones(1, 3, dtype=torch.bool))
    whole = partial(hw.Rationale, special_tokens=True)
    assert whole()(record, inputs).item() == pytest.approx(-math.log(0.5))
    assert whole(form="hinge", mass=0.8)(record, inputs).item() == pytest.approx(math.log(1.6))
    assert whole(form="hinge", mass=0.4)(record, inputs).item() == 0
    # Without the first token, a special one: 1.5 of 2.1.
    first = torch.tensor([[True, False, False]])
    text = record_of(maps, torch.ones(1, 3, dtype=torch.bool), special=first)
    assert hw.Rationale()(text, inputs).item() == pytest.approx(-math.log(1.5 / 2.1))


def test_the_control_marks_as_many_other_tokens_of_the_text():
    _, valid, special, record, inputs = example()
    guide = hw.Rationale(shuffle=True)
    marked = guide._marked(record, inputs)
    assert marked.sum(1).tolist() == [2, 1, 0]
    assert not (marked & (special | ~valid)).any()
    seen = torch.zeros(8)
    torch.manual_seed(1)
    for _ in range(200):
        ids = torch.randint(5, 1000, (3, 8))
        seen += guide._marked(record, Inputs(ids, None, None, rationale_mask=torch.tensor(MARKS)))[0]
    assert (seen[1:] / 200 - 2 / 7).abs().max() < 0.11  # 3.5 standard deviations
    assert torch.equal(guide._marked(record, inputs), marked)  # always the same ones


def test_training_by_marks_moves_attention_there():
    """In any loop: the mass on the marked tokens rises, and more than with other marks."""
    batch = {name: value for name, value in build_batch().items()}
    marked = torch.zeros_like(batch["input_ids"])
    marked[:, 2] = 1
    masses = {}
    for shuffle in (False, True):
        model = build_model("bert").train()
        hw.guide(model, hw.Rationale(weight=1.0, shuffle=shuffle, layers="all"), tokenizer=TOKENIZER)
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(15):
            model(**batch, rationale_mask=marked).loss.backward()
            optimiser.step()
            optimiser.zero_grad()
        hw.unguide(model)
        with hw.capture(model.eval()) as record, torch.no_grad():
            model(**batch)
        received = record.stacked()
        masses[shuffle] = (received[:, :, 2] / received.sum(2)).mean().item()
    assert masses[False] > 0.5 > 0.3 > masses[True]


class Tokenizer:
    all_special_ids = (2, 3)


TOKENIZER = Tokenizer()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mass": 1.0}, "rationale\\(mass=1.0\\): expected a number between 0 and 1"),
        ({"form": "mse"}, "expected one of 'log', 'hinge', 'kl'"),
        ({"queries": "first"}, "expected one of 'all', 'cls'"),
        ({"queries": "cls", "dropout": "after"}, "is seen before dropout"),
    ],
)
def test_options_that_cannot_work(options, message):
    with pytest.raises(InputError, match=message):
        hw.Rationale(**options)


def test_batches_that_cannot_work():
    model, batch = build_model("bert").train(), build_batch()
    hw.guide(model, hw.Rationale(weight=0.1))
    with pytest.raises(InputError, match="the batch has no rationale_mask"):
        model(**batch)
    with pytest.raises(InputError, match=r"rationale_mask is \[3, 5\]: expected a value per token"):
        model(**batch, rationale_mask=torch.zeros(3, 5))
    with pytest.raises(InputError, match="does not know which tokens are special: pass tokenizer"):
        model(**batch, rationale_mask=batch["attention_mask"])
    hw.unguide(model)
    hw.guide(model, hw.Rationale(weight=0.1, special_tokens=True, shuffle=True))
    with pytest.raises(InputError, match="shuffle=True. does not know which tokens are special"):
        model(**batch, rationale_mask=batch["attention_mask"])


def test_a_batch_without_marks_adds_nothing():
    model, batch = build_model("bert").train(), build_batch()
    hw.guide(model, hw.Rationale(weight=0.1), tokenizer=TOKENIZER)
    loss = model(**batch, rationale_mask=torch.zeros_like(batch["input_ids"])).loss
    assert hw.guides.last_losses(model)["rationale"] == 0
    loss.backward()


def test_in_any_trainer(tmp_path):
    """As docs/marks.md says: a column of masks, the collator, and the columns kept."""
    tokenizer = build_tokenizer()
    texts = ["a cat surely sees", "the dog never finds a bird", "perhaps the old man"] * 4
    tokens = tokenizer(texts, truncation=True)
    spans = [
        [(text.index(word), text.index(word) + len(word))] for text in texts for word in SIGNS.values() if word in text
    ]
    tokens["rationale_mask"] = hw.data.rationale_mask(tokens, spans)
    columns = {name: tokens[name] for name in ("input_ids", "attention_mask", "rationale_mask")}
    data = [
        {"labels": number % 3, **{name: column[number] for name, column in columns.items()}}
        for number in range(len(texts))
    ]
    model = build_model("bert")
    hw.guide(model, hw.Rationale(weight=0.5, layers="all"), tokenizer=tokenizer)
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        remove_unused_columns=False,
        max_steps=3,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        eval_dataset=data,
        data_collator=hw.data.RationaleCollator(DataCollatorWithPadding(tokenizer)),
        callbacks=[hw.GuideCallback()],
    )
    trainer.train()
    logged = [entry["guide/rationale"] for entry in trainer.state.log_history if "guide/rationale" in entry]
    assert len(logged) == 3
    assert all(value > 0 for value in logged)
    assert trainer.predict(data).predictions.shape == (12, 3)

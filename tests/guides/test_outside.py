"""Losses that are computed outside of the model: guided on request, and never forgotten without a word."""

import copy

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import assert_same_gradients, gradients
from torch import nn
from torch.nn.functional import cross_entropy

import headwise as hw
from headwise.errors import HeadwiseWarning, InputError, StateError

FORGOTTEN = (
    r"trained without the guides \(mdg\).*hw.guides.GuidedLoss\(loss\).*hw.GuidedTrainer.*"
    r"hw.guides.guidance\(model\).total"
)


class Outside(nn.Module):
    """A loss that holds its model and calls it once for every part of the batch."""

    def __init__(self, model, *sizes):
        super().__init__()
        self.model, self.sizes = model, sizes

    def forward(self, batch, labels):
        parts = zip(*(torch.split(each, self.sizes or len(labels)) for each in batch), strict=True)
        logits = torch.cat([self.model(input_ids=ids, attention_mask=mask).logits for ids, mask in parts])
        return cross_entropy(logits, labels)


class InParts(Outside):
    """The same by name, as some losses of sentence-transformers return it."""

    def forward(self, batch, labels):
        loss = super().forward(batch, labels)
        return {"most": 0.75 * loss, "rest": 0.25 * loss}


class Choosing(Outside):
    """A loss that first looks at its examples without gradients."""

    def forward(self, batch, labels):
        with torch.no_grad():
            self.model(input_ids=batch[0][:1])
        return super().forward(batch, labels)


class Inside(Outside):
    """A loss that lets the model compute its own."""

    def forward(self, batch, labels):
        return self.model(input_ids=batch[0], attention_mask=batch[1], labels=labels).loss


class Cached(Outside):
    """A loss that would call the model again in the backward pass."""

    def forward(self, batch, labels):
        with torch.no_grad():
            loss = super().forward(batch, labels)
        return loss.requires_grad_()


def exact(**options):
    model = build_model("bert", dtype=torch.float64, **options).train()
    return hw.guide(model, hw.MDG(weight=0.5) + hw.PDG(weight=0.1))


def lonely(weight=0.5):
    """A guided model, its optimiser, and what it is called with."""
    model = hw.guide(build_model("bert").train(), hw.MDG(weight=weight))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), {"input_ids": build_batch()["input_ids"]}


def inputs():
    batch = build_batch(size=3)
    return (batch["input_ids"], batch["attention_mask"]), batch["labels"]


def expected():
    model = exact()
    return gradients(model, model(**build_batch(size=3)).loss), hw.guides.last_losses(model)


@pytest.mark.parametrize(
    "loss_of",
    [
        Outside,
        Inside,
        Choosing,
        lambda model: Outside(model, 1, 2),
        lambda model: Outside(model, 1, 1, 1),
    ],
)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_guided_loss_is_what_the_model_would_have_made_of_one_batch(loss_of, checkpointing):
    model = exact()
    if checkpointing:  # layers that are computed once more belong to their pass
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    mine = gradients(model, hw.guides.GuidedLoss(loss_of(model))(*inputs()))
    theirs, parts = expected()
    assert_same_gradients(mine, theirs)
    assert hw.guides.last_losses(model) == pytest.approx(parts, rel=1e-12)


def test_a_loss_in_parts_gets_the_guides_as_one_more():
    model = exact()
    parts = hw.guides.GuidedLoss(InParts(model))(*inputs())
    theirs, numbers = expected()
    assert_same_gradients(gradients(model, sum(parts.values())), theirs)
    assert list(parts) == ["most", "rest", "guides"]
    assert parts["guides"].item() == pytest.approx(numbers["mdg_weighted"] + numbers["pdg_weighted"])


def test_automatic_weights_measure_the_mean_of_all_passes():
    whole, cut = (hw.guide(hw.unguide(exact()), hw.MDG(weight=hw.auto(0.2))) for _ in range(2))
    wrapped = [hw.guides.GuidedLoss(Outside(model, *sizes)) for model, sizes in ((whole, ()), (cut, (1, 2)))]
    for loss, model in zip(wrapped, (whole, cut), strict=True):  # the first step shows the gradient of the task
        loss(*inputs()).backward()
        torch.optim.SGD(model.parameters(), lr=0.0).step()
    losses = [loss(*inputs()) for loss in wrapped]
    assert hw.guides.guidance(cut).gradient_share()["mdg"] == pytest.approx(0.2)
    assert hw.guides.guidance(whole).gradient_share()["mdg"] == pytest.approx(0.2)
    assert hw.guides.last_losses(cut) == pytest.approx(hw.guides.last_losses(whole))
    assert_same_gradients(gradients(cut, losses[1]), gradients(whole, losses[0]))


def test_evaluation_is_the_loss_alone():
    model = exact()
    before, loss = hw.guides.guidance(model).losses, Outside(model)
    model.eval()
    assert torch.equal(hw.guides.GuidedLoss(loss)(*inputs()), loss(*inputs()))
    assert hw.guides.guidance(model).losses is before


def test_a_loss_that_fails_leaves_the_model_as_it_should_be():
    model = exact()
    with pytest.raises(ValueError, match="batch_size"):
        hw.guides.GuidedLoss(Outside(model))(inputs()[0], torch.zeros(5, dtype=torch.long))
    assert_same_gradients(gradients(model, model(**build_batch(size=3)).loss), expected()[0])


def test_it_shows_the_model_of_its_loss_if_that_has_one():
    model = exact()
    assert hw.guides.GuidedLoss(Outside(model)).model is model
    assert not hasattr(hw.guides.GuidedLoss(nn.CrossEntropyLoss()), "model")


class Vector(Outside):
    """No scalar."""

    def forward(self, batch, labels):
        return self.model(input_ids=batch[0]).logits[0]


@pytest.mark.parametrize(
    ("loss", "kind", "message"),
    [
        (lambda: Cached(exact()), StateError, r"once more in the backward pass.*without Cached in its name"),
        (lambda: Vector(exact()), InputError, "expected a scalar tensor, or scalar tensors by name"),
        (lambda: cross_entropy, InputError, "expected a loss that holds the model"),
        (lambda: nn.Sequential(hw.guides.GuidedLoss(Outside(exact()))), InputError, "would add the guides twice"),
        (lambda: Outside(hw.unguide(exact())), StateError, r"model of Outside is not guided: call guide\(model"),
    ],
)
def test_a_loss_that_cannot_be_guided_is_refused(loss, kind, message):
    with pytest.raises(kind, match=message):
        hw.guides.GuidedLoss(loss())(*inputs())


def test_a_model_without_guides_is_refused_only_where_it_would_train():
    loss = hw.guides.GuidedLoss(Outside(hw.unguide(exact())))
    with torch.no_grad():
        assert torch.equal(loss(*inputs()), loss.loss(*inputs()))


# -- forgotten guides --------------------------------------------------------------------------------------------------


def train(model, optimiser, batch, *, total=False):
    loss = model(**batch).logits.square().mean()
    (hw.guides.guidance(model).total(loss) if total else loss).backward()
    optimiser.step()
    optimiser.zero_grad()


def test_a_step_without_the_guides_is_warned_of_once():
    model, optimiser, batch = lonely()
    twin = copy.deepcopy(model)
    with pytest.warns(HeadwiseWarning, match=FORGOTTEN):
        train(model, optimiser, batch)
    train(model, optimiser, batch)  # warnings are errors here: a second one would fail this
    with pytest.warns(HeadwiseWarning, match=FORGOTTEN):
        train(twin, torch.optim.SGD(twin.parameters(), lr=0.01), batch)


def accumulate(model, optimiser, batch):
    for _ in range(2):
        hw.guides.guidance(model).total(model(**batch).logits.square().mean()).backward()
    optimiser.step()


def call_for_something_else(model, optimiser, batch):
    (model(**build_batch()).loss + model(**batch).logits.mean()).backward()
    optimiser.step()


def learn_nothing_from_the_call(model, optimiser, batch):
    with torch.no_grad():
        model(**batch)
    model.eval()
    model(**batch)
    model.train()
    optimiser.step()


def train_another_model(model, optimiser, batch):
    model(**batch)
    torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1).step()


@pytest.mark.parametrize(
    ("weight", "step"),
    [
        (0.5, lambda *parts: train(*parts, total=True)),
        (0.5, accumulate),
        (0.5, call_for_something_else),
        (0.5, learn_nothing_from_the_call),
        (0.5, train_another_model),
        (0.0, train),
    ],
)
def test_no_false_alarm(weight, step):
    """Warnings are errors here: an alarm would fail this."""
    parts = lonely(weight)
    for _ in range(2):
        step(*parts)

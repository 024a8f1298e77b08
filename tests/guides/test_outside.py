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
def test_a_guided_loss_is_what_the_model_would_have_made_of_one_batch(loss_of):
    model = exact()
    mine = gradients(model, hw.guides.GuidedLoss(loss_of(model))(*inputs()))
    theirs, parts = expected()
    assert_same_gradients(mine, theirs)
    assert hw.guides.last_losses(model) == pytest.approx(parts, rel=1e-12)


def test_layers_that_are_computed_once_more_belong_to_their_pass():
    model = exact()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    loss = hw.guides.GuidedLoss(Outside(model, 1, 2))(*inputs())
    assert_same_gradients(gradients(model, loss), expected()[0])


def test_a_loss_in_parts_gets_the_guides_as_one_more():
    model = exact()
    parts = hw.guides.GuidedLoss(InParts(model))(*inputs())
    theirs, numbers = expected()
    assert_same_gradients(gradients(model, sum(parts.values())), theirs)
    assert list(parts) == ["most", "rest", "guides"]
    assert parts["guides"].item() == pytest.approx(numbers["mdg_weighted"] + numbers["pdg_weighted"])


def test_automatic_weights_measure_the_mean_of_all_passes():
    whole, cut = (hw.guide(hw.unguide(exact()), hw.MDG(weight=hw.auto(0.2))) for _ in range(2))
    losses = [hw.guides.GuidedLoss(Outside(model, *sizes))(*inputs()) for model, sizes in ((whole, ()), (cut, (1, 2)))]
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


def test_a_gradient_cache_is_refused():
    with pytest.raises(StateError, match=r"once more in the backward pass.*without Cached in its name"):
        hw.guides.GuidedLoss(Cached(exact()))(*inputs())


def test_a_model_without_guides_is_refused_where_it_would_train():
    model = hw.unguide(exact())
    loss = hw.guides.GuidedLoss(Outside(model))
    with pytest.raises(StateError, match=r"the model of Outside is not guided: call guide\(model"):
        loss(*inputs())
    with torch.no_grad():
        assert torch.equal(loss(*inputs()), loss.loss(*inputs()))


def test_what_is_no_loss_is_refused():
    with pytest.raises(InputError, match="expected a loss that holds the model"):
        hw.guides.GuidedLoss(cross_entropy)
    with pytest.raises(InputError, match="would add the guides twice"):
        hw.guides.GuidedLoss(nn.Sequential(hw.guides.GuidedLoss(Outside(exact()))))

    class Vector(Outside):
        def forward(self, batch, labels):
            return self.model(input_ids=batch[0]).logits[0]

    with pytest.raises(InputError, match="expected a scalar tensor, or scalar tensors by name"):
        hw.guides.GuidedLoss(Vector(exact()))(*inputs())


# -- forgotten guides --------------------------------------------------------------------------------------------------


def train(model, optimiser, batch, *, total=False):
    loss = model(**batch).logits.square().mean()
    (hw.guides.guidance(model).total(loss) if total else loss).backward()
    optimiser.step()
    optimiser.zero_grad()


def test_a_step_without_the_guides_is_warned_of_once():
    model, optimiser, batch = lonely()
    with pytest.warns(HeadwiseWarning, match=FORGOTTEN):
        train(model, optimiser, batch)
    train(model, optimiser, batch)  # warnings are errors here: a second one would fail this


def test_a_copy_warns_about_its_steps():
    model, _, batch = lonely()
    twin = copy.deepcopy(model)
    with pytest.warns(HeadwiseWarning, match=FORGOTTEN):
        train(twin, torch.optim.SGD(twin.parameters(), lr=0.01), batch)


# Warnings are errors here: an alarm would fail these.


def test_no_false_alarm_where_the_guides_are_added_outside():
    model, optimiser, batch = lonely()
    for _ in range(2):
        train(model, optimiser, batch, total=True)


def test_no_false_alarm_where_a_loop_accumulates():
    model, optimiser, batch = lonely()
    for _ in range(2):
        for _ in range(2):
            hw.guides.guidance(model).total(model(**batch).logits.square().mean()).backward()
        optimiser.step()


def test_no_false_alarm_where_the_model_is_called_again_for_something_else():
    model, optimiser, batch = lonely()
    for _ in range(2):
        outputs = [model(**each) for each in (build_batch(), batch)]
        sum(each.loss if each.loss is not None else each.logits.mean() for each in outputs).backward()
        optimiser.step()


def test_no_false_alarm_where_nothing_is_learned_from_the_call():
    model, optimiser, batch = lonely()
    for _ in range(2):
        with torch.no_grad():
            model(**batch)
        model.eval()
        model(**batch)
        model.train()
        optimiser.step()


def test_no_false_alarm_where_no_guide_counts():
    model, optimiser, batch = lonely(weight=0.0)
    train(model, optimiser, batch)


def test_no_false_alarm_where_another_model_trains():
    model, _, batch = lonely()
    model(**batch)
    other = nn.Linear(2, 2)
    torch.optim.SGD(other.parameters(), lr=0.1).step()

"""R-Drop: two passes of the same batch should predict the same."""

import copy

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import assert_same_gradients, gradients
from torch.nn.functional import cross_entropy, softmax

import headwise as hw
from headwise.attention import SeededDropout
from headwise.errors import HeadwiseWarning, InputError

DROPOUT = {
    "bert": {"dropout": 0.3, "hidden_dropout_prob": 0.3},
    "roberta": {"dropout": 0.3, "hidden_dropout_prob": 0.3},
    "distilbert": {"attention_dropout": 0.3, "dropout": 0.3, "seq_classif_dropout": 0.3},
}


def dropping(family="bert", **changes):
    """A model in training with dropout everywhere."""
    options = {**DROPOUT[family], **changes}
    rate = options.pop("dropout")
    model = build_model(family, dropout=rate, dtype=torch.float64, **options)
    if family == "distilbert":
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = rate
    return model.train()


def attention_alone(**changes):
    """A model that drops attention weights only: what it drops then follows from a seed and the tokens."""
    return dropping(hidden_dropout_prob=0.0, **changes)


def consistent(guides=None, *, model=None, seed=None):
    model = dropping() if model is None else model
    hw.guide(model, hw.Consistency(weight=0.7) if guides is None else guides)
    if seed is not None:
        SeededDropout(model, seed)
    return model


def slow_divergence(first, second):
    """Mean over examples of (KL(p1 || p2) + KL(p2 || p1)) / 2."""
    total = 0.0
    for one, other in zip(softmax(first, 1), softmax(second, 1), strict=True):
        there = sum(p * torch.log(p / q) for p, q in zip(one, other, strict=True))
        back = sum(q * torch.log(q / p) for p, q in zip(one, other, strict=True))
        total = total + (there + back) / 2
    return total / len(first)


# -- against passes written out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", DROPOUT)
def test_equals_two_explicit_passes(family):
    model, batch = consistent(model=dropping(family)), build_batch()
    plain = dropping(family)
    plain.set_attn_implementation("headwise")
    torch.manual_seed(3)
    output = model(**batch)
    after = torch.get_rng_state()
    # One pass with the random numbers of plain training, one with others, which the generator gives.
    torch.manual_seed(3)
    first = plain(**batch).logits
    assert torch.equal(torch.get_rng_state(), after)
    torch.manual_seed(3)
    torch.manual_seed(int(torch.randint(2**62, ())))
    second = plain(**batch).logits
    assert not torch.allclose(first, second)
    task = (cross_entropy(first, batch["labels"]) + cross_entropy(second, batch["labels"])) / 2
    divergence = slow_divergence(first, second)
    expected = task + 0.7 * divergence
    torch.testing.assert_close(output.loss, expected, rtol=1e-12, atol=0)
    assert torch.equal(output.logits, first)
    assert_same_gradients(gradients(model, output.loss), gradients(plain, expected))
    assert hw.guides.last_losses(model) == pytest.approx(
        {
            "task": task.item(),
            "consistency": divergence.item(),
            "consistency_weighted": 0.7 * divergence.item(),
            "consistency_weight": 0.7,
        }
    )
    assert divergence > 1e-3


@pytest.mark.parametrize("family", DROPOUT)
def test_by_heads_only_the_silent_heads_differ(family):
    """The gates are seen on their way; the passes written out get the same ones, and equal random numbers."""
    guides = hw.Consistency(weight=2.0, by="heads") + hw.HeadDropout(p=0.5)
    model, batch = consistent(guides, model=dropping(family)), build_batch()
    plain, seen = dropping(family), []
    guidance = hw.guides.guidance(model)
    original = guidance.gates
    guidance.gates = lambda *given: seen.append(original(*given)) or seen[-1]
    torch.manual_seed(3)
    output = model(**batch)
    plain.set_attn_implementation("headwise")
    logits = []
    for gates in seen:
        torch.manual_seed(3)
        torch.randint(2**62, ())  # the seed of the heads
        with hw.gate(plain, gates):
            logits.append(plain(**batch).logits)
    assert len(seen) == 2
    assert any(not torch.equal(seen[0][layer], seen[1][layer]) for layer in seen[0])
    task = sum(cross_entropy(each, batch["labels"]) for each in logits) / 2
    expected = task + 2.0 * slow_divergence(*logits)
    torch.testing.assert_close(output.loss, expected, rtol=1e-12, atol=0)
    assert_same_gradients(gradients(model, output.loss), gradients(plain, expected))
    # Without silent heads the two passes are one.
    del guidance.gates
    hw.guide(hw.unguide(model), hw.Consistency(by="heads") + hw.HeadDropout(p=1e-12))(**batch)
    assert hw.guides.last_losses(model)["consistency"] == 0


def test_by_heads_has_heads_to_silence_unless_its_weight_is_zero(batch):
    model = consistent(hw.Consistency(by="heads", weight=hw.guides.warm_up(1.0, steps=2)))
    twin = dropping()
    twin.set_attn_implementation("headwise")
    torch.manual_seed(3)
    first = model(**batch)
    torch.manual_seed(3)
    assert torch.equal(first.logits, twin(**batch).logits)
    assert "consistency" not in hw.guides.last_losses(model)
    torch.optim.SGD(model.parameters(), lr=0.0).step()
    model(**batch)
    parts = hw.guides.last_losses(model)
    assert parts["consistency"] > 0
    assert parts["consistency_weight"] == 0.5


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
def test_other_kinds_of_predictions(problem, batch):
    model = dropping(num_labels=1 if problem == "regression" else 3, problem_type=problem)
    plain = copy.deepcopy(model)
    consistent(model=model)
    plain.set_attn_implementation("headwise")
    shape = (3,) if problem == "regression" else (3, 3)
    batch["labels"] = torch.randint(2, shape).double()
    torch.manual_seed(3)
    loss = model(**batch).loss
    torch.manual_seed(3)
    first = plain(**batch)
    torch.manual_seed(3)
    torch.manual_seed(int(torch.randint(2**62, ())))
    second = plain(**batch)
    if problem == "regression":
        divergence = ((first.logits - second.logits) ** 2).mean()
    else:  # each label is a choice of two
        coins = [torch.stack([each.logits, torch.zeros(3, 3)], 2).view(9, 2) for each in (first, second)]
        divergence = 3 * slow_divergence(*coins)
    torch.testing.assert_close(loss, (first.loss + second.loss) / 2 + 0.7 * divergence, rtol=1e-12, atol=0)


# -- random numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["dropout", "heads"])
def test_a_seed_decides_both_passes_whatever_the_batch(by):
    guides = hw.Consistency(weight=0.7, by=by) + hw.MDG(weight=0.2)
    model, batch = consistent(guides, model=attention_alone(), seed=5), build_batch(size=4)
    whole = gradients(model, model(**batch).loss)
    assert hw.guides.last_losses(model)["consistency"] > 1e-5  # so the passes differ
    torch.manual_seed(9)  # decides nothing here
    parts = [model(**{name: tensor[rows] for name, tensor in batch.items()}).loss / 2 for rows in ([0, 1], [3, 2])]
    assert_same_gradients(gradients(model, sum(parts)), whole)
    before = hw.guides.last_losses(model)["consistency"]
    hw.guides.guidance(model)._seam.customers[-1].step = 1
    model(**{name: tensor[[3, 2]] for name, tensor in batch.items()})
    assert hw.guides.last_losses(model)["consistency"] != before


def test_the_pass_that_counts_for_others_is_that_of_plain_training(batch):
    model, plain = consistent(), dropping()
    plain.set_attn_implementation("headwise")
    torch.manual_seed(3)
    with hw.capture(model, what="map", layers=[2]) as record:
        model(**batch)
    torch.manual_seed(3)
    with hw.capture(plain, what="map", layers=[2]) as expected:
        plain(**batch)
    assert torch.equal(record[2], expected[2])


@pytest.mark.parametrize("by", ["dropout", "heads"])
def test_gradient_checkpointing_repeats_the_right_pass(by, batch):
    guides = hw.Consistency(by=by) + hw.HeadDropout(p=0.3) + hw.MDG(weight=0.3)
    plain = consistent(guides, model=dropping(), seed=5)
    checkpointed = copy.deepcopy(plain)
    checkpointed.gradient_checkpointing_enable({"use_reentrant": False})
    found = []
    for model in (plain, checkpointed):
        torch.manual_seed(3)
        found.append(gradients(model, model(**batch).loss))
    assert_same_gradients(*found)


# -- with others -------------------------------------------------------------------------------------------------------


def test_guides_on_attention_are_the_mean_over_both_passes(batch):
    model = consistent(hw.Consistency(weight=0.5) + hw.MDG(weight=0.3, dropout="after"))
    alone = hw.guide(dropping(), hw.MDG(weight=0.3, dropout="after"))
    torch.manual_seed(3)
    loss, values = model(**batch).loss, []
    for again in (False, True):
        torch.manual_seed(3)
        if again:
            torch.manual_seed(int(torch.randint(2**62, ())))
        alone(**batch)
        values.append(hw.guides.last_losses(alone)["mdg"])
    parts = hw.guides.last_losses(model)
    assert values[0] != values[1]
    assert parts["mdg"] == pytest.approx(sum(values) / 2, rel=1e-12)
    assert loss.item() == pytest.approx(parts["task"] + parts["consistency_weighted"] + parts["mdg_weighted"])


def test_automatic_weights_and_shares_leave_consistency_out(batch):
    model = consistent(hw.MDG(weight=hw.auto(0.1, every=1)) + hw.Consistency(weight=0.5))
    for _ in range(2):
        model(**batch).loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.0).step()
    model(**batch)
    assert set(hw.guides.guidance(model).gradient_share()) == {"mdg"}
    parts = hw.guides.last_losses(model)
    assert 0.05 < parts["mdg_share"] < 0.2
    assert "consistency_share" not in parts


def test_evaluation_copies_and_unguide(batch):
    model = consistent()
    expected = dropping().eval()(**batch)
    assert torch.equal(model.eval()(**batch).loss, expected.loss)
    model.train()(**batch)
    twin = copy.deepcopy(model)
    results = []
    for each in (model, twin):
        torch.manual_seed(1)
        results.append(each(**batch).loss)
    assert torch.equal(*results)
    loss, logits = model(**batch, return_dict=False)
    assert (loss.shape, logits.shape) == ((), (3, 3))
    hw.guides.guidance(model).load_state_dict(hw.guides.guidance(twin).state_dict())
    assert "forward" not in hw.unguide(model).__dict__


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_options_are_answered_with_one_sentence():
    for weight in (hw.auto(0.1), {"share": 0.1}):
        with pytest.raises(InputError, match=r"^consistency has no automatic weight, [^\n]*or a schedule\.$"):
            hw.Consistency(weight=weight)
    with pytest.raises(InputError, match=r"^consistency\(by='words'\): expected one of 'dropout', 'heads'\.$"):
        hw.Consistency(by="words")
    with pytest.raises(InputError, match=r"^weight of consistency is -1: expected a number of 0 or more[^\n]*\.$"):
        hw.Consistency(-1)
    with pytest.raises(InputError, match=r"^consistency is given twice: [^\n]*\.$"):
        consistent(hw.Consistency() + hw.Consistency(by="heads"))
    with pytest.raises(InputError, match=r"^consistency\(by='heads'\) beside head_dropout\(p=0\) [^\n]*\.$"):
        consistent(hw.Consistency(by="heads") + hw.HeadDropout(p=0.0))


def test_a_loss_outside_of_the_model_is_refused(batch):
    needs = r"^consistency needs the loss of the model itself, [^\n]*label smoothing[^\n]*\.$"
    labels = batch.pop("labels")
    model = consistent()
    with pytest.raises(InputError, match=needs):
        model(**batch)
    with torch.no_grad():  # a look at the predictions is none
        assert model(**batch).loss is None
    loss = torch.nn.Module()
    loss.model, loss.forward = model, lambda: cross_entropy(model(**batch).logits, labels)
    with pytest.raises(InputError, match=needs):
        hw.guides.GuidedLoss(loss)()
    assert model(**batch, labels=labels).loss > 0  # nothing is left of the failure
    tasks = hw.training.MultiTask({"one": dropping(), "two": dropping()}).train()
    with pytest.raises(InputError, match=needs):
        consistent(model=tasks)(task="one", **batch, labels=labels)


def test_predictions_for_tokens_are_refused(batch):
    from transformers import BertForTokenClassification

    model = consistent(model=BertForTokenClassification(dropping().config).train())
    with pytest.raises(InputError, match=r"^consistency compares predictions for whole texts[^\n]*classifier\.$"):
        model(**{**batch, "labels": torch.zeros_like(batch["input_ids"])})


def test_a_model_without_dropout_is_worth_a_warning(batch):
    model = consistent(model=build_model("bert").train())
    with pytest.warns(HeadwiseWarning, match=r"^consistency: both passes predict exactly the same[^\n]*by='heads'\.$"):
        model(**batch)
    model(**batch)  # once

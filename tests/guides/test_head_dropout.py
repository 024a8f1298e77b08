"""Random heads are silent while a model trains."""

import copy

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import assert_same_gradients, gradients

import headwise as hw
from headwise.attention import Inputs, SeededDropout
from headwise.errors import InputError
from headwise.guides import piecewise

# At the other end of the families: windows and one matrix for query, key and value; and the eager route.
KINDS = ("bert", "roberta", "distilbert", "modernbert", "deberta-v2")
INPUTS = Inputs(build_batch()["input_ids"], None, None)


def silenced(family="bert", *, seed=None, guides=None, **options):
    """A model in training with HeadDropout, and with a seed as in a Trainer."""
    model = build_model(family, dtype=torch.float64, **options).train()
    hw.guide(model, hw.HeadDropout(p=0.5) if guides is None else guides)
    if seed is not None:
        SeededDropout(model, seed)
    return model


def gates_of(rule, *, seed=3, step=0, layers=3, heads=4, batch=None):
    """[N,B,H]"""
    batch = build_batch() if batch is None else batch
    inputs = Inputs(batch["input_ids"], batch["attention_mask"], None)
    chosen = {layer: tuple(range(heads)) for layer in range(layers)}
    return torch.stack([*rule.gates(step, chosen, (layers, heads), inputs, torch.tensor(seed)).values()])


def test_heads_are_silenced_as_often_as_asked_and_their_mean_stays():
    for p in (0.1, 0.5, 0.95):
        batch = {"input_ids": torch.arange(40_000).view(-1, 4), "attention_mask": torch.ones(10_000, 4)}
        gates = gates_of(hw.HeadDropout(p=p), layers=2, heads=4, batch=batch)
        silent = (gates == 0).double()
        # all four silent, which happens with probability p^4, becomes three
        expected = p - p**4 / 4
        torch.testing.assert_close(silent.mean(1), torch.full((2, 4), expected).double(), atol=0.02, rtol=0)
        torch.testing.assert_close(gates.mean(1), torch.ones(2, 4), atol=0.08, rtol=0)
        # those that stay have the mean 1, and there is one at least
        torch.testing.assert_close(gates.sum(2), torch.full((2, 10_000), 4.0))
        # heads and layers are independent
        pairs = torch.corrcoef(silent[0].T) if p < 0.9 else torch.eye(4)
        assert (pairs - torch.eye(4, dtype=pairs.dtype)).abs().max() < (0.05 if p < 0.3 else 0.2)
        assert abs(torch.corrcoef(torch.stack([silent[0, :, 0], silent[1, :, 0]]))[0, 1]) < 0.05


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.filterwarnings("ignore:.*does not call custom attention")
def test_the_model_computes_as_with_these_gates(family):
    model, batch = silenced(family), build_batch()
    plain = build_model(family, dtype=torch.float64).train()
    seen = []
    rule = hw.guides.guidance(model)
    original = rule.gates
    rule.gates = lambda *given: seen.append(original(*given)) or seen[-1]
    outputs = model(**batch)
    assert {tuple(gate.shape) for gate in seen[0].values()} == {(3, 4)}
    with hw.gate(plain, seen[0]):
        expected = plain(**batch)
    torch.testing.assert_close(outputs.logits, expected.logits, rtol=1e-10, atol=1e-12)
    assert_same_gradients(gradients(model, outputs.loss), gradients(plain, expected.loss))
    assert not torch.allclose(outputs.logits, plain(**batch).logits)
    # in evaluation nothing changes
    assert torch.equal(model.eval()(**batch).logits, hw.unguide(model)(**batch).logits)
    assert hw.guides.last_losses(hw.guide(model, "head_dropout")) == {}


def test_no_maps_are_computed_and_the_loss_is_the_task_alone(batch):
    model = silenced()
    loss = model(**batch).loss
    assert hw.guides.guidance(model).requests() == ()
    assert hw.guides.last_losses(model) == {"task": loss.item()}


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_with_a_seed_heads_depend_on_the_tokens_of_an_example_alone(family):
    model, batch = silenced(family, seed=5), build_batch(size=4, length=14, padding=2)
    whole = model(**batch).logits
    for rows in ([2], [3, 1]):
        torch.manual_seed(len(rows))  # not by torch's generator
        part = {name: tensor[rows] for name, tensor in batch.items()}
        torch.testing.assert_close(model(**part).logits, whole[rows], rtol=1e-10, atol=1e-12)
    narrow = {name: tensor[:, :-2] if tensor.dim() > 1 else tensor for name, tensor in batch.items()}
    torch.testing.assert_close(model(**narrow).logits, whole, rtol=1e-10, atol=1e-12)
    other = silenced(family, seed=6)(**batch).logits
    assert not torch.allclose(other, whole)
    hw.guides.guidance(model)._seam.customers[-1].step = 1
    assert not torch.allclose(model(**batch).logits, whole)


def test_without_a_seed_torch_decides(batch):
    model, found = silenced(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(model(**batch).logits)
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


def test_per_batch_all_examples_lose_the_same_heads(batch):
    rule = hw.HeadDropout(p=0.5, per="batch")
    assert gates_of(rule).shape == (3, 1, 4)
    assert torch.equal(gates_of(rule), gates_of(rule, batch=build_batch(size=2)))
    assert not torch.equal(gates_of(rule), gates_of(rule, seed=4))
    assert silenced(guides=rule)(**batch).loss.isfinite()
    known = gates_of(hw.HeadDropout(p=0.5))
    assert not torch.equal(known[:, 0], known[:, 1])


def test_chosen_layers_and_heads_alone_are_silenced_also_in_a_pruned_model(batch):
    model = build_model("bert").train()
    hw.prune(model, {2: [1, 3], 1: [0]})
    hw.guide(model, hw.HeadDropout(p=0.9, layers="last:2", heads=[0, 1, 3]))
    gates = hw.guides.guidance(model).gates(INPUTS, torch.tensor(2))
    assert set(gates) == {1, 2}
    assert torch.equal(gates[2], torch.ones(3, 4))  # the only one of these heads that is left stays
    assert torch.equal(gates[1][:, [0, 2]], torch.ones(3, 2))  # pruned, and not chosen
    assert torch.equal(gates[1][:, [1, 3]].sum(1), torch.full((3,), 2.0))
    model(**batch).loss.backward()


def test_p_follows_a_schedule_and_may_differ_between_layers(batch):
    rule = hw.HeadDropout(p={"points": [[0, 0.0], [4, 0.8]]})
    assert rule == hw.HeadDropout(piecewise((0, 0.0), (4, 0.8)))
    assert [rule.rate(step) for step in (0, 1, 4, 9)] == pytest.approx([0.0, 0.2, 0.8, 0.8])
    model, plain = silenced(guides=rule), build_model("bert", dtype=torch.float64).train()
    assert torch.equal(model(**batch).logits, hw.guide(plain, hw.MDG(weight=0))(**batch).logits)
    torch.optim.SGD(model.parameters(), lr=0.0).step()
    assert not torch.equal(model(**batch).logits, plain(**batch).logits)
    parts = (
        hw.HeadDropout(p=0.9, layers=0) + hw.HeadDropout(p=1e-9, layers=2) + hw.HeadDropout(p=0.9, layers=2, heads=0)
    )
    with pytest.raises(InputError, match=r"^head_dropout is given twice for head 0 of layer 2: choose [^\n]*\.$"):
        silenced(guides=parts)
    gates = hw.guides.guidance(silenced(guides=hw.guides.Guides(parts[:2]))).gates(INPUTS, torch.tensor(2))
    assert [bool((gates[layer] == 0).any()) for layer in (0, 2)] == [True, False]


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_gradient_checkpointing_and_copies_silence_the_same_heads(family, batch):
    plain = silenced(family, seed=3, dropout=0.3)
    checkpointed = copy.deepcopy(plain)
    checkpointed.gradient_checkpointing_enable({"use_reentrant": False})
    twice = []
    for model in (plain, checkpointed):  # two forward passes before one backward pass
        second = {**batch, "input_ids": batch["input_ids"].flip(0), "attention_mask": batch["attention_mask"].flip(0)}
        torch.manual_seed(1)  # ModernBERT has other dropout, too
        twice.append(gradients(model, model(**batch).loss + 2 * model(**second).loss))
    assert_same_gradients(*twice)


def test_a_recipe_names_it_and_it_shares_a_model_with_guides(batch):
    model = silenced(guides={"head_dropout": {"p": 0.3, "per": "example"}, "mdg": {"weight": 0.1}})
    loss = model(**batch).loss
    parts = hw.guides.last_losses(model)
    assert loss.item() == pytest.approx(parts["task"] + parts["mdg_weighted"])
    assert set(parts) == {"task", "mdg", "mdg_weighted", "mdg_weight"}


@pytest.mark.parametrize("p", [1, 1.0, -0.1, True, "0.1", float("nan"), {"share": 0.1}, piecewise((0, 0.1), (5, 1.0))])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(InputError, match=r"^head_dropout\(p=.*expected a number of 0 or more and below 1[^\n]*\.$"):
        hw.HeadDropout(p=p)


def test_other_bad_input_is_answered_with_one_sentence(batch):
    with pytest.raises(InputError, match=r"^head_dropout\(per='word'\): expected one of 'example', 'batch'\.$"):
        hw.HeadDropout(per="word")
    with pytest.raises(InputError, match=r"^head_dropout has no option 'weight': known: heads, layers, p, per\.$"):
        hw.HeadDropout(weight=0.1)
    with pytest.raises(InputError, match=r"^head_dropout times 2: it has no weight that can be scaled; [^\n]*\.$"):
        (hw.MDG() + hw.HeadDropout()) * 2
    with pytest.raises(InputError, match=r"^layers 'last:9': the model has 3 layers; choose at most that many\.$"):
        silenced(guides=hw.HeadDropout(layers="last:9"))
    model, vectors = silenced(), torch.zeros(2, 5, 32, dtype=torch.float64)
    with pytest.raises(InputError, match=r"^head_dropout does not know the batch: [^\n]* or attention_mask\.$"):
        model(inputs_embeds=vectors)
    assert model(inputs_embeds=vectors, attention_mask=torch.ones(2, 5)).logits.shape == (2, 3)

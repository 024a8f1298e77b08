"""Our own weights and blend: a balanced token loss, tokens by quantile, vectors of equal length; and old configs."""

import copy
import json
import math

import pytest
import torch
from conftest import build_model
from ssa.supervised_models import CLS, SEP, close, inputs_of, labels_of, pairs, supervised, text_of
from torch.nn.functional import cross_entropy
from training.small_task import exact_model

import headwise as hw
from headwise.errors import StateError
from headwise.ssa import SSA
from headwise.ssa.supervise import reattach


def ours(inner="bert", **options):
    return supervised(inner, settings={}, **options)


def pull(model, loss):
    """The gradient norm of a loss on the query and key weights, the long way."""
    weights = [each for name, each in model.named_parameters() if name.endswith(("query.weight", "key.weight"))]
    assert len(weights) == 6
    found = torch.autograd.grad(loss, weights, retain_graph=True)
    return math.sqrt(sum(gradient.square().sum().item() for gradient in found))


def other_words(batch, step):
    """The same sentences of other words."""
    ids = batch["input_ids"]
    return {**batch, "input_ids": torch.where(text_of(batch), (ids + 7 * step) % 50 + 5, ids)}


@pytest.mark.parametrize(("mode", "share"), [("hybrid", 0.3), ("cotraining", 1.5)])
def test_the_token_loss_has_its_share_of_the_tasks_gradient(mode, share):
    """Measured on the first batch with labels; the task's gradient is known after the first backward pass."""
    model, weights = ours(exact_model(), model=mode, token_share=share).train(), []
    for step in range(4):
        batch = pairs()
        labels = torch.full((3, 12), -100.0) if step == 0 else labels_of(batch)
        out, text = model(**inputs_of(batch), output_ssa=True), text_of(batch)
        task = pull(model, cross_entropy(out.logits, batch["labels"]))
        token = pull(model, cross_entropy(out.ssa_logits[text], labels_of(batch)[text].long()))
        loss, losses = model(**batch, ssa_labels=labels).loss, model.ssa.losses
        close(loss, losses.task + losses.weight * losses.token, 1e-12)
        weights.append(losses.weight)
        if step == 0:  # a batch without labels
            loss.backward()
    assert weights == pytest.approx([0.0, *[share * task / token] * 3], rel=1e-6)
    loss.backward()
    assert all(each.grad.isfinite().all() for each in model.parameters() if each.grad is not None)
    # in evaluation the weight stays, and nothing is measured
    before = model.ssa.balance_state()
    out = model.eval()(**batch, ssa_labels=labels)
    close(out.loss, model.ssa.losses.task + weights[-1] * model.ssa.losses.token, 1e-12)
    assert model.ssa.balance_state() == before


def test_a_copy_and_a_resumed_model_go_on_with_the_same_weight():
    model, batch = ours().train(), pairs()
    model(**batch, ssa_labels=labels_of(batch)).loss.backward()
    model.ssa.collect()
    twin, fresh = copy.deepcopy(model), ours().train()
    fresh.ssa.load_balance(json.loads(json.dumps(model.ssa.balance_state())))
    fresh.ssa.load_balance({})  # a checkpoint of a model without a balance changes nothing
    more = other_words(batch, 1)
    found = [each(**more, ssa_labels=labels_of(more)).loss for each in (model, twin, fresh)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert supervised().ssa.balance_state() == {}


def test_the_share_is_measured_on_adapters_too():
    peft = pytest.importorskip("peft")
    options = {"task_type": "SEQ_CLS", "r": 2, "target_modules": ["query"], "modules_to_save": ["classifier", "ssa"]}
    config = peft.LoraConfig(**options, init_lora_weights=False)
    model, batch = peft.get_peft_model(ours(exact_model()), config).train(), pairs()
    model(**batch, ssa_labels=labels_of(batch)).loss.backward()
    out = model(**batch, ssa_labels=labels_of(batch))
    losses = hw.ssa.supervision(model).losses
    adapters = [each for name, each in model.named_parameters() if "lora_" in name]
    whole, task = (
        torch.cat([each.flatten() for each in torch.autograd.grad(loss, adapters, retain_graph=True)])
        for loss in (out.loss, cross_entropy(out.logits, batch["labels"]))
    )
    assert ((whole - task).norm() / task.norm()).item() == pytest.approx(0.3)
    assert losses.weight > 0


def test_a_share_needs_a_query_or_key_to_train():
    model, batch = ours().train(), pairs()
    model.bert.requires_grad_(False)
    with pytest.raises(StateError, match=r"^ssa.token_share compares gradients .* or set aug_loss_weight instead\.$"):
        model(**batch, ssa_labels=labels_of(batch))
    model = supervised().train()
    model.bert.requires_grad_(False)
    model(**batch, ssa_labels=labels_of(batch)).loss.backward()


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_both_vectors_of_the_blend_have_the_length_of_the_classifiers_own(family):
    model, plain, batch = ours(family, cls_weight=0.4), build_model(family).eval(), pairs()
    batch["input_ids"][2] = torch.tensor([CLS, SEP] + [1] * 10)  # no text: it keeps its own vector
    batch["attention_mask"][2] = torch.tensor([1, 1] + [0] * 10)
    read, states = [], []
    for each in (plain, model):
        final = getattr(each.classifier, "out_proj", each.classifier)
        final.register_forward_hook(lambda _, inputs, output: read.append(inputs[0]))
    model.base_model.register_forward_hook(lambda _, __, output: states.append(output[0]))
    plain(**batch)
    out = model(**batch, output_ssa=True)
    own, blended = read
    for row in range(2):
        tokens = [place for place in range(12) if text_of(batch)[row, place]]
        scores = out.ssa_scores[row].tolist()
        least = sorted(scores[place] for place in tokens)[(len(tokens) - 1) // 2]
        kept = [place for place in tokens if scores[place] >= least]
        assert out.ssa_kept[row].nonzero().flatten().tolist() == kept
        assert len(tokens) / 2 <= len(kept) < len(tokens)
        weights = torch.tensor([math.exp(scores[place]) for place in kept])
        pooled = (weights / weights.sum()) @ states[0][row, kept]
        length = own[row].norm()
        close(blended[row], length * (0.4 * own[row] / length + 0.6 * pooled / pooled.norm()), 1e-5)
        assert model.ssa.threshold(out.ssa_scores[row], out.ssa_kept[row]) == pytest.approx(least)
    assert torch.equal(blended[2], own[2])
    out.logits.sum().backward()
    assert all(each.grad.isfinite().all() for each in model.parameters() if each.grad is not None)


def test_what_an_earlier_version_saved_works_as_it_did():
    """Its config has no word about a share, a quantile or the length of the blend."""
    old, batch = supervised(attention_threshold=0.4), pairs()
    settings = copy.deepcopy(old.config.headwise_ssa)
    for name in ("token_share", "attention_quantile", "normalise_blend"):
        del settings["options"][name]
    model = reattach(build_model("bert"), settings)
    assert model.ssa.options == SSA(aug_loss_weight=0.3, attention_threshold=0.4, normalise_blend=False)
    model.load_state_dict(old.state_dict())
    given = {**batch, "ssa_labels": labels_of(batch), "output_ssa": True}
    found, expected = model.eval()(**given), old(**given)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    new = ours()
    assert reattach(build_model("bert"), new.config.headwise_ssa).ssa.options == new.ssa.options == SSA()

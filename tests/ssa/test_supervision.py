"""A classifier with self-supervised attention: what it reads, what it learns, and what it leaves alone."""

import copy
import inspect
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import build_model
from ssa.supervised_models import CLS, SEP, TOKENIZER, close, inputs_of, labels_of, pairs, supervised, text_of
from torch.nn.functional import cross_entropy
from training.small_task import collate, exact_model, examples, sgd, summed_loss, trainer_of
from transformers import AutoModel, Trainer

import headwise as hw
from headwise.errors import HeadwiseWarning, InputError, StateError, UnsupportedModelError
from headwise.ssa import remove_supervision, supervision_of
from headwise.training.trainer import GuidedTrainer

# -- pooling in a real model ---------------------------------------------------------------------------------------


class Says(torch.nn.Module):
    """In the place of a part of the model: always the same answer."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, *_):
        return self.answer


@pytest.mark.parametrize(
    ("softmax", "weights"),
    [
        ("probabilities", (0.549834, 0.450166)),
        ("logits", (8 / 11, 3 / 11)),  # the odds of .8 and .6 are 4 and 1.5
        ("uniform", (0.5, 0.5)),
    ],
)
def test_the_worked_example(softmax, weights):
    """s = (.9, .8, .2, .6, .95), the middle three are text, k = .3, p = (.2, -.4): the logits are the blend itself."""
    model = supervised(build_model("bert", num_labels=2), pool_softmax=softmax, attention_threshold=0.3)
    states, own = torch.zeros(1, 5, 32), torch.zeros(1, 32)
    states[0, :, :2] = torch.tensor([[9.0, 9.0], [1.0, 0.0], [7.0, 7.0], [0.0, 1.0], [5.0, 5.0]])
    own[0, :2] = torch.tensor([0.2, -0.4])
    scores = torch.tensor([[0.9, 0.8, 0.2, 0.6, 0.95]])
    model.bert.encoder.register_forward_hook(lambda _, __, output: type(output)(last_hidden_state=states))
    model.bert.pooler = Says(own)
    model.ssa.head = Says(torch.stack([torch.zeros_like(scores), scores.logit()], -1))
    with torch.no_grad():
        model.classifier.weight.copy_(torch.eye(2, 32))
        model.classifier.bias.zero_()
    out = model(input_ids=torch.tensor([[CLS, 10, 11, 12, SEP]]), output_ssa=True)
    close(out.ssa_scores, scores, 1e-6)
    assert out.ssa_kept.tolist() == [[False, True, False, True, False]]
    expected = [0.1 + 0.5 * weights[0], -0.2 + 0.5 * weights[1]]
    assert out.logits[0].tolist() == pytest.approx(expected, abs=1e-6)
    if softmax == "probabilities":
        assert expected == pytest.approx([0.374917, 0.025083], abs=1e-6)


# -- text and nothing else -----------------------------------------------------------------------------------------


def test_special_tokens_and_padding_are_never_kept_nor_learned(family):
    roberta = family in ("roberta", "xlm-roberta", "camembert", "mpnet")
    model, batch = supervised(family), pairs(roberta=roberta)
    text, labels = text_of(batch), labels_of(batch)
    out = model(**batch, ssa_labels=labels, output_ssa=True)
    assert not out.ssa_kept[~text].any()
    assert 0 < int(out.ssa_kept.sum()) < int(text.sum())
    expected = cross_entropy(out.ssa_logits[text], labels[text].long())
    close(model.ssa.losses.token, expected.detach())
    out.ssa_logits.retain_grad()
    out.loss.backward()
    assert not out.ssa_logits.grad[~text].any()
    assert out.ssa_logits.grad[text].any(-1).all()


@pytest.mark.parametrize("family", ["roberta", "deberta-v2", "modernbert"])
def test_nothing_depends_on_padding_order_or_other_examples(family):
    model, batch = supervised(family), pairs()
    labels, padding = labels_of(batch), batch["attention_mask"] == 0
    model.get_input_embeddings().weight.data[1] = 0  # as at the end of a text
    plain = model(**batch, ssa_labels=labels, output_ssa=True)
    text = text_of(batch)

    ids = batch["input_ids"].masked_fill(padding, 33)
    other = model(**{**batch, "input_ids": ids}, ssa_labels=labels.masked_fill(padding, 7), output_ssa=True)
    if family != "roberta":  # it counts positions by the id of padding
        close(other.logits, plain.logits)
        close(other.loss, plain.loss)

    wider = {name: torch.nn.functional.pad(value, (0, 7)) for name, value in inputs_of(batch).items()}
    wider["input_ids"][:, 12:] = 1
    more = model(**wider, labels=batch["labels"], ssa_labels=torch.nn.functional.pad(labels, (0, 7), value=-100.0))
    close(more.logits, plain.logits)
    close(more.loss, plain.loss)

    order = torch.tensor([2, 0, 1])
    close(model(**{name: value[order] for name, value in batch.items()}).logits, plain.logits[order])
    for example, length in enumerate(batch["attention_mask"].sum(1).tolist()):
        alone = {name: value[example : example + 1, :length] for name, value in inputs_of(batch).items()}
        out = model(**alone, output_ssa=True)
        close(out.logits[0], plain.logits[example])
        close(out.ssa_scores[0][text[example, :length]], plain.ssa_scores[example][text[example]])


def left_padded(batch):
    """The same texts at the right end, with the positions that they had."""
    lengths = batch["attention_mask"].sum(1).tolist()
    moved = {name: batch[name].clone() for name in ("input_ids", "attention_mask")}
    for example, length in enumerate(lengths):
        for value in moved.values():
            value[example] = value[example].roll(12 - length)
    moved["position_ids"] = (moved["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return moved


@pytest.mark.parametrize(("family", "share_weight"), [("bert", False), ("roberta", True)])
def test_the_side_of_padding_does_not_matter(family, share_weight):
    """Nothing of the classifier's own vector, which reads the first column whatever stands there."""
    model = supervised(family, cls_weight=0.0, share_weight=share_weight, max_length=12)
    batch = pairs()
    left = left_padded(batch)
    if family == "roberta":
        del left["position_ids"]  # it counts by itself, and begins elsewhere
    right, moved = model(**inputs_of(batch), output_ssa=True), model(**left, output_ssa=True)
    for example in range(3):
        here, there = text_of(batch)[example], text_of(left)[example]
        close(moved.ssa_logits[example][there], right.ssa_logits[example][here])
    close(moved.logits, right.logits)


def test_a_longer_text_than_trained():
    model = supervised(share_weight=False, max_length=11)
    with pytest.raises(InputError, match=r"batch is 12 tokens long.*each of 11 positions"):
        model(**pairs())
    with pytest.raises(
        InputError, match=r"share_weight: false has a decoder for each position, and max_length is None"
    ):
        supervised(share_weight=False)
    with pytest.raises(InputError, match=r"max_length is 0: expected a whole number of 1 or more"):
        supervised(share_weight=False, max_length=0)


def test_the_special_tokens_mask_wins():
    model, batch = supervised(attention_threshold=0.0), pairs()
    special = torch.zeros_like(batch["input_ids"])
    special[:, 2] = 1
    kept = model(**batch, special_tokens_mask=special, output_ssa=True).ssa_kept
    assert torch.equal(kept, (batch["attention_mask"] == 1) & (special == 0))
    assert torch.equal(model(**batch, output_ssa=True).ssa_kept, text_of(batch))


def test_an_input_without_any_text_gets_the_classifiers_own_answer():
    model, plain = supervised(), build_model("bert").eval()
    batch = pairs()
    batch["input_ids"][1] = torch.tensor([CLS, SEP] + [1] * 10)
    batch["attention_mask"][1] = torch.tensor([1, 1] + [0] * 10)
    out = model(**batch, ssa_labels=labels_of(batch), output_ssa=True)
    assert torch.equal(out.logits[1], plain(**batch).logits[1])
    assert not out.ssa_kept[1].any()
    out.loss.backward()
    assert all(torch.isfinite(each.grad).all() for each in model.parameters() if each.grad is not None)
    empty = {name: value[1:2] for name, value in batch.items()}
    alone = model(**empty, ssa_labels=torch.ones(1, 12))
    close(alone.logits[0], out.logits[1])
    assert torch.isfinite(alone.loss)


# -- manners -------------------------------------------------------------------------------------------------------


def test_inputs_stay_as_they_are_and_two_calls_agree():
    model, batch = supervised(build_model("bert", hidden_dropout_prob=0.3)), pairs()
    given = {**batch, "ssa_labels": labels_of(batch), "special_tokens_mask": (~text_of(batch)).long()}
    before = {name: value.clone() for name, value in given.items()}
    first, second = model(**given), model(**given)
    assert torch.equal(first.logits, second.logits)
    assert torch.equal(first.loss, second.loss)
    assert all(torch.equal(given[name], before[name]) for name in given)
    model.train()
    assert not torch.equal(model(**given).logits, model(**given).logits)
    for family, option in (
        ("albert", "classifier_dropout_prob"),
        ("distilbert", "seq_classif_dropout"),
        ("deberta-v2", "cls_dropout"),
        ("mpnet", "hidden_dropout_prob"),
    ):
        assert supervised(build_model(family, **{option: 0.37})).ssa.dropout.p == 0.37


def test_a_copy_works_and_is_independent():
    model, batch = supervised().train(), pairs()
    model(**inputs_of(batch), ssa_labels=labels_of(batch))  # leaves a graph behind
    twin = copy.deepcopy(model)
    model.ssa.total(torch.zeros(()))
    before = model.eval()(**batch, output_ssa=True)
    with torch.no_grad():
        for parameter in twin.ssa.parameters():
            parameter.mul_(-1)
    after = twin.eval()(**batch, output_ssa=True)
    assert not torch.allclose(after.ssa_scores, before.ssa_scores)
    assert not torch.equal(after.logits, before.logits)
    assert supervision_of(twin) is twin.ssa is not model.ssa
    remove_supervision(twin)
    assert torch.equal(model(**batch).logits, before.logits)


def test_a_model_inside_of_another_pass_does_not_disturb_it():
    inner, outer, batch = supervised(), supervised("roberta"), pairs()
    expected = outer(**batch).logits
    seen = []
    outer.roberta.encoder.register_forward_hook(lambda *_: seen.append(inner(**batch).logits))
    assert torch.equal(outer(**batch).logits, expected)
    assert torch.equal(seen[0], inner(**batch).logits)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_removing_it_gives_the_plain_model_back(family):
    plain = build_model(family).eval()
    kind, names, batch = type(plain), list(plain.state_dict()), pairs()
    logits, config = plain(**batch).logits, plain.config.to_dict()
    model = supervised(plain)
    assert type(model).__name__ == kind.__name__
    assert isinstance(model, kind)
    assert not torch.equal(model(**batch).logits, logits)
    assert remove_supervision(model) is model
    assert type(model) is kind
    assert list(model.state_dict()) == names
    assert model.config.to_dict() == config
    assert torch.equal(model(**batch).logits, logits)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    supervised(model)  # and it can be given again


def test_the_right_call_at_the_wrong_time():
    model = supervised()
    with pytest.raises(StateError, match="has SSA already: remove it with remove_supervision"):
        supervised(model)
    hw.guide(model, hw.MDG(weight=0.1))
    with pytest.raises(StateError, match=r"guided: call unguide\(model\) first"):
        remove_supervision(model)
    remove_supervision(hw.unguide(model))
    with pytest.raises(StateError, match="has no SSA: there is nothing to remove"):
        remove_supervision(model)
    with pytest.raises(StateError, match=r"has no SSA: call self_supervise\(model, ...\) first"):
        hw.ssa.supervision(model)
    hw.guide(model, hw.MDG(weight=0.1))
    with pytest.raises(StateError, match=r"already guided or wrapped: call self_supervise\(model, ...\) before that"):
        supervised(model)


def test_models_that_it_is_not_for():
    wrapped, odd = torch.nn.ModuleDict({"inner": build_model("bert")}), build_model("bert")
    odd.classifier = torch.nn.Linear(64, 3)
    bare = AutoModel.from_config(odd.config)
    for model, kind, message in (
        (wrapped, InputError, r"ModuleDict wraps a BertForSequenceClassification: add SSA to the inner model"),
        (bare, UnsupportedModelError, r"BertModel has no classifier that ends in a linear layer"),
        (odd, UnsupportedModelError, r"reads 64 numbers, and its tokens have 32.*cotraining"),
    ):
        with pytest.raises(kind, match=message):
            hw.self_supervise(model, tokenizer=TOKENIZER)
    hw.self_supervise(odd, {"model": "cotraining"}, tokenizer=TOKENIZER)
    assert supervision_of(torch.nn.Linear(2, 2)) is None
    assert supervision_of(hw.self_supervise(build_model("bert"), hw.SSA(only_bert=True), tokenizer=TOKENIZER)) is None


def test_what_it_needs_in_a_batch():
    model, batch = supervised(), pairs()
    embeddings = model.get_input_embeddings()(batch["input_ids"])
    with pytest.raises(InputError, match="needs input_ids, to know text from special tokens"):
        model(inputs_embeds=embeddings, attention_mask=batch["attention_mask"])
    with pytest.raises(
        InputError, match=r"ssa_labels has the shape \[3, 11\], expected .* \[3, 12\]: pad them with -100"
    ):
        model(**batch, ssa_labels=torch.ones(3, 11))
    close(model(batch["input_ids"], batch["attention_mask"]).logits, model(**batch).logits)  # also without names


# -- the loss ------------------------------------------------------------------------------------------------------


def gradients(model):
    found = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize(
    ("family", "options", "return_dict"),
    [
        ("bert", {"cls_weight": 1.0}, True),
        ("deberta-v2", {"model": "cotraining"}, False),
        ("modernbert", {"cls_weight": 1.0}, False),
    ],
)
def test_without_pooling_and_token_loss_it_is_the_plain_model_bit_for_bit(family, options, return_dict):
    batch = pairs()
    plain = build_model(family).train()
    model = supervised(family, aug_loss_weight=0.0, **options).train()
    for labels in ({}, {"ssa_labels": labels_of(batch)}):
        outputs = [plain(**batch, return_dict=return_dict), model(**batch, return_dict=return_dict, **labels)]
        assert type(outputs[0]) is type(outputs[1])
        assert torch.equal(outputs[0][1], outputs[1][1])
        assert torch.equal(outputs[0][0], outputs[1][0])
        for output in outputs:
            output[0].backward()
        expected, found = gradients(plain), gradients(model)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert not any(found[name].any() for name in set(found) - set(expected))


@pytest.mark.parametrize(("mode", "weight", "return_dict"), [("hybrid", 0.3, True), ("cotraining", 0.9, False)])
def test_the_loss_is_both_parts_by_weight(mode, weight, return_dict):
    model, batch = supervised(exact_model(), model=mode, aug_loss_weight=weight).train(), pairs()
    labels, text = labels_of(batch), text_of(batch)
    out = model(**inputs_of(batch), output_ssa=True)
    task = cross_entropy(out.logits, batch["labels"])
    token = cross_entropy(out.ssa_logits[text], labels[text].long())
    parts = []
    for part in (task, token):
        part.backward(retain_graph=True)
        parts.append(gradients(model))
    loss = model(**batch, ssa_labels=labels, return_dict=return_dict)[0]
    close(loss, (1 - weight) * task + weight * token, 1e-12)
    close(model.ssa.losses.task, task.detach(), 1e-12)
    close(model.ssa.losses.token, token.detach(), 1e-12)
    assert not model.ssa.losses.token.requires_grad
    loss.backward()
    found = gradients(model)
    for name, gradient in found.items():
        of_task, of_token = (part.get(name, torch.zeros(())) for part in parts)
        close(gradient, (1 - weight) * of_task + weight * of_token + torch.zeros_like(gradient), 1e-10)


# -- with guides and gates -----------------------------------------------------------------------------------------


def test_guides_come_on_top_of_it():
    batch, labels = pairs(), labels_of(pairs())
    alone = supervised().train()
    with hw.capture(alone) as record:
        expected = alone(**batch, ssa_labels=labels).loss
        guide = hw.MDG(weight=1.0)(record, None)
    model = hw.guide(supervised().train(), hw.MDG(weight=0.5))
    loss = model(**batch, ssa_labels=labels).loss
    close(loss, expected + 0.5 * guide)
    assert hw.guides.last_losses(model)["task"] == pytest.approx(expected.item(), rel=1e-5)
    close(model.ssa.losses.token, alone.ssa.losses.token)
    assert torch.equal(model.eval()(**batch, ssa_labels=labels).loss, alone.eval()(**batch, ssa_labels=labels).loss)


def test_adapters_around_it_pool_and_learn_as_before():
    peft = pytest.importorskip("peft")
    model, batch = supervised("roberta"), pairs()
    expected = model(**batch, ssa_labels=labels_of(batch), output_ssa=True)
    options = {"task_type": "SEQ_CLS", "r": 2, "target_modules": ["query"], "modules_to_save": ["classifier", "ssa"]}
    adapted = peft.get_peft_model(model, peft.LoraConfig(**options)).eval()
    found = adapted(**batch, ssa_labels=labels_of(batch), output_ssa=True)
    assert all(torch.equal(found[name], expected[name]) for name in ("loss", "logits", "ssa_scores", "ssa_kept"))
    found.loss.backward()
    learns = {name for name, each in adapted.named_parameters() if each.grad is not None and each.grad.any()}
    assert any("ssa" in name and "decoder" in name for name in learns)
    assert any("classifier" in name for name in learns)
    assert hw.ssa.supervision(adapted).losses.token is not None
    sgd(adapted)[0].step()
    after = adapted(**batch).logits
    assert not torch.equal(after, expected.logits)
    merged = adapted.merge_and_unload()
    close(merged(**batch).logits, after)
    assert not torch.allclose(remove_supervision(merged)(**batch).logits, after, atol=1e-4)


# -- losses outside of the model -----------------------------------------------------------------------------------

SSA_OPTIONS = {"aug_loss_weight": 0.4}


def with_labels(rows):
    batch = collate(rows)
    return {**batch, "ssa_labels": labels_of(batch)}


@pytest.mark.parametrize(
    ("way", "guided"),
    [({}, True), ({"label_smoothing_factor": 0.1}, False), ({"compute_loss_func": summed_loss}, True)],
)
def test_the_trainer_adds_it_wherever_the_loss_is_computed(tmp_path, way, guided):
    """One step of SGD moves the weights by the gradient of the loss that is written out here."""
    found = []
    for by_hand in (False, True):
        model = supervised(exact_model(), **SSA_OPTIONS).train()
        if guided:
            hw.guide(model, hw.MDG(weight=0.5))
        if by_hand:
            batch = with_labels(examples()[:8])
            out = model(**inputs_of(batch))
            smoothing = way.get("label_smoothing_factor", 0.0)
            task = cross_entropy(out.logits, batch["labels"], label_smoothing=smoothing)
            loss = hw.ssa.supervision(model).total(task)
            close(loss, 0.6 * task + 0.4 * model.ssa.losses.token, 1e-12)
            loss = hw.guides.guidance(model).total(loss) if guided else loss
            loss.backward()
            sgd(model)[0].step()
        else:
            trainer = trainer_of(GuidedTrainer, model, tmp_path, max_steps=1, **way)
            trainer.data_collator = with_labels
            trainer.train()
        found.append({name: each.detach() for name, each in model.named_parameters()})
    assert all(torch.allclose(found[0][name], found[1][name], rtol=0, atol=1e-9) for name in found[0])


def test_a_plain_trainer_with_a_custom_loss_is_warned(tmp_path):
    model = supervised(exact_model()).train()
    trainer = trainer_of(Trainer, model, tmp_path, compute_loss_func=summed_loss)
    trainer.data_collator = with_labels
    with pytest.warns(
        HeadwiseWarning, match=r"never added.*GuidedTrainer, or call supervision\(model\)\.total"
    ) as caught:
        trainer.train()
    assert len([each for each in caught if each.category is HeadwiseWarning]) == 1  # in three steps


def test_a_training_batch_without_token_labels_keeps_the_tasks_loss_and_says_so_once():
    model, batch = supervised().train(), pairs()
    with pytest.warns(HeadwiseWarning, match=r"came without ssa_labels: train with hw\.SSACallback, or pass them"):
        out = model(**batch)
    assert torch.equal(out.loss, cross_entropy(out.logits, batch["labels"]))
    assert model.ssa.losses.token is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(**batch)
        supervised(aug_loss_weight=0.0).train()(**batch)
        supervised()(**batch)


# -- counting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["hybrid", "cotraining"])
def test_scores_are_returned_on_request_and_counted_in_training(mode):
    model, batch = supervised(model=mode), pairs()
    labels, text = labels_of(batch), text_of(batch)
    assert set(model(**batch, ssa_labels=labels)) == {"loss", "logits"}
    assert {"input_ids", "ssa_labels", "output_ssa"} <= set(inspect.signature(model.forward).parameters)
    out = model(**batch, ssa_labels=labels, output_ssa=True)
    assert torch.equal(out.ssa_scores, out.ssa_logits.softmax(-1)[..., 1])
    assert torch.equal(out.ssa_kept, (out.ssa_scores >= 0.5) & text)
    values = model(**batch, ssa_labels=labels, output_ssa=True, return_dict=False)
    assert all(torch.equal(one, other) for one, other in zip(values, out.values(), strict=True))
    assert model.ssa.seen == 0  # only training counts
    reached, total = int(((out.ssa_scores >= 0.5) & text).sum()), int(text.sum())
    model.train()
    for _ in range(2):
        model(**batch, ssa_labels=labels)
    assert (int(model.ssa.kept), int(model.ssa.seen)) == (2 * reached, 2 * total)
    model.ssa.reset_counts(3, 4)
    model(**batch, ssa_labels=labels)
    assert (int(model.ssa.kept), int(model.ssa.seen)) == (3 + reached, 4 + total)


def test_threads_do_not_meet():
    model = supervised()
    batches = [{name: value[row : row + 1] for name, value in pairs().items()} for row in range(3)]
    expected = [model(**each).logits for each in batches]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda row: [model(**batches[row]).logits for _ in range(10)], range(3)))
    assert all(torch.equal(logits, expected[row]) for row in range(3) for logits in found[row])


def test_regression():
    model = supervised(build_model("bert", num_labels=1)).train()
    batch = {**pairs(), "labels": torch.tensor([0.5, 2.0, 4.5])}
    out = model(**batch, ssa_labels=labels_of(batch))
    task = (out.logits[:, 0] - batch["labels"]).square().mean()
    close(out.loss, 0.7 * task + 0.3 * model.ssa.losses.token)


def test_lower_precision_is_finite_and_close():
    model, batch = supervised().train(), pairs()
    labels = labels_of(batch)
    exact = model(**batch, ssa_labels=labels, output_ssa=True)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(**batch, ssa_labels=labels, output_ssa=True)
    assert rough.ssa_logits.dtype == torch.float32
    torch.testing.assert_close(rough.logits.float(), exact.logits, atol=0.1, rtol=0.1)
    torch.testing.assert_close(rough.loss.float(), exact.loss, atol=0.05, rtol=0.05)
    assert not torch.equal(rough.ssa_logits, exact.ssa_logits)
    rough.loss.backward()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


def test_gradient_checkpointing_gives_the_same_gradients():
    batch, found = pairs(), []
    for checkpointing in (False, True):
        model = supervised().train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model(**batch, ssa_labels=labels_of(batch)).loss.backward()
        found.append(gradients(model))
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_gates_and_captures_work_on_it():
    model, batch = supervised(), pairs()
    expected = model(**batch).logits
    gates = torch.ones(3, 4, requires_grad=True)
    with hw.gate(model, gates), hw.capture(model) as record:
        out = model(**batch, ssa_labels=labels_of(batch))
    close(out.logits, expected)
    assert len(record.heads) == 3
    (gradient,) = torch.autograd.grad(out.loss, gates)
    assert gradient.ne(0).all()
    with hw.gate(model, torch.zeros(3, 4)):
        assert not torch.allclose(model(**batch).logits, expected, atol=1e-3)
    assert torch.equal(model(**batch).logits, expected)

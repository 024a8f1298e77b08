"""Guides in transformers' Trainer and in GuidedTrainer: the loss, the log, and a resumed training."""

import gc
import inspect
import json

import pytest
import torch
from conftest import build_model
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot
from training.small_task import (
    arguments,
    by_hand,
    collate,
    distance,
    exact_model,
    examples,
    guided,
    logged,
    parameters,
    summed_loss,
    trainer_of,
    twins,
)
from training.supervised_task import build_model as build_supervised
from transformers import DefaultFlowCallback, Trainer, TrainerCallback

import headwise as hw
from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.training.trainer import GuideCallback, GuidedTrainer

QUERY = "bert.encoder.layer.0.attention.self.query.weight"
ACCUMULATED = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
WAYS = [{}, {"label_smoothing_factor": 0.1}, {"compute_loss_func": summed_loss}]
ALWAYS = {"task_loss", "guide/mdg", "guide/mdg_weighted", "guide/mdg_weight"}


def trained(model, folder, kind=GuidedTrainer, **changes):
    trainer_of(kind, model, folder, **changes).train()
    return parameters(model)


# -- an unchanged Trainer ----------------------------------------------------------------------------------------------


def test_the_plain_trainer_does_what_a_loop_by_hand_does(tmp_path):
    found = trained(guided(), tmp_path, Trainer, eval_strategy="steps", eval_steps=1)
    assert distance(found, by_hand(0.5)[0]) < 1e-9
    assert distance(found, by_hand(0.0)[0]) > 1e-4  # so the guide did something


def test_evaluation_with_dynamic_padding_is_the_tasks_alone_and_keeps_no_maps(tmp_path):
    def attention_tensors_alive():
        """Tensors shaped like received attention [B,4,K] or a map [B,4,Q,K] of the tiny model."""
        gc.collect()
        tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor and each.is_floating_point()]
        return sum(each.dim() in (3, 4) and each.shape[1] == 4 for each in tensors)

    plain = trainer_of(Trainer, exact_model(), tmp_path).predict(examples(13, seed=4))
    model = guided()
    trainer, guidance = trainer_of(Trainer, model, tmp_path), hw.guides.guidance(model)
    before, alive = guidance.losses, attention_tensors_alive()
    metrics, predicted = trainer.evaluate(), trainer.predict(examples(13, seed=4))
    assert attention_tensors_alive() <= alive
    assert metrics["eval_loss"] == pytest.approx(plain.metrics["test_loss"], rel=1e-12)
    assert (predicted.predictions == plain.predictions).all()  # logits only: no maps came along
    assert (guidance.losses is before, guidance._raw, guidance.step) == (True, {}, 0)


def test_the_step_count_is_the_trainers(tmp_path):
    model = guided(hw.MDG(weight=hw.guides.decay(0.5, steps=2)))
    trainer = trainer_of(
        Trainer, model, tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=4
    )
    logged(trainer).train()
    assert hw.guides.guidance(model).step == trainer.state.global_step == 4
    weights = [entry.get("guide/mdg_weight") for entry in trainer.state.log_history if "loss" in entry]
    assert weights == [0.5, 0.25, None, None]


def test_with_label_smoothing_the_guides_are_missing(tmp_path):
    """Why there is a GuidedTrainer: the labels never reach the model, so its loss and the guides do not exist."""
    with pytest.warns(HeadwiseWarning, match=r"trained without the guides \(mdg\).*use hw\.GuidedTrainer"):
        found = trained(guided(), tmp_path, Trainer, label_smoothing_factor=0.1)
    assert distance(found, by_hand(0.0, smoothing=0.1)[0]) < 1e-9


def test_gradients_of_the_plain_trainer_grow_with_accumulation(tmp_path):
    """transformers (5.22) takes the mean for a sum over all items, so 4 x 2 has 4 x the gradient.

    If this fails, transformers has changed, and the docstring of GuidedTrainer should no longer say so.
    """
    before, name = parameters(exact_model()), "classifier.weight"
    changes = [
        trained(exact_model(), tmp_path, Trainer, max_steps=1, **options)[name] - before[name]
        for options in (ACCUMULATED, {})
    ]
    assert float(changes[0].norm() / changes[1].norm()) == pytest.approx(4.0, rel=1e-3)


# -- GuidedTrainer -----------------------------------------------------------------------------------------------------


def test_it_overrides_nothing_but_the_loss():
    mine = {name for name in vars(GuidedTrainer) if not name.startswith("__")}
    assert {name for name in mine if hasattr(Trainer, name)} == {"compute_loss"}
    assert list(inspect.signature(GuidedTrainer.compute_loss).parameters) == list(
        inspect.signature(Trainer.compute_loss).parameters
    )
    assert hw.GuidedTrainer is GuidedTrainer


def test_an_unguided_model_trains_too(tmp_path):
    trainer = trainer_of(GuidedTrainer, exact_model(), tmp_path)
    trainer.train()
    assert distance(parameters(trainer.model), by_hand(0.0)[0]) < 1e-9
    assert not any("task_loss" in entry for entry in trainer.state.log_history)


@pytest.mark.parametrize("way", WAYS)
def test_training_is_right_with_and_without_accumulation_and_evaluation_is_the_tasks(tmp_path, way):
    expected = by_hand(0.5, smoothing=way.get("label_smoothing_factor", 0.0))[0]
    assert distance(trained(guided(), tmp_path, **way), expected) < 1e-9
    assert distance(trained(guided(), tmp_path, **way, **ACCUMULATED), expected) < 1e-9
    plain = trainer_of(Trainer, exact_model(), tmp_path, **way).evaluate()["eval_loss"]
    found = trainer_of(GuidedTrainer, guided(), tmp_path, **way).evaluate()["eval_loss"]
    assert found == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_an_automatic_weight_is_the_same_under_accumulation(tmp_path, way):
    found = []
    for options in ({}, ACCUMULATED):
        model = guided(hw.MDG(weight=hw.auto(0.3, window=1, every=1)), share_every=1)
        trainer = trainer_of(GuidedTrainer, model, tmp_path, train_dataset=twins(), **way, **options)
        trainer.train()
        entries = [entry for entry in trainer.state.log_history if "loss" in entry]
        found.append((parameters(model), [entry["guide/mdg_weight"] for entry in entries]))
        assert entries[0]["guide/mdg_weight"] == 0.0 < entries[1]["guide/mdg_weight"]
    assert distance(found[0][0], found[1][0]) < 1e-9
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-9)
    assert len(set(found[0][1])) == 3  # measured anew at every step


def test_items_that_are_not_examples(tmp_path):
    """Several labels per example: the weight must not be divided by the labels."""

    def many(outputs, labels, num_items_in_batch=None):
        return binary_cross_entropy_with_logits(outputs.logits, labels, reduction="sum") / num_items_in_batch

    def with_many_labels(rows):
        batch = collate(rows)
        return {**batch, "labels": one_hot(batch["labels"], 3).double()}

    found = []
    for weight, options in ((0.5, {}), (0.5, ACCUMULATED), (0.0, {})):
        model = guided(hw.MDG(weight=weight))
        trainer = trainer_of(GuidedTrainer, model, tmp_path, compute_loss_func=many, max_steps=1, **options)
        trainer.data_collator = with_many_labels
        before = parameters(model)[QUERY]
        trainer.train()
        found.append((before - parameters(model)[QUERY], parameters(model)))
    assert distance(found[0][1], found[1][1]) < 1e-9
    model = exact_model().train()
    with hw.capture(model) as record:
        model(**collate(examples()[:8]))
        (expected,) = torch.autograd.grad(hw.MDG(weight=1.0)(record, None), model.get_parameter(QUERY))
    torch.testing.assert_close(found[0][0] - found[2][0], 0.5 * 0.5 * expected, rtol=1e-8, atol=1e-12)


def test_a_batch_whose_labels_are_all_ignored(tmp_path):
    rows = [{**row, "labels": -100 if number < 2 else row["labels"]} for number, row in enumerate(examples(8))]
    found = trained(guided(), tmp_path, compute_loss_func=summed_loss, train_dataset=rows, max_steps=1, **ACCUMULATED)
    assert all(torch.isfinite(each).all() for each in found.values())


def test_adapters_alone_learn_and_the_guide_reaches_them(tmp_path):
    peft = pytest.importorskip("peft")
    options = {"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": ["query", "value"]}
    found = []
    for weight, guided_first, kind in ((0.0, False, Trainer), (0.5, False, Trainer), (0.5, True, GuidedTrainer)):
        guide, model = hw.MDG(weight=weight), exact_model()
        torch.manual_seed(5)
        model = peft.get_peft_model(hw.guide(model, guide) if guided_first else model, peft.LoraConfig(**options))
        model = model if guided_first else hw.guide(model, guide)
        before = parameters(model)
        trainer = trainer_of(kind, model, tmp_path / "run")
        logged(trainer).train()
        found.append(parameters(model))
        changed = {name for name in before if not torch.equal(before[name], found[-1][name])}
        assert any("lora_A" in name for name in changed)
        assert all("lora_" in name or "modules_to_save" in name for name in changed)
    assert all("guide/mdg" in entry for entry in trainer.state.log_history if "loss" in entry)
    moved = {name for name in found[0] if (found[0][name] - found[1][name]).abs().max() > 1e-6}
    assert any("query.lora_B" in name for name in moved)
    assert distance(found[1], found[2]) < 1e-12
    model.save_pretrained(tmp_path / "adapter")
    assert "headwise" not in (tmp_path / "adapter" / "adapter_config.json").read_text()
    again = peft.PeftModel.from_pretrained(exact_model(), tmp_path / "adapter").double().eval()
    batch = collate(examples(3))
    assert torch.equal(again(**batch).logits, model.eval()(**batch).logits)


# -- the log -----------------------------------------------------------------------------------------------------------


class Reporter(TrainerCallback):
    """Stands for TensorBoard: copies what it is shown, when it is shown."""

    def __init__(self):
        self.shown = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.shown.append(dict(logs))


def parts_of(entries):
    """What the log of a step says of the parts."""
    return [
        {name: value for name, value in entry.items() if name == "task_loss" or name.startswith("guide/")}
        for entry in entries
        if "loss" in entry
    ]


def test_reporters_are_behind_the_guides_and_see_their_parts(tmp_path):
    from transformers.integrations import INTEGRATION_TO_CALLBACK

    INTEGRATION_TO_CALLBACK["reporter-of-this-test"] = Reporter
    try:
        trainer = trainer_of(
            Trainer, guided(), tmp_path, report_to=["reporter-of-this-test"], callbacks=[TrainerCallback()]
        )
    finally:
        del INTEGRATION_TO_CALLBACK["reporter-of-this-test"]
    kinds = [type(each) for each in trainer.callback_handler.callbacks]
    assert kinds[:3] == [DefaultFlowCallback, Reporter, TrainerCallback]
    reporter = trainer.callback_handler.callbacks[1]
    logged(trainer).train()
    assert type(trainer.callback_handler.callbacks[0]) is GuideCallback
    expected = [
        {"task_loss": task, "guide/mdg": guide, "guide/mdg_weighted": 0.5 * guide, "guide/mdg_weight": 0.5}
        for task, guide in by_hand(0.5)[1]
    ]
    for entries in (reporter.shown, trainer.state.log_history):
        for mine, theirs in zip(parts_of(entries), expected, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-9)
            assert all(type(value) is float for value in mine.values())


@pytest.mark.parametrize("way", WAYS)
def test_parts_are_averaged_over_accumulated_batches(tmp_path, way):
    """So they are those of one batch of all examples, however the loss is scaled for its gradient."""
    trainer = trainer_of(GuidedTrainer, guided(), tmp_path, **ACCUMULATED, **way)
    trainer.train()
    history = by_hand(0.5, smoothing=way.get("label_smoothing_factor", 0.0))[1]
    found = parts_of(trainer.state.log_history)
    assert [each["task_loss"] for each in found] == pytest.approx([task for task, _ in history], rel=1e-7)
    assert [each["guide/mdg"] for each in found] == pytest.approx([guide for _, guide in history], rel=1e-7)


def test_other_logs_are_left_alone_and_the_share_comes_every_few_steps(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4, "per_device_train_batch_size": 4}
    trainer = trainer_of(Trainer, guided(hw.MDG(weight=0.1), share_every=2), tmp_path, **options)
    logged(trainer).train()
    others = [entry for entry in trainer.state.log_history if "loss" not in entry]
    assert len(others) == 3  # two evaluations and the end of the training
    assert not any(name == "task_loss" or name.startswith("guide/") for entry in others for name in entry)
    found = parts_of(trainer.state.log_history)
    assert ["guide/mdg_share" in each for each in found] == [True, False, True, False]
    assert all(0 < each["guide/mdg_share"] < 1 for each in found[::2])


def test_the_callback_is_there_once_and_follows_the_model(tmp_path):
    trainer = trainer_of(GuidedTrainer, guided(), tmp_path, callbacks=[hw.GuideCallback()])
    trainer.train()
    callbacks = trainer.callback_handler.callbacks
    assert [type(each) for each in callbacks].count(GuideCallback) == 1
    callbacks.append(callbacks.pop(0))
    hw.guide(hw.unguide(trainer.model), hw.PDG(weight=0.1))
    trainer.train()
    assert type(callbacks[0]) is GuideCallback
    *_, last = parts_of(trainer.state.log_history)
    assert set(last) == {"task_loss", "guide/pdg", "guide/pdg_weighted", "guide/pdg_weight"}


def test_the_old_function_still_works(tmp_path):
    with pytest.warns(DeprecationWarning, match="use callbacks"):
        trainer = hw.log_losses(trainer_of(Trainer, guided(), tmp_path))
    trainer.train()
    assert all(set(parts) >= ALWAYS for parts in parts_of(trainer.state.log_history))
    with pytest.raises(StateError, match=r"is not guided: call guide\(model, \.\.\.\) first"):
        hw.training.log_losses(trainer_of(Trainer, exact_model(), tmp_path))


# -- resumed training --------------------------------------------------------------------------------------------------


@pytest.fixture
def _deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def build(kind, folder, guides=None, **changes):
    """All that a new process would build: dropout and shuffling too, since their random numbers are resumed as well."""
    guides = guides or hw.MDG(weight=hw.auto(0.3, window=2, every=2))
    model = hw.guide(build_model("bert", dropout=0.2, hidden_dropout_prob=0.2), guides)
    torch.manual_seed(99)  # a new process begins elsewhere
    options = {
        "max_steps": 6,
        "save_strategy": "steps",
        "save_steps": 3,
        "train_sampling_strategy": "random",
        "learning_rate": 1e-2,
        "lr_scheduler_type": "linear",
        "max_grad_norm": 1.0,
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
        **changes,
    }
    trainer = kind(model=model, args=arguments(folder, **options), train_dataset=examples(40), data_collator=collate)
    return logged(trainer) if kind is Trainer else trainer


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (Trainer, {}),
        (GuidedTrainer, {"label_smoothing_factor": 0.1}),
        (Trainer, {"restore_callback_states_from_checkpoint": True}),  # the Trainer builds new callbacks then
    ],
)
def test_resumed_equals_uninterrupted(tmp_path, kind, way):
    whole, again = build(kind, tmp_path, **way), build(kind, tmp_path, **way)
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert distance(parameters(whole.model), parameters(again.model)) == 0.0
    assert hw.guides.guidance(again.model).state_dict() == hw.guides.guidance(whole.model).state_dict()
    assert hw.guides.guidance(again.model).step == 6
    logs = [parts_of(each.state.log_history) for each in (again, whole)]
    assert logs[0] == logs[1]
    assert len({entry["guide/mdg_weight"] for entry in logs[1]}) > 2


@pytest.mark.usefixtures("_deterministic")
def test_two_passes_in_a_trainer_are_logged_repeated_and_resumed(tmp_path):
    guides = hw.Consistency(weight=hw.guides.warm_up(2.0, steps=4)) + hw.HeadDropout(p=0.2) + hw.MDG(weight=0.1)
    runs = []
    for name, start in (("one", None), ("two", None), ("one", str(tmp_path / "one" / "checkpoint-3"))):
        runs.append(build(Trainer, tmp_path / name, guides=guides))
        runs[-1].train(resume_from_checkpoint=start)
    for run in runs[1:]:
        assert distance(parameters(runs[0].model), parameters(run.model)) == 0.0
    logs = [entry for entry in runs[1].state.log_history if "loss" in entry]
    assert [entry.get("guide/consistency_weight") for entry in logs] == [None, 0.5, 1.0, 1.5, 2.0, 2.0]
    for entry in logs[1:]:
        parts = entry["task_loss"] + entry["guide/consistency_weighted"] + entry["guide/mdg_weighted"]
        assert parts > entry["task_loss"]
        assert not any(name.startswith("guide/head_dropout") for name in entry)


def test_consistency_refuses_label_smoothing_and_ssa(tmp_path):
    trainer = trainer_of(GuidedTrainer, guided(hw.Consistency()), tmp_path, label_smoothing_factor=0.1)
    with pytest.raises(InputError, match=r"^consistency needs the loss of the model itself, [^\n]*\.$"):
        trainer.train()
    with pytest.raises(InputError, match=r"^consistency does not work with SSA, [^\n]*\.$"):
        hw.guide(build_supervised(), hw.Consistency())


def test_other_guides_are_refused_and_a_checkpoint_without_guides_starts_them_afresh(tmp_path):
    build(Trainer, tmp_path, max_steps=3).train()
    other = build(Trainer, tmp_path, guides=hw.MDG(weight=0.1))
    with pytest.raises(InputError, match=r"the saved state is of other guides: .*\['mdg'\]; attach the guides"):
        other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    path = tmp_path / "checkpoint-3" / "trainer_state.json"
    state = json.loads(path.read_text())
    del state["stateful_callbacks"]["GuideCallback"]
    path.write_text(json.dumps(state))
    again = build(Trainer, tmp_path)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert hw.guides.guidance(again.model).step == 3
    state = json.loads((tmp_path / "checkpoint-6" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["GuideCallback"]["attributes"]["saved"]["step"] == 3

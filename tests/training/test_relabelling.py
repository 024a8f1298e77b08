"""Labels of a training set are made anew before each epoch, by the newest model, with any Trainer."""

import copy
import json
import shutil
from collections import Counter

import datasets
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from tiny_runs import SIGNS, WORDS
from torch.nn.functional import cross_entropy
from training.small_task import distance, parameters, sgd, summed_loss
from training.supervised_task import (
    AT_ONCE,
    SOFT,
    TOKENIZER,
    build,
    build_model,
    examples,
    labellings,
    labels_of,
    steps,
    watched,
)
from transformers import DataCollatorWithPadding, Trainer, default_data_collator

import headwise as hw
from headwise.errors import HeadwiseWarning, InputError, StateError
from headwise.ssa import supervision
from headwise.ssa.labeller import Labeller
from headwise.ssa.model import token_loss
from headwise.training.relabelling import FILE, SSACallback
from headwise.training.trainer import GuidedTrainer

WEIGHT = 0.3  # the authors' aug_loss_weight


def one_by_one(model):
    """A slow way to predict: an example at a time, without padding."""

    def predict(view):
        rows = [view[number] for number in range(len(view))]
        with torch.no_grad():
            found = [model(input_ids=torch.tensor(np.array(row["input_ids"]))[None]).logits[0] for row in rows]
        return torch.stack(found).numpy()

    return predict


# -- epochs ------------------------------------------------------------------------------------------------------------


def test_the_share_grows_and_every_epoch_is_logged(tmp_path):
    trainer = build(build_model(), tmp_path, num_train_epochs=6)
    trainer.train()
    found = labellings(trainer)
    assert [entry["share"] for entry in found] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 0.8])
    assert [entry["epoch"] for entry in found] == list(range(6))
    assert [entry["step"] for entry in trainer.state.log_history if "ssa/share" in entry] == [3, 6, 9, 12, 15, 18]
    for entry in found:
        assert {"acceptance", "base_rate", "kept", "flips", "right", "passes", "probes"} <= set(entry)
        assert 0 <= entry["kept"] <= 1
    assert [entry["acceptance"] for entry in found] == [0, 1, 1, 1, 1, 1]
    assert all(entry["ssa/task_loss"] > 0 for entry in steps(trainer))
    tokens = [entry["ssa/token_loss"] for entry in steps(trainer)]
    assert len(tokens) == 18  # the entry of an epoch replaces no step
    assert tokens[:3] == [0, 0, 0]
    assert all(max(tokens[begin : begin + 3]) > 0 for begin in range(3, 18, 3))


def test_labels_are_those_of_the_newest_model(tmp_path):
    """As somebody finds them who predicts one example at a time: so batches do not matter either."""
    model = build_model(SOFT)
    trainer = build(model, tmp_path)
    text, options = supervision(model).text, supervision(model).options
    found = []

    def look(epoch):
        labeller = Labeller(examples(), options, text, kind="classification", seed=trainer.args.seed)
        expected = labeller.label(one_by_one(copy.deepcopy(model).eval()), epoch=epoch, share=options.share(epoch))
        np.testing.assert_allclose(trainer.train_dataset.labels.values, expected.labels.values, atol=1e-5)
        found.append(labels_of(trainer))

    watched(trainer, look).train()
    assert [any(value != -100 for value in each) for each in found] == [False, True, True]
    assert found[1] != found[2]


def test_the_kept_fraction_is_counted_in_training_and_per_epoch(tmp_path):
    model = build_model({**SOFT, "attention_threshold": 0.5})
    trainer = build(model, tmp_path, learning_rate=0.0, num_train_epochs=2)
    trainer.train()
    kept = seen = 0
    for row in examples():
        ids = torch.tensor(row["input_ids"])[None]
        scores = model.eval()(input_ids=ids, output_ssa=True)["ssa_scores"][0, 1:-1]
        kept, seen = kept + int((scores >= 0.5).sum()), seen + len(scores)
    assert 0 < kept < seen
    assert [entry["kept"] for entry in labellings(trainer)] == [kept / seen] * 2
    assert int(supervision(model).seen) == seen  # of the last epoch alone


def test_probing_is_without_dropout_and_draws_no_random_numbers(tmp_path):
    """The authors' code never turns it on again after the first epoch."""
    model = build_model(dropout=0.3)
    modes = {"probing": set(), "training": set()}
    model.register_forward_pre_hook(
        lambda module, args, kwargs: modes["training" if "labels" in kwargs else "probing"].add(module.training),
        with_kwargs=True,
    )
    trainer = build(model, tmp_path)
    callback = next(each for each in trainer.callback_handler.callbacks if isinstance(each, SSACallback))
    begin = callback.on_epoch_begin

    def look(*args, **kwargs):
        states = torch.random.get_rng_state(), np.random.get_state()[1]
        begin(*args, **kwargs)
        assert torch.equal(states[0], torch.random.get_rng_state())  # so batches and dropout are those without SSA
        assert (states[1] == np.random.get_state()[1]).all()

    callback.on_epoch_begin = look
    trainer.train()
    assert modes == {"probing": {False}, "training": {True}}


def test_every_example_comes_once_per_epoch_with_its_newest_labels(tmp_path):
    model = build_model(AT_ONCE)
    trainer = build(model, tmp_path, num_train_epochs=2, dataloader_num_workers=1, train_sampling_strategy="random")
    seen, table = [], []

    def see(module, args, kwargs):
        if "labels" in kwargs:
            for ids, mask, labels in zip(*(kwargs[name] for name in names), strict=True):
                seen[-1].append((tuple(ids[mask != 0].tolist()), tuple(labels[mask != 0].tolist())))

    names = ("input_ids", "attention_mask", "ssa_labels")
    model.register_forward_pre_hook(see, with_kwargs=True)

    def look(epoch):
        seen.append([])
        rows = [trainer.train_dataset[number] for number in range(20)]
        table.append([(tuple(row["input_ids"]), tuple(np.nan_to_num(row["ssa_labels"], nan=-100))) for row in rows])

    watched(trainer, look).train()
    assert [Counter(each) for each in seen] == [Counter(each) for each in table]
    assert table[0] != table[1]
    assert [ids for ids, _ in seen[0]] != [ids for ids, _ in seen[1]]


# -- what the loss is --------------------------------------------------------------------------------------------------


def smoothed(logits, labels):
    return cross_entropy(logits, labels, label_smoothing=0.1)


@pytest.mark.parametrize(
    ("kind", "changes", "task"),
    [
        (Trainer, {}, cross_entropy),
        (GuidedTrainer, {"label_smoothing_factor": 0.1}, smoothed),
        (
            GuidedTrainer,
            {"compute_loss_func": summed_loss, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
            cross_entropy,
        ),
    ],
    ids=["plain", "smoothing", "own accumulated"],
)
def test_a_step_by_hand(tmp_path, kind, changes, task):
    """(1 - w) task + w token loss, averaged over the parts of an accumulated batch."""
    model = build_model({**AT_ONCE, "aug_loss_weight": WEIGHT}).double()
    expected = copy.deepcopy(model)
    trainer = build(model, tmp_path, kind=kind, max_steps=1, optimizers=sgd(model), **changes)
    trainer.train()
    size = changes.get("per_device_train_batch_size", 8)
    batches = [trainer.data_collator([trainer.train_dataset[n] for n in range(at, at + size)]) for at in (0, size)]
    tasks, tokens = [], []
    expected.train()
    for batch in batches[: 8 // size]:
        inside = {name: value for name, value in batch.items() if name not in ("labels", "ssa_labels")}
        output = expected(**inside, output_ssa=True)
        tasks.append(task(output.logits, batch["labels"]))
        tokens.append(token_loss(output["ssa_logits"], batch["ssa_labels"]))
    task_part, token_part = torch.stack(tasks).mean(), torch.stack(tokens).mean()
    total = (1 - WEIGHT) * task_part + WEIGHT * token_part
    optimiser, _ = sgd(expected)
    total.backward()
    optimiser.step()
    assert token_part > 0
    assert distance(parameters(model), parameters(expected)) < 1e-6
    (entry,) = steps(trainer)
    assert entry["ssa/task_loss"] == pytest.approx(task_part.item(), rel=1e-6)
    assert entry["ssa/token_loss"] == pytest.approx(token_part.item(), rel=1e-6)
    if "gradient_accumulation_steps" not in changes:
        assert entry["loss"] == pytest.approx(total.item(), rel=1e-4)


def test_guides_and_token_labels_together(tmp_path):
    model = hw.guide(build_model(AT_ONCE), hw.MDG(weight=0.1), tokenizer=TOKENIZER)
    trainer = build(model, tmp_path, kind=GuidedTrainer, num_train_epochs=1)
    trainer.train()
    for entry in steps(trainer):
        task = entry["ssa/task_loss"] + entry["ssa/token_weight"] * entry["ssa/token_loss"]
        assert entry["task_loss"] == pytest.approx(task, rel=1e-4)
        assert entry["loss"] == pytest.approx(task + entry["guide/mdg_weighted"], rel=1e-3)


# -- data of others ----------------------------------------------------------------------------------------------------


def as_columns(rows):
    return datasets.Dataset.from_list(
        [{**row, "label": row["labels"], "sentence": "a text", "idx": 3} for row in rows]
    ).remove_columns("labels")


PADDED = {"padding": "max_length", "max_length": 12, "truncation": True}


@pytest.mark.parametrize(
    "changes",
    [
        {"train_dataset": as_columns(examples()).with_format("torch")},
        {"train_dataset": examples(**PADDED), "data_collator": default_data_collator},
        {"train_dataset": [{**row, "mine": "text"} for row in examples()]},
    ],
    ids=["tensors", "padded", "own column"],
)
def test_any_form_of_data_gives_the_same_training(tmp_path, changes):
    expected, found = build_model(AT_ONCE), build_model(AT_ONCE)
    build(expected, tmp_path, num_train_epochs=2).train()
    build(found, tmp_path, num_train_epochs=2, **changes).train()
    # Where a gradient is 0 but for rounding, AdamW blows it up.
    same = [name for name in parameters(found) if not name.endswith("key.bias")]
    for name in same:
        assert torch.allclose(parameters(found)[name], parameters(expected)[name], atol=1e-3), name


def test_whole_words(tmp_path):
    """One word here is of two pieces: both are hidden, or none; the Trainer's collator never sees which."""
    data = [
        {**row, "word_ids": [-1, *(number // 2 for number in range(len(row["input_ids"]) - 2)), -1]}
        for row in examples()
        if len(row["input_ids"]) > 4
    ]
    trainer = build(build_model({**AT_ONCE, "whole_words": True}), tmp_path, num_train_epochs=1, train_dataset=data)
    trainer.train()
    labelled = [row["ssa_labels"] for row in (trainer.train_dataset[n] for n in range(len(data)))]
    assert sum(bool((values >= 0).any()) for values in labelled) >= 10
    for row, values in zip(data, labelled, strict=True):
        words = np.array(row["word_ids"])
        for word in range(words.max() + 1):
            assert len(set(np.nan_to_num(values[words == word], nan=-1).tolist())) == 1


def test_a_ranking_model_of_one_logit(tmp_path):
    def collate(rows):
        batch = DataCollatorWithPadding(TOKENIZER)(rows)
        return {**batch, "labels": batch["labels"][:, None]} if "labels" in batch else batch

    data = [{**row, "labels": float(row["labels"] > 0)} for row in examples()]
    model = build_model({"precision": "fp32"}, num_labels=1, problem_type="multi_label_classification")
    trainer = build(model, tmp_path, num_train_epochs=4, train_dataset=data, data_collator=collate)
    trainer.train()
    assert labellings(trainer)[-1]["share"] > 0
    assert labellings(trainer)[-1]["right"] > 0
    assert set(labels_of(trainer)) <= {-100, 0, 1}


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_models_and_data_that_cannot_be_labelled_are_refused(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(examples())

        def __len__(self):
            return 20

    for changes, match in [
        ({"train_dataset": None}, "a length, not a stream"),
        ({"train_dataset": Stream()}, "not a stream"),
        (
            {"train_dataset": [{"input_ids": [2, 7, 3], "labels": 0}, {"input_ids": [2, 3], "labels": 0}]},
            r"example 1 \(from 0\) .* no token of text.*remove it",
        ),
        ({"train_dataset": [{"input_ids": [2, 7, 8, 3]}]}, "no label"),
        ({"dataloader_num_workers": 1, "dataloader_persistent_workers": True}, "set it to False"),
    ]:
        with pytest.raises(InputError, match=match):
            build(build_model(), tmp_path, max_steps=3, **changes).train()
    labelled, collate = build(build_model(), tmp_path).train_dataset, DataCollatorWithPadding(TOKENIZER)
    several = build_model(problem_type="multi_label_classification")
    for model, data, error, match in [
        (build_model(), labelled, StateError, "already"),
        (several, examples(), InputError, "problem_type multi_label_classification gives several"),
        (hw.ssa.remove_supervision(build_model()), examples(), StateError, "call self_supervise"),
    ]:
        with pytest.raises(error, match=match):
            SSACallback(model, data, collate)
    frozen = build_model()
    frozen.bert.requires_grad_(False)
    with pytest.raises(StateError, match="ssa.token_share compares gradients on .*, and none of them is trainable"):
        build(frozen, tmp_path).train()
    with pytest.warns(HeadwiseWarning, match="GuidedTrainer"):  # which alone adds the token loss to a smoothed one
        build(build_model(AT_ONCE), tmp_path, num_train_epochs=1, label_smoothing_factor=0.1).train()


# -- resuming ----------------------------------------------------------------------------------------------------------

RESUMED = {
    "num_train_epochs": 3,
    "save_strategy": "steps",
    "save_steps": 1,
    "train_sampling_strategy": "random",
    "lr_scheduler_type": "linear",
    "logging_steps": 2,
    "gradient_accumulation_steps": 2,
    "per_device_train_batch_size": 3,  # four steps per epoch, the last one of one batch
}


def build_new(folder, options=None, **changes):
    """All that a new process would make."""
    model = build_model({**SOFT, **(options or {})}, dropout=0.2)
    torch.manual_seed(99)  # a new process begins elsewhere
    return build(model, folder, **{**RESUMED, **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    trainer = build_new(tmp_path_factory.mktemp("whole") / "run")
    trainer.train()
    assert [entry["share"] for entry in labellings(trainer)] == pytest.approx([0, 0.2, 0.4])
    return trainer


def history(trainer):
    """The log, but for what is of the clock, and for the Trainer's own loss, which it forgets between two logs."""
    entries = [entry for entry in trainer.state.log_history if "train_runtime" not in entry]
    return [{name: entry[name] for name in entry if name not in ("loss", "ssa/seconds")} for entry in entries]


@pytest.mark.parametrize(
    ("step", "changes"), [(2, {}), (7, {}), (7, {"restore_callback_states_from_checkpoint": True}), (8, {})]
)
def test_resumed_equals_uninterrupted(whole, step, changes):
    """In the first epoch, at the end of an epoch, in the middle of a later one."""
    again = build_new(whole.args.output_dir, save_strategy="no", **changes)
    again.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-{step}")
    assert distance(parameters(whole.model), parameters(again.model)) == 0.0
    assert labels_of(again) == labels_of(whole)
    assert history(again) == history(whole)


def test_labels_that_are_not_there_are_reported(whole, tmp_path):
    """The Trainer does not say where it resumes from: only checkpoints in its own folder are found."""
    for step in (7, 8):  # in an epoch, and at its end: the next one makes its own labels, but the weight is measured
        again = build_new(tmp_path)
        with pytest.raises(InputError, match=f"has no {FILE}.*weight of the token loss.*output_dir"):
            again.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-{step}")
    fixed = {"aug_loss_weight": WEIGHT}
    first = build_new(tmp_path / "first", fixed)
    first.train()
    again = build_new(tmp_path / "again", fixed)
    again.train(resume_from_checkpoint=f"{first.args.output_dir}/checkpoint-8")
    assert distance(parameters(first.model), parameters(again.model)) == 0.0


def test_a_checkpoint_of_an_earlier_version_is_refused_where_its_weight_was_another(whole, tmp_path):
    folder = shutil.copytree(whole.args.output_dir, tmp_path / "run")
    file = folder / "checkpoint-7" / FILE
    with safe_open(file, "numpy") as opened:
        values, memory = opened.get_tensor("values"), json.loads(opened.metadata()["memory"])
    assert memory.pop("balance")["auto"]["token"]["norms"]
    save_file({"values": values}, file, metadata={"memory": json.dumps(memory)})
    with pytest.raises(InputError, match="of an earlier version, whose token loss had a fixed weight: train again"):
        build_new(folder).train(resume_from_checkpoint=str(folder / "checkpoint-7"))


def test_labels_of_other_examples_are_refused(whole):
    again = build_new(whole.args.output_dir, train_dataset=examples(20, seed=6))
    with pytest.raises(InputError, match="labels of other examples: resume with the data"):
        again.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-7")


# -- learning ----------------------------------------------------------------------------------------------------------


def test_the_deciding_word_is_found(tmp_path):
    """Real training: hiding the sign word changes the answer, hiding others does not, and the token head learns it.

    A fourth class has no sign: it is the answer where one is hidden.
    """
    signs = (*SIGNS.values(), WORDS[-1])
    model = build_model({"precision": "fp32", "probes_per_example": 3}, num_labels=4)
    options = {"num_train_epochs": 12, "lr_scheduler_type": "linear", "max_grad_norm": 1.0, "logging_steps": 500}
    options |= {"per_device_train_batch_size": 15, "train_sampling_strategy": "random"}
    trainer = build(model, tmp_path, train_dataset=examples(150, signs=signs), **options)
    trainer.train()
    assert labellings(trainer)[-1]["right"] > 0.95
    ids = TOKENIZER.convert_tokens_to_ids(list(SIGNS.values()))
    found, first = {True: [], False: []}, []
    model.eval()
    for row in (trainer.train_dataset[number] for number in range(150)):
        deciding, known = np.isin(row["input_ids"], ids), ~np.isnan(row["ssa_labels"])
        for which in (True, False):
            found[which].extend(row["ssa_labels"][known & (deciding == which)].tolist())
        if deciding.any():
            scores = model(input_ids=torch.tensor(row["input_ids"])[None], output_ssa=True)["ssa_scores"][0, 1:-1]
            first.append(deciding[1 + int(scores.argmax())])
    assert len(found[True]) > 30
    assert len(found[False]) > 200
    assert np.mean(found[True]) > 0.6
    assert np.mean(found[False]) < 0.1
    assert np.mean(first) > 0.9

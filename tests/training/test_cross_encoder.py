"""Guides under sentence-transformers' own trainer, whose losses are computed outside of the model."""

import json
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from guides.reference import assert_same_gradients
from safetensors.torch import load_file
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import (
    BinaryCrossEntropyLoss,
    LambdaLoss,
    MultipleNegativesRankingLoss,
)
from torch.nn.functional import binary_cross_entropy_with_logits
from training import small_task
from training.small_task import distance, eager_mdg, parameters
from training.tiny_encoder import save_encoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainerCallback

import headwise as hw
from headwise.errors import HeadwiseWarning

WEIGHT = 0.5
CLAIMS = ["word1 word2", "word3", "word4 word5 word6", "word7 word8"]
PAPERS = ["word9", "word10 word11 word12 word13", "word14 word1", "word15 word16 word2"]
LABELLED = Dataset.from_dict({"claim": CLAIMS, "paper": PAPERS, "label": [1.0, 0.0, 1.0, 0.0]})
POSITIVE = Dataset.from_dict({"claim": CLAIMS, "paper": PAPERS})
LISTED = Dataset.from_dict(
    {
        "claim": CLAIMS,
        "papers": [PAPERS[:3], PAPERS[1:3], PAPERS[:2], PAPERS[2:]],
        "labels": [[1, 0, 0], [0, 1], [1, 0], [0, 1]],
    }
)
# name -> (the loss of a model, what it trains on, the sizes of its forward passes)
LOSSES = {
    "a list in parts": (lambda model: LambdaLoss(model, mini_batch_size=4), LISTED, [4, 4, 1]),
    "a pass per negative": (lambda model: MultipleNegativesRankingLoss(model, num_negatives=None), POSITIVE, [4] * 4),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save_encoder(tmp_path_factory.mktemp("encoder"), num_labels=1))


def exact(folder):
    return CrossEncoder(folder, num_labels=1, device="cpu").double()


def guided(folder, weight=WEIGHT):
    model = exact(folder)
    return hw.guide(model, hw.MDG(weight=weight), tokenizer=model.tokenizer)


def arguments(output, **changes):
    options = {"max_steps": 2, "per_device_train_batch_size": 4, "learning_rate": 0.1, "optim": "sgd", "seed": 1}
    options |= {"train_sampling_strategy": "random", **changes}
    return small_task.arguments(output, CrossEncoderTrainingArguments, **options)


def trainer_of(model, output, loss=None, data=LABELLED, *, callbacks=None, evaluated=None, **changes):
    loss = hw.guides.GuidedLoss(BinaryCrossEntropyLoss(model)) if loss is None else loss
    return CrossEncoderTrainer(
        model=model,
        args=arguments(output, **changes),
        train_dataset=data,
        eval_dataset=evaluated,
        loss=loss,
        callbacks=callbacks,
    )


class Gradients(TrainerCallback):
    """Copies the gradients of the first step before the optimiser takes them."""

    found = None

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self.found is None:
            self.found = {name: each.grad.clone() for name, each in model.model.named_parameters()}


def gradients_of_training(model, output, loss, data, **changes):
    callback = Gradients()
    trainer_of(model, output, loss, data, callbacks=[callback], max_steps=1, **changes).train()
    return callback.found


def calls_of(model):
    """What the encoder is called with, noted from now on."""
    batches = []

    def note(encoder, args, kwargs):
        batches.append({"input_ids": args[0], "attention_mask": kwargs["attention_mask"]})

    model.model.bert.register_forward_pre_hook(note, with_kwargs=True)
    return batches


def plain(folder):
    return AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").double().train()


def guide_by_hand(model, batches):
    """MDG as a mean over all examples of all batches, by transformers alone, example by example."""
    values = []
    for batch in batches:
        for number in range(len(batch["input_ids"])):
            one = {name: value[number : number + 1] for name, value in batch.items()}
            values.append(eager_mdg(model(**one, output_attentions=True).attentions, one["attention_mask"]))
    return torch.stack(values).mean()


def logged(trainer):
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def test_the_script_of_the_page_runs(folder, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    script = page.split("## sentence-transformers")[1].split("```python\n")[1].split("```")[0]
    names = {"path": folder, "args": arguments(tmp_path), "train": LABELLED}
    exec(script, names)  # what a reader would do
    assert {"task_loss", "guide/mdg", "guide/pdg"} <= set(logged(names["trainer"])[0])


# -- the loss ----------------------------------------------------------------------------------------------------------


def test_a_step_has_the_gradient_of_task_plus_weighted_guide(folder, tmp_path):
    """Against transformers alone: no headwise and no sentence-transformers on the other side."""
    model = guided(folder)
    loss = hw.guides.GuidedLoss(BinaryCrossEntropyLoss(model))
    found = gradients_of_training(model, tmp_path, loss, LABELLED)
    other = plain(folder)
    batch = AutoTokenizer.from_pretrained(folder)(CLAIMS, PAPERS, padding=True, return_tensors="pt")
    outputs = other(**batch, output_attentions=True)
    labels = torch.tensor(LABELLED["label"], dtype=torch.float64)
    task = binary_cross_entropy_with_logits(outputs.logits.view(-1), labels)
    (task + WEIGHT * eager_mdg(outputs.attentions, batch["attention_mask"])).backward()
    assert_same_gradients(found, {name: each.grad for name, each in other.named_parameters()})


@pytest.mark.parametrize("name", LOSSES)
def test_every_forward_pass_of_a_loss_is_guided(folder, tmp_path, name):
    make, data, sizes = LOSSES[name]
    model, twin, other = guided(folder), exact(folder), plain(folder)
    calls = calls_of(twin)
    task = gradients_of_training(twin, tmp_path, make(twin), data)
    guide_by_hand(other, calls).backward()
    expected = {
        name: task[name] + (0 if each.grad is None else WEIGHT * each.grad) for name, each in other.named_parameters()
    }
    found = gradients_of_training(model, tmp_path, hw.guides.GuidedLoss(make(model)), data)
    assert [len(each["input_ids"]) for each in calls] == sizes
    assert_same_gradients(found, expected)
    assert distance(found, task) > 1e-3


# -- what must not go by in silence ------------------------------------------------------------------------------------


def test_an_unwrapped_loss_warns_once_and_trains_without_guides(folder, tmp_path):
    model, twin = guided(folder), exact(folder)
    with pytest.warns(
        HeadwiseWarning, match=r"without the guides \(mdg\).*wrap it, hw.guides.GuidedLoss\(loss\)"
    ) as warned:
        trainer_of(model, tmp_path, BinaryCrossEntropyLoss(model)).train()
    assert len(warned) == 1
    trainer_of(twin, tmp_path, BinaryCrossEntropyLoss(twin)).train()
    assert distance(parameters(model), parameters(twin)) < 1e-12


# -- logs, checkpoints, saved models -----------------------------------------------------------------------------------


def test_what_is_saved_is_an_ordinary_cross_encoder_whose_card_names_the_guides(folder, tmp_path):
    model, twin = guided(folder), exact(folder)
    trainer_of(model, tmp_path / "run").train()
    trainer_of(twin, tmp_path / "run", BinaryCrossEntropyLoss(twin)).train()
    model.save_pretrained(str(tmp_path / "guided"))
    twin.save_pretrained(str(tmp_path / "never"))
    names = {each.name for each in (tmp_path / "guided").iterdir()}
    assert names == {each.name for each in (tmp_path / "never").iterdir()}
    for name in (each for each in names if each.endswith(".json")):
        assert (tmp_path / "guided" / name).read_text() == (tmp_path / "never" / name).read_text()
    weights = [load_file(tmp_path / each / "model.safetensors") for each in ("guided", "never")]
    assert weights[0].keys() == weights[1].keys()
    pairs = list(zip(CLAIMS, PAPERS, strict=True))
    loaded = CrossEncoder(str(tmp_path / "guided"), device="cpu").double()
    assert loaded.predict(pairs) == pytest.approx(model.predict(pairs), abs=1e-12)
    card = (tmp_path / "guided" / "README.md").read_text()
    content = json.loads(card.split("with these parameters:\n  ```json\n")[1].split("```")[0])
    assert content["loss"].startswith("BinaryCrossEntropyLoss(")
    assert content["guides"] == [repr(hw.MDG(weight=WEIGHT))]

"""LoRA: adapters of a guided model, trained by any Trainer."""

import pytest
import torch
from conftest import build_model
from training.small_task import collate, distance, exact_model, examples, logged, parameters, trainer_of
from transformers import Trainer

import headwise as hw
from headwise.training.trainer import GuidedTrainer

peft = pytest.importorskip("peft")
CONFIG = {"task_type": "SEQ_CLS", "r": 2, "lora_alpha": 4, "target_modules": ["query", "value"], "lora_dropout": 0.0}


def adapted(model):
    torch.manual_seed(5)
    return peft.get_peft_model(model, peft.LoraConfig(**CONFIG))


def guided_after(weight):
    return hw.guide(adapted(exact_model()), hw.MDG(weight=weight))


def guided_before(weight):
    return adapted(hw.guide(exact_model(), hw.MDG(weight=weight)))


@pytest.mark.parametrize("build", [guided_after, guided_before])
@pytest.mark.parametrize("kind", [Trainer, GuidedTrainer])
def test_only_the_adapters_learn_and_the_guide_reaches_them(tmp_path, build, kind):
    found = {}
    for weight in (0.0, 0.5):
        model = build(weight)
        before = parameters(model)
        trainer = trainer_of(kind, model, tmp_path)
        logged(trainer).train()
        found[weight] = parameters(model)
        changed = {name for name in before if not torch.equal(before[name], found[weight][name])}
        assert any("lora_A" in name for name in changed)
        assert any("lora_B" in name for name in changed)
        assert all("lora_" in name or "modules_to_save" in name for name in changed)
    assert all("guide/mdg" in entry for entry in trainer.state.log_history if "loss" in entry)
    moved = {name for name in found[0.0] if (found[0.0][name] - found[0.5][name]).abs().max() > 1e-6}
    assert any("query.lora_B" in name for name in moved)


def test_the_order_of_guiding_and_adapting_does_not_matter(tmp_path):
    models = [guided_after(0.5), guided_before(0.5)]
    for model in models:
        trainer_of(GuidedTrainer, model, tmp_path).train()
    assert distance(*(parameters(model) for model in models)) == 0.0


def test_an_automatic_weight_measures_on_the_adapters(tmp_path):
    model = hw.guide(adapted(exact_model()), hw.MDG(weight=hw.auto(0.3)), share_every=1)
    trainer = trainer_of(GuidedTrainer, model, tmp_path, max_steps=1)
    trainer.train()
    assert trainer.state.log_history[0]["guide/mdg_share"] == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize("build", [guided_after, guided_before])
def test_an_ordinary_adapter_is_saved(tmp_path, build):
    model = build(0.5)
    trainer_of(Trainer, model, tmp_path / "run").train()
    model.save_pretrained(tmp_path / "adapter")
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= names
    assert "headwise" not in (tmp_path / "adapter" / "adapter_config.json").read_text()
    again = peft.PeftModel.from_pretrained(exact_model(), tmp_path / "adapter").double().eval()
    batch = collate(examples(3))
    assert torch.equal(again(**batch).logits, model.eval()(**batch).logits)
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(**batch).logits, again(**batch).logits)


def test_the_base_model_is_as_it_was_when_all_is_taken_off(tmp_path):
    model = guided_after(0.5)
    trainer_of(Trainer, model, tmp_path).train()
    bare = hw.unguide(model).unload()
    plain, ours = build_model("bert", dtype=torch.float64), dict(bare.named_parameters())
    for name, parameter in plain.named_parameters():
        if "classifier" not in name:
            assert torch.equal(ours[name], parameter)

"""`attn_implementation="headwise"` without a guide: there after the import, exact, and refused where it cannot work."""

import subprocess
import sys

import pytest
import torch
import transformers
from conftest import EAGER, FUSED, build_batch, build_model
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from headwise.errors import UnsupportedModelError

NAME = "headwise"
# In a new process, since this one has imported everything.
IMPORTS = {
    "headwise first": "import headwise, sys; assert 'torch' not in sys.modules; from transformers import AutoModel",
    "transformers first": "from transformers import AutoModel; import headwise",
    "a part of headwise first": "import headwise.guides; from transformers import AutoModel",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    build_model("bert", dropout=0.1).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("imports", IMPORTS)
def test_it_is_there_after_the_import(folder, imports):
    program = (
        f"{IMPORTS[imports]}; print(AutoModel.from_pretrained({str(folder)!r}, attn_implementation='headwise').config"
    )
    command = [sys.executable, "-W", "ignore", "-c", f"{program}._attn_implementation)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [NAME]


def test_every_way_to_choose_it(folder, tmp_path):
    config = AutoConfig.from_pretrained(folder, attn_implementation=NAME)
    models = {
        "from_pretrained": AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation=NAME),
        "from_config": AutoModelForSequenceClassification.from_config(config),
        "set": AutoModelForSequenceClassification.from_pretrained(folder),
    }
    models["set"].set_attn_implementation(NAME)
    for way, model in models.items():
        assert model.config._attn_implementation == NAME, way
        assert model.bert.encoder.layer[0].attention.self.config._attn_implementation == NAME, way
    models["set"].save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()  # so that it loads where headwise is not installed


@pytest.mark.parametrize("family", FUSED)
def test_it_is_exact(family):
    """At a rate that makes our kernel run and that no weight reaches: SDPA drops other weights."""
    model = build_model(family, dropout=1e-12, dtype=torch.float64).train()
    results = []
    for name in ("sdpa", NAME):
        model.set_attn_implementation(name)
        model.zero_grad()
        output = model(**build_batch(padding=2))
        output.loss.backward()
        gradients = [each.grad.clone() for each in model.parameters() if each.grad is not None]
        results.append([output.logits.detach(), *gradients])
    assert not torch.equal(results[0][0], results[1][0])  # so the kernels differ
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", EAGER)
def test_models_that_would_ignore_it_are_refused(family):
    kind = getattr(transformers, f"{EAGER[family][0]}Model")
    with pytest.raises(UnsupportedModelError, match=f"'headwise': {kind.__name__} computes its attention itself"):
        AutoModel.from_config(build_model(family).config, attn_implementation=NAME)


def test_decoders_are_refused_at_the_first_call():
    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=60)
    model = AutoModel.from_config(config, attn_implementation=NAME)
    with pytest.raises(UnsupportedModelError, match="GPT2Attention is causal; headwise works on encoders"):
        model(input_ids=build_batch()["input_ids"])


def test_subclasses_of_users_are_accepted():
    class Mine(transformers.BertModel):
        pass

    assert Mine(build_model("bert").config).config._attn_implementation == "sdpa"
    config = build_model("bert").config
    config._attn_implementation = NAME
    assert Mine(config).config._attn_implementation == NAME

"""Start from a classifier that was fine-tuned before: everything that fits, and nothing that does not."""

import pytest
import torch
from conftest import build_batch, build_model
from training.tiny_encoder import build_tokenizer

import headwise as hw
from headwise.errors import InputError
from headwise.training.fit import start_from
from headwise.training.saving import save_classifier

TOKENIZER = build_tokenizer(mask_token="[MASK]")


def fresh(family="bert", *, ssa=None, seed=0, **changes):
    """A model of other weights for each seed."""
    model = build_model(family, **changes)
    torch.manual_seed(seed)
    if ssa is not None:
        hw.self_supervise(model, ssa, tokenizer=TOKENIZER, max_length=12)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def saved(folder, *args, **options):
    model = fresh(*args, seed=1, **options)
    save_classifier(model, TOKENIZER, folder, "pooler")
    return model


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_encoder_and_classifier_are_taken_and_the_token_head_stays_fresh(tmp_path, family):
    theirs, mine = saved(tmp_path, family), fresh(family, ssa={"model": "cotraining"})
    before = mine.ssa.head.decoder.detach().clone()
    missing = start_from(mine, str(tmp_path))
    assert missing == sorted(name for name in mine.state_dict() if name.startswith("ssa."))
    assert torch.equal(mine(**build_batch()).logits, theirs(**build_batch()).logits)
    assert torch.equal(mine.ssa.head.decoder, before)


@pytest.mark.parametrize("mode", ["hybrid", "cotraining"])
def test_a_token_head_is_taken_where_there_is_one(tmp_path, mode):
    theirs, mine = saved(tmp_path, ssa={"model": mode}), fresh(ssa={"model": mode})
    assert start_from(mine, str(tmp_path)) == []
    assert all(torch.equal(value, mine.state_dict()[name]) for name, value in theirs.state_dict().items())


def test_a_token_head_of_another_shape_stays_fresh(tmp_path):
    saved(tmp_path, ssa={"share_weight": False})
    assert start_from(fresh(ssa={}), str(tmp_path)) == ["ssa.head.decoder", "ssa.head.decoder_bias"]


def test_a_token_head_without_a_taker_is_left_behind(tmp_path):
    theirs, mine = saved(tmp_path, ssa={"model": "cotraining"}), fresh()
    assert start_from(mine, str(tmp_path)) == []
    assert torch.equal(mine(**build_batch()).logits, theirs(**build_batch()).logits)


@pytest.mark.parametrize(
    "changes", [{"num_labels": 2}, {"num_labels": 1}, {"id2label": {0: "b", 1: "a", 2: "c"}}], ids=str
)
def test_a_classifier_of_other_labels_is_refused(tmp_path, changes):
    saved(tmp_path, **changes)
    mine = fresh(ssa={"model": "cotraining"}, id2label={0: "a", 1: "b", 2: "c"})
    with pytest.raises(InputError, match=r"use_saved .*has the labels .*, and this task a, b, c; name one"):
        start_from(mine, str(tmp_path))


def test_labels_without_names_may_be_any(tmp_path):
    saved(tmp_path)
    start_from(fresh(ssa={}, id2label={0: "a", 1: "b", 2: "c"}), str(tmp_path))


@pytest.mark.parametrize(
    ("family", "changes", "first"),
    [
        ("roberta", {}, "bert.embeddings"),
        ("bert", {"num_hidden_layers": 2}, r"bert\.encoder\.layer\.2"),
        ("bert", {"num_hidden_layers": 4}, r"bert\.encoder\.layer\.3"),
        ("bert", {"vocab_size": 70}, r"bert\.embeddings\.word_embeddings\.weight"),
    ],
)
def test_another_encoder_is_refused_and_nothing_is_changed(tmp_path, family, changes, first):
    saved(tmp_path, family, **changes)
    mine = fresh(ssa={})
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    with pytest.raises(InputError, match=rf"ssa\.use_saved .*: \d+ weights are missing.*{first}.* first"):
        start_from(mine, str(tmp_path))
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())


def test_a_folder_without_a_classifier(tmp_path):
    with pytest.raises(InputError, match="holds no model"):
        start_from(fresh(ssa={}), str(tmp_path / "nowhere"))
    build_model("bert").base_model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="holds a BertModel without a trained classifier"):
        start_from(fresh(ssa={}), str(tmp_path))

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
    save_classifier(model, TOKENIZER, folder, "cls")
    return model


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_encoder_and_classifier_are_taken_and_the_token_head_stays_fresh(tmp_path, family):
    theirs, mine = saved(tmp_path, family), fresh(family, ssa={"model": "cotraining"})
    before = mine.ssa.head.decoder.detach().clone()
    missing = start_from(mine, str(tmp_path))
    assert missing == sorted(name for name in mine.state_dict() if name.startswith("ssa."))
    assert torch.equal(mine(**build_batch()).logits, theirs(**build_batch()).logits)
    assert torch.equal(mine.ssa.head.decoder, before)


def test_a_token_head_is_taken_where_there_is_one(tmp_path):
    theirs, mine = saved(tmp_path, ssa={}), fresh(ssa={}, id2label={0: "a", 1: "b", 2: "c"})
    assert start_from(mine, str(tmp_path)) == []
    assert all(torch.equal(value, mine.state_dict()[name]) for name, value in theirs.state_dict().items())
    assert start_from(fresh(ssa={"share_weight": False}), str(tmp_path)) == [
        "ssa.head.decoder",
        "ssa.head.decoder_bias",
    ]


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("bert", {"num_labels": 2}, r"has the labels .*, and this task a, b, c; name one"),
        ("bert", {"id2label": {0: "b", 1: "a", 2: "c"}}, r"has the labels b, a, c, and this task a, b, c; name one"),
        ("roberta", {}, r"\d+ weights are missing.*bert.embeddings.* first"),
        ("bert", {"num_hidden_layers": 2}, r"\d+ weights are missing.*bert\.encoder\.layer\.2.* first"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_changed(tmp_path, family, changes, message):
    saved(tmp_path, family, **changes)
    mine = fresh(ssa={}, id2label={0: "a", 1: "b", 2: "c"})
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    with pytest.raises(InputError, match=rf"ssa\.use_saved .*: .*{message}"):
        start_from(mine, str(tmp_path))
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())

"""Heads that read means of tokens, against slow loops; fresh poolers; and the learning rate of the head."""

import copy
import json
import math
import random

import numpy
import pytest
import torch
from conftest import FAMILIES, build_batch, build_model
from training.tiny_encoder import WORDS, build_tokenizer, save_encoder
from transformers import AutoModel, FNetConfig, FNetForSequenceClassification, GPT2Config, GPT2ForSequenceClassification

import headwise as hw
from headwise.data import Collator, Split, encode
from headwise.errors import InputError, UnsupportedModelError
from headwise.retrieval.reranker import Reranker
from headwise.training import MultiTask
from headwise.training.classifier import CONFIG, change_head, fit_linear, head_parameters, scale_head
from headwise.training.encoders import find_encoder, load_classifier
from headwise.training.predict import first_token_only, importance_on, predict_logits, predict_under_masks
from headwise.training.run_trainer import RunArguments
from headwise.training.saving import HEAD_FILE, load_classifier_folder, prepare_reranker, save_classifier

pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")

TOKENIZER = build_tokenizer(mask_token="[MASK]")
CLS, SEP, PAD = 2, 3, 1
# A pair, one with two separators in between (as RoBERTa's), one without a second text, and one of special tokens.
ROWS = [
    [CLS, 10, 11, 12, SEP, 20, 21, SEP],
    [CLS, 13, SEP, SEP, 22, 23, 24, 25, 26, SEP],
    [CLS, 14, 15, SEP],
    [CLS, SEP, SEP],
]
# One for each way to the first linear layer.
ROUTES = ("bert", "albert", "roberta", "distilbert", "modernbert", "deberta-v2")
HEADS = ("mean", "segments")


def batch_of(rows, side="right", more=0):
    width = max(map(len, rows)) + more
    ids, mask = torch.full((len(rows), width), PAD), torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        start = 0 if side == "right" else width - len(row)
        ids[number, start : start + len(row)] = torch.tensor(row)
        mask[number, start : start + len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def slow_features(head, states, ids, mask):
    """One number after the other."""
    found = []
    for state, row, real in zip(states, ids.tolist(), mask.tolist(), strict=True):
        every, first, second, separators = [], [], [], 0
        for token, vector, counts in zip(row, state, real, strict=True):
            if not counts:
                continue
            every.append(vector)
            if token == SEP:
                separators += 1
            elif token not in (CLS, PAD):
                (second if separators else first).append(vector)
        mean, u, v = (sum(part) / len(part) if part else state[0] * 0 for part in (every, first, second))
        found.append(mean if head == "mean" else torch.cat([u, v, abs(u - v), u * v]))
    return torch.stack(found)


def build(family, head, **changes):
    torch.manual_seed(4)
    return change_head(build_model(family, **changes), head, tokenizer=TOKENIZER).eval()


def first_linear(model):
    """The layer that reads the features, by the names of each family."""
    names = dict(model.named_modules())
    for name in ("pre_classifier", "classifier.dense", "head.dense", "pooler.dense", "classifier"):
        if name in names:
            return names[name]
    raise AssertionError


# -- features ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_every_family_reads_what_a_slow_loop_gives(family, head, side):
    model, batch, seen = build(family, head), batch_of(ROWS, side), []
    handle = first_linear(model).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
        pair = model(**batch, return_dict=False)
    handle.remove()
    expected = slow_features(head, output.hidden_states[-1], batch["input_ids"], batch["attention_mask"])
    torch.testing.assert_close(seen[0], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(pair[0], output.logits)
    assert first_linear(model).in_features == expected.shape[1] == (32 if head == "mean" else 128)
    assert output.logits.shape == (4, 3)
    assert output.logits.std(0).max() > 1e-3  # texts matter


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", ROUTES)
def test_padding_does_not_change_the_logits(family, head):
    model = build(family, head)
    with torch.no_grad():
        found = model(**batch_of(ROWS, more=5)).logits
        for number, row in enumerate(ROWS):
            alone = model(**batch_of([row])).logits
            torch.testing.assert_close(found[number : number + 1], alone, atol=1e-5, rtol=1e-4)
            without_mask = model(input_ids=torch.tensor([row])).logits
            torch.testing.assert_close(without_mask, alone, atol=1e-5, rtol=1e-4)


def test_copies_other_precisions_and_gradients():
    model, batch = build("bert", "segments"), batch_of(ROWS)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(**batch).logits, model(**batch).logits)
    half = twin.to(torch.bfloat16)(**batch).logits
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), model(**batch).logits, atol=0.1, rtol=0.1)
    assert build("bert", "mean").double()(**batch).logits.dtype == torch.float64
    model(**batch, labels=torch.tensor([0, 1, 2, 0])).loss.backward()
    assert all(each.grad is not None for each in model.parameters())


def test_what_a_head_cannot_do():
    gpt = GPT2ForSequenceClassification(
        GPT2Config(vocab_size=60, n_embd=32, n_layer=1, n_head=2, num_labels=3, pad_token_id=PAD)
    )
    for head in HEADS:
        with pytest.raises(InputError) as caught:
            change_head(gpt, head, tokenizer=TOKENIZER)
        assert str(caught.value) == (
            f"head {head!r} is not known for gpt2 models, whose classifier is built neither as BERT's nor as "
            "RoBERTa's: use head: cls."
        )
    # Its encoder never sees the attention mask, so padding would be part of the mean.
    fnet = FNetForSequenceClassification(FNetConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_labels=3))
    with pytest.raises(InputError, match="^head 'mean' is not known for fnet models"):
        change_head(fnet, "mean")
    without = build_tokenizer()
    without.sep_token = None
    with pytest.raises(InputError, match=r"by the separator between them, and \w+ has none: use head: cls or mean"):
        change_head(build_model("bert"), "segments", tokenizer=without)
    states = torch.rand(2, 5, 32)
    with pytest.raises(InputError, match=r"finds the two texts by their separators: pass input_ids\.$"):
        build("bert", "segments")(inputs_embeds=states)
    assert build("bert", "mean")(inputs_embeds=states).logits.shape == (2, 3)
    with pytest.raises(InputError, match=r"whose shape is \[2, 1, 5, 5\]: expected \[batch, tokens\]\.$"):
        build("bert", "mean")(inputs_embeds=states, attention_mask=torch.ones(2, 1, 5, 5, dtype=torch.bool))


def test_a_family_that_does_not_do_as_its_layers_suggest_is_refused():
    """It has a classifier with a dense layer, and reads the last token."""
    model = build_model("roberta")
    own = model.classifier.forward
    model.classifier.forward = lambda states, **options: own(states.flip(1) * 2, **options)
    with pytest.raises(InputError, match="^head 'mean' is not known for roberta models"):
        change_head(model, "mean")


def test_tasks_cannot_share_an_encoder_with_a_hook():
    with pytest.raises(
        InputError, match=r"^task 'b' has a classifier that reads means of tokens, .* head cls or relu\.$"
    ):
        MultiTask({"a": build_model("bert"), "b": build("bert", "mean")})


# -- saved and loaded --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_saved_head_comes_back_without_a_record(tmp_path, family, head):
    model, batch = build(family, head), batch_of(ROWS)
    save_classifier(model, TOKENIZER, tmp_path, head)
    torch.manual_seed(99)
    expected = model(**batch, output_hidden_states=True)
    for again in (hw.load(tmp_path), load_classifier_folder(tmp_path, head)[0]):
        assert torch.equal(again(**batch).logits, expected.logits)
        assert not again.training
    encoder = AutoModel.from_pretrained(tmp_path).eval()
    assert torch.equal(encoder(**batch).last_hidden_state, expected.hidden_states[-1])
    settings = json.loads((tmp_path / "config.json").read_text())[CONFIG]
    assert settings == (
        {"kind": "mean"} if head == "mean" else {"kind": head, "special_ids": [1, 2, 3], "separator_id": 3}
    )


def test_what_save_pretrained_wrote_comes_back(tmp_path):
    model, batch = build("bert", "segments"), batch_of(ROWS)
    save_classifier(build("bert", "segments"), TOKENIZER, tmp_path, "segments")  # another one was there before
    model.classifier.weight.data.add_(1.0)
    model.save_pretrained(tmp_path)
    assert torch.equal(hw.load(tmp_path)(**batch).logits, model(**batch).logits)


@pytest.mark.parametrize(
    "settings",
    [3, {}, {"kind": "sum"}, {"kind": "segments"}, {"kind": "segments", "special_ids": 1, "separator_id": 3}],
)
def test_damaged_settings_are_one_sentence(tmp_path, settings):
    save_classifier(build("bert", "segments"), TOKENIZER, tmp_path, "segments")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {CONFIG: settings}))
    with pytest.raises(InputError, match=rf"the model's config has a damaged {CONFIG} \(.*\): save the model again"):
        hw.load(tmp_path)


def test_a_run_starts_from_a_folder_with_another_head(tmp_path):
    save_classifier(build("bert", "segments", num_labels=2), TOKENIZER, tmp_path, "segments")
    encoder = find_encoder(str(tmp_path))
    for head in ("cls", "mean", "relu"):
        model = load_classifier(encoder, labels=("a", "b"), head=head, seed=1).eval()
        assert model.classifier.in_features == 32
        assert getattr(model.config, CONFIG, {"kind": "cls"}) == {"kind": head}
        assert (model.fresh_pooler == "the checkpoint has none") == (head == "cls")


# -- code that assumes a head reads the first token --------------------------------------------------------------------


def encoded(count=9, labels=3):
    chance = random.Random(3)
    texts = [tuple(" ".join(chance.choices(WORDS, k=chance.randint(1, 7))) for _ in range(2)) for _ in range(count)]
    return encode(Split(tuple(texts), tuple(number % labels for number in range(count))), TOKENIZER, 20)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_shortcuts_for_the_first_token_are_not_taken(family, head):
    model, data, collate = build(family, head), encoded(), Collator.of(TOKENIZER, "classification")
    plain = predict_logits(model, data, collate, batch=4)
    with first_token_only(model) as known:
        assert not known
        numpy.testing.assert_allclose(predict_logits(model, data, collate, batch=4), plain, atol=1e-6)
    masks = numpy.zeros((3, 3, 4), dtype=bool)
    masks[1, 0, 1] = masks[2, 2] = True
    found = predict_under_masks(model, data, collate, masks, batch=4)
    for mask, logits in zip(masks, found, strict=True):
        with hw.gate(model, torch.from_numpy(~mask).float()):
            numpy.testing.assert_allclose(logits, predict_logits(model, data, collate, batch=4), atol=1e-5)
    assert numpy.abs(found[0] - found[2]).max() > 1e-4
    important = importance_on(model, data, collate)
    assert numpy.isfinite(important.scores).all()
    assert important.scores.min() > 0  # every head moves the mean of the tokens


@pytest.mark.parametrize("head", HEADS)
def test_least_squares_on_the_features(head):
    model, data, collate = build("bert", head), encoded(300), Collator.of(TOKENIZER, "classification")
    fit_linear(model, data, collate)
    rows = []
    with torch.no_grad():
        for number in range(300):
            batch = collate([data[number]])
            del batch["labels"]
            states = model.bert(**batch)[0]
            rows.append(slow_features(head, states, batch["input_ids"], batch["attention_mask"]))
    inputs = torch.cat([torch.cat(rows), torch.ones(300, 1)], 1).double()
    targets = torch.nn.functional.one_hot(torch.tensor(data.labels), 3).double()
    solution = torch.cat([model.classifier.weight.T, model.classifier.bias[None]]).double()
    assert (inputs.T @ (targets - inputs @ solution)).abs().max() < 1e-2


@pytest.mark.parametrize("head", HEADS)
def test_rerankers(tmp_path, head):
    model, chance = build("bert", head, num_labels=1), random.Random(2)
    tokenizer = build_tokenizer()
    prepare_reranker(model, tokenizer, 16)
    save_classifier(model, tokenizer, tmp_path, head)
    pairs = [tuple(" ".join(chance.choices(WORDS, k=chance.randint(1, 12))) for _ in range(2)) for _ in range(12)]
    reranker = Reranker.load(tmp_path)
    expected = []
    for pair in pairs:
        ids = reranker.tokenizer(*pair, truncation="longest_first", max_length=16, padding=False)["input_ids"]
        expected.append(model(input_ids=torch.tensor([ids])).logits.item())
    assert reranker.predict(pairs) == pytest.approx(expected, abs=1e-5)
    assert numpy.ptp(expected) > 1e-3


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_ssa(family, tmp_path):
    """The token head reads the states of all tokens; blending needs vectors of one size."""
    batch = batch_of(ROWS)
    for head, model in (("mean", "hybrid"), ("mean", "cotraining"), ("segments", "cotraining")):
        classifier = build(family, head)
        states = classifier(**batch, output_hidden_states=True).hidden_states[-1]
        hw.self_supervise(classifier, {"model": model}, tokenizer=TOKENIZER)
        classifier.eval()
        found = classifier(**batch, output_ssa=True, ssa_labels=torch.ones_like(batch["input_ids"]).float())
        positions = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
        torch.testing.assert_close(found.ssa_logits, classifier.ssa.head(states, positions))
        folder = tmp_path / f"{head}-{model}"
        save_classifier(classifier, TOKENIZER, folder, head)
        assert torch.equal(hw.load(folder)(**batch).logits, classifier(**batch).logits)
    if family == "bert":
        with pytest.raises(UnsupportedModelError, match=r"reads 128 numbers, and its tokens have 32: .* cotraining\.$"):
            hw.self_supervise(build(family, "segments"), {"model": "hybrid"}, tokenizer=TOKENIZER)


# -- fresh poolers -----------------------------------------------------------------------------------------------------


def checkpoint(folder, family="bert", **changes):
    """A folder whose pooler is untrained, as that of MiniLM."""
    save_encoder(folder, family)
    model = build_model(family, **changes)
    pooler = model.base_model.pooler
    dense = getattr(pooler, "dense", pooler)
    dense.weight.data.mul_(0.01)
    dense.bias.data.zero_()
    model.base_model.save_pretrained(folder)
    return dense.weight.detach().clone()


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_an_untrained_pooler_starts_fresh_by_the_seed(tmp_path, family):
    old = checkpoint(tmp_path, family)

    def pooler(seed):
        torch.rand(seed + 5)  # whatever was drawn before
        model = load_classifier(find_encoder(str(tmp_path)), labels=("a", "b"), head="cls", seed=seed)
        part = model.base_model.pooler
        dense = getattr(part, "dense", part)
        assert model.fresh_pooler == "its bias is 0 everywhere"
        assert not dense.bias.any()
        return dense.weight.detach()

    assert torch.equal(pooler(1), pooler(1))
    assert not torch.equal(pooler(1), pooler(2))
    assert pooler(1).std() == pytest.approx(0.02, rel=0.1)
    assert old.std() < 0.005


def test_trained_poolers_and_those_of_saved_runs_stay(tmp_path):
    folder = save_encoder(tmp_path / "trained")
    model = load_classifier(find_encoder(str(folder)), labels=("a", "b"), head="cls", seed=1)
    assert model.fresh_pooler is None
    assert torch.equal(model.bert.pooler.dense.weight, build_model("bert").bert.pooler.dense.weight)
    # With a bias of 0, but with the classifier that was trained on it.
    model.bert.pooler.dense.bias.data.zero_()
    save_classifier(model, TOKENIZER, tmp_path / "run", "cls")
    for again in (
        hw.load(tmp_path / "run"),
        load_classifier_folder(tmp_path / "run", "pooler")[0],
        load_classifier(find_encoder(str(tmp_path / "run")), labels=("a", "b"), head="cls", seed=3),
    ):
        assert torch.equal(again.bert.pooler.dense.weight, model.bert.pooler.dense.weight)
    assert not (tmp_path / "run" / HEAD_FILE).exists()


@pytest.mark.slow
def test_the_pooler_of_minilm_is_untrained():
    model = load_classifier(find_encoder("builtin:minilm-l6"), labels=("a", "b"), head="cls", seed=1)
    assert model.fresh_pooler == "its bias is 0 everywhere"
    assert model.bert.pooler.dense.weight.std().item() == pytest.approx(0.02, rel=0.02)


# -- the learning rate of the head -------------------------------------------------------------------------------------

ABOVE = {
    "bert": {"bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"},
    "roberta": {
        "classifier.dense.weight",
        "classifier.dense.bias",
        "classifier.out_proj.weight",
        "classifier.out_proj.bias",
    },
    "distilbert": {"pre_classifier.weight", "pre_classifier.bias", "classifier.weight", "classifier.bias"},
    "modernbert": {"head.dense.weight", "head.norm.weight", "classifier.weight", "classifier.bias"},
    "albert": {"albert.pooler.weight", "albert.pooler.bias", "classifier.weight", "classifier.bias"},
}


@pytest.mark.parametrize("family", ABOVE)
def test_which_weights_are_the_head(family):
    assert head_parameters(build_model(family)) == ABOVE[family]


def test_the_head_of_several_tasks_and_of_ssa():
    joint = MultiTask({"a": build_model("bert"), "b": build_model("bert")})
    own = {f"heads.{number}.classifier.{name}" for number in (0, 1) for name in ("weight", "bias")}
    assert head_parameters(joint) == own | {"encoder.pooler.dense.weight", "encoder.pooler.dense.bias"}
    model = hw.self_supervise(build_model("bert"), tokenizer=TOKENIZER)
    token = {name for name, _ in model.named_parameters() if name.startswith("ssa.")}
    assert head_parameters(model) == ABOVE["bert"] | token
    assert len(token) > 4


def test_groups_of_the_optimizer_keep_their_weight_decay():
    model = build_model("bert", num_hidden_layers=1)
    names = {id(each): name for name, each in model.named_parameters()}
    decay = [each for name, each in model.named_parameters() if "bias" not in name and "LayerNorm" not in name]
    rest = [each for name, each in model.named_parameters() if "bias" in name or "LayerNorm" in name]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    scale_head(optimizer, model, 5.0)
    found = [
        (group["lr"], group["weight_decay"], {names[id(each)] for each in group["params"]})
        for group in optimizer.param_groups
    ]
    assert [each[:2] for each in found] == [(0.01, 0.1), (0.01, 0.0), (0.05, 0.1), (0.05, 0.0)]
    assert found[2][2] == {"bert.pooler.dense.weight", "classifier.weight"}
    assert found[3][2] == {"bert.pooler.dense.bias", "classifier.bias"}
    assert "bert.encoder.layer.0.attention.self.query.weight" in found[0][2]
    assert "bert.embeddings.LayerNorm.weight" in found[1][2]
    assert sum(len(each[2]) for each in found) == len(names)


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, "10", True, None])
def test_a_multiplier_that_is_no_rate(tmp_path, value):
    with pytest.raises(InputError) as caught:
        RunArguments(output_dir=str(tmp_path), head_learning_rate_multiplier=value)
    assert str(caught.value) == (
        f"training.head_learning_rate_multiplier is {value!r}: expected a finite number above 0."
    )


def test_build_batch_has_no_separators():
    """So the second text of segments is empty there, and nothing breaks."""
    assert not (build_batch()["input_ids"] == SEP).any()
    assert torch.isfinite(build("bert", "segments")(**build_batch()).logits).all()

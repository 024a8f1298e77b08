"""Head importance against slow references: one example at a time, with hooks on BERT's output projections."""

import json
from collections import UserDict

import numpy as np
import pytest
import torch
from conftest import SIZES, build_batch, build_model
from torch import nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForTokenClassification, BertModel

import headwise as hw
from headwise.attention.surgery import prune
from headwise.errors import InputError, StateError
from headwise.heads.importance import GRANULARITIES, HeadImportance, head_importance

LAYERS, HEADS = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
PADDING = SIZES["pad_token_id"]
pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")


def examples(count=7, labels=lambda number: number % 3):
    """(ids, label) pairs of different lengths."""
    random = torch.Generator().manual_seed(5)
    lengths = [4 + (5 * number) % 9 for number in range(count)]
    ids = [torch.randint(5, 60, (length,), generator=random) for length in lengths]
    return [(each, torch.tensor(labels(number))) for number, each in enumerate(ids)]


def collate(some, padding=0):
    width = max(len(ids) for ids, _ in some) + padding
    ids = torch.full((len(some), width), PADDING)
    for row, (each, _) in zip(ids, some, strict=True):
        row[: len(each)] = each
    mask = (torch.arange(width) < torch.tensor([len(each) for each, _ in some])[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.stack([label for _, label in some])}


def batched(some, size, padding=0):
    return [collate(some[start : start + size], padding) for start in range(0, len(some), size)]


def token_slopes(model, ids, label):
    """[N,S,H] output * d(loss) / d(output) of every position, from the contexts themselves."""
    contexts = []

    def keep(module, args):
        contexts.append(args[0])
        args[0].retain_grad()

    layers = model.bert.encoder.layer
    handles = [layer.attention.output.dense.register_forward_pre_hook(keep) for layer in layers]
    with torch.enable_grad():
        model(input_ids=ids[None], labels=label[None]).loss.backward()
    for handle in handles:
        handle.remove()
    model.zero_grad()
    products = torch.stack([(context * context.grad)[0] for context in contexts])  # [N,S,H*D]
    return products.unflatten(-1, (HEADS, -1)).sum(-1).detach().numpy()


def slow_scores(slopes, granularity):
    """The definitions, from each example's slopes [N,S,H]."""
    if granularity == "token":
        return sum(np.abs(each).sum(1) for each in slopes) / sum(each.shape[1] for each in slopes)
    whole = np.stack([each.sum(1) for each in slopes])  # [X,N,H]
    return np.abs(whole).mean(0) if granularity == "sample" else np.abs(whole.mean(0))


@pytest.fixture(scope="module")
def precise():
    return build_model("bert", dtype=torch.float64).eval()


@pytest.fixture(scope="module")
def slopes(precise):
    return [token_slopes(precise, ids, label) for ids, label in examples()]


# -- what is computed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_equals_the_contexts_times_their_gradients_whatever_the_batches(precise, slopes, granularity):
    for size, padding in [(7, 0), (3, 0), (2, 5), (1, 1)]:
        found = head_importance(precise, batched(examples(), size, padding), granularity=granularity)
        np.testing.assert_allclose(found.scores, slow_scores(slopes, granularity), rtol=1e-9)
        assert (found.examples, found.tokens) == (7, sum(len(ids) for ids, _ in examples()))
        assert found.scores.dtype == np.float64


# One of each route: layers that share weights, one matrix for query, key and value, bottlenecks, the eager route.
@pytest.mark.parametrize("family", ["albert", "modernbert", "mobilebert", "deberta-v2"])
def test_every_family_obeys_the_triangle_and_ignores_the_batches(family):
    model, some = build_model(family, dtype=torch.float64), examples(5)
    # MobileBERT adds each token's neighbours to it: the last token must have padding behind it in every batch.
    by = {name: head_importance(model, batched(some, 2, padding=1), granularity=name) for name in GRANULARITIES}
    ratio = by["token"].tokens / by["token"].examples
    assert by["sample"].scores.shape == (LAYERS, HEADS)
    assert (by["batch"].scores > 0).all()
    assert (by["batch"].scores <= by["sample"].scores * (1 + 1e-9)).all()
    assert (by["sample"].scores <= by["token"].scores * ratio * (1 + 1e-9)).all()
    for name in GRANULARITIES:
        other = head_importance(model, batched(some[::-1], 5, padding=3), granularity=name)
        np.testing.assert_allclose(other.scores, by[name].scores, rtol=1e-6)


def heads_cut(model, mask):
    """The columns of silenced heads set to 0 in the output projections."""
    width = SIZES["hidden_size"] // HEADS
    for layer, head in np.argwhere(mask):
        dense = model.bert.encoder.layer[layer].attention.output.dense
        dense.weight.data[:, head * width : (head + 1) * width] = 0
    return model


@pytest.mark.parametrize("granularity", ["token", "sample"])
def test_masked_heads_score_zero_and_the_others_as_without_them(precise, granularity):
    mask = np.zeros((LAYERS, HEADS), dtype=bool)
    mask[0, 1] = mask[2, :2] = True
    cut = heads_cut(build_model("bert", dtype=torch.float64), mask)
    data = batched(examples(), 3)
    found = head_importance(precise, data, granularity=granularity, mask=mask)
    expected = head_importance(cut, data, granularity=granularity).scores
    assert (found.scores[mask] == 0).all()
    np.testing.assert_allclose(found.scores[~mask], expected[~mask], rtol=1e-9)
    assert np.abs(found.scores - head_importance(precise, data, granularity=granularity).scores)[~mask].max() > 1e-6
    named = head_importance(precise, data, granularity=granularity, mask={0: [1], 2: [0, 1]})
    assert (named.scores == found.scores).all()
    with hw.gate(precise, torch.from_numpy(~mask).float()):  # gates around the call stay
        gated = head_importance(precise, data, granularity=granularity).scores
    np.testing.assert_allclose(gated, found.scores, rtol=1e-9)


@pytest.mark.parametrize(("family", "granularity"), [("bert", "token"), ("mpnet", "sample")])
def test_a_pruned_model_scores_as_a_masked_one(family, granularity):
    heads = {0: [1], 1: [0, 1, 2, 3]}
    data, model = batched(examples(), 3), build_model(family, dtype=torch.float64)
    masked = head_importance(model, data, granularity=granularity, mask=heads)
    pruned = head_importance(prune(model, heads), data, granularity=granularity)
    np.testing.assert_allclose(pruned.scores, masked.scores, rtol=1e-9)
    assert pruned.scores[0, 1] == pruned.scores[1].max() == 0
    assert pruned.stability == masked.stability


def test_layers_are_normalised_on_request(precise):
    data = batched(examples(), 3)
    plain, scaled = head_importance(precise, data), head_importance(precise, data, normalise="layer")
    norms = np.linalg.norm(plain.scores, axis=1, keepdims=True)
    np.testing.assert_allclose(scaled.scores, plain.scores / norms, rtol=1e-12)
    np.testing.assert_allclose(scaled.half_width, plain.half_width / norms, rtol=1e-12)
    silent = np.zeros((LAYERS, HEADS), dtype=bool)
    silent[1] = True
    assert (head_importance(precise, data, normalise="layer", mask=silent).scores[1] == 0).all()


# -- other losses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({"num_labels": 1}, lambda number: 0.7 * number),
        ({"problem_type": "multi_label_classification"}, lambda number: [1.0, float(number % 2), 0.0]),
    ],
)
def test_regression_and_several_labels_with_a_last_batch_of_one(options, labels):
    model = build_model("bert", **options)
    some = examples(5, labels)
    singles = [head_importance(model, [collate([one])], granularity="batch").scores for one in some]
    np.testing.assert_allclose(head_importance(model, batched(some, 2)).scores, np.mean(singles, 0), rtol=1e-4)


def test_labels_of_tokens_count_each(precise):
    torch.manual_seed(2)
    model = BertForTokenClassification(BertConfig(**SIZES)).double()
    batch = build_batch()
    labels = (batch["input_ids"] % 3).masked_fill(batch["attention_mask"] == 0, -100)
    batch["labels"] = labels
    singles = []
    for row in range(3):
        one = {name: tensor[row : row + 1] for name, tensor in batch.items()}
        gates = torch.ones(LAYERS, HEADS, requires_grad=True, dtype=torch.float64)
        with hw.gate(model.eval(), gates):
            (model(**one).loss * (labels[row] != -100).sum()).backward()
        singles.append(gates.grad.abs().numpy())
    np.testing.assert_allclose(head_importance(model, [batch]).scores, np.mean(singles, 0), rtol=1e-6)


def test_intervals_are_those_of_a_mean_and_of_tokens_those_of_a_ratio(precise, slopes):
    whole, data = np.stack([each.sum(1) for each in slopes]), batched(examples(), 3)
    for granularity, values in {"sample": np.abs(whole), "batch": whole}.items():
        found = head_importance(precise, data, granularity=granularity)
        np.testing.assert_allclose(found.half_width, 1.96 * values.std(0, ddof=1) / np.sqrt(7), rtol=1e-6)
    values, sizes = np.stack([np.abs(each).sum(1) for each in slopes]), np.array([each.shape[1] for each in slopes])
    found = head_importance(precise, data, granularity="token")
    rest = values - found.scores * sizes[:, None, None]
    np.testing.assert_allclose(found.half_width, 1.96 * rest.std(0, ddof=1) / np.sqrt(7) / sizes.mean(), rtol=1e-6)


# -- how sure --------------------------------------------------------------------------------------------------------


def jaccard(first, second, count):
    one, other = (set(np.argsort(-half, kind="stable")[:count].tolist()) for half in (first, second))
    return len(one & other) / len(one | other)


def test_stability_is_that_of_even_and_odd_examples(precise):
    silenced = np.ones((LAYERS, HEADS), dtype=bool)
    silenced[1] = False
    for options, counted, counts in (
        ({"granularity": "token", "normalise": "layer"}, slice(None), {0.1: 1, 0.2: 2, 0.3: 3, 0.5: 6}),
        ({"mask": silenced}, 1, {0.3: 1, 0.5: 2}),  # silenced heads do not count
    ):
        parts = [head_importance(precise, [collate(examples()[start::2])], **options).scores for start in (0, 1)]
        halves = [part[counted].ravel() for part in parts]
        found = head_importance(precise, batched(examples(), 3), **options).stability
        order = [np.argsort(np.argsort(half)) for half in halves]
        assert found.spearman == pytest.approx(np.corrcoef(*order)[0, 1])
        assert found.overlap == {share: jaccard(*halves, count) for share, count in counts.items()}


# -- no trace --------------------------------------------------------------------------------------------------------


def state_of(model, optimizer):
    return {
        "modes": [module.training for module in model.modules()],
        "trainable": [parameter.requires_grad for parameter in model.parameters()],
        "gradients": [id(parameter.grad) for parameter in model.parameters()],
        "attributes": [sorted(module.__dict__) for module in model.modules()],
        "hooks": [len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules()],
        "attention": model.config._attn_implementation,
        "numbers": [
            *(tensor.clone() for tensor in model.state_dict().values()),
            *(parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None),
            *(value.clone() for state in optimizer.state.values() for value in state.values()),
            torch.get_rng_state(),
        ],
    }


def same(before, after):
    numbers = zip(before.pop("numbers"), after.pop("numbers"), strict=True)
    return before == after and all(torch.equal(one, other) for one, other in numbers)


@pytest.fixture
def used(batch):
    """A model in the middle of training: mixed modes, frozen parts, gradients, a busy optimiser."""
    model = build_model("bert", dropout=0.3)
    model.train()
    model.bert.encoder.layer[1].eval()
    model.bert.encoder.layer[1].attention.train()
    model.bert.embeddings.requires_grad_(False)
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    model.classifier(torch.ones(1, SIZES["hidden_size"])).sum().backward()
    return model, optimizer


def test_leaves_no_trace_even_when_it_is_stopped(used):
    model, optimizer = used
    loader = DataLoader(examples(), batch_size=2, shuffle=True, collate_fn=collate)
    before = state_of(model, optimizer)
    head_importance(model, loader, granularity="token")
    assert same(before, state_of(model, optimizer))

    def stop(done):
        torch.rand(1)
        raise KeyboardInterrupt

    before = state_of(model, optimizer)
    with pytest.raises(KeyboardInterrupt):
        head_importance(model, batched(examples(), 2), after_batch=stop)
    assert same(before, state_of(model, optimizer))
    # Dropout is off in any case.
    expected = head_importance(model, batched(examples(), 3)).scores
    frozen = model.eval().requires_grad_(False)
    assert (head_importance(frozen, batched(examples(), 3)).scores == expected).all()


def test_hooks_guides_wrappers_and_gradients_that_are_off_change_nothing():
    class Wrapped(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, **batch):
            return self.inner(**batch)

    model, data, heard = build_model("bert"), batched(examples(), 3), []
    expected = head_importance(model, data).scores
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert (head_importance(model, data).scores == expected).all()
            assert not torch.is_grad_enabled()
    assert (head_importance(Wrapped(model), [UserDict(batch) for batch in data]).scores == expected).all()
    hw.guide(model, hw.MDG(weight=10.0)).train()
    model.classifier.weight.register_hook(heard.append)
    assert (head_importance(model, data).scores == expected).all()
    assert heard == []
    model(**data[0]).loss.backward()
    assert len(heard) == 1
    assert hw.guides.guidance(model).losses.guides


# -- data ------------------------------------------------------------------------------------------------------------


def test_stops_in_the_middle_of_a_batch_and_reads_no_further(precise):
    read, done = [], []

    def data():
        for number, batch in enumerate(batched(examples(), 2)):
            read.append(number)
            yield {**batch, "special_tokens_mask": torch.zeros_like(batch["input_ids"])}

    found = head_importance(precise, data(), max_examples=3, after_batch=done.append)
    assert (read, done, found.examples) == ([0, 1], [2, 3], 3)
    np.testing.assert_allclose(found.scores, head_importance(precise, batched(examples(3), 3)).scores, rtol=1e-9)
    assert head_importance(precise, batched(examples(), 2), max_examples=None).examples == 7


def test_bfloat16_is_near_and_counted_precisely():
    data = batched(examples(), 3)
    rough = head_importance(build_model("bert", dtype=torch.bfloat16), data, granularity="token")
    exact = head_importance(build_model("bert"), data, granularity="token")
    assert rough.scores.dtype == np.float64
    np.testing.assert_allclose(rough.scores, exact.scores, atol=0.1 * exact.scores.max())


# -- what is handed back ---------------------------------------------------------------------------------------------


def test_results_go_through_json_and_name_their_top_heads(precise):
    for count in (1, 7):
        found = head_importance(precise, [collate(examples(count))], granularity="token", normalise="layer")
        again = HeadImportance.from_dict(json.loads(json.dumps(found.as_dict(), allow_nan=False)))
        assert again.as_dict() == found.as_dict()
        assert (again.scores == found.scores).all()
        assert again.stability == found.stability
        assert (found.half_width is None) == (found.stability is None) == (count == 1)
    with pytest.raises(InputError, match="this is no head importance .*: expected the output of as_dict"):
        HeadImportance.from_dict({"scores": []})
    scores = np.array([[0.1, 0.4], [0.4, 0.3], [0.9, 0.0]])
    found = HeadImportance(scores, None, "sample", "none", 5, 40, None)
    assert found.top(0.5) == [(2, 0), (0, 1), (1, 0)]
    assert found.bottom(0.5) == [(2, 1), (0, 0), (1, 1)]
    assert repr(found) == "HeadImportance(3 layers x 2 heads, sample, 5 examples, most important: layer 2, head 0)"


# -- what is refused -------------------------------------------------------------------------------------------------


def test_wrong_options_data_and_models_are_refused(precise):
    broken = build_model("bert")
    broken.bert.encoder.layer[1].attention.self.value.weight.data.fill_(float("inf"))
    with torch.inference_mode():
        built = build_model("bert")
    few, unlabelled = [collate(examples(2))], [{"input_ids": torch.full((2, 3), 7)}]
    wrong_shape = np.zeros((HEADS, LAYERS), dtype=bool)
    for model, data, options, expected in (
        (precise, few, {"granularity": "tokens"}, "granularity=tokens: did you mean 'token'"),
        (precise, few, {"normalise": "head"}, "normalise=head: known: layer, none"),
        (precise, few, {"max_examples": 0}, "max_examples=0: expected a whole number"),
        (precise, few, {"mask": wrong_shape}, r"a mask of shape \(4, 3\): the model has 3 layers of 4 heads"),
        (precise, [], {}, "the data gave no example"),
        (precise, 7, {}, "data is something of type int: expected batches, such as a DataLoader"),
        (precise, build_batch(), {}, "data gave something of type str: expected batches"),
        (precise, [{"labels": torch.ones(2)}], {}, "data gave a batch with labels: expected batches"),
        (precise, [{"input_ids": torch.ones(3)}], {}, r"input_ids of shape \(3,\): expected \[examples,positions\]"),
        (precise, unlabelled, {}, "BertForSequenceClassification gave no loss: every batch needs labels"),
        (BertModel(BertConfig(**SIZES)), few, {}, "BertModel gave no loss"),
        (broken, few, {}, "not finite"),
        (built, few, {}, "created in torch.inference_mode"),
    ):
        with pytest.raises(StateError if model is built else InputError, match=expected):
            head_importance(model, data, **options)

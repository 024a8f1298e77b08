"""Similarity of tasks by gradients, against plain backward passes, and by importance, against loops over heads."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from conftest import build_model

from headwise.errors import InputError
from headwise.heads.similarity import gradient_cosines, importance_similarity, shared_parameters
from headwise.metrics.classification import METRICS
from headwise.training.multitask import MultiTask


def batches_of(seed, sizes, labels=3):
    chance, made = torch.Generator().manual_seed(seed), []
    for size in sizes:
        ids = torch.randint(4, 60, (size, 6), generator=chance)
        made.append(
            {
                "input_ids": ids,
                "attention_mask": torch.ones_like(ids),
                "labels": torch.randint(labels, (size,), generator=chance),
            }
        )
    return made


def joined(batches):
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def shared_models(family="bert", tasks="ab", **changes):
    torch.manual_seed(0)
    both = MultiTask({task: build_model(family, **changes) for task in tasks})
    return {task: both.classifier(task) for task in tasks}


@pytest.fixture(scope="module")
def models():
    return shared_models(hidden_dropout_prob=0.1)


DATA = {"a": batches_of(1, (4, 5, 3)), "b": batches_of(2, (6, 1))}


def slow_gradient(model, batch):
    """Name -> gradient of the mean loss over the parameters of the encoder, by an ordinary backward pass."""
    model.eval()
    model.zero_grad()
    model(**batch).loss.backward()
    found = {name: parameter.grad for name, parameter in model.base_model.named_parameters()}
    found = {name: gradient.clone().double() for name, gradient in found.items() if gradient is not None}
    model.zero_grad()
    return found


def slow_cosine(one, other, part=""):
    names = [name for name in one if part in name]
    first, second = (torch.cat([each[name].flatten() for name in names]) for each in (one, other))
    return float(first @ second / first.norm() / second.norm())


def every_other(batch, start):
    return {name: value[start::2] for name, value in batch.items()}


def test_cosines_are_those_of_plain_gradients(models):
    for model in models.values():
        model.train()  # with dropout, which must not count
    found = gradient_cosines(models, DATA)
    whole = {task: joined(DATA[task]) for task in models}
    gradients = {task: slow_gradient(models[task], whole[task]) for task in models}
    assert found.total[0, 1] == found.total[1, 0] == pytest.approx(slow_cosine(*gradients.values()), abs=1e-5)
    assert np.diagonal(found.total) == pytest.approx([1, 1])
    for layer in range(3):
        expected = slow_cosine(*gradients.values(), part=f"layer.{layer}.")
        assert found.groups[f"layer {layer}"]["cosine"][0, 1] == pytest.approx(expected, abs=1e-5)
    for number, task in enumerate(models):
        halves = [slow_gradient(models[task], every_other(whole[task], start)) for start in (0, 1)]
        assert found.ceiling[number] == pytest.approx(slow_cosine(*halves), abs=1e-5)
        assert found.groups["layer 1"]["ceiling"][number] == pytest.approx(
            slow_cosine(*halves, part="layer.1."), abs=1e-5
        )
    assert set(found.groups) == {"embeddings", "layer 0", "layer 1", "layer 2", "pooler"}
    assert (found.tasks, found.examples, found.parts) == (("a", "b"), (12, 7), "encoder")


def test_attention_alone_is_the_four_projections_of_every_head(models):
    found = gradient_cosines(models, DATA, parts="attention")
    gradients = [slow_gradient(models[task], joined(DATA[task])) for task in models]
    kinds = ("self.query.", "self.key.", "self.value.", "attention.output.dense.weight")
    some = [{name: each[name] for name in each if any(kind in name for kind in kinds)} for each in gradients]
    assert found.total[0, 1] == pytest.approx(slow_cosine(*some), abs=1e-5)
    assert found.groups["layer 2"]["cosine"][0, 1] == pytest.approx(slow_cosine(*some, part="layer.2."), abs=1e-5)
    assert list(found.groups) == ["layer 0", "layer 1", "layer 2"]


def test_layers_are_found_in_every_kind_of_encoder():
    for family in ("bert", "modernbert"):
        models = shared_models(family)
        for parts in ("encoder", "attention"):
            groups = shared_parameters(models, parts)
            assert {f"layer {layer}" for layer in range(3)} <= set(groups)
            listed = [id(each) for group in groups.values() for each in group]
            assert len(listed) == len(set(listed))
        assert len(listed) < len(list(models["a"].base_model.parameters()))
        assert np.isfinite(gradient_cosines(models, DATA, parts="attention").total).all()
    # Layers that share their weights are one group.
    assert {"embeddings", "encoder"} <= set(shared_parameters(shared_models("albert"), "encoder"))


def test_no_trace_is_left(models):
    encoder = models["a"].base_model
    models["a"].train()
    encoder.encoder.layer[1].eval()
    frozen = encoder.embeddings.word_embeddings.weight.requires_grad_(False)
    kept = torch.ones_like(models["b"].classifier.weight)
    models["b"].classifier.weight.grad = kept
    loaders = {task: torch.utils.data.DataLoader(range(3), collate_fn=lambda _: DATA["a"][0]) for task in models}
    modes = {task: [module.training for module in model.modules()] for task, model in models.items()}
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    random = torch.get_rng_state()
    with torch.no_grad():
        found = gradient_cosines(models, loaders)
    assert torch.equal(torch.get_rng_state(), random)
    assert {task: [module.training for module in model.modules()] for task, model in models.items()} == modes
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert not frozen.requires_grad
    frozen.requires_grad_(True)
    assert all(parameter.grad is None for parameter in encoder.parameters())
    assert models["b"].classifier.weight.grad is kept
    models["b"].classifier.weight.grad = None
    assert np.isfinite(found.total).all()


def test_what_a_batch_carries_for_guides_is_not_given_to_the_model():
    models = shared_models("deberta-v2")  # which refuses arguments that it does not know
    carried = {"special_tokens_mask": torch.zeros(4, 6), "knowledge": {"pmi": torch.zeros(4, 6, 6)}}
    more = {"a": [{**DATA["a"][0], **carried}], "b": DATA["b"]}
    plain = {"a": DATA["a"][:1], "b": DATA["b"]}
    np.testing.assert_array_equal(gradient_cosines(models, more).total, gradient_cosines(models, plain).total)
    assert set(more["a"][0]) > set(plain["a"][0])  # the caller's batch is as it was


def test_a_part_without_gradient_is_null_and_all_without_is_refused():
    models = shared_models()
    pooler = models["a"].base_model.pooler.dense
    with torch.no_grad():
        pooler.weight.zero_()  # nothing below the pooler matters any more
    data = json.loads(json.dumps(gradient_cosines(models, DATA).as_dict(), allow_nan=False))
    assert data["groups"]["layer 0"] == {"cosine": [[None, None], [None, None]], "ceiling": [None, None]}
    assert data["groups"]["pooler"]["cosine"][0][0] == pytest.approx(1)
    with torch.no_grad():
        pooler.bias.fill_(100.0)  # tanh is flat there
    with pytest.raises(InputError, match="the loss of task a has no gradient in the shared encoder"):
        gradient_cosines(models, DATA)


def test_bad_input_is_refused_in_one_sentence(models):
    alone, broken = {"a": build_model("bert"), "b": build_model("bert")}, shared_models()
    broken["a"].base_model.encoder.layer[0].output.dense.weight.data.fill_(float("nan"))
    cases = [
        (alone, DATA, {}, "tasks a and b have an encoder each"),
        ({"a": models["a"]}, DATA, {}, "models of a: similarity needs two tasks"),
        (models, {"a": DATA["a"]}, {}, "tasks b have a model or data only"),
        (models, DATA, {"parts": "atention"}, "parts 'atention': did you mean 'attention'"),
        (models, {"a": DATA["a"], "b": batches_of(1, (1,))}, {}, "task b has 1 examples"),
        (models, {"a": [{"input_ids": DATA["a"][0]["input_ids"]}], "b": []}, {}, "gave no loss"),
        (broken, DATA, {}, "the gradient of task a is not finite"),
    ]
    for given, data, options, message in cases:
        with pytest.raises(InputError, match=message):
            gradient_cosines(given, data, **options)


def test_frozen_parameters_take_no_part_and_a_frozen_encoder_is_refused():
    models = shared_models()
    encoder = models["a"].base_model
    encoder.embeddings.requires_grad_(False)
    assert "embeddings" not in gradient_cosines(models, DATA).groups
    encoder.requires_grad_(False)
    with pytest.raises(InputError, match="all of the shared encoder is frozen"):
        gradient_cosines(models, DATA)


# -- importance --------------------------------------------------------------------------------------------------------


def some_scores(tasks=3, shape=(4, 5)):
    chance = np.random.default_rng(0)
    return {f"task{number}": chance.random(shape) for number in range(tasks)}


def slow_top(scores, count):
    ranked = sorted(np.ndindex(scores.shape), key=lambda head: -scores[head])
    return set(ranked[:count])


def test_importance_is_compared_between_all_tasks():
    scores = some_scores()
    found = importance_similarity(scores, shares=(0.2, 0.5))
    for (i, one), (j, other) in combinations(enumerate(scores.values()), 2):
        for name in ("pearson", "spearman"):
            expected = METRICS[name](one.ravel(), other.ravel())
            assert getattr(found, name)[i, j] == getattr(found, name)[j, i] == pytest.approx(expected)
        for share, count in ((0.2, 4), (0.5, 10)):
            first, second = slow_top(one, count), slow_top(other, count)
            assert found.overlap[share][i, j] == pytest.approx(len(first & second) / len(first | second))
            assert found.per_layer[share][i].tolist() == [sum(head[0] == at for head in first) for at in range(4)]
    assert np.diagonal(found.pearson) == pytest.approx(np.ones(3))
    assert np.diagonal(found.overlap[0.2]) == pytest.approx(np.ones(3))


def test_overlap_by_chance_is_that_of_random_heads():
    found = importance_similarity(some_scores(), shares=(0.2, 1.0)).chance
    heads = set(range(4))
    overlaps = [len(heads & set(other)) / len(heads | set(other)) for other in combinations(range(20), 4)]
    assert found == pytest.approx({0.2: sum(overlaps) / len(overlaps), 1.0: 1.0})


def test_shares_that_mean_no_head_are_left_out_and_all_is_plain_data():
    found = importance_similarity(some_scores(shape=(2, 4)))
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert list(data["overlap"]) == ["0.2", "0.3", "0.5"]
    assert data["per_layer"]["0.5"][0] == [int(count) for count in found.per_layer[0.5][0]]
    assert len(data["spearman"]) == 3
    for scores, message in (
        (some_scores(tasks=1), "importance of task0: similarity needs two tasks"),
        ({"a": np.ones((2, 3)), "b": np.ones((3, 2))}, r"importance of a \[2, 3\], b \[3, 2\]"),
        ({"a": np.ones((2, 3)), "b": np.full((2, 3), np.nan)}, "not finite|expected finite"),
        ({"a": np.ones(6), "b": np.ones(6)}, r"expected \[layers,heads\]"),
    ):
        with pytest.raises(InputError, match=message):
            importance_similarity(scores)

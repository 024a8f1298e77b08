"""IAT: its options, which heads each task may change, and updates that change nothing else.

Shapes: N layers, H heads.
"""

import copy
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from conftest import build_batch, build_model
from transformers import Adafactor

from headwise.attention.families import head_weights
from headwise.errors import InputError, StateError
from headwise.heads.iat import IAT, HeadUpdates, build_iat, important_heads
from headwise.training.multitask import MultiTask

LAYERS, HEADS = 3, 4
QKV = ("query", "key", "value")


def heads(*pairs):
    """[N,H] True at the (layer, head) pairs."""
    mask = np.zeros((LAYERS, HEADS), dtype=bool)
    for pair in pairs:
        mask[pair] = True
    return mask


# Task a has two runs of rows in layer 0 and nothing in layer 2; (1, 2) is of both tasks; most heads are of none.
ALLOWED = {"a": heads((0, 0), (0, 2), (1, 2)), "b": heads((0, 3), (1, 2), (2, 1))}


def two_tasks(family="bert", **changes):
    classifiers = {"a": build_model(family, **changes), "b": build_model(family, num_labels=2, **changes)}
    return MultiTask(classifiers).train()


def batch_of(task, *, size=4, shift=0):
    batch = build_batch(size=size)
    batch["input_ids"] = torch.where(batch["attention_mask"] > 0, (batch["input_ids"] + shift) % 55 + 5, 1)
    batch["labels"] = torch.arange(size) % (3 if task == "a" else 2)
    return batch


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, **options)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def update(model, optimizer, updates, task, *, shift=0):
    updates.on(task)
    model(task=task, **batch_of(task, shift=shift)).loss.backward()
    updates.before_step(optimizer)
    optimizer.step()
    updates.after_step(optimizer)
    optimizer.zero_grad()


def plain_update(model, optimizer, task, *, shift=0):
    model(task=task, **batch_of(task, shift=shift)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def tensors_of_heads(model, optimizer, kinds):
    """(layer, head) -> every tensor that belongs to the head: weights, biases and what the optimiser keeps for them."""
    found = {}
    for layer in head_weights(model):
        for part in layer.parts:
            if part.kind in kinds:
                state = optimizer.state.get(part.parameter, {})
                kept = [each for each in state.values() if each.shape == part.parameter.shape]
                for head, places in zip(layer.heads, part.places, strict=True):
                    here = found.setdefault((layer.layer, head), [])
                    here += [each.detach().index_select(part.dim, places).clone() for each in (part.parameter, *kept)]
    return found


def same(before, after):
    return len(before) == len(after) and all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def all_changed(before, after):
    # A key's bias is the same for all keys of a query, so softmax ignores it: only weight decay moves it.
    return all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


# -- options -----------------------------------------------------------------------------------------------------------


def test_options_come_back_as_they_were_given():
    given = IAT(start=0.5, heads=0.2, shared=False, protect="qkvo", mode="grad_mask", order="random", keep_per_layer=2)
    assert build_iat(given.as_dict()) == given
    assert build_iat(given) is given


def test_wrong_options_are_refused():
    for options, message in (
        ({"heads": 0}, r"iat\.heads is 0: expected a number above 0 and below 1"),
        ({"shared": 1}, r"iat\.shared is 1: expected true or false"),
        ({"protect": "qkvx"}, r"iat\.protect is 'qkvx': did you mean 'qkv'\? known: qkv, qkvo"),
        ({"order": ["random"]}, r"iat\.order is \['random'\]: .*known: ascending, descending, random"),
        ({"examples": 0}, r"iat\.examples is 0: expected a whole number of 1 or more"),
        ({"share": 0.3}, r"iat has no option 'share': did you mean 'shared'\?"),
        ([0.3], r"iat is \[0\.3\]: expected options with values"),
    ):
        with pytest.raises(InputError, match=message) as refused:
            build_iat(options)
        assert "\n" not in str(refused.value)


# -- which heads -----------------------------------------------------------------------------------------------------

# Two layers of three heads, worked by hand: the first three of each task are A_a = {00, 01, 10}, A_b = {00, 12, 11}.
BY_HAND = {"a": np.array([[6.0, 5, 1], [4, 2, 3]]), "b": np.array([[5.0, 0, 1], [2, 3, 4]])}


def chosen(scores=BY_HAND, seed=0, **options):
    found = important_heads(scores, IAT(**{"heads": 0.5, **options}), seed)
    return {task: [tuple(head) for head in np.argwhere(mask).tolist()] for task, mask in found.items()}


def test_the_heads_of_a_task_follow_the_options():
    for options, expected in (
        ({}, [(0, 0), (0, 1), (1, 0)]),
        ({"shared": False}, [(0, 1), (1, 0)]),
        ({"order": "ascending"}, [(0, 2), (1, 1), (1, 2)]),
        ({"keep_per_layer": 2, "heads": 0.4}, [(0, 0), (1, 0)]),
    ):
        assert chosen(**options)["a"] == expected
    # A head that two of three tasks share stays.
    assert chosen({**BY_HAND, "c": -BY_HAND["a"]}, shared=False)["a"] == [(0, 0), (0, 1), (1, 0)]
    assert chosen({"a": BY_HAND["a"]}) == {"a": [(0, 0), (0, 1), (1, 0)]}
    for scores in ({"a": BY_HAND["a"]}, {"a": BY_HAND["a"], "b": BY_HAND["a"]}):
        with pytest.raises(InputError, match=r"iat\.shared is false, .* important to 'a' .*: set shared: true"):
            important_heads(scores, IAT(shared=False), 0)


def test_random_sets_have_the_size_of_the_ranked_and_follow_the_seed():
    scores = {task: np.random.default_rng(3).random((12, 12)) for task in "abc"}
    sets, again, other = (important_heads(scores, IAT(order="random"), seed) for seed in (5, 5, 6))
    assert [int(each.sum()) for each in sets.values()] == [43, 43, 43]
    assert not np.array_equal(sets["a"], sets["b"])
    assert np.array_equal(sets["b"], again["b"])
    assert not np.array_equal(sets["b"], other["b"])
    kept = important_heads(BY_HAND, IAT(order="random", heads=0.67, keep_per_layer=1), 1)
    assert all((each.sum(1) == 2).all() for each in kept.values())


# -- skip ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "protect", "optimizer_of", "kept"),
    [
        ("bert", "qkv", partial(adamw, amsgrad=True), 3),
        ("bert", "qkv", partial(sgd, momentum=0.9, weight_decay=0.1), 1),
        ("bert", "qkvo", partial(adamw, fused=True), 2),
        ("modernbert", "qkvo", adamw, 2),
        ("deberta-v2", "qkvo", adamw, 2),
    ],
)
def test_after_some_steps_of_a_task_only_its_heads_have_changed(family, protect, optimizer_of, kept):
    """And their columns of the output projection, which only qkvo protects."""
    model = two_tasks(family)
    optimizer = optimizer_of(model)
    for task in ("a", "b"):
        plain_update(model, optimizer, task)
    assert {len(state) - ("step" in state) for state in optimizer.state.values()} == {kept}
    with HeadUpdates(model, ALLOWED, protect=protect) as updates:
        for task, kinds in product(("a", "b"), (QKV, ("output",))):
            before = tensors_of_heads(model, optimizer, kinds)
            for shift in range(3):
                update(model, optimizer, updates, task, shift=shift)
            after = tensors_of_heads(model, optimizer, kinds)
            for head, tensors in before.items():
                free = ALLOWED[task][head] or (protect == "qkv" and kinds != QKV)
                assert (all_changed if free else same)(tensors, after[head]), (task, head)


def test_grad_mask_is_skip_but_for_momentum_and_decay():
    results = []
    for mode in ("skip", "grad_mask"):
        model = two_tasks()
        optimizer = sgd(model)
        with HeadUpdates(model, ALLOWED, mode=mode) as updates:
            for task in ("a", "b", "b"):
                update(model, optimizer, updates, task)
        results.append(model.state_dict())
    torch.testing.assert_close(*results, rtol=0, atol=0)
    optimizer = adamw(model)
    plain_update(model, optimizer, "a")
    before = tensors_of_heads(model, optimizer, QKV)
    with HeadUpdates(model, ALLOWED, mode="grad_mask") as updates:
        update(model, optimizer, updates, "a")
    assert all_changed(before[2, 0], tensors_of_heads(model, optimizer, QKV)[2, 0])


def reference_adamw(parameter, gradient, state, learning, step, *, lr=0.01, decay=0.1):
    """AdamW entry by entry, on the rows that learn; the others are not even looked at."""
    first, second = state
    for row in range(len(parameter)):
        if learning[row]:
            first[row] = 0.9 * first[row] + 0.1 * gradient[row]
            second[row] = 0.999 * second[row] + 0.001 * gradient[row] ** 2
            size = first[row] / (1 - 0.9**step) / ((second[row] / (1 - 0.999**step)).sqrt() + 1e-8)
            parameter[row] = parameter[row] * (1 - lr * decay) - lr * size


@pytest.mark.parametrize("fused", [False, True])
def test_alternating_tasks_train_their_rows_as_a_slow_reference_does(fused):
    model = two_tasks()
    optimizer = adamw(model, fused=fused)
    query = model.encoder.encoder.layer[0].attention.self.query.weight  # 4 heads of 8 rows
    expected = query.detach().clone()
    state = torch.zeros_like(expected), torch.zeros_like(expected)
    with HeadUpdates(model, ALLOWED) as updates:
        for step, task in enumerate(["a", "b", "a", "a", "b"], start=1):
            model.zero_grad()
            probe = copy.deepcopy(model)  # the gradient as it is without masks; hooks are not copied
            probe(task=task, **batch_of(task, shift=step)).loss.backward()
            gradient = probe.encoder.encoder.layer[0].attention.self.query.weight.grad
            reference_adamw(expected, gradient, state, ALLOWED[task][0].repeat(8), step)
            update(model, optimizer, updates, task, shift=step)
            torch.testing.assert_close(query.detach(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(optimizer.state[query]["exp_avg"], state[0], rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(optimizer.state[query]["exp_avg_sq"], state[1], rtol=1e-4, atol=1e-9)
    assert optimizer.state[query]["step"] == 5


def test_all_heads_for_all_tasks_is_plain_training():
    everything = dict.fromkeys("ab", np.ones((LAYERS, HEADS), dtype=bool))
    masked, plain = two_tasks(), two_tasks()
    optimizer, other = adamw(masked), adamw(plain)
    with HeadUpdates(masked, everything) as updates:
        for task in ("a", "b", "a"):
            update(masked, optimizer, updates, task)
            plain_update(plain, other, task)
    torch.testing.assert_close(masked.state_dict(), plain.state_dict(), rtol=0, atol=0)


def test_two_micro_batches_are_one_batch():
    results = []
    for parts in (1, 2):
        model = two_tasks()
        # Not Adam, which makes rounding errors large where gradients are nearly zero.
        optimizer = sgd(model, momentum=0.9)
        with HeadUpdates(model, ALLOWED) as updates:
            for task in ("a", "b"):
                batch = batch_of(task)
                for part in range(parts):
                    updates.on(task)
                    size = len(batch["labels"]) // parts
                    piece = {name: value[part * size : (part + 1) * size] for name, value in batch.items()}
                    (model(task=task, **piece).loss / parts).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                updates.before_step(optimizer)
                optimizer.step()
                updates.after_step(optimizer)
                optimizer.zero_grad()
        results.append(model.state_dict())
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


# -- other parameters ------------------------------------------------------------------------------------------------


def test_without_others_only_heads_and_the_tasks_own_layers_learn():
    model = two_tasks()
    optimizer = adamw(model)
    plain_update(model, optimizer, "a")
    model(task="a", **batch_of("a")).loss.backward()  # stale gradients
    before = copy.deepcopy(model.state_dict())
    state = {name: copy.deepcopy(optimizer.state[each]) for name, each in model.named_parameters()}
    with HeadUpdates(model, ALLOWED, others=False, own=model.own_parameters()) as updates:
        assert all(parameter.grad is None for parameter in model.parameters())
        update(model, optimizer, updates, "a")
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    inside = [f"encoder.encoder.layer.{layer}.attention.self" for layer in (0, 1)]
    projections = {f"{each}.{kind}.{of}" for each in inside for kind in QKV for of in ("weight", "bias")}
    assert changed == projections | {"heads.0.classifier.weight", "heads.0.classifier.bias"}
    for name, parameter in model.named_parameters():
        if name not in changed and name.startswith("encoder") and "layer.2" not in name:
            torch.testing.assert_close(optimizer.state[parameter], state[name], rtol=0, atol=0)


# -- use and misuse --------------------------------------------------------------------------------------------------


def test_nothing_is_left_after_removal():
    model = two_tasks()
    optimizer = adamw(model)
    plain_update(model, optimizer, "a")
    twin = copy.deepcopy(model)
    twin_optimizer = adamw(twin)
    twin_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    groups, state = [list(group["params"]) for group in optimizer.param_groups], set(optimizer.state)
    updates = HeadUpdates(model, ALLOWED, protect="qkvo", others=False)
    updates.on("a")
    model(task="a", **batch_of("a")).loss.backward()
    updates.before_step(optimizer)  # and the step fails
    updates.remove()
    assert all(parameter.requires_grad for parameter in model.parameters())
    now = [group["params"] for group in optimizer.param_groups]
    assert [[id(each) for each in group] for group in now] == [[id(each) for each in group] for group in groups]
    assert set(optimizer.state) == state
    model.zero_grad()
    for each, its in ((model, optimizer), (twin, twin_optimizer)):
        plain_update(each, its, "b")
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=0, atol=0)


def test_an_update_needs_one_task():
    model = two_tasks()
    optimizer = adamw(model)
    with HeadUpdates(model, ALLOWED) as updates:
        with pytest.raises(StateError, match=r"call on\(task\) before each backward pass"):
            model(task="a", **batch_of("a")).loss.backward()
        with pytest.raises(StateError, match=r"call on\(task\)"):
            updates.before_step(optimizer)
        updates.on("a")
        updates.on("a")
        with pytest.raises(StateError, match="an update of task 'a' has a batch of 'b': one update, one task"):
            updates.on("b")
        with pytest.raises(InputError, match="unknown task 'c': known: a, b"):
            updates.on("c")


def test_an_optimiser_whose_state_belongs_to_no_head_is_refused():
    model = two_tasks()
    optimizer, fresh = (
        Adafactor(model.parameters(), lr=0.01, relative_step=False, scale_parameter=False) for _ in range(2)
    )
    with HeadUpdates(model, ALLOWED, mode="grad_mask") as updates:
        update(model, optimizer, updates, "a")
    for each in (optimizer, fresh):  # with state from before, and without
        with HeadUpdates(model, ALLOWED) as updates, pytest.raises(InputError, match=r"keeps exp_avg_sq_row of shape"):
            update(model, each, updates, "a")


def test_wrong_choices_are_refused_before_anything_is_touched():
    model = two_tasks()
    with pytest.raises(InputError, match=r"heads of 'a' are bool \(2, 4\): expected bool \(3, 4\)"):
        HeadUpdates(model, {"a": np.ones((2, 4), dtype=bool)}, others=False)
    with pytest.raises(InputError, match=r"heads of 'a' are float64"):
        HeadUpdates(model, {"a": np.ones((3, 4))})
    with pytest.raises(InputError, match=r"iat\.mode is 'mask'"):
        HeadUpdates(model, ALLOWED, mode="mask")
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_clipping_sees_only_the_gradients_that_are_used():
    model = two_tasks()
    with HeadUpdates(model, ALLOWED, protect="qkvo") as updates:
        updates.on("a")
        model(task="a", **batch_of("a")).loss.backward()
        for layer in head_weights(model):
            for part in layer.parts:
                for head, places in zip(layer.heads, part.places, strict=True):
                    zero = not part.parameter.grad.index_select(part.dim, places).any()
                    if not ALLOWED["a"][layer.layer, head]:
                        assert zero
                    elif part.parameter.dim() > 1:
                        assert not zero


def test_parameters_that_were_frozen_before_stay_frozen():
    model = two_tasks()
    frozen = [*model.encoder.embeddings.parameters(), *model.encoder.encoder.layer[0].parameters()]
    for parameter in frozen:
        parameter.requires_grad_(False)
    optimizer = adamw(model)
    before = [each.clone() for each in frozen]
    with HeadUpdates(model, ALLOWED, others=False, own=model.own_parameters()) as updates:
        update(model, optimizer, updates, "a")
    assert same(before, frozen)
    assert not any(parameter.requires_grad for parameter in frozen)


def test_the_optimiser_saves_as_if_nothing_were():
    model = two_tasks()
    optimizer, plain = adamw(model, fused=True), adamw(copy.deepcopy(model), fused=True)
    with HeadUpdates(model, ALLOWED) as updates:
        for task in ("a", "b"):
            update(model, optimizer, updates, task)
    saved = copy.deepcopy(optimizer.state_dict())
    plain.load_state_dict(saved)
    for mine, other in zip(model.parameters(), plain.param_groups[0]["params"], strict=True):
        state = optimizer.state[mine]
        assert state["exp_avg"].shape == state["exp_avg_sq"].shape == mine.shape
        torch.testing.assert_close(plain.state[other], state, rtol=0, atol=0)
    assert set(saved["state"]) == set(saved["param_groups"][0]["params"])

"""The ways in which models are run: threads, checkpointing, compilation, autocast, memory."""

import contextlib
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import EAGER, ROUTES, build_batch, build_model

import headwise as hw

pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")


def gradients(model):
    """Of every parameter; zero where there is none."""
    return [torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters()]


def close(first, second, tolerance=1e-10):
    torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)


def observe(model, batch, **choice):
    with hw.capture(model, **choice) as record:
        model(**batch)
    return record.stacked().detach()


def batches(count):
    """Batches of different lengths and tokens."""
    result = []
    for number in range(count):
        batch = build_batch(length=10 + number)
        batch["input_ids"] = (batch["input_ids"] + number) % 55 + 4
        result.append(batch)
    return result


# -- threads -----------------------------------------------------------------------------------------------------


def in_threads(*tasks):
    """Run all at once, and give back what they return."""
    together = threading.Barrier(len(tasks), timeout=20)

    def run(task):
        together.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result(60) for future in [pool.submit(run, task) for task in tasks]]


@pytest.fixture(params=ROUTES)
def family(request):
    """One family for each route; tests over all of them name FAMILIES."""
    return request.param


@pytest.mark.parametrize("family", ["bert", "albert", "mpnet"])
def test_threads_that_share_a_model_each_see_their_own_pass(family):
    model, inputs = build_model(family).eval(), batches(2)
    expected = [observe(model, batch) for batch in inputs]
    entered, ran, left = (threading.Barrier(2, timeout=20) for _ in range(3))

    def work(number):
        with hw.capture(model) as record:
            entered.wait()
            for turn in range(2):  # one after the other: the second must not overwrite what the first has seen
                if turn == number:
                    model(**inputs[number])
                ran.wait()
            seen = record.stacked().detach()
            left.wait()
        return seen

    before = set(vars(model))
    for seen, wanted in zip(in_threads(lambda: work(0), lambda: work(1)), expected, strict=True):
        assert seen.shape == wanted.shape
        assert torch.equal(seen, wanted)
    assert set(vars(model)) == before


def test_threads_may_come_and_go_at_any_time():
    model, inputs = build_model("bert").eval(), batches(3)
    expected = [observe(model, batch) for batch in inputs]
    before = set(vars(model)), model.config

    def work(number):
        return [observe(model, inputs[number]) for _ in range(15)]

    results = in_threads(*(lambda number=number: work(number) for number in range(3)))
    for seen, wanted in zip(results, expected, strict=True):
        assert all(each.shape == wanted.shape and torch.equal(each, wanted) for each in seen)
    assert (set(vars(model)), model.config) == before


def test_a_pass_in_another_thread_is_recorded_too(model, batch):
    expected = observe(model, batch)
    with hw.capture(model) as record:
        in_threads(lambda: model(**batch))
        assert torch.equal(record.stacked(), expected)


def test_the_backward_pass_may_run_in_another_thread(batch):
    """Gradient checkpointing then computes the layers once more there."""
    plain, checkpointed = (build_model("bert", dtype=torch.float64) for _ in range(2))
    train(plain, batch)
    checkpointed.gradient_checkpointing_enable()
    with hw.capture(checkpointed) as record:
        loss = total(checkpointed(**batch), record)
        in_threads(loss.backward)
    close(gradients(checkpointed), gradients(plain))


# -- gradient checkpointing --------------------------------------------------------------------------------------


def total(output, record):
    return output.loss + record.stacked().square().flatten(1).sum(1).mean()


def train(model, batch, gates=None, **choice):
    torch.manual_seed(5)
    with hw.capture(model, **choice) as record, contextlib.nullcontext() if gates is None else hw.gate(model, gates):
        total(model(**batch), record).backward()
    return record


def test_gradient_checkpointing_gives_the_same_and_records_once(family, batch):
    plain, checkpointed = (build_model(family, dropout=0.3, dtype=torch.float64).train() for _ in range(2))
    checkpointed.gradient_checkpointing_enable()
    expected = train(plain, batch)
    torch.manual_seed(5)
    layers_run = count_calls(checkpointed)
    with hw.capture(checkpointed) as record:
        output = checkpointed(**batch)
        seen = dict(record)
        assert len(seen) == 3
        total(output, record).backward()
        assert len(layers_run) > 3  # or nothing was computed a second time
        assert list(record) == list(seen)
        assert all(record[layer] is seen[layer] for layer in seen)
    close(record.stacked(), expected.stacked())
    close(gradients(checkpointed), gradients(plain))


def count_calls(model):
    calls = []
    for module in model.modules():
        if type(module).__name__.lower().endswith(("selfattention", "modernbertattention")):
            module.register_forward_pre_hook(lambda *args: calls.append(1))
    return calls


def test_gates_and_gradient_checkpointing(family, batch):
    plain, checkpointed = (build_model(family, dtype=torch.float64) for _ in range(2))
    checkpointed.gradient_checkpointing_enable()
    found = []
    for model in (plain, checkpointed):
        gates = torch.linspace(0.5, 1.5, 12, dtype=torch.float64).view(3, 4).requires_grad_()
        train(model, batch, gates)
        found.append([gates.grad, *gradients(model)])
    close(*found)


@pytest.mark.parametrize(("family", "what"), [("bert", "received"), ("modernbert", "map"), ("deberta-v2", "received")])
def test_one_backward_pass_for_two_checkpointed_forward_passes(family, what):
    """Layers of the first pass are computed once more when the second was the latest."""
    inputs = batches(2)
    plain, checkpointed = (build_model(family, dtype=torch.float64) for _ in range(2))
    checkpointed.gradient_checkpointing_enable()
    for model in (plain, checkpointed):
        with hw.capture(model, what=what) as record:
            sum(total(model(**batch), record) for batch in inputs).backward()
    close(gradients(checkpointed), gradients(plain))


def test_reentrant_checkpointing_shows_values_without_a_graph(batch):
    """Its first pass runs without gradients, so there is nothing that a loss on the record could train."""
    model = build_model("bert")
    expected = observe(model, batch)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()
    with hw.capture(model) as record:
        model(**batch).loss.backward()
    assert len(record) == 3
    assert not record.stacked().requires_grad
    close(record.stacked(), expected, 1e-6)


# -- torch.compile -----------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(("family", "backend"), [("bert", "aot_eager"), ("modernbert", "aot_eager")])
def test_compiled_models_give_the_same(family, backend):
    plain, model = (build_model(family, num_hidden_layers=2).train() for _ in range(2))
    compiled = torch.compile(model, backend=backend)
    with hw.capture(compiled) as record:
        for batch in batches(3):
            expected = train(plain, batch)
            output = compiled(**batch)
            total(output, record).backward()
            close(output.logits, plain(**batch).logits, 1e-5)
            close(record.stacked(), expected.stacked(), 1e-5)
            close(gradients(model), gradients(plain), 1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_the_whole_model_is_one_graph_that_is_compiled_once(batch):
    sizes = []

    def backend(graph, inputs):
        sizes.append(sum("attention_with_received" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    model = build_model("bert", problem_type="single_label_classification")
    compiled = torch.compile(model, backend=backend)
    with hw.capture(compiled):
        for _ in range(2):
            compiled(**batch)
        known = len(sizes)
        for _ in range(3):
            compiled(**batch)
    assert max(sizes) == 3
    assert len(sizes) == known


# -- precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "way"), [("bert", "autocast"), ("bert", "weights"), ("deberta-v2", "autocast")])
def test_half_precision(family, batch, way):
    model = build_model(family).eval()
    expected = observe(model, batch)
    if way == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            seen = observe(model, batch)
    else:
        seen = observe(model.bfloat16(), batch)
    assert seen.dtype == torch.float32
    close(seen, expected, 0.1)
    votes = batch["attention_mask"].sum(1, keepdim=True)
    # The maps that eager families make themselves are rounded before we see them.
    assert (seen.sum(-1) - votes).abs().max() < (0.1 if family in EAGER else 1e-3)


def test_without_gradients(family, batch):
    model = build_model(family).eval()
    expected = observe(model, batch)
    with torch.inference_mode():
        seen = observe(model, batch)
    assert not seen.requires_grad
    close(seen, expected, 1e-6)


# -- memory ------------------------------------------------------------------------------------


def test_no_graph_is_kept_alive(family, batch):
    model = build_model(family)
    with hw.capture(model) as record:
        model(**batch)
        old = weakref.ref(record[0])
        model(**batch)
        assert old() is None
        last = weakref.ref(record[0])
    del record
    assert last() is None

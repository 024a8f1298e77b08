"""The kernel against attention written out: output, received attention and gradients."""

import pytest
import torch
from slow_attention import slow_attention

from headwise.attention import attention_with_received, received, tiles, workers
from headwise.attention import received as dense
from headwise.attention import tiles as loops
from headwise.attention.dropout import drop

BATCH, HEADS, LENGTH, SIZE = 3, 3, 10, 5
HUGE = 1 << 40

# name -> (SMALL_BYTES, TILE_BYTES, SLAB_BYTES). A row of 10 float64 scores takes 80 bytes. Slabs are for other devices.
PATHS = {
    "uneven rows a tile": (0, 300, HUGE),
    "two heads a tile": (0, 1600, HUGE),
    "one slab": (0, HUGE, HUGE),
    "slab of an example": (0, HUGE, 1),
    "small": (HUGE, HUGE, HUGE),
}
TILED, DENSE, SMALL = "uneven rows a tile", "slab of an example", "small"


@pytest.fixture(params=[TILED, DENSE, SMALL])
def path(request, monkeypatch):
    take(request.param, monkeypatch)
    return request.param


def take(path, monkeypatch):
    small, tile, slab = PATHS[path]
    monkeypatch.setattr(received, "SMALL_BYTES", small)
    monkeypatch.setattr(received, "_in_tiles", lambda query: "tile" in path)
    monkeypatch.setattr(tiles, "TILE_BYTES", tile)
    monkeypatch.setattr(dense, "SLAB_BYTES", slab)


def tensors(batch=BATCH, heads=HEADS, length=LENGTH, size=SIZE, dtype=torch.float64):
    """Query, key and a value of another size, in the layout that models give: heads and positions transposed."""
    return [
        torch.randn(batch, length, heads, width, dtype=dtype).transpose(1, 2).requires_grad_()
        for width in (size, size, size + 1)
    ]


def lengths_mask(length=LENGTH):
    lengths = torch.tensor([length, length - 3, 2])
    return torch.arange(length)[None] < lengths[:, None]  # [B,K]


def window_mask():
    """A sliding window over right padding: padding far from the text sees nothing."""
    near = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)[None]).abs() <= 2
    mask = near & lengths_mask()[:, None, None, :]
    assert not mask.any(-1).all()
    return mask


def holes_mask():
    mask = torch.ones(BATCH, 1, 1, LENGTH, dtype=torch.bool)
    mask[0, ..., 3:5] = mask[1, ..., 0] = mask[1, ..., 7] = mask[2, ..., -2] = False
    return mask


def additive_mask(heads=1, hidden=-torch.inf):
    mask = torch.randn(BATCH, heads, LENGTH, LENGTH, dtype=torch.float64)
    return mask.masked_fill(torch.rand_like(mask) < 0.2, hidden)


MASKS = {
    "none": lambda: None,
    "right padding": lambda: lengths_mask()[:, None, None],
    "left padding": lambda: lengths_mask().flip(1)[:, None, None],
    "padding over all queries": lambda: lengths_mask()[:, None, None].expand(-1, -1, LENGTH, -1),
    "the same for all examples": lambda: lengths_mask()[1:2, None, None],
    "holes": holes_mask,
    "window": window_mask,
    "additive": additive_mask,
    "additive lowest number": lambda: additive_mask(hidden=torch.finfo(torch.float64).min),
    "additive per head": lambda: additive_mask(HEADS),
    "boolean per head": lambda: torch.rand(BATCH, HEADS, LENGTH, LENGTH) < 0.4,
}


def assert_same(ours, slow, inputs, tolerance=1e-12):
    """Compare output, received attention, and the gradients of a function of both."""
    for mine, expected in zip(ours, slow, strict=True):
        torch.testing.assert_close(mine, expected, rtol=tolerance, atol=tolerance)
    weights = [torch.randn_like(tensor) for tensor in slow]
    gradients = [
        torch.autograd.grad(sum((tensor * weight).sum() for tensor, weight in zip(pair, weights, strict=True)), inputs)
        for pair in (ours, slow)
    ]
    for mine, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("mask", MASKS)
def test_equals_attention_written_out(path, mask):
    inputs, mask, valid = tensors(), MASKS[mask](), lengths_mask()
    ours = attention_with_received(*inputs, mask=mask, valid=valid)
    assert_same(ours, slow_attention(*inputs, mask=mask, valid=valid), inputs)


def test_more_keys_than_queries_and_another_scale(path):
    query, key, value = tensors()
    query = query[:, :, :4]
    ours = attention_with_received(query, key, value, scale=0.3)
    slow = slow_attention(query * 0.3 * SIZE**0.5, key, value)
    assert_same(ours, slow, (query, key, value))


def test_either_result_alone_gives_its_gradient(path):
    inputs = tensors()
    for number in (0, 1):
        weight = torch.randn_like(slow_attention(*inputs)[number])
        loss = (attention_with_received(*inputs)[number] * weight).sum()
        ours = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
        slow = slow_attention(*inputs)[number]
        expected = torch.autograd.grad((slow * weight).sum(), inputs, allow_unused=True)
        for mine, theirs, source in zip(ours, expected, inputs, strict=True):
            theirs = torch.zeros_like(source) if theirs is None else theirs
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def operation(inputs, *, seed=5, dropout=0.3, **options):
    """The operation with a chosen seed: output and received attention."""
    query, key, _ = inputs
    shape = (*query.shape[:3], key.shape[2])
    dropped = drop(dropout, shape, seed=torch.tensor(seed)) if dropout else None
    return attention_with_received(*inputs, dropout=dropped, **options)


def kept_weights(inputs, **options):
    """Which weights dropout keeps [B,H,Q,K]: with unit vectors as values the output is the map itself."""
    query, key, _ = inputs
    unit = torch.eye(key.shape[2], dtype=key.dtype).expand(*key.shape[:2], -1, -1)
    return operation((query, key, unit), **options)[0].transpose(1, 2) > 0


@pytest.mark.parametrize("path", PATHS, indirect=True)
@pytest.mark.parametrize("after_dropout", [False, True])
def test_dropout_equals_the_same_mask_written_out(path, after_dropout):
    inputs, valid = tensors(), lengths_mask()
    ours = operation(inputs, dropout=0.25, after_dropout=after_dropout, valid=valid)
    factors = kept_weights(inputs, dropout=0.25).double() / 0.75
    assert_same(ours, slow_attention(*inputs, valid=valid, factors=factors, after_dropout=after_dropout), inputs)


def test_as_many_weights_are_dropped_as_requested_and_nowhere_the_same(path):
    rate = 0.1
    inputs = [tensor.detach() for tensor in tensors(heads=2, length=60)]
    kept = kept_weights(inputs, dropout=rate).double()
    assert abs(kept.mean() - (1 - rate)) < 4 * (rate * (1 - rate) / kept.numel()) ** 0.5 + 2**-16
    # Independent masks both keep a weight in (1 - rate)^2 of all places.
    both = (1 - rate) ** 2
    masks = [*kept.flatten(0, 1), kept_weights(inputs, dropout=rate, seed=9)[0, 0].double()]
    for number, first in enumerate(masks):
        for second in masks[:number]:
            shared = (first * second).mean()
            assert abs(shared - both) < 5 * (both * (1 - both) / first.numel()) ** 0.5


def test_dropout_follows_the_seed_of_torch(path):
    inputs = tensors()
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        dropped = drop(0.3, (*inputs[0].shape[:3], inputs[1].shape[2]))
        results.append(attention_with_received(*inputs, dropout=dropped)[0])
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def with_gradients(inputs, **options):
    out, given = operation(inputs, **options)
    return out, given, *torch.autograd.grad(out.square().sum() + given.square().sum(), inputs)


@pytest.fixture
def deterministic():
    """Then pieces are always shared out among threads, each of which is single-threaded inside."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(("dropout", "after_dropout"), [(0.0, False), (0.3, False), (0.3, True)])
def test_the_number_of_threads_changes_no_bit(dropout, after_dropout, monkeypatch):
    take(TILED, monkeypatch)
    monkeypatch.setattr(tiles, "TILE_BYTES", 20_000)
    inputs = tensors(batch=2, heads=4, length=64, dtype=torch.float32)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(with_gradients(inputs, dropout=dropout, after_dropout=after_dropout))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(mine, first) for mine, first in zip(other, results[0], strict=True))


@pytest.mark.usefixtures("deterministic")
def test_threads_do_not_disturb_the_dropout_of_each_other(monkeypatch):
    """The same pieces many times on several threads, against one thread."""
    take(TILED, monkeypatch)
    monkeypatch.setattr(tiles, "TILE_BYTES", 1 << 16)
    inputs = [tensor.detach() for tensor in tensors(heads=8, length=256, dtype=torch.float32)]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = operation(inputs)[0]
        torch.set_num_threads(3)
        assert all(torch.equal(operation(inputs)[0], alone) for _ in range(20))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("dropout", "after_dropout"), [(0.0, False), (0.3, False), (0.3, True)])
def test_scripted_and_plain_loops_are_the_same_bit_for_bit(dropout, after_dropout, monkeypatch):
    take(TILED, monkeypatch)
    inputs, options = tensors(), {"mask": additive_mask(HEADS), "dropout": dropout, "after_dropout": after_dropout}
    scripted = with_gradients(inputs, **options)
    monkeypatch.setattr(tiles, "fast", lambda function: function)
    plain = with_gradients(inputs, **options)
    assert all(torch.equal(mine, other) for mine, other in zip(scripted, plain, strict=True))


def test_the_loops_run_without_the_interpreter():
    assert all(loops.fast(loop) is not loop for loop in (loops.forward_piece, loops.backward_piece))


def test_without_torchscript_the_loops_run_in_python(monkeypatch):
    def gone(function):
        raise RuntimeError("no TorchScript")

    monkeypatch.setattr(torch.jit, "script", gone)
    # Past the cache, which may hold the scripted function.
    assert loops.fast.__wrapped__(loops.forward_piece) is loops.forward_piece


def test_half_precision_is_summed_in_single_precision(path):
    length = 200
    inputs = tensors(length=length, dtype=torch.float32)
    half = [tensor.detach().bfloat16().requires_grad_() for tensor in inputs]
    out, given = attention_with_received(*half)
    _, expected = attention_with_received(*inputs)
    assert out.dtype == torch.bfloat16
    assert given.dtype == torch.float32
    torch.testing.assert_close(given, expected, rtol=0.01, atol=0.01)
    assert (given.sum(-1) - length).abs().max() < 1e-3
    gradients = torch.autograd.grad(out.float().sum() + given.square().sum(), half)
    assert {gradient.dtype for gradient in gradients} == {torch.bfloat16}


@pytest.mark.parametrize("path", ["two heads a tile", "one slab"], indirect=True)
def test_torch_finds_nothing_wrong_with_the_operation(path):
    inputs, valid = tensors(batch=3, heads=2), lengths_mask()
    dropped = drop(0.3, (*inputs[0].shape[:3], inputs[1].shape[2]))
    arguments = (*inputs, valid[:, None, None], valid, dropped.rows, dropped.columns, 0.4, 0.3, False)
    torch.library.opcheck(torch.ops.headwise.attention_with_received.default, arguments)


@pytest.mark.parametrize("left", [False, True])
def test_padding_changes_no_value_and_no_gradient(left, path):
    inputs, valid = tensors(), lengths_mask()
    pads = [torch.randn(BATCH, HEADS, 4, tensor.shape[3], dtype=tensor.dtype) for tensor in inputs]
    nothing = torch.zeros(BATCH, 4, dtype=torch.bool)
    order = (lambda pair: pair[::-1]) if left else (lambda pair: pair)
    padded = [torch.cat(order([tensor, pad]), 2) for tensor, pad in zip(inputs, pads, strict=True)]
    wider = torch.cat(order([valid, nothing]), 1)
    inside = slice(4, None) if left else slice(LENGTH)

    out, given = attention_with_received(*inputs, mask=valid[:, None, None], valid=valid)
    wide_out, wide_given = attention_with_received(*padded, mask=wider[:, None, None], valid=wider)
    assert wide_given.masked_fill(wider[:, None], 0.0).abs().max() == 0
    votes = valid[:, :, None, None]
    assert_same((wide_out[:, inside] * votes, wide_given[..., inside]), (out * votes, given), inputs)


@pytest.mark.parametrize("crowded", [True, False])
def test_small_problems_take_one_thread_on_crowded_cores(crowded, monkeypatch):
    """In both passes, and not before the cores are crowded; the results are those of attention written out."""
    take(SMALL, monkeypatch)
    crowding, product, seen = workers.Crowding(), received._scaled_product, []
    monkeypatch.setattr(crowding, "assumed", lambda: crowded)
    monkeypatch.setattr(workers, "_crowding", crowding)
    monkeypatch.setattr(received, "_scaled_product", lambda *a: seen.append(torch.get_num_threads()) or product(*a))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        inputs, mask, valid = tensors(), holes_mask(), lengths_mask()
        ours = attention_with_received(*inputs, mask=mask, valid=valid)
        assert_same(ours, slow_attention(*inputs, mask=mask, valid=valid), inputs)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1 if crowded else 2] * 3

"""What a capture sees, in every family, and that looking changes nothing."""

import pytest
import torch
from conftest import FAMILIES, FUSED, ROUTES, SIZES, build_batch, build_model
from slow_attention import model_maps

import headwise as hw
from headwise.attention import backend, received
from headwise.attention import backend as watch
from headwise.errors import InputError, StateError

LAYERS, HEADS = SIZES["num_hidden_layers"], SIZES["num_attention_heads"]
# That maps are seen after dropout is another test's matter.
pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")


def run(model, batch, **choice):
    with hw.capture(model, **choice) as record:
        output = model(**batch)
    return record, output


def gradients(model):
    """Of every parameter; zero where there is none."""
    return [torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters()]


def close(first, second, tolerance=1e-10):
    torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=ROUTES)
def family(request):
    """One family for each route; tests over all of them name FAMILIES."""
    return request.param


@pytest.mark.parametrize(
    ("family", "what"),
    [(family, what) for what in ("received", "cls") for family in FAMILIES] + [(family, "map") for family in ROUTES],
)
def test_equals_maps_written_out(family, what):
    batch = build_batch()
    maps = model_maps(build_model(family, dtype=torch.float64).eval(), batch)
    assert len(maps) == LAYERS
    record, _ = run(build_model(family, dtype=torch.float64).train(), batch, what=what)
    assert list(record) == list(range(LAYERS))
    for layer, expected in enumerate(maps):
        close(record[layer], {"map": expected, "received": expected.sum(2), "cls": expected[:, :, 0]}[what])


@pytest.mark.parametrize("what", ["received", "map", "output"])
def test_the_first_token_is_seen_beside_anything_else_and_behind_padding(family, what):
    """Of left-padded examples the first token is not the first position."""
    batch = {name: value.flip(1) for name, value in build_batch().items() if name in ("input_ids", "attention_mask")}
    model = build_model(family, dtype=torch.float64).eval()
    with hw.capture(model, what=what), hw.capture(model, what="cls") as record, hw.capture(model, what="map") as maps:
        model(**batch)
    first = batch["attention_mask"].argmax(1)
    assert len(first.unique()) > 1
    for layer in record:
        expected = torch.stack([example[:, start] for example, start in zip(maps[layer], first, strict=True)])
        close(record[layer], expected)
        close(record[layer].sum(2), torch.ones(()).double().expand(record[layer].shape[:2]))


@pytest.mark.parametrize(("what", "small"), [("received", 1 << 20), ("received", 0), ("cls", 0), ("map", 0)])
def test_gradients_equal_those_of_maps_written_out(family, what, small, monkeypatch):
    """Received attention both ways: small batches with whole maps, larger ones in tiles."""
    monkeypatch.setattr(received, "SMALL_BYTES", small)
    batch = build_batch()
    ours, slow = (build_model(family, dtype=torch.float64) for _ in range(2))
    record, _ = run(ours, batch, what=what)
    maps = torch.cat(model_maps(slow, batch), 1)
    seen, expected = record.stacked(), {"map": maps, "received": maps.sum(2), "cls": maps[:, :, 0]}[what]
    close(seen, expected)
    weight = torch.randn_like(expected)
    (seen * weight).sum().backward()
    (expected * weight).sum().backward()
    mine, theirs = gradients(ours), gradients(slow)
    assert sum(bool(gradient.abs().max() > 1e-6) for gradient in theirs) > 3 * LAYERS
    close(mine, theirs)


@pytest.mark.parametrize("choice", [{}, {"what": "map", "heads": [0, 2]}])
def test_watching_does_not_change_the_logits(family, batch, choice):
    model = build_model(family, dtype=torch.float64).eval()  # in single precision some processors round differently
    before = model(**batch).logits
    _, output = run(model, batch, **choice)
    assert ((output.logits - before).abs().max() / before.abs().max()) < 1e-12
    assert torch.equal(model(**batch).logits, before)


def test_maps_of_an_eager_model_leave_every_bit_alone(family, batch):
    model = build_model(family).eval()
    model.set_attn_implementation("eager")
    before = model(**batch).logits
    _, output = run(model, batch, what="map")
    assert torch.equal(output.logits, before)


def test_training_is_the_same_when_watched(family, batch):
    plain, watched = build_model(family, dtype=torch.float64), build_model(family, dtype=torch.float64)
    plain(**batch).loss.backward()
    run(watched, batch)[1].loss.backward()
    close(gradients(watched), gradients(plain))


def test_padding_on_the_right_changes_nothing(family):
    model = build_model(family, dtype=torch.float64).eval()
    short, _ = run(model, build_batch())
    long, _ = run(model, build_batch(padding=5))
    close(long.stacked()[..., :12], short.stacked())
    close(long.stacked().sum(), short.stacked().sum())
    found = []
    for record in (short, long):
        model.zero_grad()
        record.stacked().square().sum().backward()
        found.append(gradients(model))
    close(*found)


def test_padding_on_the_left_changes_nothing():
    model = build_model("bert", dtype=torch.float64).eval()
    positions = torch.arange(12).expand(3, -1)
    shifted = torch.cat([torch.zeros(3, 5, dtype=torch.long), positions], 1)
    first, _ = run(model, {**build_batch(left=True), "position_ids": positions})
    second, _ = run(model, {**build_batch(left=True, padding=5), "position_ids": shifted})
    close(second.stacked()[..., 5:], first.stacked())
    assert second.stacked()[..., :5].abs().max() == 0


@pytest.mark.parametrize(("family", "what"), [("bert", "received"), ("bert", "map"), ("deberta-v2", "received")])
def test_some_layers_and_heads_are_those_of_all(family, batch, what):
    model = build_model(family, dtype=torch.float64).eval()
    whole, _ = run(model, batch, what=what)
    part, _ = run(model, batch, what=what, layers=[0, 2], heads={0: [1, 3], 2: [0]})
    assert list(part) == [0, 2]
    close(part[0], whole[0][:, [1, 3]])
    close(part[2], whole[2][:, [0]])
    close(part.stacked(), torch.cat([part[0], part[2]], 1))
    with pytest.raises(StateError, match=r"layer 1 was not recorded: recorded are \[0, 2\]"):
        part[1]


@pytest.mark.parametrize(("layers", "unwatched"), [("all", 0), ([0, 2], LAYERS - 2)])
def test_unwatched_layers_run_the_sdpa_of_transformers(batch, layers, unwatched, monkeypatch):
    calls = []
    plain = backend.sdpa_attention_forward

    def spy(*args, **kwargs):
        calls.append(args[0])
        return plain(*args, **kwargs)

    monkeypatch.setattr(backend, "sdpa_attention_forward", spy)
    run(build_model("bert").eval(), batch, layers=layers)
    assert len(calls) == unwatched


@pytest.mark.parametrize("what", ["received", "map"])
def test_dropout_is_seen_only_on_request(batch, what):
    votes = batch["attention_mask"].sum(1, keepdim=True).float()
    model = build_model("bert", dropout=0.4).train()
    sums = {}
    for after in (False, True):
        record, _ = run(model, batch, what=what, after_dropout=after)
        assert record.after_dropout is after
        sums[after] = record.stacked().sum(-1) if what == "received" else record.stacked().sum((2, 3))
    close(sums[False], votes.expand_as(sums[False]), 1e-5)
    assert (sums[True] - votes).abs().min() > 1e-4


def test_the_record_holds_the_latest_pass(model):
    model.eval()
    with hw.capture(model) as record:
        with pytest.raises(StateError, match="run the model"):
            record.stacked()
        with pytest.raises(StateError, match="run the model"):
            record.valid  # noqa: B018
        assert "no forward pass yet" in repr(record)
        model(**build_batch(size=1))
        assert record[0].shape[0] == 1
        record.cache["mine"] = 1
        model(**build_batch(size=2))
        assert record[0].shape[0] == 2
        assert record.cache == {}
    model(**build_batch(size=3))
    assert record[0].shape[0] == 2


def test_a_batch_without_a_mask_has_no_padding(family):
    model = build_model(family, dtype=torch.float64).eval()
    batch = build_batch(size=2)
    batch["input_ids"] = torch.randint(5, 60, (2, 7))
    batch["attention_mask"] = torch.ones(2, 7, dtype=torch.long)
    masked, _ = run(model, batch)
    del batch["attention_mask"]
    unmasked, _ = run(model, batch)
    assert unmasked.valid.all()
    close(unmasked.stacked(), masked.stacked())


def test_a_mask_for_every_pair_of_tokens_says_who_counts_too():
    model, batch = build_model("bert", dtype=torch.float64).eval(), build_batch()
    expected, _ = run(model, batch)
    batch["attention_mask"] = batch["attention_mask"].bool()[:, None, None].expand(-1, 1, 12, -1)
    record, _ = run(model, batch)
    assert torch.equal(record.valid, expected.valid)
    close(record.stacked(), expected.stacked())


def test_positional_arguments_and_embeddings_work_too(model, batch):
    model.eval()
    expected, _ = run(model, batch)
    with hw.capture(model) as record:
        model(batch["input_ids"], batch["attention_mask"])
    assert torch.equal(record.stacked(), expected.stacked())
    with hw.capture(model) as record:
        embeddings = model.get_input_embeddings()(batch["input_ids"])
        model(inputs_embeds=embeddings, attention_mask=batch["attention_mask"])
    assert torch.equal(record.stacked(), expected.stacked())


def test_a_part_of_a_model_can_be_watched_while_the_whole_runs(model, batch):
    expected, _ = run(model, batch)
    with hw.capture(model.bert) as record:
        model(**batch)
    assert torch.equal(record.stacked(), expected.stacked())


@pytest.mark.parametrize("wrong", [1.0, torch.zeros(2)])
def test_a_digest_of_another_shape_is_refused(wrong):
    with pytest.raises(InputError, match="digest returned"):
        run(build_model("bert").eval(), build_batch(), what="map", digest=lambda *_: wrong)


def test_a_digest_is_called_once_under_gradient_checkpointing():
    model, layers = build_model("bert").train(), []
    model.gradient_checkpointing_enable({"use_reentrant": False})

    def note(layer, rows, maps):
        layers.append(layer)
        return maps.sum((2, 3))

    with hw.capture(model, what="map", digest=note):
        model(**build_batch()).loss.backward()
    assert layers == list(range(LAYERS))


def test_only_maps_can_be_digested():
    with (
        pytest.raises(InputError, match="digest is made of maps"),
        hw.capture(build_model("bert"), digest=lambda *parts: parts[2]),
    ):
        pass


def test_the_first_token_is_seen_before_dropout_only():
    with (
        pytest.raises(InputError, match="what='cls' is attention before dropout"),
        hw.capture(build_model("bert"), what="cls", after_dropout=True),
    ):
        pass


def test_a_digest_in_parts_is_that_of_the_whole(family, monkeypatch):
    batch = build_batch(padding=2)
    seen = []

    def keep(layer, rows, maps):
        seen.append((layer, rows.start, rows.stop, len(maps)))
        return maps

    found = {}
    for size in (1 << 30, 1):
        monkeypatch.setattr(watch, "PART_BYTES", size)
        with torch.inference_mode():
            found[size], output = run(build_model(family).eval(), batch, what="map", digest=keep)
        found[size, "logits"] = output.logits
    real = batch["attention_mask"].bool()
    maps, _ = run(build_model(family).eval(), batch, what="map")
    assert torch.equal(found[1].valid, real)
    for layer in range(LAYERS):
        for size in (1 << 30, 1):
            kept, expected = (each[layer].permute(0, 2, 1, 3)[real] for each in (found[size], maps))
            torch.testing.assert_close(kept, expected)
    torch.testing.assert_close(found[1, "logits"], found[1 << 30, "logits"])
    if family in FUSED:
        assert [(0, row, row + 1, 1) for row in range(3)] == [each for each in seen[LAYERS:] if each[0] == 0]

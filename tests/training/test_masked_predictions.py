"""Many masks in one pass give what one pass per mask gives, for every family, and leave nothing behind."""

import numpy
import pytest
import torch
from conftest import FAMILIES, build_model

import headwise as hw
from headwise.attention import prune
from headwise.attention.shared_prefix import can_share_layers
from headwise.data import Collator
from headwise.data.encode import Encoded
from headwise.errors import InputError, StateError
from headwise.training.predict import FAMILIES as SHARING
from headwise.training.predict import predict_logits, predict_under_masks

pytestmark = pytest.mark.filterwarnings("ignore::headwise.errors.HeadwiseWarning")

LAYERS, HEADS = 3, 4
LENGTHS = (5, 12, 3, 12, 7, 4, 9)
COLLATE = Collator(pad_id=1)


def encoded(lengths=LENGTHS):
    """Random texts of these lengths."""
    starts = numpy.cumsum([0, *lengths])
    ids = numpy.random.default_rng(5).integers(5, 60, starts[-1]).astype(numpy.int32)
    return Encoded(ids, starts, None, (0,) * len(lengths), 0)


def some_masks():
    """None, a whole layer, all heads, a nested pair that parts in the last layer, one twice, and random ones."""
    masks = numpy.zeros((8, LAYERS, HEADS), dtype=bool)
    masks[1, 1] = True
    masks[2] = True
    masks[3, 0, 2] = masks[4, 0, 2] = masks[4, 2, 1] = True
    masks[5:7] = numpy.random.default_rng(1).random((2, LAYERS, HEADS)) < 0.4
    masks[7] = masks[5]
    return masks


def one_by_one(model, data, masks, collate=COLLATE):
    """The slow way: a pass of its own for each mask, with gates of 0.

    In batches of three, as below: MobileBERT's last token looks at the padding behind it.
    """
    found = []
    for mask in masks:
        with hw.gate(model, torch.from_numpy(~mask).float()):
            found.append(predict_logits(model, data, collate, batch=3))
    return numpy.stack(found)


@pytest.fixture(scope="module")
def models():
    """One model of each family, in evaluation mode; nobody may change them."""
    return {family: build_model(family).eval() for family in FAMILIES}


@pytest.fixture(params=["bert", "distilbert"])
def model(request):
    """One that shares layers and one whose examples are stacked, both in training mode."""
    return build_model(request.param).train()


def test_every_family_gives_what_one_pass_per_mask_gives(models, family):
    data, masks, model = encoded(), some_masks(), models[family]
    expected = one_by_one(model, data, masks)
    found = predict_under_masks(model, data, COLLATE, masks, batch=3)
    assert found.shape == (len(masks), len(data), 3)
    numpy.testing.assert_allclose(found, expected, atol=1e-5)
    # Masks matter: nothing above is equal because nothing happens.
    assert all(numpy.abs(expected[0] - expected[number]).max() > 1e-3 for number in range(1, 7))


def test_the_quick_way_is_gone_where_layers_are_known(models):
    assert {family for family, model in models.items() if can_share_layers(model)} == set(SHARING)


def test_neither_batches_nor_the_order_of_masks_and_examples_change_outputs(model):
    masks, done = some_masks(), []
    found = predict_under_masks(model, encoded(), COLLATE, masks, batch=3, after_batch=done.append)
    assert done == [3, 6, 7]
    for batch, tokens in ((2, 1), (7, 30)):
        other = predict_under_masks(model, encoded(), COLLATE, masks, batch=batch, tokens=tokens)
        numpy.testing.assert_allclose(other, found, atol=1e-5)
    shuffled = numpy.random.default_rng(2).permutation(len(masks))
    again = predict_under_masks(model, encoded(), COLLATE, masks[shuffled], batch=3)
    numpy.testing.assert_allclose(again, found[shuffled], atol=1e-6)
    alone = predict_under_masks(model, encoded(LENGTHS[:1]), COLLATE, masks, batch=3)
    numpy.testing.assert_allclose(alone[:, 0], found[:, 0], atol=1e-5)


def test_a_stack_has_at_most_the_given_tokens():
    model, seen = build_model("distilbert"), []
    model.distilbert.embeddings.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].numel()))
    predict_under_masks(model, encoded(), COLLATE, some_masks(), batch=2, tokens=72)
    # Seven different masks: two examples of 12 tokens make 24, so three masks fit.
    assert seen[:3] == [72, 72, 24]
    assert max(seen) <= 72


def test_other_gates_stay_in_force(model):
    half = torch.full((LAYERS, HEADS), 0.5)
    with hw.gate(model, half):
        found = predict_under_masks(model, encoded(), COLLATE, some_masks(), batch=3)
        expected = one_by_one(model, encoded(), some_masks())
    numpy.testing.assert_allclose(found, expected, atol=1e-5)
    assert numpy.abs(found[0] - predict_logits(model, encoded(), COLLATE, batch=3)).max() > 1e-3


def test_a_pruned_model_is_masked_by_its_own_numbers(model):
    masks = some_masks()
    pruned = {0: [2], 1: [0, 1, 2, 3]}
    for layer, heads in pruned.items():
        masks[:, layer, heads] = True
    expected = one_by_one(model, encoded(), masks)
    prune(model, pruned)
    for layer, heads in pruned.items():
        masks[:, layer, heads] = False
    found = predict_under_masks(model, encoded(), COLLATE, masks, batch=3)
    numpy.testing.assert_allclose(found, expected, atol=1e-5)
    masks[3, 1, 2] = True
    with pytest.raises(InputError, match="head 2 of layer 1 was pruned"):
        predict_under_masks(model, encoded(), COLLATE, masks, batch=3)


def traces(model):
    """Everything of a model that could be left changed, by module."""
    return {
        name: {attribute: id(value) for attribute, value in vars(module).items() if attribute != "training"}
        | {attribute: tuple(value) for attribute, value in vars(module).items() if attribute.endswith("_hooks")}
        | {"training": module.training}
        for name, module in model.named_modules()
    }


class Broken(Exception):
    """Something outside went wrong."""


def test_nothing_is_left_behind_also_after_a_failure(model):
    before = traces(model)
    predict_under_masks(model, encoded(), COLLATE, some_masks(), batch=3)
    assert traces(model) == before

    def stop(done):
        raise Broken

    with pytest.raises(Broken):
        predict_under_masks(model, encoded(), COLLATE, some_masks(), batch=3, after_batch=stop)
    assert traces(model) == before
    # Longer than the table of positions: the model itself fails, or the seam refuses.
    with pytest.raises((InputError, IndexError, RuntimeError)):
        predict_under_masks(model, encoded((50, 3)), COLLATE, some_masks(), batch=3)
    assert traces(model) == before


def test_what_cannot_be_predicted_is_refused(model):
    none, flat = numpy.zeros((0, LAYERS, HEADS), dtype=bool), numpy.zeros((LAYERS, HEADS), dtype=bool)
    for data, masks, message in [
        (encoded(), none, "no masks"),
        (encoded(), flat, r"shape \[3, 4\] and type bool: expected bool \[masks, 3, 4\]"),
        (encoded(), numpy.zeros((2, LAYERS, HEADS)), "type float64: expected bool"),
        (encoded(()), some_masks(), "no examples to predict under masks"),
    ]:
        with pytest.raises(InputError, match=message):
            predict_under_masks(model, data, COLLATE, masks, batch=3)
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    with pytest.raises(StateError, match="not finite under mask 0 of 8"):
        predict_under_masks(model, encoded(), COLLATE, some_masks(), batch=3)

"""The authors' released code averages maps over keys. These tests document what follows from that."""

import math

import pytest
import torch
from conftest import build_batch, build_model
from guides.reference import NO_INPUTS, random_maps, record_of, seen_by, slow_mdg, slow_pdg

import headwise as hw
from headwise.attention import query_key_projections

GUIDES = pytest.mark.parametrize("kind", [hw.MDG, hw.PDG])


def pull(guide, *, training, dropout=0.0):
    """The gradient norm of a guide on the query/key projections."""
    model = build_model("bert", dropout=dropout, dtype=torch.float64).train(training)
    seen_by(model, guide, build_batch()).backward()
    return math.hypot(*(float(each.parameter.grad.norm()) for each in query_key_projections(model)))


@GUIDES
def test_released_has_a_gradient_from_dropout_alone_and_the_paper_has_one(kind):
    assert pull(kind(preset="released"), training=True) < 1e-10
    assert pull(kind(), training=False) > 1e-3
    assert pull(kind(preset="released"), training=True, dropout=0.1) > 1e-3
    assert pull(kind(preset="released"), training=False, dropout=0.1) < 1e-10


def test_released_mdg_is_the_log_of_the_number_of_maps():
    value = seen_by(build_model("bert", dtype=torch.float64).train(), hw.MDG(preset="released"), build_batch())
    assert value.item() == pytest.approx(math.log(12), rel=1e-12)


def test_released_pdg_is_that_of_equal_maps():
    # 12 rows of K equal entries: G is all ones, so (144 - 24 + K) / K for sentences of 12, 9 and 6 tokens
    value = seen_by(build_model("bert", dtype=torch.float64).train(), hw.PDG(preset="released"), build_batch())
    assert value.item() == pytest.approx(sum((120 + keys) / keys for keys in (12, 9, 6)) / 3, rel=1e-12)


def test_released_is_the_authors_formula_on_what_dropout_left():
    torch.manual_seed(3)
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    maps = torch.nn.functional.dropout(random_maps(valid), 0.3)
    record = record_of(maps, valid, what="map")
    mdg, pdg = hw.MDG(preset="released"), hw.PDG(preset="released")
    torch.testing.assert_close(mdg(record, NO_INPUTS), slow_mdg(maps, valid, tau=2.0, reduce="given"))
    torch.testing.assert_close(pdg(record, NO_INPUTS), slow_pdg(maps, valid, reduce="given"))
    assert mdg(record, NO_INPUTS) != slow_mdg(maps, valid, tau=2.0)


def test_released_says_what_it_sets():
    assert (hw.MDG(preset="released").tau, hw.MDG().tau) == (2.0, 1.0)
    for guide in (hw.MDG(preset="released"), hw.PDG(preset="released")):
        assert (guide.dropout, guide.what) == ("after", "map")
    for guide in (hw.MDG(), hw.PDG()):
        assert (guide.dropout, guide.what) == ("before", "received")

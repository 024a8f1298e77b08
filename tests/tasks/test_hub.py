"""Data sets on the Hub, through a stand-in for the library."""

import sys
from types import SimpleNamespace

import huggingface_hub.constants as constants
import pytest

from headwise.data import build_task
from headwise.errors import InputError


class Rows(list):
    column_names = ("sentence1", "sentence2", "label", "idx")
    features = {name: SimpleNamespace() for name in column_names} | {
        "label": SimpleNamespace(names=["entailment", "not_entailment"])
    }


@pytest.fixture
def library(monkeypatch):
    """Remembers its calls and whether it was offline; raises what `problem` holds."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    fake = SimpleNamespace(config=SimpleNamespace(HF_HUB_OFFLINE=False), calls=[], offline=[], problem=None)

    def load_dataset(name, config, *, split):
        fake.calls.append((name, config, split))
        fake.offline.append((fake.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE))
        if fake.problem:
            raise fake.problem
        labels = (-1, -1) if split == "test" else (0, 1)
        texts = (("a", "b"), ("c", "d"))
        return Rows(
            {"sentence1": one, "sentence2": two, "label": label, "idx": 0}
            for (one, two), label in zip(texts, labels, strict=True)
        )

    fake.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", fake)
    return fake


RTE = {"hub": "nyu-mll/glue", "hub_config": "rte"}


def test_reading(library):
    task = build_task("rte", RTE)
    assert task.splits == ("train", "validation", "test")
    split = task.read("train", None, network=True)
    assert split.texts == (("a", "b"), ("c", "d"))
    assert split.labels == (0, 1)
    assert library.calls == [("nyu-mll/glue", "rte", "train")]


def test_secret_labels_are_none(library):
    assert build_task("rte", RTE).read("test", None, network=True).labels == (None, None)


def test_names_of_splits(library):
    task = build_task("rte", {**RTE, "hub_splits": {"train": "train", "validation": "dev"}})
    assert task.splits == task.available(None) == ("train", "validation")
    task.read("validation", None)
    assert library.calls[-1] == ("nyu-mll/glue", "rte", "dev")


@pytest.mark.parametrize("network", [True, False])
def test_the_network_is_used_only_with_permission_and_the_switch_goes_back(library, network):
    build_task("rte", RTE).read("train", None, network=network)
    assert library.offline == [(not network, not network)]
    assert (library.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE) == (False, False)


def test_the_environment_may_forbid_the_network(library, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    build_task("rte", RTE).read("train", None, network=True)
    assert library.offline == [(False, True)]
    assert constants.HF_HUB_OFFLINE is True


@pytest.mark.parametrize("problem", [ConnectionError("no\nway"), ValueError("unknown split"), FileNotFoundError("x")])
def test_failures(library, problem):
    library.problem = problem
    with pytest.raises(InputError, match="Hub name.*no network was allowed.*--download") as caught:
        build_task("rte", RTE).read("train", None)
    assert "nyu-mll/glue/rte" in str(caught.value)
    with pytest.raises(InputError, match="could not be loaded.*hub_config"):
        build_task("rte", RTE).read("train", None, network=True)
    assert library.config.HF_HUB_OFFLINE is False


def test_a_missing_column(library):
    with pytest.raises(InputError, match="on the Hub, split train has no column 'question'"):
        build_task("qnli", RTE).read("train", None)


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"headwise\[hub\]"):
        build_task("rte", RTE).read("train", None)

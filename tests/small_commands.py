"""Plugin: fixtures that several tests of commands share: runs to compare with, and commands with their usual words."""

import pytest
from tiny_runs import digest, json_of, log, record, undisturbed, weights

# Two epochs of ten steps; dropout and automatic weights are on, evaluations and checkpoints fall apart, and heads are
# looked at.
DISTURBED = {
    "training__batch": 4,
    "training__checkpoint_every": 3,
    "training__evaluate_every": 2,
    "training__snapshots": 4,
    "share_every": 4,
}


@pytest.fixture(scope="session")
def whole(tmp_path_factory, encoder, pairs):
    """A run that nobody disturbs."""
    return undisturbed(tmp_path_factory.mktemp("whole") / "run", encoder, pairs, DISTURBED)


@pytest.fixture
def words(write_recipe, pairs, tmp_path):
    """The command that trains the same run in tmp_path/run."""
    return ["train", write_recipe(**DISTURBED), "--data", pairs, "--output", str(tmp_path / "run")]


def timeless(content):
    """The same without the times in it."""
    if isinstance(content, dict):
        return {name: timeless(value) for name, value in content.items() if "second" not in name}
    return list(map(timeless, content)) if isinstance(content, list) else content


@pytest.fixture
def assert_same(whole, tmp_path):
    """Check that a run ended as one that nobody disturbed."""

    def check(run=tmp_path / "run", whole=whole):
        assert weights(run) == weights(whole)
        assert timeless(record(run)["results"]) == timeless(record(whole)["results"])
        # The last entry is about the time that the last process took.
        logs = [[timeless(entry) for entry in log(each) if "train_loss" not in entry] for each in (run, whole)]
        assert logs[0] == logs[1]
        assert {path.name for path in run.iterdir()} == {path.name for path in whole.iterdir()}
        for path in whole.glob("snapshots.safetensors"):
            assert digest(run / path.name) == digest(path)

    return check


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder to name as the cache; the one that would be used otherwise must stay empty."""
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "unwanted"))
    yield tmp_path / "cache"
    assert not (tmp_path / "unwanted").exists()


@pytest.fixture
def study(headwise, joint, tmp_path):
    """`headwise heads COMMAND` on a run of three tasks, with results in tmp_path/found."""
    return lambda command, *words: headwise("heads", command, joint, "--output", tmp_path / "found", *words)


@pytest.fixture
def studied(study):
    """The same with what it prints as JSON."""
    return lambda command, *words: json_of(study(command, "--json", *words))


@pytest.fixture(scope="session")
def cotraining(tmp_path_factory, encoder, pairs):
    """A run with SSA whose classifier is a plain one."""
    changes = {"guides": {}, "training__epochs": 1, "ssa": {"model": "cotraining"}}
    return undisturbed(tmp_path_factory.mktemp("cotraining") / "run", encoder, pairs, changes)

"""YAML from users that is small to write and large to read: one sentence, within a second."""

import time

import pytest
import yaml

from headwise.errors import InputError
from headwise.experiments.analysis.analyze import read_pattern
from headwise.experiments.recipe import check_recipe
from headwise.experiments.recipe_files import MAX_DEPTH, MAX_VALUES, parse_yaml, read_recipe, with_change
from headwise.experiments.sweeps.search_space import plan_space
from headwise.experiments.sweeps.sweep_file import plan_sweep


def aliases(first, next_one, levels=9):
    """Each line repeats the one above nine times."""
    lines = [f"a0: &a0 {first}"]
    for level in range(1, levels):
        repeated = ",".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} {next_one % repeated}")
    return "\n".join(lines)


LISTS = aliases("[x, x, x, x, x, x, x, x, x]", "[%s]")
MERGED = aliases("{x: 1}", "{<<: [%s], y: 1}")
BOMBS = {
    "lists of aliases": (LISTS, f"more than {MAX_VALUES:,} values"),
    "merged mappings": (MERGED, f"more than {MAX_VALUES:,} values"),
    "a long text many times": (f"a: &a {'x' * 200_000}\nb: [*a, *a, *a, *a, *a]", "more than 1,000,000 characters"),
    "nested lists": ("a: " + "[" * 2000 + "]" * 2000, f"deeper than {MAX_DEPTH} levels"),
    "lists that never end": ("[" * 2000, f"deeper than {MAX_DEPTH} levels"),
    "nested blocks": ("\n".join(" " * level + "a:" for level in range(1400)), f"deeper than {MAX_DEPTH} levels"),
    "nested items": ("- " * 2000 + "x", f"deeper than {MAX_DEPTH} levels"),
    "nested by aliases": (
        "\n".join(["a0: &a0 [x]", *(f"a{level}: &a{level} [*a{level - 1}]" for level in range(1, 60))]),
        f"deeper than {MAX_DEPTH} levels",
    ),
    "itself": ("a: &a [*a]", "contains itself"),
    "itself, merged": ("&a {x: {<<: *a}}", "contains itself"),
    "a large file": ("a: " + "x" * 1_000_000, "more than 1,000,000 characters"),
    "a long number": ("seed: " + "1" * 900_000, "900000 digits"),
    "a long number of another base": ("seed: 0x" + "f" * 5000, "digits"),
    "no date": ("a: 2020-13-45", "not valid YAML"),
    "no bool": ("a: !!bool 3", "not valid YAML"),
    "an empty number": ("a: !!int ''", "not valid YAML"),
    "a set": ("a: !!set {x, y}", "not valid YAML"),
}


def refusal(call):
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        call()
    assert time.process_time() - start < 1
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert len(text) < 600
    return text


@pytest.mark.parametrize("case", BOMBS)
def test_a_recipe_is_refused_at_once(tmp_path, case):
    text, reason = BOMBS[case]
    (tmp_path / "bad.yaml").write_text(text)
    message = refusal(lambda: read_recipe(str(tmp_path / "bad.yaml")))
    assert reason in message
    assert "bad.yaml" in message


def test_every_reader_of_yaml_refuses_at_once(tmp_path):
    (tmp_path / "bad.yaml").write_text(LISTS)
    (tmp_path / "good.yaml").write_text("task: pairs\n")
    (tmp_path / "above.yaml").write_text("base: bad.yaml\n")
    good = str(tmp_path / "good.yaml")
    for where, call in (
        ("bad.yaml", lambda: plan_sweep(str(tmp_path / "bad.yaml"))),
        ("bad.yaml", lambda: plan_sweep(str(tmp_path / "above.yaml"))),
        ("changes=", lambda: read_recipe(good, [f"description={LISTS}"])),
        ("vary=", lambda: plan_space(good, vary=[f"training.per_device_train_batch_size={LISTS}"])),
        ("pattern", lambda: read_pattern("--pattern", LISTS)),
    ):
        message = refusal(call)
        assert where in message
        assert "more than 20,000 values" in message
    assert "is not YAML" in refusal(lambda: read_pattern("--pattern", "a: !!bool 3"))


def test_what_people_write_is_far_from_the_limits():
    values = list(range(MAX_VALUES - 3))
    assert parse_yaml(yaml.safe_dump({"labels": values}), "x") == {"labels": values}
    nested = "[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1)
    assert str(parse_yaml(nested, "x")) == nested
    shared = "a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, x: 4}\nd: [*a, *a]"
    first = {"x": 1, "y": [2, 3]}
    assert parse_yaml(shared, "x") == {"a": first, "b": first, "c": {"x": 4, "y": [2, 3]}, "d": [first, first]}


def test_a_key_with_thousands_of_parts(tmp_path):
    (tmp_path / "good.yaml").write_text("task: pairs\n")
    change = ".".join(["a"] * 2000) + "=1"
    assert "has 2000 parts" in refusal(lambda: read_recipe(str(tmp_path / "good.yaml"), [change]))
    assert "has 2000 parts" in refusal(lambda: with_change({}, ".".join(["a"] * 2000), 1, "grid"))


def test_a_recipe_from_python_that_is_nested_too_deep():
    deep = inner = {}
    for _ in range(3000):
        inner["x"] = {}
        inner = inner["x"]
    itself = {}
    itself["x"] = itself
    for part in (deep, itself):
        for data in ({"task": {"name": "pairs", "files": part}}, {"task": "pairs", "guides": {"mdg": part}}):
            assert "nested deeper" in refusal(lambda data=data: check_recipe(data, "x"))


def test_sweeps_that_build_on_each_other_without_end(tmp_path):
    for number in range(30):
        (tmp_path / f"{number}.yaml").write_text(f"base: {number + 1}.yaml\n")
    assert "20 files build on each other" in refusal(lambda: plan_sweep(str(tmp_path / "0.yaml")))


def test_more_combinations_than_anybody_runs(tmp_path):
    (tmp_path / "good.yaml").write_text("task: pairs\n")
    grid = {f"training.{key}": list(range(1, 101)) for key in ("batch", "accumulation", "log_every", "steps")}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({"recipe": "good.yaml", "grid": grid}))
    assert "100,000,000 combinations" in refusal(lambda: plan_sweep(str(tmp_path / "sweep.yaml")))
    values = f"training.per_device_train_batch_size={list(range(1, 3000))}"
    assert "2999 values" in refusal(lambda: plan_space(str(tmp_path / "good.yaml"), vary=[values]))

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


def aliases(first, next_one):
    """Each line repeats the one above nine times."""
    lines = [f"a0: &a0 {first}"]
    for level in range(1, 9):
        repeated = ",".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} {next_one % repeated}")
    return "\n".join(lines)


LISTS = aliases("[x, x, x, x, x, x, x, x, x]", "[%s]")
TOO_MANY, TOO_DEEP, NO_YAML = f"more than {MAX_VALUES:,} values", f"deeper than {MAX_DEPTH} levels", "not valid YAML"
BOMBS = {
    "lists of aliases": (LISTS, TOO_MANY),
    "merged mappings": (aliases("{x: 1}", "{<<: [%s], y: 1}"), TOO_MANY),
    "a long text many times": (f"a: &a {'x' * 200_000}\nb: [*a, *a, *a, *a, *a]", "more than 1,000,000 characters"),
    "lists that never end": ("[" * 2000, TOO_DEEP),
    "nested blocks": ("\n".join(" " * level + "a:" for level in range(1400)), TOO_DEEP),
    "nested items": ("- " * 2000 + "x", TOO_DEEP),
    "nested by aliases": (
        "\n".join(["a0: &a0 [x]", *(f"a{level}: &a{level} [*a{level - 1}]" for level in range(1, 60))]),
        TOO_DEEP,
    ),
    "itself": ("a: &a [*a]", "contains itself"),
    "itself, merged": ("&a {x: {<<: *a}}", "contains itself"),
    "a large file": ("a: " + "x" * 1_000_000, "more than 1,000,000 characters"),
    "a long number": ("seed: " + "1" * 900_000, "900000 digits"),
    "a long number of another base": ("seed: 0x" + "f" * 5000, "digits"),
    "no date": ("a: 2020-13-45", NO_YAML),
    "no bool": ("a: !!bool 3", NO_YAML),
    "an empty number": ("a: !!int ''", NO_YAML),
    "a set": ("a: !!set {x, y}", NO_YAML),
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


def deep(levels=3000):
    data = inner = {}
    for _ in range(levels):
        inner["x"] = {}
        inner = inner["x"]
    return data


def test_every_reader_refuses_at_once(tmp_path):
    good, bad = str(tmp_path / "good.yaml"), str(tmp_path / "bad.yaml")
    key, itself = ".".join(["a"] * 2000), {}
    itself["x"] = itself
    grid = {f"training.{key}": list(range(1, 101)) for key in ("batch", "accumulation", "log_every", "steps")}
    files = {"good": {"task": "pairs"}, "above": {"base": "bad.yaml"}, "grid": {"recipe": "good.yaml", "grid": grid}}
    files |= {f"{number}": {"base": f"{number + 1}.yaml"} for number in range(30)}
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "bad.yaml").write_text(LISTS)
    size = "training.per_device_train_batch_size"
    for call, *parts in (
        (lambda: plan_sweep(bad), "bad.yaml", TOO_MANY),
        (lambda: plan_sweep(str(tmp_path / "above.yaml")), "bad.yaml", TOO_MANY),
        (lambda: plan_sweep(str(tmp_path / "0.yaml")), "20 files build on each other"),
        (lambda: plan_sweep(str(tmp_path / "grid.yaml")), "100,000,000 combinations"),
        (lambda: read_recipe(good, [f"description={LISTS}"]), "changes=", TOO_MANY),
        (lambda: read_recipe(good, [f"{key}=1"]), "has 2000 parts"),
        (lambda: with_change({}, key, 1, "grid"), "has 2000 parts"),
        (lambda: plan_space(good, vary=[f"{size}={LISTS}"]), "vary=", TOO_MANY),
        (lambda: plan_space(good, vary=[f"{size}={list(range(1, 3000))}"]), "2999 values"),
        (lambda: read_pattern("--pattern", LISTS), "pattern", TOO_MANY),
        (lambda: read_pattern("--pattern", "a: !!bool 3"), "is not YAML"),
        (lambda: check_recipe({"task": {"name": "pairs", "files": deep()}}, "x"), "nested deeper"),
        (lambda: check_recipe({"task": "pairs", "guides": {"mdg": itself}}, "x"), "nested deeper"),
    ):
        message = refusal(call)
        assert all(part in message for part in parts), message


def test_what_people_write_is_far_from_the_limits():
    values = list(range(MAX_VALUES - 3))
    assert parse_yaml(yaml.safe_dump({"labels": values}), "x") == {"labels": values}
    nested = "[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1)
    assert str(parse_yaml(nested, "x")) == nested
    shared = "a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, x: 4}\nd: [*a, *a]"
    first = {"x": 1, "y": [2, 3]}
    assert parse_yaml(shared, "x") == {"a": first, "b": first, "c": {"x": 4, "y": [2, 3]}, "d": [first, first]}

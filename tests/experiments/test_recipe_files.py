"""Recipes on disk, changes by --set, and the recipes of the package."""

import json

import pytest
import yaml

from headwise.errors import InputError
from headwise.experiments.recipe_files import bundled, read_recipe, recipe_text


@pytest.fixture
def file(tmp_path):
    def write(text, name="r.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def answer(name, *changes):
    with pytest.raises(InputError) as caught:
        read_recipe(name, changes)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_values_as_people_write_them(file):
    for written, number in (("1e-5", 1e-5), ("1E-5", 1e-5), ("1.e-5", 1e-5), (".5", 0.5), ("5.0e-05", 5e-5)):
        path = file(f"task: pairs\ntraining: {{learning_rate: {written}}}")
        assert read_recipe(path).training.learning_rate == number
        assert read_recipe(file("task: pairs"), [f"training.learning_rate={written}"]).training.learning_rate == number
    for text, change in (("guides: {pmi: {on: map}}", []), ("", ["guides={pmi: {on: map}}"])):
        chosen = read_recipe(file(f"task: pairs\n{text}"), change)
        assert chosen.guides == {"pmi": {"on": "map"}}
        assert read_recipe(file(recipe_text(chosen))) == chosen
    for written, value in (("true", True), ("False", False)):
        assert read_recipe(file(f"task: pairs\ndata: {{buckets: {written}}}")).data.buckets is value
    assert "data.buckets is 'off': expected true or false" in answer(file("task: pairs\ndata: {buckets: off}"))
    merged = "task: pairs\ndata: &d {max_length: 20}\nguides: {mdg: &m {weight: 0.1}, pdg: {<<: *m, weight: 0.2}}"
    assert read_recipe(file(merged)).guides == {"mdg": {"weight": 0.1}, "pdg": {"weight": 0.2}}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("task: pairs\ntraining:\n  batch: 1\n  epochs: 2\n  batch: 3", ["key 'batch' stands twice", "line 5"]),
        ("task: {name: pairs, name: sick}", ["key 'name' stands twice", "line 1"]),
        *((text, ["not valid YAML"]) for text in ("a: b: c", "{[1]: 2}", "task: !!python/object:os.system {}")),
        *((text, ["a recipe is a list of keys and values"]) for text in ("", "- a", "just words")),
        ("task: pairs # \xfc".encode("latin-1"), ["not UTF-8"]),
    ],
)
def test_a_file_that_is_no_recipe(file, text, parts):
    message = answer(file(text))
    assert all(part in message for part in parts)


def test_names(file, tmp_path):
    for name, expected in (("my recipe.yaml", "my-recipe"), ("-ü.yaml", "run"), ("a.yaml", "a")):
        assert read_recipe(file("task: pairs", name)).name == expected
        assert read_recipe(file("task: pairs\nname: other", name)).name == "other"
    text = answer("pears")
    assert "no such file" in text
    assert "did you mean 'pairs'" in text
    assert "is a folder" in answer(str(tmp_path))


# -- --set -------------------------------------------------------------------------------------------------------------


def test_changes(file):
    changes = [
        "task.files.train=a=b.tsv",
        "training.num_train_epochs=null",
        "training.max_steps=7",
        "training.freeze=[embeddings, 0]",
        "guides.mdg.weight.share=0.5",
        "data.limit={train: 3}",
        "description=two words",
        "report_to=[]",
    ]
    chosen = read_recipe(file("task: pairs\nguides: {mdg: {weight: {share: 0.1, every: 9}}, pdg: }"), changes)
    assert chosen.task.options == {"files": {"train": "a=b.tsv"}}
    training = chosen.training
    assert (training.num_train_epochs, training.max_steps, training.freeze) == (None, 7, ("embeddings", 0))
    assert chosen.guides == {"mdg": {"weight": {"share": 0.5, "every": 9}}, "pdg": {}}
    assert chosen.data.limit == {"train": 3}
    assert chosen.description == "two words"
    for guides in ("[mdg, pdg]", "{mdg: , pdg: }", "{mdg: {}, pdg: {}}"):  # short forms open up
        chosen = read_recipe(file(f"task: pairs\nguides: {guides}"), ["guides.mdg.weight=0.25"])
        assert chosen.guides == {"mdg": {"weight": 0.25}, "pdg": {}}


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ("epochs", ("KEY=VALUE",)),
        ("=1", ("KEY=VALUE",)),
        ("seed=[", ("not valid YAML",)),
        ("training.epoch=1", ("unknown key 'training.epoch'", "'num_train_epochs'")),
        ("seed.x=1", ("'x' cannot be set inside 4",)),
        ("seed=x", ("seed is 'x'", "a whole number")),
        ("task.labls=[a, b]", ("'labls'", "'labels'")),
    ],
)
def test_wrong_changes(file, change, facts):
    text = answer(file("task: pairs\nseed: 4"), change)
    assert all(fact in text for fact in facts)


# -- there and back ----------------------------------------------------------------------------------------------------

ODD = """
name: odd
description: "é “x” 🙂: # not a comment"
task: {name: pairs, labels: ['1e5', 'no', '3'], label_names: {0: 'no'}, unlabelled: {values: ['-'], rule: drop}}
guides: {mdg: {weight: {share: 1e-2}, heads: {0: [1, 2]}, layers: [0, -1]}, pdg: {weight: 1e-4}}
training: {learning_rate: 1e-5, max_steps: 3, freeze: [embeddings, 1]}
data: {limit: {train: 5}}
"""


def test_what_is_written_is_read_as_the_same_recipe_and_the_recipes_of_the_package(file):
    for name, path in {"odd": None, **bundled()}.items():
        chosen = read_recipe(file(ODD) if path is None else name)
        for text in (recipe_text(chosen), json.dumps(chosen.as_data(), ensure_ascii=False)):
            again = read_recipe(file(text, "again.yaml"))
            assert again.as_data() == chosen.as_data()
            if path is not None:  # the odd one's label_names begin as numbers and end as text: the same to the task
                assert again == chosen
        if path is not None:
            assert chosen.name == name.replace("/", "-")
            assert chosen.description
            assert chosen.several == name.startswith("heads/"), name
            assert set(yaml.safe_load(path.read_text())) <= set(chosen.as_data())
    with pytest.raises(InputError, match=r"^heads/.* is for several tasks \(.*\): expected a recipe with `task:`"):
        read_recipe(next(name for name in bundled() if name.startswith("heads/")), several=False)

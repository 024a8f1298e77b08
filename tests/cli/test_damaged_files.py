"""Damaged files of runs and results: every command that reads one says so in one sentence, or does without it."""

import hashlib
import json
import shutil
import zlib
from contextlib import suppress

import pytest
import small_results
import yaml
from damage import damages
from small_collection import write_collection
from tiny_runs import assert_done, assert_one_sentence, small

from headwise.experiments.analysis.analyze import AnalysisSettings, analyze_tasks
from headwise.experiments.apply import load_tasks

RECORD, MODEL = ("headwise.json",), ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
CURVE = ("heads/prune-curve.json", "heads/prune-curve.safetensors")
SWEEP = ("headwise-sweep.json", "sweeps/sizes.json", "runs/*.json")
PAGE = "-o {new}.html --force"
# Command -> what it reads, and which of the files there.
CASES = {
    "evaluate {at}": ("guided", RECORD + MODEL),
    "predict {at} --input {root}/texts.tsv --output {new}.tsv": ("guided", RECORD + MODEL),
    "analyze {at} --limit 2 --keep 1 --importance 2 --overwrite": ("guided", RECORD),
    "export {at} --output {new}": ("guided", (*RECORD, "config.json")),
    f"report {{at}} --baseline {{root}}/plain {PAGE}": (
        "guided",
        (
            *RECORD,
            "outputs.json",
            "log.jsonl",
            "snapshots.safetensors",
            "analysis/analysis.json",
            "analysis/analysis.safetensors",
            "heads/importance.json",
            *CURVE,
        ),
    ),
    "compare {at} {root}/plain --resamples 100 --times --all-metrics": ("guided", (*RECORD, "outputs.json")),
    "heads importance {at} --examples 4 --output {new}": ("guided", RECORD),
    "heads prune-curve {at} --percent 50 --random 1 --examples 4 --limit 4 --output {new}": ("guided", RECORD),
    "heads patterns {at} --limit 2": ("guided", RECORD),
    "figure pca {at} -o {new}.svg": ("guided", (*RECORD, "analysis/analysis.json", "analysis/analysis.safetensors")),
    "figure curves {at} -o {new}.svg": ("guided", (*RECORD, "log.jsonl")),
    "train {recipe} --data {data} --output {at} --resume": ("guided", RECORD),
    "tokens {at} --text cat --pair dog": ("ssa", (*RECORD, "config.json", "headwise_head.safetensors")),
    "evaluate {at} --task single": ("joint", (*RECORD, "config.json", "headwise_heads.safetensors")),
    "export {at} --task signs --output {new}": ("joint", (*RECORD, "config.json")),
    f"report {{at}} --task signs {PAGE}": (
        "joint",
        (*RECORD, "analysis/signs/analysis.json", "heads/dissociation.json", "heads/similarity.json", *CURVE),
    ),
    "compare {at} {root}/joint-other --resamples 100 --baseline learning_rate=0.1": (
        "joint",
        (*RECORD, "outputs.json"),
    ),
    "heads dissociation {at} --resamples 10 --overwrite": ("joint", RECORD + CURVE),
    "heads similarity {at} --examples 4 --overwrite": ("joint", (*RECORD, "heads/dissociation.json")),
    "figure dissociation {at} -o {new}.svg": ("joint", (*RECORD, "heads/dissociation.json")),
    "search {at} cat --collection {root}/papers --depth 3 --top 2 --explain --cache {root}/cache": (
        "ranking",
        (*RECORD, "config.json", "tokenizer.json"),
    ),
    "rerank {at} --candidates {root}/found.trec --collection {root}/papers --output {new}.trec": ("ranking", RECORD),
    f"report {{at}} {PAGE}": ("ranking", (*RECORD, "outputs.json", "analysis/analysis.json")),
    "compare {at} {root}/ranking-other --resamples 100 --baseline learning_rate=0.1": (
        "ranking",
        (*RECORD, "outputs.json"),
    ),
    "compare {at} --resamples 100 --times --all-metrics": ("results", SWEEP),
    "figure sizes {at} -o {new}.svg": ("results", SWEEP),
    f"report {{root}}/guided --results {{at}} {PAGE}": ("results", SWEEP),
    "score {at}/found.trec --qrels {at}/qrels.txt": (".", ("found.trec", "qrels.txt")),
    "doctor {at} --length 20": ("guided", ("config.json",)),
}


@pytest.fixture(scope="session")
def root(tmp_path_factory, two_runs, supervised_run, joint, analysed_reranker):
    """Runs, results and all that the commands read."""
    folder = tmp_path_factory.mktemp("damaged")
    runs = {"ssa": supervised_run, "joint": joint, "ranking": analysed_reranker}
    for name, run in {**runs, "guided": two_runs / "guided", "plain": two_runs / "plain"}.items():
        shutil.copytree(run, folder / name)
    analyze_tasks(load_tasks(folder / "joint"), AnalysisSettings(examples=2))
    for name in ("joint", "ranking"):
        other = shutil.copytree(folder / name, folder / f"{name}-other")
        small_results.alter(other / "headwise.json", recipe__training__learning_rate=0.1)
    sizes = {"0.5": {"data__fraction": 0.5}, "1": {"data__fraction": 1.0}}
    axes = {"system": small_results.SYSTEMS, "size": sizes}
    compare = {"by": ["system"], "baseline": "plain", "within": ["size"]}
    small_results.sweep(folder / "results", axes, compare=compare, name="sizes", examples=12)
    write_collection(folder / "papers")
    (folder / "texts.tsv").write_text("sentence1\tsentence2\nthe cat\ta dog\n", encoding="utf-8")
    rows = "".join(f"v{claim} Q0 v{number}-yes {number + 1} {9 - number} t\n" for claim in (0, 1) for number in (0, 1))
    (folder / "found.trec").write_text(rows, encoding="utf-8")
    (folder / "qrels.txt").write_text("v0 0 v0-yes 1\nv1 0 v1-yes 1\n", encoding="utf-8")
    return folder


@pytest.fixture
def measured(root, headwise):
    """The runs with answers about their heads."""
    if not (root / "guided" / "heads").is_dir():
        few = ("--examples", 8)
        for run in ("guided", "joint"):
            assert headwise("heads", "importance", root / run, *few)[0] == 0
            assert headwise("heads", "prune-curve", root / run, "--percent", 50, "--random", 3, *few)[0] == 0
        assert headwise("heads", "dissociation", root / "joint", "--resamples", 20)[0] == 0
        assert headwise("heads", "similarity", root / "joint", *few)[0] == 0
        path = root / "guided" / "analysis" / "analysis.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        del content["statistics"]["importance"]  # so that heads/importance.json is read
        path.write_text(json.dumps(content), encoding="utf-8")
    return root


@pytest.fixture
def type_in(headwise, encoder, pairs, tmp_path):
    """Type a command about a folder."""
    recipe = tmp_path / "recipe.yaml"
    changes = {"guides": {"mdg": {"weight": 1.0}}, "training__snapshots": 4, "training__evaluate_every": 3}
    recipe.write_text(yaml.safe_dump(small(encoder, **changes)), encoding="utf-8")

    def run(words, root, at):
        for path in tmp_path.glob("new*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        places = {"root": root, "at": at, "new": tmp_path / "new", "recipe": recipe, "data": pairs}
        return headwise(*(word.format(**places) for word in words.split()))

    return run


def sign(run):
    """Let the answers about a run say that they belong to its record and to their arrays, as they are now."""
    if not (run / "headwise.json").is_file():
        return
    record = hashlib.sha256((run / "headwise.json").read_bytes()).hexdigest()
    for path in (*run.glob("analysis/**/*.json"), *run.glob("heads/*.json")):
        with suppress(ValueError, KeyError, TypeError, RecursionError, OSError):
            content = json.loads(path.read_text(encoding="utf-8"))
            content["run"]["record"] = record
            if content.get("arrays"):
                arrays = (path.parent / content["arrays"]["file"]).read_bytes()
                content["arrays"]["sha256"] = hashlib.sha256(arrays).hexdigest()
            path.write_text(json.dumps(content), encoding="utf-8")


def reported(result):
    """Done without it, or one sentence at the end of the log, for somebody who can do something about it."""
    code, out, err = result
    if code == 0:
        return "NaN" not in out and "Traceback" not in err
    last = (err.strip().splitlines() or [""])[-1]
    return code == 2 and last.startswith("headwise: ") and "unexpected" not in last and "Traceback" not in err


@pytest.mark.parametrize("words", CASES)
def test_damage_is_reported(type_in, measured, words):
    """The command works with whole files; then each file is damaged in one way, another one for each."""
    place, files = CASES[words]
    at = measured / place
    if place != ".":
        shutil.rmtree(measured / "copy", ignore_errors=True)
        at = shutil.copytree(at, measured / "copy")
    whole = {each: each.read_bytes() for each in at.rglob("*") if each.is_file()} if place != "." else {}
    whole |= {min(at.glob(file)): min(at.glob(file)).read_bytes() for file in files}

    def attempt():
        sign(at)
        result = type_in(words, measured, at)
        for each, before in whole.items():
            each.parent.mkdir(exist_ok=True)
            each.write_bytes(before)
        return result

    assert_done(attempt())
    for file in files:
        path = min(at.glob(file))
        for what, content in damages(path, zlib.crc32(f"{words} {file}".encode()), 1):
            path.write_bytes(content)
            result = attempt()
            assert reported(result), (file, what, result[0], result[2][-300:])


# -- what is said ------------------------------------------------------------------------------------------------------

# File, what is changed there, and what the sentence says.
DAMAGE = {
    "no labels": ("headwise.json", {"results__labels": None}, "results: labels is missing"),
    "a metric in words": (
        "headwise.json",
        {"results__metrics__test__accuracy": "high"},
        'results.metrics.test.accuracy is "high", expected a number',
    ),
    "a metric that is no number": (
        "headwise.json",
        {"results__metrics__test__accuracy": float("nan")},
        "results.metrics.test.accuracy is nan, expected a finite number",
    ),
    "too few predictions": (
        "outputs.json",
        {"outputs__test__predictions": [1, 2]},
        "outputs.test: 2 predictions for 21 examples",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_the_sentence_names_file_key_and_fix(headwise, two_runs, tmp_path, name):
    file, change, said = DAMAGE[name]
    run = shutil.copytree(two_runs / "guided", tmp_path / "run")
    small_results.alter(run / file, **change)
    sign(run)
    words = ["--baseline", two_runs / "plain", "-o", tmp_path / "page.html"]
    for result in (headwise("compare", run, two_runs / "plain"), headwise("report", run, *words)):
        assert_one_sentence(result, f"{run / file} is damaged (", said, "train again")


def test_a_damaged_record_is_named_with_its_file(headwise, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    file, whole = run / "headwise.json", (run / "headwise.json").read_text()
    file.write_text(json.dumps({key: value for key, value in json.loads(whole).items() if key != "data"}))
    for words in ("evaluate", "heads importance"):
        assert_one_sentence(headwise(*words.split(), run), f"{file} is damaged (data is missing): train again.")
    file.write_text(whole)
    small_results.alter(file, recipe__training__batch=-1)
    said = f"{file}: recipe: training.per_device_train_batch_size is -1"
    assert_one_sentence(headwise("evaluate", run), said, "or train again")
    file.write_text(whole)
    small_results.alter(file, results__labels=["agree", "deny"])
    assert_one_sentence(headwise("evaluate", run), "the model has 3 classes", "names 2 (agree, deny)", "train again")


def test_damaged_tokenizers_and_configs(headwise, finished, tmp_path):
    """Libraries report these by a bare Exception, an AttributeError, a TypeError and a strict config."""
    for number, (file, change) in enumerate(
        [
            ("tokenizer.json", {"model": 3}),
            ("tokenizer.json", {"added_tokens": [3]}),
            ("tokenizer_config.json", {"pad_token": 3}),
            ("config.json", {"hidden_act": 3}),
        ]
    ):
        run = shutil.copytree(finished, tmp_path / f"run{number}")
        small_results.alter(run / file, **change)
        assert_one_sentence(headwise("evaluate", run), f"the model in {run} cannot be loaded: ", "save the model again")


def test_a_token_without_an_embedding(headwise, finished, encoder, pairs, write_recipe, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    small_results.alter(run / "tokenizer.json", model__vocab__cat=100_000)
    said = "gives tokens up to number 100000, and the model has embeddings for 28"
    assert_one_sentence(headwise("evaluate", run), str(run), said, "restore it")
    own = shutil.copytree(encoder, tmp_path / "encoder")
    small_results.alter(own / "tokenizer.json", model__vocab__cat=100_000)
    words = ("train", write_recipe(model=str(own)), "--data", pairs, "--output", tmp_path / "new")
    assert_one_sentence(headwise(*words), str(own), said, "restore it")
    shutil.copy(f"{encoder}/tokenizer.json", own)
    small_results.alter(own / "tokenizer_config.json", pad_token="[NEW]")
    assert_one_sentence(headwise(*words), "embeddings for", "restore it")
    assert not (tmp_path / "new").exists()


def test_a_tokenizer_that_panics(headwise, finished, tmp_path):
    """Rust's panics are no Exceptions, and print more lines."""
    run = shutil.copytree(finished, tmp_path / "run")
    small_results.alter(run / "tokenizer.json", post_processor__special_tokens={})
    code, out, err = headwise("evaluate", run)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"headwise: the model in {run} cannot be loaded: ")
    assert "Traceback" not in err

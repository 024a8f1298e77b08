"""Analyses of runs: the numbers are those of the models, and damaged files are refused."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import small_heads
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_reports import KEPT
from tiny_runs import assert_one_sentence

import headwise as hw
from headwise.data import Collator, encode
from headwise.errors import InputError
from headwise.experiments.analysis import example_views
from headwise.experiments.analysis.analysis_files import (
    ExampleMaps,
    analysis_folder,
    from_bytes,
    pack_examples,
    read_analysis,
    to_bytes,
    unpack_examples,
)
from headwise.experiments.analysis.analyze import AnalysisSettings, analyze_tasks, spread
from headwise.experiments.analysis.example_views import (
    expected_pattern,
    marks_of,
    pattern_of_analysis,
    view_examples,
)
from headwise.experiments.apply import load_run, load_tasks
from headwise.experiments.outputs import read_outputs
from headwise.experiments.splits import read_split
from headwise.patterns import PMI, Pattern
from headwise.patterns.base import as_rows
from headwise.reports.report_views import example_payload
from headwise.training import Silence
from headwise.training.word_knowledge import add_knowledge

# Layer and head of every head of the tiny runs.
HEAD_INDEX = [[(layer, head) for head in range(4)] for layer in range(2)]


class Messages(Silence):
    """Keeps what is logged."""

    def __init__(self):
        self.messages = []

    def log(self, message):
        self.messages.append(message)


def analysed(run, *, progress=None, **settings):
    """Analyse a run on one task anew, and read what was written."""
    analyze_tasks(load_tasks(run), AnalysisSettings(**settings), progress=progress)
    return read_analysis(run)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_a_byte_is_near_the_weight(weights):
    values = np.array(weights)
    error = np.abs(from_bytes(to_bytes(values)) - values)
    assert (error <= np.sqrt(values) / 255 + 1 / 255**2 / 4 + 1e-6).all()


def test_the_largest_weights_of_a_row_are_kept():
    weights = np.random.default_rng(0).dirichlet(np.ones(9) * 0.3, size=(2, 3, 9))
    whole = ExampleMaps(to_bytes(weights))
    few = whole.largest(4)
    assert whole.exact
    assert not few.exact
    for layer, head in np.ndindex(2, 3):
        dense, kept = whole.head(layer, head), few.head(layer, head)
        assert ((kept == 0) | (kept == dense)).all()
        assert np.allclose(np.sort(kept, 1)[:, -4:], np.sort(dense, 1)[:, -4:])
        assert (np.count_nonzero(kept, axis=1) <= 4).all()
    assert few.largest(2).values.shape[3] == 2
    assert whole.largest(9) is whole


def test_examples_are_spread_evenly_and_picked_ones_are_added():
    assert spread(100, 5, (), "test") == [0, 25, 50, 74, 99]
    assert spread(3, 20, (), "test") == [0, 1, 2]
    assert spread(100, 1, (7,), "test") == [0, 7]
    with pytest.raises(InputError, match="pick=100: the analysed examples of the test set are 0 to 99"):
        spread(100, 5, (100,), "test")


def test_statistics_and_answers_are_those_of_the_model(two_runs):
    found, run = read_analysis(two_runs / "guided").content, load_run(two_runs / "guided")
    split = read_split(run.recipe, run.task, "test", run.data)
    assert found["examples"] == len(split)
    encoded = encode(split, run.tokenizer, run.recipe.data.max_length, offsets=True)
    collate = Collator.of(run.tokenizer, "classification", max_length=run.recipe.data.max_length)
    sinks, crosses = [], []
    for number in range(len(split)):
        inputs = collate([encoded[number]])
        inputs.pop("labels")
        with torch.inference_mode(), hw.capture(run.model.eval(), what="map") as seen:
            logits = run.model(**inputs).logits
        assert run.labels[int(logits.argmax())] == found["answers"]["predictions"][number]
        source = encoded.sources[encoded.starts[number] : encoded.starts[number + 1]]
        maps = seen.stacked()[0]  # [M,T,T]
        sinks.append(maps[:, :, source < 0].sum(2).mean(1))
        crosses.append(
            (maps[:, source == 0][:, :, source == 1].sum((1, 2)) + maps[:, source == 1][:, :, source == 0].sum((1, 2)))
            / int((source >= 0).sum())
        )
    for name, values in (("sink", sinks), ("cross", crosses)):
        expected = torch.stack(values)
        grid = found["statistics"][name]
        assert np.ravel(grid["mean"]).tolist() == pytest.approx(expected.mean(0).tolist(), abs=1e-5)
        errors = expected.std(0) / len(split) ** 0.5
        assert np.ravel(grid["error"]).tolist() == pytest.approx(errors.tolist(), abs=1e-5)
    outputs = read_outputs(two_runs / "guided")["test"]
    assert found["answers"]["predictions"] == [run.labels[each] for each in outputs["predictions"]]
    assert found["answers"]["gold"] == [run.labels[each] for each in outputs["gold"]]
    assert found["statistics"]["importance"]["examples"] == 8


def test_kept_examples_hold_the_maps_of_the_model(two_runs):
    analysis, run = read_analysis(two_runs / "plain"), load_run(two_runs / "plain")
    assert len(analysis.examples) == KEPT
    for view in analysis.examples:
        inputs = run.tokenizer(*view.texts, truncation=True, max_length=24, return_tensors="pt")
        with torch.inference_mode(), hw.capture(run.model.eval(), what="map") as seen:
            logits = run.model(**inputs).logits[0]
        maps = seen.stacked()[0].numpy().reshape(analysis.layers, analysis.heads, *seen.stacked().shape[2:])
        assert list(view.tokens) == run.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
        assert np.allclose(view.mean_map, maps.mean((0, 1)), atol=1e-6)
        assert np.allclose(view.head_map(1, 0), maps[1, 0], atol=0.004)
        received = maps.sum(2)
        shares = (received / received.sum(2, keepdims=True)).reshape(-1, len(view.tokens))
        assert np.allclose(view.vectors, shares, atol=1e-6)
        assert view.prediction == run.labels[int(logits.argmax())]
        assert view.probabilities[view.prediction] == pytest.approx(float(logits.softmax(0).max()), abs=1e-5)
    with pytest.raises(InputError, match="layer 9, head 0 is not there"):
        analysis.examples[0].head_map(9, 0)


def test_long_texts_keep_their_largest_weights_only(two_runs, monkeypatch):
    monkeypatch.setattr(example_views, "WHOLE_TOKENS", 4)
    monkeypatch.setattr(example_views, "WHOLE_LONG", 1)
    monkeypatch.setattr(example_views, "KEPT", 3)
    run = load_run(two_runs / "plain")
    split = read_split(run.recipe, run.task, "test", run.data).subset([0, 1, 2])
    views = view_examples(run, split, ["a", "b", "c"], [0, 1, 2])
    assert [view.maps.exact for view in views] == [True, False, False]
    assert views[1].maps.values.shape[3] == 3


def test_a_file_of_examples_takes_the_place_of_the_split(two_runs, tmp_path):
    run = shutil.copytree(two_runs / "plain", tmp_path / "run")
    file = tmp_path / "own.tsv"
    file.write_text("sentence1\tsentence2\nthe cat\ta dog\n")
    analysis = analysed(run, file=file, limit=5)
    assert [view.texts for view in analysis.examples] == [("the cat", "a dog")]
    assert analysis.examples[0].gold is None
    assert analysis.examples[0].title == "own.tsv 1"
    assert analysis.content["examples"] == 5


def test_ssa_scores_come_along(supervised_run):
    view = read_analysis(supervised_run).examples[0]
    assert len(view.token_scores) == len(view.tokens)
    assert [score is None for score in view.token_scores] == [source < 0 for source in view.sources]
    assert view.threshold == 0.5


def test_heads_are_compared_with_the_pattern_of_the_guide(ran):
    run = ran(guides={"match": {"pattern": "next", "special_tokens": False}}, training__epochs=1)
    found = analysed(run, limit=6, examples=6)
    assert found.content["pattern"] == {"name": "next", "options": {}}
    shares = []
    for view in found.examples:
        name, wanted = view.wanted
        assert name == "next (guided: layers all, heads first:half)"
        text = np.array(view.sources) >= 0  # the guide leaves special tokens out
        assert np.array_equal(wanted, np.eye(len(text), k=1) * text[:, None])
        maps = np.array([[view.head_map(*at) for at in row] for row in HEAD_INDEX])  # [N,H,T,T]
        shares.append(np.diagonal(maps, 1, 2, 3)[..., text[:-1]].mean(-1))
    assert np.allclose(found.content["statistics"]["match"]["mean"], np.mean(shares, 0), atol=0.004)
    assert found.content["statistics"]["match"]["examples"] == 6
    described, arrays = example_payload(["m0"], [view], "e0", exact=True)
    assert described["target"] == {"name": name, "array": "e0target"}
    assert np.array_equal(np.frombuffer(arrays["e0target"], np.uint8).reshape(wanted.shape) > 0, wanted > 0)


def test_knowledge_is_computed_for_the_examples(ran, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    pmi = {"name": "pmi", "window": 4}
    run = ran(guides={"match": {"pattern": pmi, "on": "map"}}, training__epochs=1)
    other = ran("other", training__epochs=1)
    found = analysed(run, limit=6, examples=3)
    same = analysed(other, limit=6, examples=3, pattern=PMI(window=4))
    assert found.content["pattern"] == same.content["pattern"]
    loaded = load_run(run)
    train = read_split(loaded.recipe, loaded.task, "train", loaded.data)
    for view, again in zip(found.examples, same.examples, strict=True):
        assert np.array_equal(view.wanted[1], again.wanted[1])
        data = [dict(loaded.tokenizer(*view.texts, truncation=True, max_length=24))]
        known = add_knowledge(
            data, [view.texts], {"match": {"pattern": pmi, "on": "map"}}, tokenizer=loaded.tokenizer, corpus=train.texts
        )
        (matrix,) = known[0]["knowledge"].values()
        shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1e-30)
        assert np.allclose(view.wanted[1], shares, atol=1e-6)
        assert view.wanted[1].sum() > 0
    assert found.content["statistics"]["match"]["examples"] > 0


def test_trees_of_the_training_texts_alone_stop_no_analysis(ran, tmp_path, headwise, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    run = ran(training__epochs=1)
    record = json.loads((run / "headwise.json").read_text())
    trees = tmp_path / "train.conllu"
    trees.write_text("# text = the cat\n1\tthe\t_\t_\t_\t_\t2\tdet\t_\t_\n2\tcat\t_\t_\t_\t_\t0\troot\t_\t_\n\n")
    record["recipe"]["guides"] = {"dependency": {"pattern": {"source": "conllu", "path": str(trees)}}}
    (run / "headwise.json").write_text(json.dumps(record))
    code, _, err = headwise("analyze", run, "--limit", 4, "--keep", 2)
    assert code == 0, err
    assert "what the pattern dependency wants is not shown: " in err
    found = read_analysis(run)
    assert found.content["pattern"] is None
    assert found.examples[0].wanted is None
    page = tmp_path / "page.html"
    own = tmp_path / "own.tsv"
    own.write_text("sentence1\tsentence2\nthe cat\ta dog\n")
    assert headwise("report", run, "--examples", own, "-o", page)[0] == 0
    asked = f"{{name: dependency, source: conllu, path: {trees}}}"
    code, out, err = headwise("analyze", run, "--limit", 4, "--overwrite", "--pattern", asked)
    assert (code, out) == (2, "")
    assert "is not in" in err.splitlines()[-1]


def test_targets_stand_at_tokens_on_whatever_side_the_padding_is():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])
    rows = [np.array([[1, 0], [1, 1]]), np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])]
    encoded = SimpleNamespace(sources=np.array([-1, 0, -1, 0, 1]), starts=np.array([0, 2, 5]))
    marks = marks_of(encoded, [0, 1], mask, lambda index: rows[index].astype(np.float32))
    assert marks.pattern[0].nonzero().tolist() == [[2, 2], [3, 2], [3, 3]]
    assert marks.pattern[1].nonzero().tolist() == [[0, 1], [1, 2], [2, 0]]
    assert marks.texts.tolist() == [[-1, -1, -1, 0], [-1, 0, 1, -1]]


def test_more_examples_are_compared_with_the_pattern_of_the_analysis(two_runs, tmp_path, headwise):
    run = shutil.copytree(two_runs / "plain", tmp_path / "run")
    assert headwise("analyze", run, "--limit", 4, "--overwrite", "--keep", 2, "--pattern", "prev")[0] == 0
    loaded, content = load_run(run), read_analysis(run).content
    assert pattern_of_analysis(loaded, content, Silence()).identity() == content["pattern"]
    assert pattern_of_analysis(loaded, content | {"pattern": None}, Silence()) is None


def test_a_pattern_without_targets_is_reported(two_runs, tmp_path):
    class Nothing(Pattern):
        name = "nothing"

        def target(self, tokens):
            return as_rows(torch.zeros(*tokens.valid.shape, tokens.valid.shape[1]))

    run, log = shutil.copytree(two_runs / "plain", tmp_path / "run"), Messages()
    found = analysed(run, limit=4, examples=2, pattern=Nothing(), progress=log)
    assert log.messages == ["the pattern nothing wants nothing of any of the 4 examples"]
    assert "match" not in found.content["statistics"]


def test_knowledge_that_cannot_be_computed_is_reported_and_left_out(ran, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    run, log = ran(guides={"pmi": {}}, training__epochs=1), Messages()
    moved = json.loads((run / "headwise.json").read_text())
    (run / "headwise.json").write_text(json.dumps({**moved, "data": str(tmp_path / "gone")}))
    assert expected_pattern(load_run(run), progress=log) is None
    (sentence,) = log.messages
    assert sentence.startswith("what guide pmi wanted is not shown: ")
    assert "gone" in sentence


def test_unknown_patterns_are_refused(two_runs, headwise):
    for text, message in (
        ("nxt", "next"),
        ("{name: pmi, windw: 5}", "window"),
        ("[", "is not YAML"),
        ("7", "expected a name"),
    ):
        assert_one_sentence(headwise("analyze", two_runs / "plain", "--pattern", text), message)


def test_without_some_heads_the_model_answers_as_with_their_gates_shut(two_runs):
    run = load_run(two_runs / "guided")
    split = read_split(run.recipe, run.task, "test", run.data).subset([0])
    (whole,) = view_examples(run, split, ["a"], [0])
    (view,) = view_examples(run, split, ["a"], [0], silenced=[(0, 1), (1, 0)])
    gates = torch.ones(2, len(whole.maps.values[0]))
    gates[0, 1] = gates[1, 0] = 0
    inputs = run.tokenizer(*view.texts, truncation=True, max_length=24, return_tensors="pt")
    with torch.inference_mode(), hw.gate(run.model.eval(), gates):
        chances = run.model(**inputs).logits[0].softmax(0)
    assert view.probabilities == pytest.approx(dict(zip(run.labels, chances.tolist(), strict=True)), abs=1e-5)
    assert view.probabilities != whole.probabilities
    with pytest.raises(InputError, match="layer 5: the model has layers 0 to 1"):
        view_examples(run, split, ["a"], [0], silenced=[(5, 0)])


def test_a_reranker_ranks_its_candidates(analysed_reranker):
    analysis = read_analysis(analysed_reranker)
    claims = analysis.content["claims"]
    assert len(claims) == 5
    assert analysis.content["answers"] is None
    for claim in claims:
        scores = [paper["score"] for paper in sorted(claim["papers"], key=lambda paper: paper["rank"])]
        assert scores == sorted(scores, reverse=True)
        assert sorted(paper["rank"] for paper in claim["papers"]) == list(range(1, len(scores) + 1))
        assert any(paper["relevant"] for paper in claim["papers"])


def test_several_tasks_have_an_analysis_each(joint, tmp_path):
    run = shutil.copytree(joint, tmp_path / "run")
    found = analyze_tasks(load_tasks(run), AnalysisSettings(examples=2))
    assert set(found) == {"signs", "single", "number"}
    assert "cross" not in read_analysis(run, "single").content["statistics"]
    assert read_analysis(run, "number").content["labels"] == []
    with pytest.raises(InputError, match=r"give one, such as task=number \(number, signs, single\)"):
        read_analysis(run)
    assert analysis_folder(run, "signs").is_dir()


def test_missing_and_damaged_analyses_are_refused(two_runs, finished, tmp_path):
    with pytest.raises(InputError, match="no saved arrays of its heads: analyze the run first"):
        read_analysis(finished)
    run = shutil.copytree(two_runs / "plain", tmp_path / "run")
    arrays = run / "analysis" / "analysis.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-7])
    with pytest.raises(InputError, match="damaged.*analyze the run again"):
        read_analysis(run)
    path = run / "analysis" / "analysis.json"
    shutil.copy(two_runs / "plain" / "analysis" / "analysis.safetensors", arrays)
    content = json.loads(path.read_text())
    content["kept"][0]["tokens"] = ["one"]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="damaged"):
        read_analysis(run)
    shutil.copytree(two_runs / "guided" / "analysis", run / "analysis", dirs_exist_ok=True)
    with pytest.raises(InputError, match="made for another run"):
        read_analysis(run)


def test_arrays_that_do_not_fit_the_example_are_refused():
    whole = small_heads.view(0)
    described, arrays = pack_examples([replace(whole, maps=whole.maps.largest(2))])
    content = {"layers": 2, "heads": 4, "kept": described}
    assert unpack_examples(content, arrays)[0].maps.values.shape == (2, 4, 4, 2)
    for name, change, message in (
        ("values", lambda each: each.astype(np.float32), "the maps of test 0 are float32, expected uint8"),
        ("values", lambda each: each[:, :3], r"the values of test 0 are \[2, 3, 4, 2\], expected \[2, 4, 4, 2\]"),
        ("mean", lambda each: each * np.nan, "the mean of test 0 are not finite"),
        ("keys", lambda each: each + 4, "the keys of test 0 are not below 4, the number of its tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            unpack_examples(content, arrays | {f"0/{name}": change(arrays[f"0/{name}"])})


def test_a_pruned_model_is_refused_with_a_reason(two_runs):
    tasks = load_tasks(two_runs / "plain")
    hw.prune(tasks.first.model, {0: [1]})
    with pytest.raises(InputError, match=r"heads were pruned from .*\(layer 0: 1\): an analysis needs"):
        analyze_tasks(tasks, AnalysisSettings())

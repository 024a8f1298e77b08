"""`headwise figure`: every kind from files alone, and one sentence for what cannot be drawn."""

import json
from functools import partial

import numpy as np
import pytest
import small_heads
import small_results
import torch
from matplotlib.figure import Figure
from tiny_runs import assert_one_sentence

from headwise.heads.statistics import principal_components
from headwise.reports import run_figures

AXES = {
    "system": small_results.SYSTEMS,
    "size": {"0.5": {"data__fraction": 0.5}, "1": {"data__fraction": 1.0}},
}
COMPARE = {"by": ["system"], "baseline": "plain", "within": ["size"]}


@pytest.fixture
def run(tmp_path):
    """A run with kept maps and D-scores."""
    folder = small_heads.bare_run(tmp_path / "guided", evaluations=[{"step": 3, "eval_accuracy": 0.5}])
    small_heads.write_heads(folder)
    return small_heads.write_analysis(folder, [small_heads.view(number, seed=1) for number in range(3)])


@pytest.fixture
def other(tmp_path):
    folder = small_heads.bare_run(tmp_path / "plain")
    small_heads.write_heads(folder)
    return small_heads.write_analysis(folder, [small_heads.view(number, seed=2) for number in range(3)])


@pytest.fixture
def results(tmp_path):
    return small_results.sweep(tmp_path / "results", AXES, compare=COMPARE, name="sizes")


@pytest.fixture
def drawn(monkeypatch):
    """What the functions that build figures were given, by name; nothing is drawn, which takes long."""
    calls = {}

    def note(name, *words, **options):
        calls[name] = (words, options)
        return Figure((1, 1))

    for kind in ("heatmap", "projection", "curves", "lines", "line_panels", "matrices"):
        monkeypatch.setattr(run_figures, f"build_{kind}", partial(note, f"build_{kind}"))
    return calls


@pytest.mark.parametrize(
    ("kind", "ending", "start"),
    [
        ("heatmap", "png", b"\x89PNG"),
        ("curves", "pdf", b"%PDF"),
        ("dissociation", "SVG", b"<?xml"),
    ],
)
def test_every_kind_of_a_run_in_the_form_that_the_ending_says(headwise, run, tmp_path, kind, ending, start):
    target = tmp_path / f"figure.{ending}"
    assert headwise("figure", kind, run, "-o", target) == (0, f"saved in {target}\n", "")
    assert target.read_bytes().startswith(start)
    assert headwise("figure", kind, run, "-o", target, "--force")[0] == 0


def test_a_heat_map_of_two_runs_has_the_baseline_first_and_the_mean_maps(headwise, run, other, tmp_path, drawn):
    target = tmp_path / "a.png"
    words = ("figure", "heatmap", run, "--baseline", other, "--example", 10)
    code, out, err = headwise(*words, "-o", target, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"kind": "heatmap", "file": str(target), "runs": [str(other), str(run)], "notes": []}
    (maps, tokens), options = drawn["build_heatmap"]
    assert list(maps) == ["plain", "guided"]  # both recipes are called demo
    assert tuple(tokens) == small_heads.TOKENS
    for name, seed in (("plain", 2), ("guided", 1)):
        assert np.array_equal(maps[name], small_heads.view(1, seed=seed).mean_map)
    assert options["title"].endswith(": test 10")


def test_one_head_of_an_example(headwise, run, tmp_path, drawn):
    words = ("figure", "heatmap", run, "--example", "e2", "--layer", 1, "--head", 3, "--title", "Mine")
    assert headwise(*words, "-o", tmp_path / "a.png")[0] == 0
    (maps, _), options = drawn["build_heatmap"]
    assert np.array_equal(maps["demo"], small_heads.view(2, seed=1).head_map(1, 3))
    assert options["title"] == "Mine"
    small_heads.write_analysis(run, [small_heads.view(0, ["[CLS]", *(f"w{number}" for number in range(40))])])
    assert headwise("figure", "heatmap", run, "-o", tmp_path / "b.png")[2] == "the first 24 of 41 tokens are shown\n"


def test_heads_are_points_on_common_axes(headwise, run, other, tmp_path, drawn):
    assert headwise("figure", "pca", run, other, "-o", tmp_path / "a.png")[0] == 0
    (points, layers), options = drawn["build_projection"]
    vectors = np.concatenate([small_heads.view(0, seed=seed).vectors for seed in (1, 2)]).astype(np.float64)
    expected, explained = principal_components(torch.from_numpy(vectors))
    assert np.allclose(np.concatenate([points["guided"], points["plain"]]), expected.numpy())
    assert layers == [0] * 4 + [1] * 4
    assert options["explained"]["plain"] == pytest.approx(explained.tolist())
    small_heads.write_analysis(run, [small_heads.view(0, seed=1, gone=[0, 5])])  # pruned heads are no points
    _, _, err = headwise("figure", "pca", run, other, "-o", tmp_path / "b.png")
    assert err == "2 heads are left out, which not all runs have\n"
    (points, layers), _ = drawn["build_projection"]
    assert (layers, len(points["plain"])) == ([0] * 3 + [1] * 3, 6)


def test_curves_of_several_runs_share_panels(headwise, run, other, tmp_path, drawn):
    assert headwise("figure", "curves", run, other, "-o", tmp_path / "a.png")[0] == 0
    (series, names), _ = drawn["build_curves"]
    assert names == {"m0": "guided", "m1": "plain"}
    assert [(each["model"], each["name"]) for each in series] == [
        *(("m0", "task loss"), ("m0", "accuracy"), ("m1", "task loss"))
    ]


def test_dissociation_of_one_run_is_every_step_and_of_several_the_means(headwise, run, other, tmp_path, drawn):
    assert headwise("figure", "dissociation", run, "-o", tmp_path / "a.png")[0] == 0
    assert len(drawn["build_matrices"][0][0]) == 3
    assert headwise("figure", "dissociation", run, other, "-o", tmp_path / "b.png")[0] == 0
    titles = [each["title"] for each in drawn["build_matrices"][0][0]]
    assert [title.split(":")[:2] for title in titles] == [
        *(["guided", " mean over all steps"], ["plain", " mean over all steps"])
    ]


def test_sizes_of_a_sweep_say_what_their_intervals_are(headwise, results, tmp_path):
    target = tmp_path / "a.svg"
    note = "Means over 3 seeds with 95 % t intervals."
    assert headwise("figure", "sizes", results, "-o", target) == (0, f"saved in {target}\n", f"{note}\n")
    assert note in target.read_text()


def test_several_sweeps_are_panels(headwise, results, tmp_path, drawn):
    assert headwise("figure", "sizes", results, "-o", tmp_path / "a.svg")[0] == 0
    assert [each["name"] for each in drawn["build_lines"][0][0]["series"]] == ["plain", "ag"]
    second = small_results.sweep(tmp_path / "more", AXES, compare=COMPARE, name="sizes")
    assert headwise("figure", "sizes", results, second, "--sweep", "sizes", "-o", tmp_path / "b.svg")[0] == 0
    assert [plot["title"] for plot in drawn["build_line_panels"][0][0]] == ["results: sizes", "more: sizes"]


def test_layers_of_a_sweep(headwise, tmp_path):
    layers = {label: {"guides": {"mdg": {"weight": 1.0, "layers": [int(label)]}}} for label in ("0", "1")}
    folder = small_results.sweep(tmp_path / "results", {"layer": layers}, compare={})
    target = tmp_path / "a.pdf"
    note = "Means over 3 seeds with 95 % t intervals.\n"
    assert headwise("figure", "layers", folder, "-o", target) == (0, f"saved in {target}\n", note)


def test_what_cannot_be_meant(headwise, run, other, results, tmp_path):
    def refused(*words, name="a.png"):
        result = headwise("figure", *words, "-o", tmp_path / name)
        assert not (tmp_path / name).is_file()
        return result

    assert_one_sentence(refused("heatmp", run), "'heatmp'", "did you mean 'heatmap'", "dissociation")
    assert_one_sentence(refused("pca", run, name="a.gif"), "a.gif", ".png, .svg, .pdf")
    assert_one_sentence(refused("pca", run, name="no/a.png"), "there is no folder", "make it")
    (tmp_path / "folder.png").mkdir()
    assert_one_sentence(refused("pca", run, name="folder.png"), "is a folder")
    assert_one_sentence(refused("pca", tmp_path / "gone"), "there is no folder", "gone")
    assert_one_sentence(refused("pca", run, run), "is given twice")
    assert_one_sentence(refused("heatmap", run, "--layer", 1), "--layer ... and --head ...", "both")
    assert_one_sentence(refused("pca", run, "--layer", 1, "--head", 0), "--layer 1 has no meaning for pca", "heatmap")
    assert_one_sentence(refused("sizes", results, "--example", 1), "--example 1 has no meaning for sizes")
    assert_one_sentence(refused("curves", run, "--sweep", "a"), "--sweep a has no meaning", "layers, sizes")
    assert_one_sentence(refused("heatmap", run, "--layer", 2, "--head", 0), "layer 2, head 0 is not there")
    assert_one_sentence(refused("heatmap", run, "--example", 7), "--example 7", "0, 10, 20", "e0 to e2")


def test_results_of_a_sweep_are_no_run_and_a_run_is_no_sweep(headwise, run, results, tmp_path):
    target = tmp_path / "a.png"
    result = headwise("figure", "curves", results, "-o", target)
    assert_one_sentence(result, "is not a run of headwise", "`headwise train`")
    assert_one_sentence(headwise("figure", "sizes", run, "-o", target), "is a single run")
    result = headwise("figure", "layers", results, "-o", target)
    assert_one_sentence(result, "no finished runs over layers", "such as figure3")
    assert_one_sentence(headwise("figure", "sizes", results, "--sweep", "size", "-o", target), "did you mean 'sizes'")


def test_a_run_that_lacks_something_says_what_to_do_first(headwise, tmp_path):
    bare, target = small_heads.bare_run(tmp_path / "bare"), tmp_path / "a.png"
    for kind in ("heatmap", "pca"):
        assert_one_sentence(headwise("figure", kind, bare, "-o", target), "analyze the run first")
    assert_one_sentence(headwise("figure", "dissociation", bare, "-o", target), f"`headwise heads dissociation {bare}`")
    (bare / "log.jsonl").write_text("")
    assert_one_sentence(headwise("figure", "curves", bare, "-o", target), "nothing was logged")
    (bare / "log.jsonl").unlink()
    assert_one_sentence(headwise("figure", "curves", bare, "-o", target), "log.jsonl is not there", "train again")


def test_runs_that_do_not_fit_together_are_refused(headwise, run, other, tmp_path):
    target = tmp_path / "a.png"
    small_heads.write_analysis(other, [small_heads.view(0, ["[CLS]", "a", "dog", "[SEP]"])])
    for kind in ("heatmap", "pca"):
        result = headwise("figure", kind, run, other, "-o", target)
        assert_one_sentence(result, "different tokens", str(run), str(other), "--example")
    small_heads.write_analysis(other, [small_heads.view(0)], heads=2)
    result = headwise("figure", "pca", run, other, "-o", target)
    assert_one_sentence(result, "2 layers of 4 heads", "2 of 2", "separate figures")
    small_heads.write_analysis(other, [])
    assert_one_sentence(headwise("figure", "pca", other, "-o", target), "keeps no example", "analyse it again")

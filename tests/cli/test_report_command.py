"""`headwise analyze` and `headwise report`: from a run to a page, and what is refused on the way."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from tiny_runs import assert_done, assert_one_sentence, json_of

import headwise as hw
from headwise.errors import InputError
from headwise.experiments.analysis.analysis_files import read_analysis
from headwise.heads import principal_components as torch_components
from headwise.reports import report_runs as runs
from headwise.reports.report_page import build_page
from headwise.reports.report_views import changes_of, principal_components


def payload_of(page):
    text = re.search(r'<script type="application/json" id="payload">(.*?)</script>', page, re.S).group(1)
    return json.loads(text)


@pytest.fixture
def report(headwise, two_runs, tmp_path):
    """Write the page of both runs; returns its payload."""

    def write(*words):
        path = tmp_path / "report.html"
        both = (two_runs / "guided", "--baseline", two_runs / "plain")
        answer = json_of(headwise("report", *both, "-o", path, "--json", "--force", *words))
        assert answer["bytes"] == path.stat().st_size
        return payload_of(path.read_text(encoding="utf-8"))

    return write


def test_analyze_prints_the_means_and_names_its_files(headwise, two_runs, tmp_path):
    run = shutil.copytree(two_runs / "plain", tmp_path / "run")
    out, _ = assert_done(headwise("analyze", run, "--limit", 6, "--keep", 2, "--pick", 3, "--overwrite", "--json"))
    found = json.loads(out)["tasks"]["pairs"]
    assert found["examples"] == 6
    analysis = read_analysis(run)
    assert [view.place for view in analysis.examples] == [0, 3, 5]
    grid = analysis.content["statistics"]["entropy"]["mean"]
    values = [value for row in grid for value in row]
    assert found["means"]["entropy"] == pytest.approx(sum(values) / len(values))
    rows = (run / "analysis" / "analysis.csv").read_text().splitlines()
    assert len(rows) == 1 + len(values)


def test_an_analysis_is_replaced_only_with_overwrite(headwise, two_runs, tmp_path, monkeypatch):
    run = shutil.copytree(two_runs / "plain", tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (run / "analysis").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("headwise.experiments.apply.load_tasks", None)  # refused before the model is loaded
        assert_one_sentence(headwise("analyze", run, "--limit", 2), "analysis.json exists already", "--overwrite")
    with pytest.raises(InputError, match="analysis.json exists already: pass overwrite=True"):
        hw.analyze(run, limit=2)
    assert {path.name: path.read_bytes() for path in (run / "analysis").iterdir()} == before
    assert hw.analyze(run, limit=3, overwrite=True).content["examples"] == 3


def test_a_page_shows_how_far_both_models_follow_a_pattern(headwise, two_runs, tmp_path):
    folders = {}
    for name, pattern in (("plain", "prev"), ("guided", "prev"), ("other", "next")):
        folders[name] = shutil.copytree(two_runs / ("plain" if name == "other" else name), tmp_path / name)
        words = ("analyze", folders[name], "--limit", 4, "--keep", 2, "--overwrite")
        assert headwise(*words, "--pattern", pattern)[0] == 0
    heads = build_page(runs.gather_runs(folders["guided"], folders["plain"])).payload["views"]["heads"]
    statistic = next(each for each in heads["statistics"] if each["id"] == "match")
    assert statistic["name"] == "Match with prev"
    for model, name in (("m0", "plain"), ("m1", "guided")):
        grid = read_analysis(folders[name]).content["statistics"]["match"]
        assert heads["values"][model]["match"]["mean"] == grid["mean"]
    heads = build_page(runs.gather_runs(folders["guided"], folders["other"])).payload["views"]["heads"]
    assert "match" not in heads["values"]["m0"]  # held against another pattern: there is nothing to compare
    assert "match" in heads["values"]["m1"]
    for baseline, told in (("plain", True), ("other", False)):
        views = build_page(runs.gather_runs(folders["guided"], folders[baseline])).payload["views"]
        assert any(line.startswith("Match with prev, mean") for line in views["summary"]["changed"]) is told
        assert views["examples"]["list"][0]["target"]["name"] == "prev"


def test_the_page_holds_what_the_analyses_found(report, two_runs):
    payload = report()
    assert [model["role"] for model in payload["models"]] == ["baseline", "run"]
    assert [model["name"] for model in payload["models"]] == ["plain", "guided"]
    views = payload["views"]
    assert set(views) == {"summary", "caveats", "curves", "heads", "examples", "diversity", "flips"}
    before, after = (read_analysis(two_runs / name) for name in ("plain", "guided"))
    assert views["heads"]["values"]["m1"]["sink"]["mean"] == after.content["statistics"]["sink"]["mean"]
    gained = sum(
        was != now == gold
        for was, now, gold in zip(
            before.content["answers"]["predictions"],
            after.content["answers"]["predictions"],
            before.content["answers"]["gold"],
            strict=True,
        )
    )
    assert views["flips"]["gained"] == gained
    steps = views["diversity"]["m1"]["steps"]
    assert steps[0] == 0
    points = {model: views["diversity"][model]["points"] for model in ("m0", "m1")}
    assert len(points["m1"]) == len(steps)
    assert points["m0"][0] == points["m1"][0]  # common axes, and both begin with the same encoder
    assert points["m0"][-1] != points["m1"][-1]
    assert re.match(r"\d+ tests", dict(views["caveats"]["items"])["Tests"])
    assert views["caveats"]["caveat"].startswith("Attention is not by itself an explanation")
    assert "one training each (seed 1)" in dict(views["caveats"]["items"])["Seeds"]
    assert "guides" in dict(views["summary"]["facts"])["What differs"]
    scores = next(table for table in views["summary"]["tables"] if table["title"] == "Scores")
    assert scores["columns"] == ["split", "metric", "plain", "guided"]
    groups = {series["group"] for series in views["curves"]["series"]}
    assert {"loss", "validation", "guide:mdg"} <= groups


def test_changes_are_the_mean_distances_between_rows(two_runs):
    before, after = (read_analysis(two_runs / name).examples for name in ("plain", "guided"))
    found = changes_of(list(zip(before, after, strict=True)))
    first = found[0]
    values = []
    for one, other in zip(before, after, strict=True):
        a, b = one.head_map(first["layer"], first["head"]), other.head_map(first["layer"], first["head"])
        values.append(sum(abs(x - y) for row, twin in zip(a, b, strict=True) for x, y in zip(row, twin, strict=True)))
        values[-1] /= 2 * len(a)
    assert first["change"] == pytest.approx(sum(values) / len(values), abs=1e-4)
    assert [each["change"] for each in found] == sorted((each["change"] for each in found), reverse=True)
    assert all(each["change"] == 0 for each in changes_of(list(zip(before, before, strict=True))))


def test_whole_maps_of_an_example(report, headwise, two_runs, tmp_path):
    listed = report("--exact", 7)["views"]["examples"]["list"]
    forms = {example["title"]: example["maps"]["m0"]["form"] for example in listed}
    assert forms["test 7"] == "exact"
    assert set(forms.values()) == {"exact", "top"}
    words = ("report", two_runs / "plain", "-o", tmp_path / "r.html")
    assert_one_sentence(headwise(*words, "--exact", 5), "--exact 5", "again with --pick 5")


def test_one_run_alone_has_no_differences(headwise, two_runs, tmp_path):
    path = tmp_path / "one.html"
    out, _ = assert_done(headwise("report", two_runs / "plain", "-o", path))
    assert str(path) in out
    payload = payload_of(path.read_text(encoding="utf-8"))
    assert payload["views"]["heads"]["changes"] is None
    assert "flips" not in payload["views"]
    assert payload["views"]["summary"]["changed"] == []


def test_own_examples_are_looked_at_by_both_models(report, tmp_path):
    file = tmp_path / "<b onload=x>own & more.tsv"
    file.write_text("sentence1\tsentence2\n<script>alert(1)</script> cat\t</script> a dog\nthe cat\tit\n")
    payload = report("--examples", file)
    listed = payload["views"]["examples"]["list"]
    assert [example["texts"][0] for example in listed] == ["<script>alert(1)</script> cat", "the cat"]
    assert set(listed[0]["answers"]) == {"m0", "m1"}
    assert "<script>alert" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_reranker_and_token_scores_have_their_views(headwise, analysed_reranker, supervised_run, tmp_path):
    for run, view in ((analysed_reranker, "retrieval"), (supervised_run, "examples")):
        path = tmp_path / f"{view}.html"
        assert_done(headwise("report", run, "-o", path))
        payload = payload_of(path.read_text(encoding="utf-8"))
        assert payload["views"][view]
        if view == "examples":
            scores = payload["views"]["examples"]["list"][0]["ssa"]["m0"]["scores"]
            assert any(score is not None for score in scores)
        else:
            assert len(payload["views"]["retrieval"]["claims"]) == 5


def test_the_lines_of_analyze_open_every_task_of_a_joint_run(headwise, joint, tmp_path):
    run = shutil.copytree(joint, tmp_path / "run")
    out, _ = assert_done(headwise("analyze", run, "--keep", 1))
    lines = [line.removeprefix("open it: headwise ") for line in out.splitlines() if line.startswith("open it")]
    assert len(lines) == 3
    assert headwise(*lines[0].replace("report.html", str(tmp_path / "page.html")).split())[0] == 0
    assert_one_sentence(headwise("report", run, "-o", tmp_path / "s.html"), "give one, such as --task ")
    assert_one_sentence(headwise("analyze", run, "--task", "none"), "--task none", "single")


def test_runs_with_other_tokenizers_or_labels_are_refused(headwise, two_runs, tmp_path):
    other = shutil.copytree(two_runs / "plain", tmp_path / "other")
    words = ("report", two_runs / "guided", "--baseline", other, "-o", tmp_path / "r.html")
    path = other / "analysis" / "analysis.json"
    whole = path.read_text()
    for key, value, part in (
        ("tokenizer", "0" * 16, "different tokenizers"),
        ("labels", ["yes", "no"], "yes, no"),
        ("heads", 99, "compare runs of one encoder"),
    ):
        content = json.loads(whole)
        kept = {"kept": []} if key == "heads" else {}  # maps of other heads than the statistics would be damage
        path.write_text(json.dumps({**content, key: value, **kept}))
        assert_one_sentence(headwise(*words), part)
        path.write_text(whole)
    assert headwise(*words)[0] == 0


def test_bad_files_are_refused_before_any_work(headwise, two_runs, finished, tmp_path):
    run, page = two_runs / "plain", tmp_path / "r.html"
    empty = tmp_path / "empty.tsv"
    empty.write_text("sentence1\tsentence2\n")
    assert_one_sentence(headwise("report", run, "-o", page, "--examples", empty), "empty.tsv")
    assert_one_sentence(headwise("analyze", run, "--overwrite", "--examples", empty), "empty.tsv")
    assert_one_sentence(headwise("report", finished, "-o", page), "no saved arrays", "analyze the run first")
    assert not page.exists()
    page.write_text("mine")
    assert headwise("report", run, "-o", page, "--force")[0] == 0
    assert_one_sentence(headwise("report", run, "-o", tmp_path / "r.pdf"), "ends in .html")
    assert_one_sentence(headwise("report", run, "--baseline", run, "-o", tmp_path / "x.html"), "given twice")
    assert_one_sentence(headwise("report", run, "--results", tmp_path, "-o", tmp_path / "x.html"), "results of a sweep")
    assert_one_sentence(headwise("analyze", run, "--overwrite", "--pick", 1000), "--pick 1000")
    many = tmp_path / "many.tsv"
    many.write_text("sentence1\tsentence2\n" + "a\tb\n" * 201)
    assert_one_sentence(headwise("analyze", run, "--overwrite", "--examples", many), "201 examples", "at most 200")
    assert_one_sentence(headwise("analyze", run, "--overwrite", "--pick", 1, "--examples", many), "--pick")
    assert_one_sentence(headwise("analyze", run, "--overwrite", "--split", "none"), "none")
    assert_one_sentence(headwise("analyze", tmp_path), str(tmp_path))


def test_principal_components_are_those_of_heads():
    vectors = np.random.default_rng(1).normal(size=(12, 5)).astype(np.float32)
    points, shares = principal_components(vectors)
    expected, expected_shares = torch_components(torch.from_numpy(vectors))
    assert points == pytest.approx(expected.numpy(), abs=1e-9)
    assert shares == pytest.approx(expected_shares.numpy(), abs=1e-9)

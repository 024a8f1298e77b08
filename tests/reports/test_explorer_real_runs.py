"""Pages of runs that were really trained, opened in Chromium: all views, right numbers, hostile data."""

import json
import shutil
from pathlib import Path

import pytest
import small_results as made
from explorer_pages import Tab
from small_reports import analysed
from tiny_runs import small

from headwise.cli.explore_server import Explorer
from headwise.cli.loopback_server import serve
from headwise.experiments.analysis.analysis_files import read_analysis
from headwise.experiments.apply import load_run
from headwise.experiments.prepare import RunPaths
from headwise.reports.report_page import build_page
from headwise.reports.report_runs import gather_runs

pytest_plugins = ["explorer_browser"]

EVIL = "<img src=x onerror=window.owned=1>"
TITLE = "</title><script>window.owned=1</script>"


@pytest.fixture
def opened(browser, silent, tmp_path):
    """Open the page of some runs."""

    def open(runs, **changes):
        path = build_page(runs, **changes).save(tmp_path / "report.html", force=True)
        silent[:] = [Tab(browser, path.as_uri()).open()]
        return silent[0]

    return open


def test_every_view_of_two_runs_and_a_sweep_is_there_with_the_map_of_the_model(opened, two_runs, tmp_path):
    sizes = {"0.2": {"data__fraction": 0.2}, "0.5": {"data__fraction": 0.5}}
    compare = {"by": ["system"], "baseline": "plain", "within": ["size"]}
    results = made.sweep(tmp_path / "results", {"size": sizes, "system": made.SYSTEMS}, compare=compare)
    tab = opened(gather_runs(two_runs / "guided", two_runs / "plain"), results=results)
    wanted = "summary caveats curves heads detail means points diversity sizes results times flips"
    assert tab.menu == wanted.split()
    tab.open("#view=detail&layer=1&head=2&example=e1")
    view = read_analysis(two_runs / "plain").examples[1]
    expected = view.head_map(1, 2)
    heading, *rows = tab.csv("detail")
    assert len(rows) == len(view.tokens) ** 2
    found = [float(row[heading.index("plain")]) for row in rows]
    assert found == pytest.approx(expected.ravel().tolist(), abs=0.0005)


def test_a_reranker_and_token_scores_are_shown(opened, analysed_reranker, supervised_run):
    tab = opened(gather_runs(analysed_reranker))
    claims = read_analysis(analysed_reranker).content["claims"]
    assert claims[0]["text"][:20] in tab.text("#retrieval")
    assert tab.problems() == []
    assert tab.problems() == []
    assert opened(gather_runs(supervised_run)).one("#ssa h2").is_displayed()


def test_hostile_data_of_a_real_run_stay_text(opened, encoder, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "validation", "test"):
        lines = [f"{EVIL} cat {number}\ta </script> dog\t{EVIL if number % 2 else 'b'}" for number in range(12)]
        (data / f"{split}.tsv").write_text("\n".join(["sentence1\tsentence2\tlabel", *lines]) + "\n")
    folder = tmp_path / EVIL.replace("/", "")
    recipe = small(encoder, guides={}, training__epochs=1)
    run = analysed(folder, recipe, RunPaths(folder, data))
    tab = opened(gather_runs(run), title=TITLE)
    assert tab.run("return [typeof window.owned, document.images.length]") == ["undefined", 0]
    assert tab.browser.title == TITLE
    assert EVIL in tab.text("#summary")
    assert EVIL in tab.text("#detail")


def test_a_typed_pair_is_answered_by_both_models(browser, silent, two_runs):
    runs = gather_runs(two_runs / "guided", two_runs / "plain")
    explorer = Explorer(build_page(runs), {run.id: load_run(run.folder) for run in runs})
    with serve(explorer) as address:
        tab = Tab(browser, address).open()
        silent.append(tab)
        boxes = tab.all("form textarea")
        assert len(boxes) == 2
        for box, text in zip(boxes, ("the cat surely sees a dog", "a dog never likes it"), strict=True):
            box.send_keys(text)
        before = len(tab.all("#example option"))
        tab.click("form button[type=submit]")
        tab.wait(lambda: len(tab.all("#example option")) == before + 1, "no answer came", 30)
        tab.settle()
        assert "surely" in tab.text("#detail")


def test_pruning_curves_and_dissociation_join_the_page(opened, headwise, joint, tmp_path):
    run = Path(shutil.copytree(joint, tmp_path / "run"))
    assert headwise("analyze", run, "--task", "signs", "--keep", 2, "--limit", 4)[0] == 0
    words = ("--percent", 25, "--random", 2, "--examples", 12)
    assert headwise("heads", "prune-curve", run, *words)[0] == 0
    assert headwise("heads", "dissociation", run)[0] == 0
    assert headwise("heads", "similarity", run, "--examples", 12)[0] == 0
    tab = opened(gather_runs(run, task="signs"))
    assert tab.one("#pruning h2").is_displayed()
    assert len(tab.all("#pruning .cell.off")) == 0
    tab.choose("#pruning-point-0", "1")
    assert len(tab.all("#pruning .cell.off")) == len(tab.all("#pruning .cell")) / 4
    assert tab.one("#dissociation h2").is_displayed()
    assert tab.one("#overlap h2").is_displayed()
    written = json.loads((run / "heads" / "similarity.json").read_text())
    for number, values in enumerate([*written["importance"]["overlap"].values(), written["gradients"]["total"]]):
        head, *rows = tab.table("overlap", number)
        assert head == ["", *written["tasks"]]
        for row, wanted in zip(rows, values, strict=True):
            assert [float(value) for value in row[1:]] == pytest.approx(wanted, abs=6e-4)

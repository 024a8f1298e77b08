"""Every example runs, and does what it says."""

from __future__ import annotations

import ast
import importlib
import runpy
from pathlib import Path

import pytest

from headwise.guides import GUIDES

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_own_guide_lowers_its_own_value():
    try:
        values = runpy.run_path(str(EXAMPLES / "own_guide.py"))["main"]()
    finally:
        GUIDES.remove("no-sink")
    assert values[-1] < 0.9 * values[0]


def numbered():
    return sorted(EXAMPLES.glob("0?_*.py"))


def run_example(start, **arguments):
    (path,) = EXAMPLES.glob(f"{start}_*.py")
    return runpy.run_path(str(path))["main"](**arguments)


def test_examples_are_short_and_the_start_page_links_to_each():
    page = (EXAMPLES.parent / "docs" / "index.md").read_text(encoding="utf-8")
    assert [path.name[:2] for path in numbered()] == ["01", "02", "03", "04", "05", "06"]
    for path in (*numbered(), *EXAMPLES.glob("*.ipynb")):
        assert path.name in page
    for path in numbered():
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60


def test_seen_masked_and_pruned_heads(tmp_path, capsys):
    strongest = run_example("01")
    assert sorted(strongest) == list(range(6))
    assert all(len(words) == 3 for words in strongest.values())
    change, left, importance = run_example("02")
    assert change > 0 == left
    assert importance.shape == (6, 12)
    before, after, difference = run_example("05", folder=tmp_path)
    assert after < before
    assert difference < 1e-6
    assert "map of head 0 in layer 5" in capsys.readouterr().out


@pytest.mark.slow
def test_guided_training_moves_attention(capsys):
    similarity = run_example("03")
    assert similarity[-1] < similarity[0]
    before, after = run_example("04")
    assert after > 2 * before
    assert "step 8: task loss" in capsys.readouterr().out


@pytest.mark.slow
def test_three_arms_are_compared():
    result = run_example("06")
    assert {row.system for table in result.tables for row in table.rows} == {
        "plain",
        "rationale",
        "rationale (shuffled)",
    }
    (verdict,) = result.verdicts
    assert verdict.system == "rationale"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["see_and_change_attention", "guide_by_marked_words"])
def test_a_notebook_for_colab_runs_and_installs_nothing_here(name, monkeypatch, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    install = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert 'find_spec("headwise") is None' in install.source
    assert '%pip install -q "headwise[demo]"' in install.source
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    assert install.outputs == []
    shown = [str(output.get("text", "")) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("after" in text for text in shown)


@pytest.mark.slow
def test_the_notebook_runs_and_shows_tables_and_the_page(monkeypatch, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")  # else jupyter warns that it will be so one day
    notebook = nbformat.read(EXAMPLES / "see_heads.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)  # it is kept without what it once showed
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = [
        output["data"]["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
    assert [html.split(maxsplit=1)[0].split(">")[0] for html in shown] == ["<table", "<table", "<table", "<iframe"]
    assert "Heads of demo, over 30 examples of test" in shown[0]
    assert "accuracy on test" in shown[2]
    assert "srcdoc" in shown[3]


def test_docs_show_the_example_as_it_is():
    page = (EXAMPLES.parent / "docs" / "own-guide.md").read_text()
    source = (EXAMPLES / "own_guide.py").read_text()
    for line in ('@hw.guides.register_guide("no-sink")', "class NoSink(hw.Guide):", "return share.mean()"):
        assert line in page
        assert line in source


def test_benchmarks_studies_and_documents_import_names_that_exist():
    root = EXAMPLES.parent
    for path in (path for folder in ("benchmarks", "studies", "docs") for path in sorted((root / folder).glob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "headwise":
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name), f"{path.name}: {node.module}.{name.name}"

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

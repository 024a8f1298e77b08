"""Imports point one way, and every outside library has its own door.

The tables below are the rule; `violations` reads the source with `ast`, so that imports inside functions
and under `if TYPE_CHECKING:` count as well.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "headwise"

# A folder may import itself and lower ranks only. Single files beside the folders (errors, registry) are rank 0.
RANKS = {
    "cache": 0.5,  # single files built on disk and limits
    "documents": 0.5,
    "attention": 1,
    "patterns": 1,
    "metrics": 1,
    "data": 1.5,  # its checks score baselines
    "guides": 2,
    "heads": 2,
    "ssa": 2.5,  # its loss is balanced as those of guides are
    "training": 3,
    "retrieval": 4,
    "experiments": 5,
    "reports": 6,
    "cli": 7,
}
# The front door re-exports from everywhere, and the two ways into the command may use all of the library.
FREE = {"__init__", "__main__", "cli"}
# Outside library -> the only folders that may import it.
DOORS = {
    "transformers": {"attention", "training", "data"},
    "datasets": {"data"},
    "huggingface_hub": {"data", "experiments"},
    "openpyxl": {"data"},
    "defusedxml": {"data"},
    "spacy": {"patterns"},
    "nltk": {"patterns"},
    "conllu": {"patterns"},
    "joblib": {"patterns"},
    "bm25s": {"retrieval"},
    "Stemmer": {"retrieval"},
    "ir_measures": {"metrics"},
    "ir_datasets": {"retrieval"},
    "pyterrier": {"retrieval"},
    "sentence_transformers": set(),
    "scipy": {"metrics"},
    "sklearn": {"metrics"},
    "statsmodels": {"metrics"},
    "yaml": {"data", "experiments"},
    "optuna": {"experiments"},
    "sqlalchemy": {"experiments"},
    "ray": {"experiments"},
    "usearch": {"retrieval"},
    "onnx": {"training"},
    "onnxscript": {"training"},
    "onnxruntime": {"training"},
    "matplotlib": {"reports"},
    "typer": {"cli"},
    "rich": {"cli"},
    "pickle": set(),
}
# Folders without a reason to change of their own, which therefore change for every reason.
NAMELESS = {"utils", "core", "common"}


def imported(node: ast.AST, package: list[str]) -> list[str]:
    """The dotted names that one statement or call imports, relative ones resolved against `package`."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = package[: len(package) - level + 1] if level else []
            start = ".".join([*base, *([module] if module else [])])
            return [f"{start}.{alias.name}" for alias in names]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def wrong_arrow(source: str, name: str, package: Path) -> str | None:
    """Why the part `source` may not import the dotted `name`, or None when it may."""
    top, _, rest = name.partition(".")
    if top != package.name:
        doors = DOORS.get(top, {source})
        return None if source in doors else f"{top} may be imported only in {sorted(doors) or 'no folder'}"
    target = rest.partition(".")[0]
    if source in FREE or target in {source, "errors", "__version__"}:
        return None
    if target not in RANKS and not (package / f"{target}.py").is_file():
        return "the front door may be imported only from outside and in cli"
    if RANKS.get(target, 0) >= RANKS.get(source, 0):
        return f"{source} (rank {RANKS.get(source, 0)}) may not know {target} (rank {RANKS.get(target, 0)})"
    return None


def problems(node: ast.AST, part: str, path: Path, package: Path) -> Iterator[str]:
    folders = [package.name, *path.relative_to(package).parent.parts]
    for name in imported(node, folders):
        if reason := wrong_arrow(part, name, package):
            yield f"imports {name}: {reason}"
    match node:
        case ast.Assert():
            yield "has an assert: raise an error that says the way out"
        case ast.Call(func=ast.Name(id="print")) if part != "cli":
            yield "calls print: only cli speaks"


def violations(package: Path) -> list[str]:
    """One sentence for every broken rule below the folder `package`."""
    found = []
    for folder in (path for path in sorted(package.rglob("*")) if path.is_dir()):
        if folder.name in NAMELESS:
            found.append(f"{folder.relative_to(package)}: a folder may not be named {folder.name}")
        elif folder.parent == package and folder.name not in RANKS and any(folder.glob("*.py")):
            found.append(f"{folder.name}: this folder has no rank")
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        part = place.with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found += [f"{place}:{node.lineno} {problem}" for problem in problems(node, part, path, package)]
    return found


def test_the_package_keeps_the_rules():
    assert any(PACKAGE.rglob("*.py"))
    assert violations(PACKAGE) == []


@pytest.fixture
def package(tmp_path):
    root = tmp_path / "headwise"
    for place in ["__init__", "errors", "registry", *(f"{folder}/__init__" for folder in RANKS)]:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{place}.py").touch()
    return root


ALLOWED = [
    ("__init__.py", "def load():\n    from headwise.cli import main\n    from headwise.guides import MDG"),
    ("__main__.py", "from headwise.cli.main import run"),
    ("registry.py", "from headwise.errors import HeadwiseError"),
    ("attention/a.py", "import torch, transformers\nfrom . import b\nfrom ..errors import X"),
    ("attention/a.py", "from headwise import __version__"),
    ("guides/a.py", "from headwise.attention import capture\nfrom headwise.guides.base import Guide"),
    ("guides/a.py", "from .. import registry\nfrom ..attention.seam import Record"),
    ("training/a.py", "from transformers import Trainer\nfrom headwise.data import nli"),
    ("cli/a.py", "import typer\nimport headwise\nfrom headwise import MDG\nprint('result')"),
]


def test_an_allowed_import_passes(package):
    for place, source in ALLOWED:
        (package / place).write_text(source)
        assert violations(package) == [], source


BROKEN = [
    ("attention/a.py", "from headwise.guides import MDG", "attention (rank 1) may not know guides (rank 2)"),
    ("attention/a.py", "import headwise.data.nli", "attention (rank 1) may not know data (rank 1.5)"),
    ("attention/deep/a.py", "from ...guides.base import Guide", "may not know guides"),
    ("guides/a.py", "def late():\n    from headwise import heads", "guides (rank 2) may not know heads"),
    ("guides/a.py", "if TYPE_CHECKING:\n    from ..training import trainer", "may not know training"),
    ("guides/a.py", "import importlib\nimportlib.import_module('headwise.cli')", "may not know cli"),
    ("errors.py", "from headwise import registry", "errors (rank 0) may not know registry"),
    ("registry.py", "from .attention import capture", "registry (rank 0) may not know attention"),
    ("guides/a.py", "from headwise import MDG", "the front door"),
    ("guides/a.py", "import headwise", "the front door"),
    ("guides/a.py", "from transformers import BertModel", "transformers may be imported only in"),
    ("attention/a.py", "import typer", "typer may be imported only in ['cli']"),
    ("cli/a.py", "import matplotlib.pyplot as plt", "matplotlib may be imported only in ['reports']"),
    ("cli/a.py", "import yaml", "yaml may be imported only in"),
    ("heads/a.py", "from sklearn.decomposition import PCA", "sklearn may be imported only in ['metrics']"),
    ("cli/a.py", "import pickle", "pickle may be imported only in no folder"),
    ("attention/a.py", "print('hello')", "calls print"),
    ("cli/a.py", "assert True", "has an assert"),
    ("attention/utils/a.py", "", "may not be named utils"),
    ("extras/a.py", "", "extras: this folder has no rank"),
]


@pytest.mark.parametrize(("place", "source", "expected"), BROKEN)
def test_a_broken_rule_is_found(package, place, source, expected):
    (package / place).parent.mkdir(exist_ok=True)
    (package / place).write_text(source)
    (found,) = violations(package)
    assert expected in found

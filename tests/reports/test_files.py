"""Figures are written whole, the same each time, and leave matplotlib's settings and the folder as they were."""

import subprocess
import sys

import matplotlib
import pytest

from headwise.errors import InputError
from headwise.reports import heatmap, projection

TABLE = {"plain": [[0.1, 0.9], [0.5, 0.5]]}


def test_the_users_settings_neither_change_nor_matter(tmp_path):
    expected = [path.read_bytes() for path in heatmap(TABLE, ["a", "b"], tmp_path / "first")]
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        paths = heatmap(TABLE, ["a", "b"], tmp_path / "second")
        assert dict(matplotlib.rcParams) == before
    assert [path.read_bytes() for path in paths] == expected


def test_pyplot_is_never_imported(tmp_path):
    code = (
        "import sys; from pathlib import Path; from headwise.reports import heatmap\n"
        f"heatmap({TABLE!r}, ['a', 'b'], Path({str(tmp_path / 'figure')!r}))\n"
        "sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda path: heatmap(TABLE, ["a", "b"], path), id="heatmap"),
        pytest.param(lambda path: projection(TABLE, [0, 1], path), id="projection"),
    ],
)
def test_without_matplotlib_the_way_out_is_named(draw, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'headwise\[reports\]'"):
        draw(tmp_path / "figure")
    assert list(tmp_path.iterdir()) == []

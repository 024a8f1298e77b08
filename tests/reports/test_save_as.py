"""One file, of the kind that its name ends in, and the same bytes for the same figure."""

from pathlib import Path

import pytest

from headwise.errors import DiskError, InputError
from headwise.reports import figures as files
from headwise.reports.heatmap import build_heatmap

TABLE = {"plain": [[0.25, 0.75], [0.5, 0.5]]}
STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("ending", [".png", ".svg", ".PDF"])
def test_equal_figures_give_equal_bytes(ending, tmp_path):
    paths = [files.save_as(build_heatmap(TABLE, ["a", "b"]), tmp_path / f"{name}{ending}") for name in "ab"]
    first, second = (path.read_bytes() for path in paths)
    assert first.startswith(STARTS[ending.lower()])
    assert first == second
    # Both may fall into one second, so that equal bytes say nothing of dates.
    assert not any(date in first for date in (b"CreationDate", b"ModDate", b"<dc:date>", b"tIME"))
    assert len(list(tmp_path.iterdir())) == 2


def test_another_ending_is_refused(tmp_path):
    for name in ("figure.jpg", "figure"):
        with pytest.raises(InputError, match=r"expected .png, .svg, .pdf"):
            files.save_as(build_heatmap(TABLE, ["a", "b"]), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_the_old_file(tmp_path, monkeypatch):
    def crash(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "figure.pdf").write_text("old")
    monkeypatch.setattr(Path, "replace", crash)  # by which new content takes its place
    with pytest.raises(DiskError, match="could not be written: No space left"):
        files.save_as(build_heatmap(TABLE, ["a", "b"]), tmp_path / "figure.pdf")
    assert [path.name for path in tmp_path.iterdir()] == ["figure.pdf"]
    assert (tmp_path / "figure.pdf").read_text() == "old"

"""What we write for spreadsheet programs and model pages holds text of users as text."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
import yaml
from tiny_runs import rows, write_data, write_table

from headwise.experiments.model_card import model_card
from headwise.text_formats import code, csv_text, escape_cell, escape_markdown, paragraph, table_text

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1+1", "-", "'=1", "''@x"]
PLAIN = ["", "a", "a=b", "'quoted'", "it's", " =1", "1", "-1", "+1", "-0.5", "1e-5", "-1.5E+3", ".5", "x-1"]


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_text_that_begins_like_a_formula_gets_a_mark_and_the_documented_way_back(delimiter):
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
    (way_back,) = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    for text in FORMULAS:
        written = csv_text([{"system": text, text: 1}], delimiter=delimiter)
        heading, row = csv.reader(io.StringIO(written, newline=""), delimiter=delimiter)
        assert row == [f"'{text}", "1"]
        assert heading == ["system", f"'{text}"]
    assert [escape_cell(text) for text in PLAIN] == PLAIN
    for text in [*FORMULAS, *PLAIN, "'-1", "'\uff20x"]:
        names = {"re": re, "cell": escape_cell(text)}
        exec(way_back, names)
        assert names["text"] == text


def test_a_carriage_return_inside_a_cell_begins_no_row_and_numbers_stay_numbers():
    text, numbers = "a\r=1+1", [-0.123, -5, 1e-300, float("-inf"), 0.1 + 0.2]
    assert list(csv.reader(io.StringIO(table_text([[text, "b"]]), newline=""))) == [[text, "b"]]
    (row,) = csv.reader(io.StringIO(table_text([numbers])))
    assert [float(cell) for cell in row] == numbers
    assert table_text([["a", "b"], [None, -1]]) == "a,b\n,-1\n"


HOSTILE = "---\nlicense: mit\n---\n<script>alert(1)</script> [x](javascript:alert(1)) ![x](y) `c` &lt;b&gt; | a | # t"


def unescaped(text):
    """Signs that begin something in Markdown, without a backslash before them."""
    inside = text.replace("\\\\", "")
    return [sign for place, sign in enumerate(inside) if sign in "`*_|<>[]#~" and inside[place - 1 : place] != "\\"]


def test_a_hostile_label_and_description_from_training_to_the_files(headwise, write_recipe, tmp_path):
    data = write_data(tmp_path / "data")
    names = {"agree": "=1+1", "deny": "<img src=x onerror=alert(1)>", "open": "-a"}
    for path in data.glob("*.tsv"):
        text = path.read_text()
        for old, new in names.items():
            text = text.replace(f"\t{old}\n", f"\t{new}\n")
        path.write_text(text)
    source, run = write_table(tmp_path / "in.tsv", rows(6, 1)), tmp_path / "run"
    for words in (
        ("train", write_recipe(description=HOSTILE), "--data", data, "--output", run),
        ("predict", run, "--input", source, "--output", tmp_path / "out.csv"),
    ):
        status, _, err = headwise(*words)
        assert status == 0, err
    with (tmp_path / "out.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert {row["prediction"] for row in found} <= {"'=1+1", "<img src=x onerror=alert(1)>", "'-a"}
    front, body = (run / "README.md").read_text().removeprefix("---\n").split("\n---\n", 1)
    front = yaml.safe_load(front)
    (index,) = front.pop("model-index")
    assert front == {"library_name": "transformers", "pipeline_tag": "text-classification", "tags": ["headwise"]}
    assert (index["name"], {each["dataset"]["split"] for each in index["results"]}) == ("small", {"validation", "test"})
    (line,) = [line for line in body.splitlines() if "alert" in line]
    assert line.startswith(r"\---")
    assert unescaped(line) == []
    assert r"\&lt;b\&gt;" in line


def test_every_text_in_the_cards_is_escaped(finished, with_iat):
    bad = "a\n\n<b>x</b>`|_y_"
    single, joint = (json.loads((run / "headwise.json").read_text()) for run in (finished, with_iat))
    single["recipe"] |= {"description": bad, "model": bad}
    single["knowledge"] = {bad: {"name": bad, "options": {bad: bad, "path": bad}}}
    results = single["results"]
    results |= {"primary": bad, "metrics": {bad: {bad: 0.5}}, "targets": {bad: 4}}
    results["examples"][bad] = 3
    results["guides"] = {bad: next(iter(results["guides"].values()))}
    joint["recipe"] |= {"description": bad, "model": bad, "name": bad}
    results = joint["results"]
    name, task = next(iter(results["tasks"].items()))
    results["tasks"] = {bad: task}
    for scores in results["last"].values():
        scores.update({key.replace(f"{name}/", f"{bad}/"): value for key, value in scores.items()})
    for card in (model_card(single), model_card(joint)):
        assert "\n<b>" not in card
        assert card.count("x\\</b\\>") >= 3
        _, front, body = card.split("---\n", 2)  # of the metadata, YAML takes care
        assert yaml.safe_load(front)["library_name"] == "transformers"
        for line in body.splitlines():
            outside = line.replace("``a <b>x</b>`|_y_``", "")  # as code
            if "headwise.load" not in line:
                assert "<b>" not in outside.replace("\\<b\\>", "")


def test_markdown_shows_text_as_it_was_written():
    assert escape_markdown("a & b, R&D; &amp; &#60;") == r"a & b, R\&D; \&amp; \&\#60;"
    starts = {"- a": r"\- a", "=== a": r"\=== a", "12. a": r"12\. a", "2022 was a year": "2022 was a year"}
    assert {text: paragraph(text) for text in starts} == starts
    spans = {"a": "`a`", "a`b``c": "```a`b``c```", "`a": "`` `a ``", "two\nlines": "`two lines`"}
    assert {text: code(text) for text in spans} == spans

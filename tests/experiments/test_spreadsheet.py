"""What we write for spreadsheet programs and model pages holds text of users as text."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
import yaml
from tiny_runs import rows, write_data, write_table

from headwise.experiments.run import model_card
from headwise.experiments.text_formats import code, csv_text, escape_cell, escape_markdown, paragraph, table_text

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1+1", "-", "'=1", "''@x"]
PLAIN = ["", "a", "a=b", "'quoted'", "it's", " =1", "1", "-1", "+1", "-0.5", "1e-5", "-1.5E+3", ".5", "x-1"]


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_text_that_begins_like_a_formula_gets_a_mark(delimiter):
    for text in FORMULAS:
        written = csv_text([{"system": text, text: 1}], delimiter=delimiter)
        heading, row = csv.reader(io.StringIO(written, newline=""), delimiter=delimiter)
        assert row == [f"'{text}", "1"]
        assert heading == ["system", f"'{text}"]
        assert row[0][1:] == text  # whoever takes the mark away has the text
    assert [escape_cell(text) for text in PLAIN] == PLAIN


def test_a_carriage_return_inside_a_cell_begins_no_row():
    text = "a\r=1+1"
    assert list(csv.reader(io.StringIO(table_text([[text, "b"]]), newline=""))) == [[text, "b"]]
    assert table_text([["a", "b"], ["c", None]]) == "a,b\nc,\n"


def test_numbers_stay_numbers():
    numbers = [-0.123, -5, 1e-300, float("-inf"), 0.1 + 0.2]
    (row,) = csv.reader(io.StringIO(table_text([numbers])))
    assert [float(cell) for cell in row] == numbers
    assert table_text([[None, -1]]) == ",-1\n"


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
    recipe = write_recipe(description=HOSTILE)
    code_, _, err = headwise("train", recipe, "--data", data, "--output", tmp_path / "run")
    assert code_ == 0, err
    source = write_table(tmp_path / "in.tsv", rows(6, 1))
    code_, _, err = headwise("predict", tmp_path / "run", "--input", source, "--output", tmp_path / "out.csv")
    assert code_ == 0, err
    with (tmp_path / "out.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert {row["prediction"] for row in found} <= {"'=1+1", "<img src=x onerror=alert(1)>", "'-a"}
    card = (tmp_path / "run" / "README.md").read_text()
    front, body = card.removeprefix("---\n").split("\n---\n", 1)
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["headwise"],
    }
    (line,) = [line for line in body.splitlines() if "alert" in line]
    assert line.startswith(r"\---")
    assert unescaped(line) == []
    assert r"\&lt;b\&gt;" in line


def test_every_text_in_the_cards_is_escaped(finished, with_iat):
    bad = "a\n\n<b>x</b>`|_y_"
    single = json.loads((finished / "headwise.json").read_text())
    recipe = single["recipe"]
    recipe |= {"description": bad, "model": bad}
    single["knowledge"] = {bad: {"name": bad, "options": {bad: bad, "path": bad}}}
    single["results"]["primary"] = bad
    single["results"]["metrics"] = {bad: {bad: 0.5}}
    single["results"]["examples"][bad] = 3
    single["results"]["guides"] = {bad: next(iter(single["results"]["guides"].values()))}
    single["results"]["targets"] = {bad: 4}
    joint = json.loads((with_iat / "headwise.json").read_text())
    joint["recipe"] |= {"description": bad, "model": bad, "name": bad}
    happened = joint["results"]
    name, task = next(iter(happened["tasks"].items()))
    happened["tasks"] = {bad: task}
    for scores in happened["last"].values():
        scores.update({key.replace(f"{name}/", f"{bad}/"): value for key, value in scores.items()})
    for card in (model_card(single), model_card(joint)):
        assert "\n<b>" not in card
        assert card.count("x\\</b\\>") >= 3
        for line in card.splitlines():
            outside = line.replace("``a <b>x</b>`|_y_``", "")  # as code
            if "headwise.load" not in line:
                assert "<b>" not in outside.replace("\\<b\\>", "")


def test_markdown_shows_text_as_it_was_written():
    assert escape_markdown("a & b, R&D; &amp; &#60;") == r"a & b, R\&D; \&amp; \&\#60;"
    assert paragraph("- a") == r"\- a"
    assert paragraph("=== a") == r"\=== a"
    assert paragraph("12. a") == r"12\. a"
    assert paragraph("2022 was a year") == "2022 was a year"
    assert code("a") == "`a`"
    assert code("a`b``c") == "```a`b``c```"
    assert code("`a") == "`` `a ``"
    assert code("two\nlines") == "`two lines`"


def test_the_documented_way_back():
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    for original in [*FORMULAS, *PLAIN, "'-1", "'\uff20x"]:
        names = {"re": re, "cell": escape_cell(original)}
        exec(line, names)
        assert names["text"] == original

"""Excel files: cells as a spreadsheet shows them, sheets by name, and files that somebody else may have built."""

import datetime
import sys
import zipfile

import pytest

from headwise.data import build_task
from headwise.data.readers import detect_table
from headwise.errors import InputError

openpyxl = pytest.importorskip("openpyxl")
HEADER = ("sentence", "label")


def workbook(path, **sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def read(path, **options):
    return build_task("sentences", {"files": {"train": str(path)}, **options}).read("train", None)


def refusal(path, **options):
    with pytest.raises(InputError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def rewritten(path, name, change):
    """The file with one part changed."""
    with zipfile.ZipFile(path) as archive:
        parts = {each: archive.read(each) for each in archive.namelist()}
    parts[name] = change(parts[name])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in parts.items():
            archive.writestr(each, data)
    return path


def test_cells_are_read_as_a_spreadsheet_shows_them(tmp_path):
    day = datetime.datetime(2026, 11, 20)
    rows = [HEADER, ("a", 1), (), ("b\nc", 0.0), (3.5, True), (day, "1"), ("x" * 10, 0, None, "a note to the right")]
    path = workbook(tmp_path / "own.xlsx", data=rows)
    split = read(path, labels=["0", "1", "true"])
    assert split.texts == (("a",), ("b\nc",), ("3.5",), ("2026-11-20",), ("x" * 10,))
    assert split.labels == (1, 0, 2, 1, 0)
    found = detect_table(path)
    assert (found.columns, found.header, str(found)) == (HEADER, True, "own.xlsx: xlsx, sheet 'data'")


def test_of_several_sheets_one_is_named(tmp_path):
    path = workbook(tmp_path / "own.xlsx", notes=[("none",)], data=[HEADER, ("a", "x"), ("b", "y")])
    assert "has 2 sheets: 'notes', 'data'; expected one: choose with sheet=NAME (task.sheet" in refusal(path)
    assert read(path, sheet="data").labels == (0, 1)
    assert "no sheet 'dat': did you mean 'data'? known: data, notes" in refusal(path, sheet="dat")
    plain = tmp_path / "plain.csv"
    plain.write_text("sentence,label\na,x\nb,y\n")
    assert "plain.csv: sheet='data' is for spreadsheets, and this is none: leave it out." in refusal(
        plain, sheet="data"
    )


def test_rows_are_named_in_messages_as_in_excel(tmp_path):
    path = workbook(tmp_path / "own.xlsx", data=[(), HEADER, ("a", "x"), (), ("b", None)])
    assert "(sheet 'data') row 5: expected a label" in refusal(path)
    path = workbook(tmp_path / "errors.xlsx", data=[HEADER, ("a", "x"), ("#N/A", "y")])
    assert "(sheet 'data') row 3: the text in 'sentence' is empty" in refusal(path)
    path = workbook(tmp_path / "empty.xlsx", data=[])
    assert "is empty" in refusal(path)
    bare = workbook(tmp_path / "bare.xlsx", data=[("a good one", 1), ("a bad one", 0)])
    assert "the first row looks like an example" in refusal(bare)
    assert read(bare, columns=["sentence", "label"]).labels == (1, 0)


def test_without_openpyxl_the_extra_is_named(tmp_path, monkeypatch):
    path = workbook(tmp_path / "own.xlsx", data=[HEADER, ("a", "x"), ("b", "y")])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert "install headwise[excel], or save it as CSV" in refusal(path)


def test_files_that_are_no_whole_excel_files(tmp_path):
    path = tmp_path / "own.xlsx"
    path.write_text("sentence,label\n")
    assert "is not an Excel file" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("own.csv", "a")
    assert "is not a whole Excel file" in refusal(path)
    workbook(path, data=[HEADER, ("a", "x"), ("b", "y")])
    rewritten(path, "xl/worksheets/sheet1.xml", lambda data: data[:-40])
    assert "is not a whole Excel file" in refusal(path)


def test_a_file_that_unpacks_to_far_more_than_it_is(tmp_path):
    path = workbook(tmp_path / "own.xlsx", data=[HEADER, ("a", "x"), ("b", "y")])
    rewritten(path, "xl/worksheets/sheet1.xml", lambda data: data + b" " * 2**26)
    assert "unpacks to more than" in refusal(path)


def test_entities_and_made_up_sizes(tmp_path):
    entities = "".join(f'<!ENTITY e{number} "{f"&e{number - 1};" * 10}">' for number in range(1, 10))
    bomb = f'<!DOCTYPE worksheet [<!ENTITY e0 "lol">{entities}]>'.encode()
    path = workbook(tmp_path / "own.xlsx", data=[HEADER, ("a", "x"), ("b", "y")])
    sheet = "xl/worksheets/sheet1.xml"
    last = b"<row><c><v>&e9;</v></c></row></sheetData>"
    rewritten(path, sheet, lambda data: bomb + data.replace(b"</sheetData>", last))
    assert "defines entities of XML" in refusal(path)
    # A size of all that Excel can have, and a last row with nothing before it.
    path = workbook(tmp_path / "wide.xlsx", data=[HEADER, ("a", "x"), ("b", "y")])
    far = b'<row r="200000"><c r="XFD200000" t="str"><v>z</v></c></row></sheetData>'
    rewritten(path, sheet, lambda data: data.replace(b'"A1:B3"', b'"A1:XFD1048576"').replace(b"</sheetData>", far))
    assert len(read(path)) == 2

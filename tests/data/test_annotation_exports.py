"""Exports of annotation tools, in the shapes that the tools write: text, label and spans."""

import json

import pytest
from data.files import json_lines, write

from headwise.data import build_task
from headwise.data.checks import check_files
from headwise.errors import InputError


def read(folder, name, content, marks, *, split="train", task="sentences", **options):
    write(folder / name, content)
    built = build_task(task, {"files": {split: name}, "marks": marks, **options})
    return built, built.read(split, folder)


def pieces(split):
    return [
        [texts[number][start:end] for number, start, end in spans]
        for texts, spans in zip(split.texts, split.spans, strict=True)
    ]


# -- doccano -----------------------------------------------------------------------------------------------------------

TEXTS = ["a good film", "a bad film", "no marks"]


def doccano(*fields):
    return json_lines(*({"id": number, "text": TEXTS[number], **each} for number, each in enumerate(fields)))


def objects(*spans):
    return [{"id": 1, "label": name, "start_offset": start, "end_offset": end} for start, end, name in spans]


def test_doccano_spans_with_the_class_in_a_field_in_cats_or_in_the_names(tmp_path):
    expected = [["good"], ["bad"], []]
    meta = doccano(
        {"verdict": "x", "label": [[2, 6, "WHY"]], "Comments": []},
        {"verdict": "y", "label": [[2, 5, "WHY"]]},
        {"verdict": "x", "label": []},
    )
    task, split = read(tmp_path, "train.jsonl", meta, {"doccano": True}, label="verdict")
    assert (split.texts, pieces(split)) == (tuple((text,) for text in TEXTS), expected)
    assert [task.labels[each] for each in split.labels] == ["x", "y", "x"]
    cats = doccano(
        {"cats": ["x"], "entities": [[2, 6, "WHY"]]}, {"cats": ["y"], "entities": [[2, 5, "WHY"]]}, {"cats": ["x"]}
    )
    _, split = read(tmp_path, "train.jsonl", cats, {"doccano": True})
    assert (split.labels, pieces(split)) == ((0, 1, 0), expected)
    named = doccano(
        {"entities": objects((2, 6, "x")), "relations": []},
        {"entities": objects((2, 5, "y"))},
        {"entities": [], "relations": []},
    )
    _, split = read(tmp_path, "train.jsonl", named, {"doccano": True}, unlabelled={"rule": "drop"})
    assert (split.labels, pieces(split)) == ((0, 1), expected[:2])


def test_doccano_names_of_spans_that_count_and_rows_without_a_class(tmp_path):
    content = doccano(
        {"cats": ["x"], "label": [[0, 1, "NOISE"], [2, 6, "WHY"]]}, {"cats": ["y"], "label": [[2, 10, "NOISE"]]}
    )
    _, split = read(tmp_path, "train.jsonl", content, {"doccano": True, "names": "WHY"})
    assert pieces(split) == [["good"], []]
    for fields, message in (
        ({"cats": ["x", "y"], "label": [[2, 6, "WHY"]]}, r"line 1: expected one class in 'label', got \['x', 'y'\]"),
        ({"label": [[2, 6, "A"], [7, 11, "B"]]}, r"line 1: expected a label, got none"),
        ({"cats": ["x"], "label": [[2]]}, r"line 1: expected an example of doccano"),
        ({"cats": ["x"], "label": [[2, 60, "A"]]}, r"line 1: the mark \[2, 60\] is not inside its text, which has 11"),
    ):
        with pytest.raises(InputError, match=message):
            read(tmp_path, "train.jsonl", doccano(fields, {"cats": ["y"]}), {"doccano": True})


def test_other_files_of_such_a_task_need_no_export(tmp_path):
    content = doccano({"cats": ["x"], "label": [[2, 6, "WHY"]]}, {"cats": ["y"]})
    task, _ = read(tmp_path, "train.jsonl", content, {"doccano": True})
    for name, text in {"new.tsv": "text\tid\na b\t1\n", "other.tsv": "sentence\na b\n"}.items():
        assert task.read_file(write(tmp_path / name, text), labelled=False).texts == (("a b",),)


# -- Label Studio ------------------------------------------------------------------------------------------------------


def region(start, end, text, name="WHY", target="text"):
    value = {"start": start, "end": end, "text": text, "labels": [name]}
    return {"id": "r", "from_name": "label", "to_name": target, "type": "labels", "value": value}


def choice(name, control="sentiment"):
    return {"from_name": control, "to_name": "text", "type": "choices", "value": {"choices": [name]}}


def annotated(data, *results, **fields):
    return {"id": 1, "data": data, "annotations": [{"result": list(results), "was_cancelled": False, **fields}]}


def test_label_studio_regions_choices_and_which_annotation_counts(tmp_path):
    tasks = [
        annotated({"text": "a good film"}, region(2, 6, "good"), choice("x")),
        annotated({"text": "🎬🎬 so bad"}, choice("y"), region(8, 11, "bad")),  # a browser counts each emoji as two
        {
            "data": {"text": "was fine"},
            "annotations": [
                {"was_cancelled": True, "result": [choice("y")]},
                {"result": [choice("y"), region(0, 3, "was")]},
                {"ground_truth": True, "result": [choice("x"), region(4, 8, "fine"), region(0, 3, "was", "OTHER")]},
            ],
        },
        annotated({"text": "simple text"}, choice("y"), region(0, 6, "ple")),  # the offsets count, not the text
    ]
    for name, content in {"train.json": json.dumps(tasks, indent=1), "train.jsonl": json_lines(*tasks)}.items():
        task, split = read(tmp_path, name, content, {"label_studio": True, "names": "WHY"})
        assert task.labels == ("x", "y")
        assert (split.labels, pieces(split)) == ((0, 1, 0, 1), [["good"], ["bad"], ["fine"], ["simple"]])
    assert read(tmp_path, "train.json", content, {"label_studio": True}, label="sentiment")[1].labels == split.labels


def test_label_studio_pairs_and_what_is_refused(tmp_path):
    data = {"premise": "a man sleeps", "claim": "a man rests"}
    tasks = [
        annotated(data, choice("x"), region(6, 12, "sleeps", target="premise"), region(6, 11, "rests", target="claim")),
        annotated(data, choice("y")),
    ]
    options = {"task": "pairs", "texts": ["premise", "claim"]}
    _, split = read(tmp_path, "train.json", json.dumps(tasks), {"label_studio": True}, **options)
    assert pieces(split) == [["sleeps", "rests"], []]
    tasks[0] = annotated(data, choice("x"), region(0, 1, "a", target="other"))
    with pytest.raises(InputError, match=r"train.json task 1: a mark is in 'other', expected one of the texts"):
        read(tmp_path, "train.json", json.dumps(tasks), {"label_studio": True}, **options)
    for content, message in (
        ("[1]", r"task 1: expected a task of Label Studio"),
        (
            json.dumps([annotated({"text": "🎬 a"}, choice("x"), region(-3, 9, "b"))]),
            r"the mark \[-3, 9\] is not inside",
        ),
        ("[{}", r"expected a list of tasks, got invalid JSON"),
        (json.dumps([annotated({"text": "a"}, region("/p[1]", "/p[1]", "a"))]), r"annotate plain text"),
        (json.dumps([{"data": 5}]), r"task 1: expected a task of Label Studio"),
    ):
        with pytest.raises(InputError, match=message):
            read(tmp_path, "train.json", content, {"label_studio": True})


# -- ERASER ------------------------------------------------------------------------------------------------------------


def eraser(name, label, *evidence, **fields):
    group = [{"docid": doc, "start_token": start, "end_token": end, "text": ""} for doc, start, end in evidence]
    return {"annotation_id": name, "classification": label, "evidences": [group], "query": "Good?", **fields}


def test_eraser_documents_beside_the_file(tmp_path):
    write(tmp_path / "docs" / "neg_1.txt", "it was bad .\n never  again !\n")
    write(tmp_path / "docs" / "pos_1.txt", "i loved it .\n")
    rows = [
        eraser("neg_1.txt", "NEG", ("neg_1.txt", 2, 3), ("neg_1.txt", 4, 6)),
        eraser("pos_1.txt", "POS", ("pos_1.txt", 1, 2), ("pos_1.txt", -1, -1)),
        eraser("none", "POS", docids=["pos_1.txt"]),
        eraser("two", "NEG", ("neg_1.txt", 0, 1), docids=["pos_1.txt", "neg_1.txt"]),
    ]
    expected = [["bad", "never  again"], ["loved"], [], ["it"]]
    task, split = read(tmp_path, "train.jsonl", json_lines(*rows), {"eraser": True})
    assert (task.labels, split.labels, pieces(split)) == (("NEG", "POS"), (0, 1, 1, 0), expected)
    _, pairs = read(tmp_path, "train.jsonl", json_lines(*rows), {"eraser": True}, task="pairs")
    assert (pairs.texts[1], pieces(pairs)) == (("Good?", "i loved it .\n"), expected)
    report = check_files([tmp_path / "train.jsonl"], marks={"eraser": True})
    assert (report.files[0].marks.examples, report.files[0].marks.marks) == (3, 4)
    for row, message in (
        (eraser("x", "NEG", ("neg_1.txt", 6, 9)), r"evidence \[6, 9\] is not inside 'neg_1.txt', which has 7 tokens"),
        (eraser("x", "NEG", ("gone", 0, 1)), r"gone does not exist"),
        (eraser("x", "NEG", docids=["../secret"]), r"no document '../secret'"),
        ({"query": "Good?"}, r"line 1: expected a row of ERASER"),
    ):
        with pytest.raises(InputError, match=message):
            read(tmp_path, "train.jsonl", json_lines(row), {"eraser": True})
    for path in (tmp_path / "docs").iterdir():
        path.unlink()
    write(
        tmp_path / "docs.jsonl",
        json_lines(
            {"docid": "neg_1.txt", "document": "it was bad .\n never  again !\n"},
            {"docid": "pos_1.txt", "document": "i loved it ."},
        ),
    )
    assert pieces(read(tmp_path, "train.jsonl", json_lines(*rows), {"eraser": True})[1]) == expected

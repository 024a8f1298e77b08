"""The tasks of the study of functional specialisation: rows, spellings, joined texts and languages in one file."""

import pytest
from tasks.files import AG_PAIR, XNLI, json_lines, table, write, write_layout

from headwise.data import TASKS, build_task
from headwise.data.catalogue import SPELLINGS, task_name
from headwise.errors import InputError
from headwise.metrics.classification import METRICS

LANGUAGES = "ar bg de el en es fr hi ru sw th tr ur vi zh".split()
# As the study lists them: name -> classes, texts, the metric that counts; None are as many as train has.
STUDY = {
    "mrpc": (2, 2, "f1"),
    "mnli": (3, 2, "accuracy"),
    "cola": (2, 1, "matthews"),
    "ag": (4, 1, "accuracy"),
    "imdb": (2, 1, "accuracy"),
    "yelp_p": (2, 1, "accuracy"),
    "yelp_f": (5, 1, "accuracy"),
    "dbpedia": (14, 1, "accuracy"),
    "yahoo": (10, 1, "accuracy"),
    "sst-2": (2, 1, "accuracy"),
    "qqp": (2, 2, "f1"),
    "qnli": (2, 2, "accuracy"),
    "sogou": (0, 1, "accuracy"),
    "cmnli": (3, 2, "accuracy"),
    **{f"xnli-{language}": (3, 2, "accuracy") for language in LANGUAGES},
    "sts-b": (0, 2, "spearman"),
    "wnli": (2, 2, "accuracy"),
    "rte": (2, 2, "accuracy"),
    "ag-pair": (2, 2, "accuracy"),
    "scitail": (2, 2, "accuracy"),
    "snli": (3, 2, "accuracy"),
}


def test_the_study_has_35_tasks():
    assert len(STUDY) == 35


@pytest.mark.parametrize("name", STUDY)
def test_every_task_of_the_study_is_there_under_its_own_name(name):
    classes, texts, metric = STUDY[name]
    task = build_task(name, {})
    assert name in TASKS
    assert (len(task.labels), task.sentences) == (classes, texts)
    assert metric in task.metrics
    assert metric in METRICS


def test_a_spelling_leads_to_the_listed_name():
    for spelling, name in SPELLINGS.items():
        assert spelling not in list(TASKS)
        assert name in list(TASKS)
        assert build_task(spelling, {}).name == task_name(spelling) == task_name(name) == name
    with pytest.raises(InputError, match="task 'sst2' has no option 'nonsense'"):
        build_task("sst-2", {"nonsense": 1})


def test_title_and_description_are_one_text(tmp_path):
    write(tmp_path / "ag_news_csv/train.csv", '"3","A ""b""","c\\d, e"\n"4","f"," g"\n')
    split = build_task("ag", {}).read("train", tmp_path)
    assert split.texts == (('A "b" - c\\d, e',), ("f -  g",))
    assert split.labels == (2, 3)


@pytest.mark.parametrize("header", ["Class Index,Title,Description", "label,title,description"])
def test_ag_with_a_header(tmp_path, header):
    write(tmp_path / "ag/train.csv", f"{header}\n1,a,b\n2,c,d\n")
    split = build_task("ag", {}).read("train", tmp_path)
    assert (split.texts, split.labels) == ((("a - b",), ("c - d",)), (0, 1))


def test_classes_from_0_are_refused_rather_than_shifted(tmp_path):
    write(tmp_path / "ag/train.jsonl", json_lines({"text": "a", "label": 0}, {"text": "b", "label": 3}))
    task = build_task("ag", {"files": {"train": "train.jsonl"}})
    with pytest.raises(InputError, match="unknown label '0'"):
        task.read("train", tmp_path)
    names = dict(enumerate(("World", "Sports", "Business", "Sci/Tech")))
    task = build_task("ag", {"files": {"train": "train.jsonl"}, "label_names": names})
    assert task.read("train", tmp_path).labels == (0, 3)


def test_empty_columns_of_a_joined_text_are_left_out_but_not_all_of_them(tmp_path):
    path = write(tmp_path / "train.csv", '"1","a","","c"\n"2",""," ","d"\n"10","e","f","g"\n')
    task = build_task("yahoo", {"files": {"train": str(path)}})
    split = task.read("train", None)
    assert split.texts == (("a - c",), ("d",), ("e - f - g",))
    assert [task.labels[label] for label in split.labels] == [
        "Society & Culture",
        "Science & Mathematics",
        "Politics & Government",
    ]
    write(path, '"1","a","","c"\n"2",""," ",""\n')
    with pytest.raises(InputError, match="line 2: the text in 'question_title' and .* is empty"):
        task.read("train", None)


def test_a_column_of_a_joined_text_must_hold_text(tmp_path):
    path = write(tmp_path / "a.jsonl", json_lines({"title": "a", "description": 5, "label": 1}))
    with pytest.raises(InputError, match="line 1: expected text in 'description', got 5"):
        build_task("ag", {}).read_file(path, labelled=False)


def test_pairs_of_news(tmp_path):
    path = write(
        tmp_path / "test.tsv", table(AG_PAIR, ("different", "a", "b", 'c "', "d"), ("same", "e", "f", "g", "h"))
    )
    split = build_task("ag-pair", {}).read_file(path, labelled=True)
    assert split.texts == (("a - b", 'c " - d'), ("e - f", "g - h"))
    assert split.labels == (1, 0)


def test_sogou_finds_its_classes_in_train(tmp_path):
    write(tmp_path / "sogou/train.csv", "".join(f'"{topic}","t","x"\n' for topic in (3, 1, 2, 5, 6, 4)))
    task = build_task("sogou", {})
    assert task.read("train", tmp_path).labels == (2, 0, 1, 4, 5, 3)
    assert len(task.labels) == 6


def test_a_text_of_ones_own_may_replace_the_joined_one(tmp_path):
    path = write(tmp_path / "own.csv", "body,topic\na,World\nb,Sports\n")
    options = {"files": {"train": str(path)}, "header": True, "texts": ["body"], "label": "topic"}
    assert build_task("ag", options).read("train", None).texts == (("a",), ("b",))


def test_only_rows_of_the_language_count(tmp_path):
    rows = [(language, "neutral", "x", f"{language} {n}", "b", n) for n in range(2) for language in ("de", "fr", "zh")]
    path = write(tmp_path / "XNLI-1.0/xnli.dev.tsv", table(XNLI, *rows))
    for language in ("de", "fr", "zh"):
        split = build_task(f"xnli-{language}", {}).read("validation", tmp_path)
        assert split.texts == ((f"{language} 0", "b"), (f"{language} 1", "b"))
    with pytest.raises(InputError, match="has no examples with language 'ru': give a file"):
        build_task("xnli-ru", {}).read("validation", tmp_path)
    # For prediction every row has its line, and the label is not looked at.
    assert len(build_task("xnli-de", {}).read_file(path, labelled=False)) == 6
    assert len(build_task("xnli-de", {}).read_file(path, labelled=True)) == 2


def test_rows_of_other_languages_may_be_broken(tmp_path):
    rows = [("de", "neutral", "x", "a", "b", 1), ("fr", "", "x", "", "", 2), ("de", "odd", "x", "c", "d", 3)]
    write(tmp_path / "xnli.dev.tsv", table(XNLI, *rows[:2]))
    assert len(build_task("xnli-de", {}).read("validation", tmp_path)) == 1
    write(tmp_path / "xnli.dev.tsv", table(XNLI, *rows))
    with pytest.raises(InputError, match="line 4: unknown label 'odd'"):
        build_task("xnli-de", {}).read("validation", tmp_path)


def test_a_file_without_languages_is_read_whole(tmp_path):
    path = write(tmp_path / "own.tsv", table(("sentence1", "sentence2", "gold_label"), ("a", "b", "neutral")))
    assert build_task("xnli-de", {}).read_file(path, labelled=True).labels == (1,)


def test_the_translated_training_files_are_told_apart(tmp_path):
    write_layout("xnli-de", tmp_path)
    write_layout("xnli-tr", tmp_path)
    assert build_task("xnli-de", {}).read("train", tmp_path).labels == (1, 2)
    assert build_task("xnli-de", {}).available(tmp_path) == ("train", "validation", "test")
    assert build_task("xnli-fr", {}).available(tmp_path) == ("validation", "test")


def test_a_header_with_the_label_goes_before_one_without(tmp_path):
    header = ("sentence1", "sentence2", "premise", "hypo", "label")  # both layouts of xnli name texts here
    path = write(tmp_path / "own.tsv", table(header, ("a", "b", "c", "d", "neutral")))
    assert build_task("xnli-de", {}).read_file(path, labelled=True).texts == (("c", "d"),)
    path = write(tmp_path / "own.tsv", table(header[:4], ("a", "b", "c", "d")))
    assert build_task("xnli-de", {}).read_file(path, labelled=False).texts == (("a", "b"),)

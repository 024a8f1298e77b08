"""The table of tasks: where files are looked for, what a recipe may change, joined texts, languages and the Hub."""

import gzip
import subprocess
import sys
from types import SimpleNamespace

import huggingface_hub.constants as constants
import pytest
from data.files import AG_PAIR, XNLI, json_lines, table, write, write_layout

from headwise.data import TASKS, build_task
from headwise.data.catalogue import SPELLINGS, task_name
from headwise.errors import InputError
from headwise.metrics.classification import METRICS

RTE = table(("index", "sentence1", "sentence2", "label"), (0, "a", "b", "entailment"), (1, "c", "d", "not_entailment"))


def test_importing_tasks_loads_nothing_heavy():
    heavy = ["torch", "transformers", "datasets", "sklearn", "scipy", "pandas", "pyarrow"]
    code = (
        f"import sys, headwise.data as t; list(t.TASKS); sys.exit(str([n for n in {heavy} if n in sys.modules] or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


# -- where files are looked for ----------------------------------------------------------------------------------------


def test_a_task_is_found_in_several_folders_but_its_splits_in_one(tmp_path):
    for name in ("1/train.tsv", "2/RTE/train.tsv.gz", "3/glue_data/RTE/train.tsv"):
        path = write(tmp_path / name, RTE)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(RTE.encode()))
        assert len(build_task("rte", {}).read("train", tmp_path / name[0])) == 2
    write(tmp_path / "RTE" / "train.tsv", RTE)
    write(tmp_path / "dev.tsv", RTE)
    task = build_task("rte", {})
    assert task.available(tmp_path) == ("train",)
    assert task.available(None) == ()
    with pytest.raises(InputError, match="no validation split"):
        task.read("validation", tmp_path)


def test_files_of_the_user(tmp_path):
    path = write(tmp_path / "RTE" / "mine.tsv", RTE)
    for name in ("RTE/mine.tsv", "mine.tsv", str(path)):
        assert len(build_task("rte", {"files": {"train": name}}).read("train", tmp_path)) == 2
    assert len(build_task("rte", {"files": {"train": str(path)}}).read("train", None)) == 2
    # They leave the other splits of a named task, and are all that a general one has.
    assert build_task("rte", {"files": {"train": "mine.tsv"}}).splits == ("train", "validation", "test")
    assert build_task("pairs", {"files": {"train": "mine.tsv"}}).splits == ("train",)


def test_missing_files_say_where_they_were_expected(tmp_path):
    with pytest.raises(InputError, match="train.tsv in ") as caught:
        build_task("rte", {}).read("train", tmp_path)
    assert str(tmp_path / "glue" / "RTE") in str(caught.value)
    with pytest.raises(InputError, match="data root") as caught:
        build_task("pairs", {"files": {"train": "gone.tsv"}}).read("train", tmp_path)
    assert str(tmp_path / "gone.tsv") in str(caught.value)
    write_layout("qnli", tmp_path)
    for task in (build_task("qnli", {}), build_task("pairs", {"files": {"train": "x.tsv"}})):
        with pytest.raises(InputError, match=r"files\.validation.*data\.validation_fraction"):
            task.read("validation", tmp_path)
    for options in ({}, {"files": {"train": "mine.tsv"}}):
        with pytest.raises(InputError, match="data root.*absolute"):
            build_task("rte", options).read("train", None)


# -- options -----------------------------------------------------------------------------------------------------------

# task, options, words of the refusal
REFUSED = [
    ("rte", {"file": {}}, "no option 'file': did you mean 'files'"),
    ("rte", {"files": "train.tsv"}, "files: expected a mapping"),
    ("rte", {"files": {"dev": "x.tsv"}}, "files: 'dev' is not known"),
    ("rte", {"format": "xml"}, "format: 'xml' is not known"),
    ("rte", {"encoding": "rot13"}, "encoding: 'rot13' is not a text encoding"),
    ("rte", {"encoding": 8}, "encoding: expected a text"),
    ("rte", {"texts": ["one"]}, "takes 2.*sentences"),
    ("rte", {"texts": ["one", "one"]}, "expected different texts"),
    ("rte", {"texts": []}, "texts: expected a list"),
    ("rte", {"header": "no"}, "header: expected true or false"),
    ("rte", {"header": False}, "needs the names of all columns"),
    ("rte", {"header": True, "columns": ["a"]}, "without a header"),
    ("cola", {"texts": ["text"]}, "'text' is not among the columns.*header: true"),
    ("pairs", {"labels": ["one"]}, "at least two"),
    ("pairs", {"labels": [True, False]}, "quote it"),
    ("rte", {"label_names": {"1": "entailed"}}, "'entailed' is not a label.*did you mean 'entailment'"),
    ("rte", {"kind": "regression", "labels": ["x", "y"]}, "predicts numbers"),
    ("rte", {"metrics": ["pearson"]}, "metrics of a classification task"),
    ("snli", {"metrics": ["f1"]}, "f1 is for two classes.*macro_f1"),
    ("rte", {"primary": "matthews"}, "primary: 'matthews'"),
    ("rte", {"unlabelled": {"value": []}}, "did you mean 'values'"),
    ("rte", {"unlabelled": {"values": "-"}}, "expected a list"),
    ("rte", {"hub_config": "rte"}, "name it with hub"),
    ("rte", {"hub": "glue", "files": {}}, "both files and hub"),
    ("rte", [], "expected a mapping"),
]


def test_refused_options():
    for name, options, words in REFUSED:
        with pytest.raises(InputError, match=words) as caught:
            build_task(name, options)
        assert str(caught.value).endswith(".")


def test_columns_classes_and_metrics_of_the_user(tmp_path):
    rows = (("premise", "claim", "gold"), ("a", "b", 1), ("c", "d", 0))
    path = write(tmp_path / "own.csv", table(*rows, delimiter=","))
    options = {
        "files": {"train": str(path)},
        "texts": ["premise", "claim"],
        "label": "gold",
        "labels": ["no", "yes"],
        "label_names": {0: "no", 1: "yes"},
        "metrics": ["f1", "accuracy"],
        "primary": "accuracy",
    }
    task = build_task("pairs", options)
    assert (task.labels, task.metrics, task.primary) == (("no", "yes"), ("f1", "accuracy"), "accuracy")
    assert task.read("train", None).labels == (1, 0)
    assert build_task("rte", {"metrics": "matthews"}).primary == "matthews"
    assert build_task("rte", {"metrics": ["matthews", "accuracy"]}).primary == "accuracy"
    assert build_task("rte", {}).metrics == ("accuracy",)  # the table stays as it is


def test_names_of_classes(tmp_path):
    path = write(tmp_path / "own.tsv", table(("sentence", "label"), ("a", 1), ("b", 0), ("c", 2)))
    files = {"files": {"train": str(path)}}
    task = build_task("sentences", {**files, "label_names": {0: "bad", 1: "good", 2: "good"}})
    assert task.read("train", None).labels == (1, 0, 1)
    assert task.labels == ("bad", "good")
    # Those of the table do not hide the user's.
    assert build_task("sst2", {**files, "labels": ["1", "0", "2"]}).read("train", None).labels == (0, 1, 2)
    options = {**files, "header": True, "texts": ["sentence"], "labels": ["0", "1", "2"]}
    assert build_task("cola", options).read("train", None).labels == (1, 0, 2)
    # Numbers instead of classes.
    task = build_task("sick", {"kind": "regression", "label": "relatedness_score"})
    assert (task.labels, task.metrics, task.primary) == ((), ("pearson", "spearman"), "pearson")
    assert build_task("stsb", {"kind": "regression"}).metrics == ("pearson", "spearman")


# -- the tasks of the study of functional specialisation ---------------------------------------------------------------

LANGUAGES = "ar bg de el en es fr hi ru sw th tr ur vi zh".split()
# As the study lists them: name -> classes, texts, the metric that counts; none are as many as train has.
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


def test_the_35_tasks_of_the_study_are_there_under_their_names():
    assert len(STUDY) == 35
    for name, (classes, texts, metric) in STUDY.items():
        task = build_task(name, {})
        assert name in TASKS
        assert (len(task.labels), task.sentences) == (classes, texts), name
        assert metric in task.metrics
        assert metric in METRICS
    for spelling, name in SPELLINGS.items():
        assert spelling not in list(TASKS)
        assert build_task(spelling, {}).name == task_name(spelling) == task_name(name) == name


def test_columns_are_joined_to_one_text(tmp_path):
    write(tmp_path / "ag_news_csv/train.csv", '"3","A ""b""","c\\d, e"\n"4","f"," g"\n')
    split = build_task("ag", {}).read("train", tmp_path)
    assert (split.texts, split.labels) == ((('A "b" - c\\d, e',), ("f -  g",)), (2, 3))
    write(tmp_path / "ag_news_csv/train.csv", "Class Index,Title,Description\n1,a,b\n2,c,d\n")
    assert build_task("ag", {}).read("train", tmp_path).texts == (("a - b",), ("c - d",))
    # Empty columns are left out, but not all of them.
    path = write(tmp_path / "train.csv", '"1","a","","c"\n"2",""," ","d"\n"10","e","f","g"\n')
    task = build_task("yahoo", {"files": {"train": str(path)}})
    assert task.read("train", None).texts == (("a - c",), ("d",), ("e - f - g",))
    write(path, '"1","a","","c"\n"2",""," ",""\n')
    with pytest.raises(InputError, match="line 2: the text in 'question_title' and .* is empty"):
        task.read("train", None)
    path = write(tmp_path / "a.jsonl", json_lines({"title": "a", "description": 5, "label": 1}))
    with pytest.raises(InputError, match="line 1: expected text in 'description', got 5"):
        build_task("ag", {}).read_file(path, labelled=False)
    path = write(
        tmp_path / "test.tsv", table(AG_PAIR, ("different", "a", "b", 'c "', "d"), ("same", "e", "f", "g", "h"))
    )
    split = build_task("ag-pair", {}).read_file(path, labelled=True)
    assert (split.texts, split.labels) == ((("a - b", 'c " - d'), ("e - f", "g - h")), (1, 0))


def test_medical_question_pairs_come_with_or_without_a_header(tmp_path):
    rows = '1,"Is it safe, really?",Is it harmless?,1\n1,"Is it safe, really?",What does it cost?,0\n'
    for header in ("", "dr_id,question_1,question_2,label\n"):
        write(tmp_path / "mqp.csv", header + rows)
        task = build_task("mqp", {})
        split = task.read("train", tmp_path)
        assert split.texts[0] == ("Is it safe, really?", "Is it harmless?")
        assert [task.labels[label] for label in split.labels] == ["similar", "different"]
        assert task.available(tmp_path) == ("train",)


def test_classes_from_0_are_refused_rather_than_shifted(tmp_path):
    write(tmp_path / "ag/train.jsonl", json_lines({"text": "a", "label": 0}, {"text": "b", "label": 3}))
    task = build_task("ag", {"files": {"train": "train.jsonl"}})
    with pytest.raises(InputError, match="unknown label '0'"):
        task.read("train", tmp_path)
    names = dict(enumerate(("World", "Sports", "Business", "Sci/Tech")))
    task = build_task("ag", {"files": {"train": "train.jsonl"}, "label_names": names})
    assert task.read("train", tmp_path).labels == (0, 3)


def test_only_rows_of_the_language_count(tmp_path):
    rows = [(language, "neutral", "x", f"{language} {n}", "b", n) for n in range(2) for language in ("de", "fr")]
    rows += [("fr", "", "x", "", "", 2)]  # what is wrong in another language is no mistake
    path = write(tmp_path / "XNLI-1.0/xnli.dev.tsv", table(XNLI, *rows))
    split = build_task("xnli-de", {}).read("validation", tmp_path)
    assert split.texts == (("de 0", "b"), ("de 1", "b"))
    with pytest.raises(InputError, match="has no examples with language 'ru': give a file"):
        build_task("xnli-ru", {}).read("validation", tmp_path)
    assert len(build_task("xnli-de", {}).read_file(path, labelled=True)) == 2
    # For prediction every row counts, and the label is not looked at.
    write(path, table(XNLI, *rows[:4]))
    assert len(build_task("xnli-de", {}).read_file(path, labelled=False)) == 4
    plain = write(tmp_path / "own.tsv", table(("sentence1", "sentence2", "gold_label"), ("a", "b", "neutral")))
    assert build_task("xnli-de", {}).read_file(plain, labelled=True).labels == (1,)
    write_layout("xnli-tr", tmp_path)
    assert build_task("xnli-fr", {}).available(tmp_path) == ("validation", "test")


def test_a_header_with_the_label_goes_before_one_without(tmp_path):
    header = ("sentence1", "sentence2", "premise", "hypo", "label")  # both layouts of xnli name texts here
    path = write(tmp_path / "own.tsv", table(header, ("a", "b", "c", "d", "neutral")))
    assert build_task("xnli-de", {}).read_file(path, labelled=True).texts == (("c", "d"),)
    path = write(tmp_path / "own.tsv", table(header[:4], ("a", "b", "c", "d")))
    assert build_task("xnli-de", {}).read_file(path, labelled=False).texts == (("a", "b"),)


# -- the Hub, through a stand-in for the library -----------------------------------------------------------------------

HUB = {"hub": "nyu-mll/glue", "hub_config": "rte"}


class Rows(list):
    column_names = ("sentence1", "sentence2", "label", "idx")
    features = {name: SimpleNamespace() for name in column_names} | {
        "label": SimpleNamespace(names=["entailment", "not_entailment"])
    }


@pytest.fixture
def library(monkeypatch):
    """Remembers its calls and whether it was offline; raises what `problem` holds."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    fake = SimpleNamespace(config=SimpleNamespace(HF_HUB_OFFLINE=False), calls=[], offline=[], problem=None)

    def load_dataset(name, config, *, split):
        fake.calls.append((name, config, split))
        fake.offline.append((fake.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE))
        if fake.problem:
            raise fake.problem
        labels = (-1, -1) if split == "test" else (0, 1)
        texts = zip("ac", "bd", labels, strict=True)
        return Rows({"sentence1": one, "sentence2": two, "label": label, "idx": 0} for one, two, label in texts)

    fake.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", fake)
    return fake


def test_a_data_set_on_the_hub(library):
    task = build_task("rte", HUB)
    split = task.read("train", None, network=True)
    assert (split.texts, split.labels) == ((("a", "b"), ("c", "d")), (0, 1))
    assert task.read("test", None, network=True).labels == (None, None)  # kept secret
    task = build_task("rte", {**HUB, "hub_splits": {"train": "train", "validation": "dev"}})
    assert task.splits == task.available(None) == ("train", "validation")
    task.read("validation", None)
    assert library.calls[-1] == ("nyu-mll/glue", "rte", "dev")
    with pytest.raises(InputError, match="on the Hub, split train has no column 'question'"):
        build_task("qnli", HUB).read("train", None)


def test_the_network_is_used_only_with_permission_and_the_switch_goes_back(library, monkeypatch):
    for network in (True, False):
        build_task("rte", HUB).read("train", None, network=network)
        assert library.offline[-1] == (not network, not network)
        assert (library.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE) == (False, False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # by the environment
    build_task("rte", HUB).read("train", None, network=True)
    assert library.offline[-1] == (False, True)


def test_failures_of_the_hub(library, monkeypatch):
    for problem in (ConnectionError("no\nway"), ValueError("unknown split")):
        library.problem = problem
        with pytest.raises(InputError, match="nyu-mll/glue/rte.*Hub name.*no network was allowed.*download=True"):
            build_task("rte", HUB).read("train", None)
        with pytest.raises(InputError, match="could not be loaded.*hub_config"):
            build_task("rte", HUB).read("train", None, network=True)
        assert library.config.HF_HUB_OFFLINE is False
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"headwise\[hub\]"):
        build_task("rte", HUB).read("train", None)

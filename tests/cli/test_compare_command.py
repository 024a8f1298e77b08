"""`headwise compare`: its output in every format. What it refuses is in test_compare_refusals.py."""

import csv
import io
import json
import re

import pytest
import small_results as made
from tiny_runs import assert_done, assert_one_sentence, record

from headwise.experiments.comparison import CompareOptions, compare

QUICK = ("--resamples", 300)
SYSTEMS = {**made.SYSTEMS, "m_d&g": {"guides": {"mdg": {"weight": 0.01}}}}
AXES = {"set": {"one": {"task__name": "one"}, "50%": {"task__name": "two"}}, "system": SYSTEMS}
WITHIN = {"by": ["system"], "baseline": "plain", "within": ["set"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two sets, three systems, three seeds; nobody writes into it."""
    results = tmp_path_factory.mktemp("compare") / "results"
    return made.sweep(results, AXES, qualities={"plain": 0.4, "ag": 0.93, "m_d&g": 0.45}, compare=WITHIN)


@pytest.fixture(scope="module")
def comparison(folder):
    return compare([folder], CompareOptions(resamples=300))


@pytest.fixture
def answer(headwise):
    def run(*words):
        code, out, err = headwise("compare", *words, *QUICK)
        assert (code, err) == (0, "")
        return out

    return run


def test_the_table(answer, folder, comparison, monkeypatch):
    lines = answer(folder).splitlines()
    start = lines.index("set one: accuracy on test, against plain")
    headings = re.split(r"\s{2,}", lines[start + 1].strip())
    assert headings == [
        *("system", "seeds", "mean ± sd", "95 % interval", "difference (95 %)"),
        *("t", "Holm", "flips", "McNemar", "bootstrap", "swaps", "d_z", "MDE"),
    ]
    plain, ag, _ = (re.split(r"\s{2,}", line.strip()) for line in lines[start + 2 : start + 5])
    assert plain[:2] == ["plain", "3"]
    assert plain[4:] == ["–"] * 9
    row = comparison.tables[0].rows[1]
    scores, test, p = row.scores, row.by_seed, row.p
    assert row.stars  # else this shows less than it should
    assert ag == [
        "ag",
        "3",
        f"{100 * scores.mean:.2f} ± {100 * scores.deviation:.2f} {row.stars}",
        f"{100 * scores.low:.2f} to {100 * scores.high:.2f}",
        f"{100 * test.difference:+.2f} ({100 * test.low:+.2f} to {100 * test.high:+.2f})",
        *(f"{value:.4f}" for value in (p["t"], row.holm["t"], p["permutation"])),
        *(f"{p[kind]:.4f}" for kind in ("mcnemar", "bootstrap", "randomisation")),
        f"{test.effect:+.2f}",
        f"{100 * test.detectable:.2f}",
    ]
    assert "set 50%: accuracy on test, against plain" in lines
    assert "Permutation test: with 3 seeds this test cannot go below p = 0.25." in lines
    assert any(line.startswith("Stars: * p < 0.05, ** p < 0.01 of the paired t-test") for line in lines)
    assert any("2204.02922" in line and "mentions no correction" in line for line in lines)
    monkeypatch.setattr("headwise.cli.results_app.WIDTH", 90)  # a narrow table becomes two
    lines = answer(folder, "--only", "set=one", "--no-percent").splitlines()
    tables = [line for line in lines if line.split()[:1] == ["system"]]
    assert [line.split()[-1] for line in tables] == ["%)", "MDE"]
    start = lines.index("set one: accuracy on test, against plain")  # below the verdicts, which are sentences
    assert max(len(line) for line in lines[start : start + 10]) <= 90
    assert f"{row.scores.mean:.4f} ± {row.scores.deviation:.4f}" in "\n".join(lines)


def test_json_has_everything(answer, folder, comparison):
    data = json.loads(answer(folder, "--json"))
    assert data == comparison.as_data()
    assert json.loads(answer(folder, "--format", "json")) == data
    ag = data["tables"][0]["rows"][1]
    assert len(ag["values"]) == len(ag["by_example"]["mcnemar"]) == 3
    words = "--metric", "macro_f1", "--split", "validation", "--baseline", "ag", "--stars", "raw", "--json"
    data = json.loads(answer(folder, *words))
    assert (data["baseline"], data["split"], data["stars"]) == ("ag", "validation", "raw")
    assert {table["metric"] for table in data["tables"]} == {"macro_f1"}
    assert data["tables"][0]["rows"][0]["system"] == "ag"
    assert any("which also chose the best model" in line for line in data["notes"])


def test_csv_has_a_row_for_every_system_and_block(answer, folder, comparison):
    rows = list(csv.DictReader(io.StringIO(answer(folder, "--format", "csv"))))
    assert [(row["within.set"], row["system"]) for row in rows] == [
        (name, system) for name in AXES["set"] for system in SYSTEMS
    ]
    for row, own in zip(rows, (row for table in comparison.tables for row in table.rows), strict=True):
        assert float(row["mean"]) == own.scores.mean
        assert (row["metric"], row["split"], row["baseline"], row["stars"]) == ("accuracy", "test", "plain", own.stars)
        for kind in ("t", "permutation", "mcnemar", "bootstrap", "randomisation"):
            assert (row[f"p_{kind}"] == "") == (own.by_seed is None)
            if own.by_seed is not None:
                assert float(row[f"p_{kind}"]) == own.p[kind]
                assert float(row[f"p_{kind}_holm"]) == own.holm[kind]
        if own.by_seed is not None:
            assert float(row["difference"]) == own.by_seed.difference
            assert float(row["detectable"]) == own.by_seed.detectable
            assert float(row["bootstrap_low"]) == own.by_example.low


def columns(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_markdown(answer, folder, comparison):
    timed = answer(folder, "--format", "markdown", "--times").splitlines()
    heading, _, _, ag = (columns(line) for line in [line for line in timed if line.startswith("|")][:4])
    assert heading[5:7] == ["s/epoch", "× time"]
    assert ag[5:7] == ["11.00 ± 0.00", "1.00"]
    assert any("seconds of an epoch" in line for line in timed)
    lines = answer(folder, "--format", "markdown").splitlines()
    assert not any("seconds of an epoch" in line for line in lines)
    assert [line for line in lines if line.startswith("### ")] == [
        f"### set {name}: accuracy on test, against plain" for name in AXES["set"]
    ]
    rows = [columns(line) for line in lines if line.startswith("|")]
    assert {len(row) for row in rows} == {13}
    row = comparison.tables[0].rows[1]
    mean = f"{100 * row.scores.mean:.2f} ± {100 * row.scores.deviation:.2f}"
    assert rows[3][2] == f"{mean} {row.stars}".replace("*", r"\*")
    assert any(line.startswith(r"- Stars: \* p \< 0.05") for line in lines)


def test_latex(answer, folder, comparison):
    lines = answer(folder, "--format", "latex").splitlines()
    rows = [line for line in lines if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {12}
    assert len(rows) == 2 * 4
    row = comparison.tables[0].rows[1]
    assert f"$\\pm$ {100 * row.scores.deviation:.2f}$^{{{row.stars}}}$ &" in rows[2]
    assert rows[3].startswith(r"m\_d\&g & 3 & ")
    assert r"\caption{set 50\%: accuracy on test, against plain}" in lines
    text = "\n".join(lines)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == text.count(r"\toprule") == 2
    assert not re.search(r"(?<!\\)[_#]", text.replace(r"\usepackage", ""))


def test_all_metrics_stand_side_by_side_and_one_by_one(answer, folder):
    lines = answer(folder, "--all-metrics", "--only", "set=one").splitlines()
    start = lines.index("set one: all metrics on test")
    assert lines[start + 1].split() == ["system", *made.CLASSES]
    assert len(re.findall("±", lines[start + 3])) == 4
    assert [line for line in lines if "against plain" in line] == [
        f"set one: {metric} on test, against plain" for metric in made.CLASSES
    ]


def test_single_files_are_compared_by_the_keys_in_which_they_differ(answer, folder):
    data = json.loads(answer(*made.runs_of(folder), "--by", "guides", "--within", "task", "--json"))
    assert [table["within"] for table in data["tables"]] == [{"task": "one"}, {"task": "two"}]
    words = "--by", "guides,task", "--baseline", "plain, one", "--ignore", "examples"
    data = json.loads(answer(*made.runs_of(folder), *words, "--json"))
    assert len(data["tables"][0]["rows"]) == 6
    files = [path for path in made.runs_of(folder) if '"name": "one"' in path.read_text(encoding="utf-8")]
    data = json.loads(answer(*files, "--json"))
    assert (data["by"], data["baseline"], data["runs"]) == (["guides"], "plain", 9)


def test_the_ending_of_a_file_says_its_format(answer, folder, tmp_path):
    begins = {"t.md": "### set", "t.csv": "within.set,", "t.tex": "% needs", "t.json": "{", "t.txt": "set one"}
    for name, begin in begins.items():
        path = tmp_path / name
        assert answer(folder, "--output", path) == f"saved in {path}\n"
        text = path.read_text(encoding="utf-8")
        assert text.startswith(begin)
    answer(folder, "--output", path, "--overwrite", "--metric", "macro_f1")
    assert path.read_text(encoding="utf-8") != text
    data = json.loads(answer(folder, "--output", tmp_path / "any.name", "--format", "latex", "--json"))
    assert data["baseline"] == "plain"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["any.name", *sorted(begins)]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--output", "t.pdf"), ("t.pdf", ".md", "--format")),
        (("--output", "."), ("is a folder",)),
        (("--format", "html"), ("--format html", "markdown")),
        (("--format", "csv", "--json"), ("--json", "--format csv")),
    ],
)
def test_a_bad_output_or_format_is_refused_before_any_work(headwise, tmp_path, monkeypatch, words, parts):
    monkeypatch.chdir(tmp_path)
    if words[0] == "--output" and words[1] == ".":
        words = ("--output", tmp_path, "--format", "csv")
    assert_one_sentence(headwise("compare", "no-such-file.json", *words), *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_run_on_several_tasks_is_compared_with_its_control(headwise, with_iat):
    code, out, err = headwise("compare", with_iat, with_iat / "control", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert (data["by"], data["baseline"]) == (["iat"], "without")
    control, iat = data["tables"][0]["rows"]
    assert control["values"] == [record(with_iat / "control")["results"]["metrics"]["test"]["mean"]]
    assert iat["by_example"]["kind"] == "mean"
    assert iat["by_example"]["examples"] == 21 + 15 + 9
    assert iat["by_example"]["difference"] == pytest.approx(iat["by_seed"]["difference"])
    out, _ = assert_done(headwise("compare", with_iat, with_iat / "control", "--all-metrics"))
    assert "One seed: no test by seed is possible" in out

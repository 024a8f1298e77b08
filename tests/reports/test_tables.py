import re

from headwise.reports.comparison_text import Cell, TextTable, escape_latex, latex_table, markdown_table

TABLE = TextTable(
    "set a_b: 100 % & more",
    ("system", "mean ± sd", "d_z"),
    ((Cell("pla|in"), Cell("77.9 ± 4.7"), Cell("–")), (Cell("a&g_1"), Cell("-93.8 ± 1.2", "**"), Cell("-0.40"))),
)


def test_markdown_has_as_many_columns_in_every_row():
    lines = markdown_table(TABLE).splitlines()
    assert lines[0] == r"### set a\_b: 100 % & more"
    # Pipes that are escaped separate nothing.
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]
    assert [len(row) for row in rows] == [3] * 4
    assert rows[0] == ["system", "mean ± sd", r"d\_z"]
    assert rows[1] == ["---", "---:", "---:"]
    assert rows[2][0] == r"pla\|in"
    assert rows[3] == [r"a&g\_1", r"-93.8 ± 1.2 \*\*", "-0.40"]


def test_latex_has_the_rules_of_booktabs_and_stars_above():
    text = latex_table(TABLE)
    lines = text.splitlines()
    assert r"\caption{set a\_b: 100 \% \& more}" in lines
    assert r"\begin{tabular}{lrr}" in lines
    rules = [lines.index(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")]
    assert rules == sorted(rules)
    rows = [line for line in lines if line.endswith(r"\\")]
    assert len(rows) == 3
    for row in rows:
        assert len(re.findall(r"(?<!\\)&", row)) == 2
    assert rows[2] == r"a\&g\_1 & $-$93.8 $\pm$ 1.2$^{**}$ & $-$0.40 \\"
    assert rows[1] == r"pla$|$in & 77.9 $\pm$ 4.7 & -- \\"
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


def test_latex_shows_text_as_it_is():
    for text, expected in {
        r"a\b": r"a\textbackslash{}b",
        "$5 #1 {x} ~^": r"\$5 \#1 \{x\} \textasciitilde{}\textasciicircum{}",
        "p < 0.05": "p $<$ 0.05",
        "bert-base e-5 x-1": "bert-base e-5 x-1",  # hyphens, not minus signs
        "(-0.4 to +1.0)": "($-$0.4 to +1.0)",
        "two\nlines": "two lines",
    }.items():
        assert escape_latex(text) == expected

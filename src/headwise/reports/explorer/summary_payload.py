"""What was run, what came out, and what changed: the first thing that a reader sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.errors import InputError
from headwise.experiments.analysis.analysis_files import mean_over_heads
from headwise.experiments.comparison import CompareOptions, Comparison, Row, compare
from headwise.experiments.comparison.differences import differing
from headwise.reports.comparison_text import Style, text_tables, words_of
from headwise.reports.explorer.report_runs import BASELINE, RUN, ReportRun
from headwise.reports.tables import NOTHING, TextTable

# What a reader must know before believing the rest of the page.


CAVEAT = (
    "Attention is not by itself an explanation: where a head looks does not prove why the model decides, and heads "
    "that look different may do the same."
)
LEVEL = 0.05
BY_SEED = ("t", "permutation")


def honesty_payload(
    runs: Sequence[ReportRun], comparisons: Sequence[Comparison], refusal: str | None, sweeps: Mapping[str, str]
) -> dict[str, Any]:
    """The caveat, how far seeds and tests go, and what did not work."""
    return {
        "caveat": CAVEAT,
        "items": [
            ["Seeds", _seeds(runs, comparisons)],
            ["Tests", _tests(comparisons, refusal)],
            [
                "Statistics of heads",
                "Standard errors are over examples. They say nothing about another seed, where heads may trade places.",
            ],
            *([f"Sweep {name}", told] for name, told in sweeps.items()),
        ],
        "negative": [sentence for each in comparisons for sentence in negative_results(each)],
    }


def _seeds(runs: Sequence[ReportRun], comparisons: Sequence[Comparison]) -> str:
    seeds = sorted({int(run.record["recipe"]["seed"]) for run in runs})
    shown = f"The heads shown are those of one training each (seed {', '.join(map(str, seeds))})."
    most = max((len(row.seeds) for each in comparisons for table in each.tables for row in table.rows), default=1)
    if most > 1:
        return f"{shown} Scores with intervals are over up to {most} seeds."
    return f"{shown} With one seed a difference of a point or two may be chance: train several, see `headwise sweep`."


def _tests(comparisons: Sequence[Comparison], refusal: str | None) -> str:
    told = [] if refusal is None else [f"The two runs were not tested: {refusal}"]
    count = sum(len(row.p) for each in comparisons for table in each.tables for row in table.rows)
    if count:
        told.append(f"{count} tests, shown with all their p-values; stars, if any, follow Holm's correction.")
    elif comparisons:
        told.append("No test was possible: there is one seed, and nothing is kept of single examples.")
    return " ".join(told) or "Nothing was compared, so nothing was tested."


def negative_results(comparison: Comparison) -> list[str]:
    """One sentence for every system that is not shown to be better than the baseline."""
    return [
        sentence
        for table in comparison.tables
        for row in table.rows
        if (sentence := _negative(comparison, table.title, table.metric, row))
    ]


def _negative(comparison: Comparison, title: str, metric: str, row: Row) -> str | None:
    if row.by_seed is None:
        return None
    where = f"{title}: " if title else ""
    difference = row.by_seed.difference
    told = f"{where}{row.system} minus {comparison.baseline}, {metric}: {difference:+.4f}"
    values = row.holm or row.p
    # By seeds, where there are several: that a difference holds on these examples says nothing of another training.
    values = {kind: p for kind, p in values.items() if kind in BY_SEED} or values
    if difference <= 0:
        return f"{told}, not better."
    if not values:
        return f"{told}, with one seed and no test: nothing is shown."
    kind, p = min(values.items(), key=lambda item: item[1])
    if p > LEVEL:
        return f"{told}, and the smallest of its p-values is {p:.3f} ({kind}): no difference is shown."
    return None


# Of the bootstrap: a page is made often, and the third digit of an interval is not what it is for.
RESAMPLES = 2000
SHOWN_DIFFERENCES = 12


def summary_payload(
    runs: Sequence[ReportRun], comparison: Comparison | None, views: Mapping[str, Any]
) -> dict[str, Any]:
    """Facts, tables and sentences; `views` are those of the page so far."""
    run = next(each for each in runs if each.role == RUN)
    tables = [_scores(runs), *([] if comparison is None else comparison_tables(comparison)), _cost(runs)]
    return {
        "facts": _facts(runs, run),
        "tables": [table for table in tables if table["rows"]],
        "changed": changed_sentences(runs, views),
    }


def compared(runs: Sequence[ReportRun]) -> tuple[Comparison | None, str | None]:
    """The baseline and the run held against each other, or the sentence that says why they cannot be."""
    sides = {each.role: each for each in runs if each.role in (BASELINE, RUN)}
    if len(sides) < 2:
        return None, None
    folders = [sides[BASELINE].folder, sides[RUN].folder]
    stored = [sides[BASELINE].stored(), sides[RUN].stored()]
    by = tuple(dict.fromkeys(key.split(".")[0] for key in differing(stored)))
    try:
        return compare(folders, CompareOptions(by=by, resamples=RESAMPLES)), None
    except InputError as error:
        return None, str(error)


def comparison_tables(comparison: Comparison) -> list[dict[str, Any]]:
    """The tables of a comparison, and what its numbers mean."""
    style = Style()
    tables = [as_table(table) for table in text_tables(comparison, style)]
    if tables:
        tables[-1]["notes"] = words_of(comparison, style)
    return tables


def as_table(table: TextTable) -> dict[str, Any]:
    """A table of text in the page's shape."""
    return {
        "title": table.title,
        "columns": list(table.headings),
        "rows": [[str(cell) for cell in row] for row in table.rows],
        "notes": [],
    }


def _facts(runs: Sequence[ReportRun], run: ReportRun) -> list[list[str]]:
    recipe, content = run.recipe, run.analysis.content
    labels = content["labels"]
    kinds = {
        "classification": f"{len(labels)} labels: {', '.join(labels)}",
        "regression": "a number",
        "ranking": "ranking",
    }
    counts = (run.happened.get("tasks", {}).get(content["task"], run.happened)).get("examples") or {}
    facts = [
        ["Task", f"{content['task']} ({kinds[content['task_kind']]})"],
        ["Encoder", f"{recipe['model']}, {content['layers']} layers of {content['heads']} heads"],
        ["Examples", ", ".join(f"{name} {count}" for name, count in counts.items()) or "not recorded"],
        ["Steps", f"{run.happened['steps']} (best on validation: {run.happened['best_step']})"],
        ["Heads analysed on", f"{content['examples']} examples of {content['split']}"],
    ]
    for each in runs:
        facts.append([f"{_role(each)}: {each.name}", _guides(each)])
    sides = [each for each in runs if each.role in (BASELINE, RUN)]
    if len(sides) == 2:
        facts.append(["What differs", _differences(sides)])
    return facts


def _role(run: ReportRun) -> str:
    return {BASELINE: "Baseline", RUN: "Run"}.get(run.role, "Also")


def _guides(run: ReportRun) -> str:
    guides = run.recipe.get("guides") or {}
    found = run.happened.get("guides") or {}
    told = []
    for name in guides:
        weight = (found.get(name) or {}).get("weight")
        share = (found.get(name) or {}).get("share")
        numbers = [f"weight {weight:.3g}"] if weight is not None else []
        numbers += [f"gradient share {share:.3f}"] if share is not None else []
        told.append(f"{name} ({', '.join(numbers)})" if numbers else name)
    seed = run.record["recipe"]["seed"]
    supervised = ["SSA"] if run.recipe.get("ssa") is not None else []
    return f"{', '.join([*told, *supervised]) or 'no guides'}; seed {seed}"


def _differences(sides: Sequence[ReportRun]) -> str:
    found = list(differing([each.stored() for each in sides]))
    if not found:
        return "nothing in the recipes"
    more = f", and {len(found) - SHOWN_DIFFERENCES} more" if len(found) > SHOWN_DIFFERENCES else ""
    return ", ".join(found[:SHOWN_DIFFERENCES]) + more


def _scores(runs: Sequence[ReportRun]) -> dict[str, Any]:
    """All metrics of all runs, as their records have them."""
    found = {
        run.id: {
            (split, metric): value
            for split, scores in run.happened["metrics"].items()
            for metric, value in (scores or {}).items()
        }
        for run in runs
    }
    keys = dict.fromkeys(key for scores in found.values() for key in scores)
    rows = [
        [split, metric, *(_score(scores.get((split, metric))) for scores in found.values())] for split, metric in keys
    ]
    return {"title": "Scores", "columns": ["split", "metric", *(run.name for run in runs)], "rows": rows, "notes": []}


def _score(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def _cost(runs: Sequence[ReportRun]) -> dict[str, Any]:
    base = _step(runs[0])
    rows = []
    for run in runs:
        step = _step(run)
        epochs = run.happened.get("seconds_per_epoch") or []
        rows.append(
            [
                run.name,
                NOTHING if step is None else f"{step:.3f}",
                NOTHING if not epochs else f"{sum(epochs) / len(epochs):.1f}",
                NOTHING if step is None or not base else f"{step / base:.2f}",
            ]
        )
    return {
        "title": "Cost of training",
        "columns": ["model", "seconds per step", "seconds per epoch", f"over {runs[0].name}"],
        "rows": rows,
        "notes": ["Times depend on the machine and on what else ran there. After training a guide costs nothing."],
    }


def _step(run: ReportRun) -> float | None:
    value = run.happened.get("seconds_per_step")
    return None if value is None else float(value)


def changed_sentences(runs: Sequence[ReportRun], views: Mapping[str, Any]) -> list[str]:
    """What differs between baseline and run, in words; nothing without a baseline."""
    sides = {each.role: each for each in runs if each.role in (BASELINE, RUN)}
    if len(sides) < 2:
        return []
    before, after = sides[BASELINE], sides[RUN]
    sentences = []
    for each in views["heads"]["statistics"]:
        grids = [views["heads"]["values"][run.id].get(each["id"]) for run in (before, after)]
        # Importance from elsewhere may be over other examples in each.
        if all(grids) and all(each["id"] in run.analysis.content["statistics"] for run in (before, after)):
            old, new = (mean_over_heads(grid) for grid in grids)
            unit = f" {each['unit']}" if each["unit"] else ""
            sentences.append(f"{each['name']}, mean over all heads: {old:.4g} to {new:.4g}{unit}.")
    changes = (views.get("heads") or {}).get("changes") or []
    if changes and changes[0]["change"] > 0:
        most, shown = changes[0], len(views["examples"]["list"])
        sentences.append(
            f"The head that changed most is layer {most['layer']} head {most['head']}: {most['change']:.0%} of its "
            f"attention goes elsewhere (on the {shown} examples of this page)."
        )
    flips = views.get("flips")
    if flips and any(gold is not None for gold in before.analysis.content["answers"]["gold"]):
        sentences.append(
            f"Predictions that became right: {flips['gained']}; that became wrong: {flips['lost']} "
            f"(of {before.analysis.content['examples']} examples of {flips['split']})."
        )
    return sentences

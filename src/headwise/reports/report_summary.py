"""The summary of a report: what was run, its scores and cost, what changed, and the caveats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwise.errors import InputError
from headwise.experiments.analysis.analysis_files import mean_over_heads
from headwise.experiments.comparison import CompareOptions, compare
from headwise.experiments.comparison.differences import differing
from headwise.experiments.record import FINE_TUNED, StoredRun, baseline_names, below_frozen, read_stored
from headwise.reports.comparison_text import NOTHING, Style, text_tables, words_of
from headwise.reports.report_runs import BASELINE, RUN, ReportRun

if TYPE_CHECKING:
    from headwise.experiments.comparison import Comparison

CAVEAT = (
    "Attention is not by itself an explanation: where a head looks does not prove why the model decides, and heads "
    "that look different may do the same."
)
LEVEL = 0.05
BY_SEED = ("t", "permutation")
# Of the bootstrap: a page is made often, and the third digit of an interval is not what it is for.
RESAMPLES = 2000
SHOWN_DIFFERENCES = 12


def sides_of(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """The baseline and the run that is compared with it, which come first; none without a baseline."""
    return list(runs[:2]) if runs[0].role == BASELINE else []


def _differing_keys(sides: Sequence[ReportRun]) -> list[str]:
    stored = [read_stored(run.folder) for run in sides]
    return list(differing(run for run in stored if isinstance(run, StoredRun)))  # `gather_runs` refused failed ones


def compare_sides(runs: Sequence[ReportRun]) -> tuple[Comparison | None, str | None]:
    """The comparison of the run with its baseline, or the sentence that says why they cannot be compared."""
    sides = sides_of(runs)
    if not sides:
        return None, None
    by = tuple(dict.fromkeys(key.split(".")[0] for key in _differing_keys(sides)))
    try:
        return compare([each.folder for each in sides], CompareOptions(by=by, resamples=RESAMPLES)), None
    except InputError as error:
        return None, str(error)


def comparison_tables(comparison: Comparison) -> list[dict[str, Any]]:
    """The tables of a comparison; the last has notes about what the numbers mean."""
    tables = [
        _table(table.title, table.headings, [[str(cell) for cell in row] for row in table.rows], *table.verdicts)
        for table in text_tables(comparison, Style())
    ]
    if tables:
        tables[-1]["notes"] += words_of(comparison, Style())
    return tables


def _table(title: str, columns: Sequence[str], rows: list[list[str]], *notes: str) -> dict[str, Any]:
    return {"title": title, "columns": list(columns), "rows": rows, "notes": list(notes)}


def caveats_payload(
    runs: Sequence[ReportRun], comparisons: Sequence[Comparison], refusal: str | None, sweeps: Mapping[str, str]
) -> dict[str, Any]:
    """What a reader must know before believing the rest: how far seeds and tests go, and what did not work."""
    rows = [row for each in comparisons for table in each.tables for row in table.rows]
    numbers = sorted({int(run.record["recipe"]["seed"]) for run in runs})
    seeds = f"The heads shown are those of one training each (seed {', '.join(map(str, numbers))})."
    most = max((len(row.seeds) for row in rows), default=1)
    if most > 1:
        seeds += f" Scores with intervals are over up to {most} seeds."
    else:
        seeds += " With one seed a difference of a point or two may be chance: train several, see `headwise sweep`."
    tests = [] if refusal is None else [f"The two runs were not tested: {refusal}"]
    if count := sum(len(row.p) for row in rows):
        tests.append(f"{count} tests, shown with all their p-values; stars, if any, follow Holm's correction.")
    elif comparisons:
        tests.append("No test was possible: there is one seed, and nothing is kept of single examples.")
    return {
        "caveat": CAVEAT,
        "items": [
            ["Seeds", seeds],
            ["Tests", " ".join(tests) or "Nothing was compared, so nothing was tested."],
            [
                "Statistics of heads",
                "Standard errors are over examples. They say nothing about another seed, where heads may trade places.",
            ],
            *([f"Sweep {name}", outcome] for name, outcome in sweeps.items()),
        ],
        "negative": [sentence for each in comparisons for sentence in negative_results(each)],
    }


def negative_results(comparison: Comparison) -> list[str]:
    """One sentence for every system that is not shown to be better than the baseline."""
    sentences = []
    for table, row in [(each, row) for each in comparison.tables for row in each.rows]:
        if row.by_seed is None:
            continue
        difference = row.by_seed.difference
        where = f"{table.title}: " if table.title else ""
        result = f"{where}{row.system} minus {comparison.baseline}, {table.metric}: {difference:+.4f}"
        values = row.holm or row.p
        # By seeds, where there are several: a difference on these examples says nothing about another training.
        values = {kind: p for kind, p in values.items() if kind in BY_SEED} or values
        kind, p = min(values.items(), key=lambda item: item[1], default=("", 0.0))
        if difference <= 0:
            sentences.append(f"{result}, not better.")
        elif not values:
            sentences.append(f"{result}, with one seed and no test: nothing is shown.")
        elif p > LEVEL:
            sentences.append(f"{result}, and the smallest of its p-values is {p:.3f} ({kind}): no difference is shown.")
    return sentences


def summary_payload(
    runs: Sequence[ReportRun], comparison: Comparison | None, views: Mapping[str, Any]
) -> dict[str, Any]:
    """Facts, tables and sentences; `views` are those of the page so far."""
    compared = [] if comparison is None else comparison_tables(comparison)
    scores, cost = _scores_and_cost(runs)
    return {
        "facts": _facts(runs),
        "tables": [table for table in (scores, _beside_baselines(runs), *compared, cost) if table["rows"]],
        "changed": changed_sentences(runs, views),
    }


def _facts(runs: Sequence[ReportRun]) -> list[list[str]]:
    run = next(each for each in runs if each.role == RUN)
    content, results = run.analysis.content, run.record["results"]
    kinds = {
        "classification": f"{len(content['labels'])} labels: {', '.join(content['labels'])}",
        "regression": "a number",
        "ranking": "ranking",
    }
    counts = results.get("tasks", {}).get(content["task"], results).get("examples") or {}
    encoder = run.record["recipe"]["model"]
    facts = [
        ["Task", f"{content['task']} ({kinds[content['task_kind']]})"],
        ["Encoder", f"{encoder}, {content['layers']} layers of {content['heads']} heads"],
        ["Examples", ", ".join(f"{name} {count}" for name, count in counts.items()) or "not recorded"],
        ["Steps", f"{results['steps']} (best on validation: {results['best_step']})"],
        ["Heads analysed on", f"{content['examples']} examples of {content['split']}"],
    ]
    for each in runs:
        recipe, guides = each.record["recipe"], []
        for name in recipe.get("guides") or {}:
            measured = (each.record["results"].get("guides") or {}).get(name) or {}
            numbers = [f"weight {measured['weight']:.3g}"] if measured.get("weight") is not None else []
            numbers += [f"gradient share {measured['share']:.3f}"] if measured.get("share") is not None else []
            guides.append(f"{name} ({', '.join(numbers)})" if numbers else name)
        guides += ["SSA"] if recipe.get("ssa") is not None else []
        role = {BASELINE: "Baseline", RUN: "Run"}.get(each.role, "Also")
        facts.append([f"{role}: {each.name}", f"{', '.join(guides) or 'no guides'}; seed {recipe['seed']}"])
    if sides := sides_of(runs):
        keys = _differing_keys(sides)
        more = f", and {len(keys) - SHOWN_DIFFERENCES} more" if len(keys) > SHOWN_DIFFERENCES else ""
        facts.append(["What differs", ", ".join(keys[:SHOWN_DIFFERENCES]) + more or "nothing in the recipes"])
    return facts


def _scores_and_cost(runs: Sequence[ReportRun]) -> tuple[dict[str, Any], dict[str, Any]]:
    """All metrics of all runs, as their records have them, and the times of training."""
    scores: dict[tuple[str, str], list[str]] = {}
    for number, run in enumerate(runs):
        for split, metrics in run.record["results"]["metrics"].items():
            for metric, value in (metrics or {}).items():
                cells = scores.setdefault((split, metric), [NOTHING] * len(runs))
                cells[number] = NOTHING if value is None else f"{value:.4f}"
    base, times = runs[0].record["results"].get("seconds_per_step"), []
    for run in runs:
        step = run.record["results"].get("seconds_per_step")
        epochs = run.record["results"].get("seconds_per_epoch") or []
        times.append(
            [
                run.name,
                NOTHING if step is None else f"{step:.3f}",
                NOTHING if not epochs else f"{sum(epochs) / len(epochs):.1f}",
                NOTHING if step is None or not base else f"{step / base:.2f}",
            ]
        )
    columns = ["model", "seconds per step", "seconds per epoch", f"over {runs[0].name}"]
    note = "Times depend on the machine and on what else ran there. After training a guide costs nothing."
    return (
        _table(
            "Scores", ["split", "metric", *(run.name for run in runs)], [[*key, *row] for key, row in scores.items()]
        ),
        _table("Cost of training", columns, times, note),
    )


def _beside_baselines(runs: Sequence[ReportRun]) -> dict[str, Any]:
    """The main metric of each run beside what takes no fine-tuning, on the same examples; no rows without baselines."""
    rows, notes, known = [], [], baseline_names(*(run.record["results"] for run in runs))
    for run in runs:
        for task, each in (run.record["results"].get("baselines") or {}).items():
            for split, systems in each["metrics"].items():
                shown = [
                    f"{systems[system][each['primary']]:.4f}" if system in systems else NOTHING for system in known
                ]
                count = f"{split} ({each['examples'][split]} of {each['of'][split]})"
                rows.append([run.name, task, count, each["primary"], *shown])
        notes += [f"{run.name}: {sentence}." for sentence in below_frozen(run.record)]
    names = {**known, FINE_TUNED: "fine-tuned"}
    columns = ["model", "task", "split", "metric", *(names[system] for system in known)]
    return _table("Scores beside baselines", columns, rows, *notes)


def changed_sentences(runs: Sequence[ReportRun], views: Mapping[str, Any]) -> list[str]:
    """What differs between baseline and run, in words; nothing without a baseline."""
    sides = sides_of(runs)
    if not sides:
        return []
    sentences, content = [], sides[0].analysis.content
    for each in views["heads"]["statistics"]:
        # Importance from elsewhere may be over other examples in each.
        if all(each["id"] in run.analysis.content["statistics"] for run in sides):
            grids = [views["heads"]["values"][run.id].get(each["id"]) for run in sides]
            if all(grids):
                old, new = (mean_over_heads(grid) for grid in grids)
                unit = f" {each['unit']}" if each["unit"] else ""
                sentences.append(f"{each['name']}, mean over all heads: {old:.4g} to {new:.4g}{unit}.")
    changes = views["heads"].get("changes") or []
    if changes and changes[0]["change"] > 0:
        most, shown = changes[0], len(views["examples"]["list"])
        sentences.append(
            f"The head that changed most is layer {most['layer']} head {most['head']}: {most['change']:.0%} of its "
            f"attention goes elsewhere (on the {shown} examples of this page)."
        )
    flips = views.get("flips")
    if flips and any(gold is not None for gold in content["answers"]["gold"]):
        sentences.append(
            f"Predictions that became right: {flips['gained']}; that became wrong: {flips['lost']} "
            f"(of {content['examples']} examples of {flips['split']})."
        )
    return sentences

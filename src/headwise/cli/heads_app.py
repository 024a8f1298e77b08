"""The commands `headwise heads ...`: what the heads of a trained model do, and which of them its tasks need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperCommand

from headwise.cli import parameters as opt
from headwise.cli.console import print_parts, show, text_table
from headwise.cli.progress_bar import progress

if TYPE_CHECKING:
    from headwise.experiments.head_studies.head_importance import ImportanceSettings
    from headwise.experiments.head_studies.prune_curve import PruneCurve
    from headwise.training import Listener

heads = typer.Typer(help="Ask what the heads of a trained model do.", no_args_is_help=True, rich_markup_mode=None)

Seed = Annotated[int, typer.Option(min=0, help="Seed of random choices.")]


@dataclass(frozen=True)
class StudyOptions(opt.DataOptions):
    """Where the data of a study is, and where its results go."""

    output: Annotated[Path | None, typer.Option(help="Folder for the results; default RUN/heads.")] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace earlier results of this command.")] = False
    as_json: opt.AsJson = False

    @contextmanager
    def results(self, run: Path, name: str) -> Iterator[tuple[Path, Listener]]:
        """Lock the folder of the results while the block measures and writes them; gives it, and the progress."""
        from headwise.experiments.head_studies.head_files import FOLDER, new_results

        folder = run / FOLDER if self.output is None else self.output.expanduser()
        with progress() as shown, new_results(run, folder, [folder / f"{name}.json"], overwrite=self.overwrite):
            yield folder, shown

    def show(self, content: Mapping[str, Any], paths: list[Path], *parts: Table | str) -> None:
        """Print a result as JSON with its files, or as tables and lines with the folder."""
        from headwise.experiments.head_studies.head_files import json_text

        if self.as_json:
            typer.echo(json_text({**content, "files": [str(path) for path in paths]}), nl=False)
        else:
            print_parts(*parts, f"saved in {paths[-1].parent}")


@dataclass(frozen=True)
class ImportanceOptions:
    """How importance is estimated."""

    granularity: Annotated[str, typer.Option(help="sample, token (the authors') or batch.")] = "sample"
    normalise: Annotated[str, typer.Option(help="none, or layer: divide each layer's scores by their length.")] = "none"
    examples: Annotated[int, typer.Option(min=1, help="Largest number of each task, a seeded sample.")] = 10_000
    split: Annotated[str, typer.Option(help="Which examples.")] = "train"
    seed: Seed = 0

    @property
    def settings(self) -> ImportanceSettings:
        """The same for the library."""
        from headwise.experiments.head_studies.head_importance import ImportanceSettings

        return ImportanceSettings(**vars(self))


@dataclass(frozen=True)
class SimilarityOptions(ImportanceOptions):
    """The same from fewer examples: their gradients are larger."""

    examples: Annotated[int, typer.Option(min=1, help="Largest number of each task, a seeded sample.")] = 2000


@dataclass(frozen=True)
class CurveOptions:
    """The settings of a curve, without defaults: a curve on disk is compared only with the options that are given."""

    percent: Annotated[
        list[float] | None, typer.Option(help="Percent of all heads to prune, one or more; default 20 30 40.")
    ] = None
    number: Annotated[
        list[int] | None, typer.Option(help="Numbers of heads to prune, one or more, instead of --percent.")
    ] = None
    task: Annotated[
        list[str] | None,
        typer.Option("--task", help="Whose heads are pruned; may be repeated. Default: every task's in turn."),
    ] = None
    order: Annotated[
        str | None, typer.Option(help="descending (default): the most important heads first; or ascending.")
    ] = None
    controls: Annotated[
        bool | None,
        typer.Option("--controls/--no-controls", help="Also random masks and the ascending order; default yes."),
    ] = None
    random: Annotated[
        int | None, typer.Option(min=0, help="Random masks for each step, and as many layer-matched ones; default 3.")
    ] = None
    exact: Annotated[
        bool | None, typer.Option("--exact/--one-shot", help="Measure importance again before every step; default no.")
    ] = None
    keep_per_layer: Annotated[
        int | None, typer.Option(min=0, help="Heads of each layer that always stay; default 0.")
    ] = None
    granularity: Annotated[str | None, typer.Option(help="sample (default), token (the authors') or batch.")] = None
    normalise: Annotated[str | None, typer.Option(help="none (default) or layer.")] = None
    examples: Annotated[int | None, typer.Option(min=1, help="Examples for importance; default 10000.")] = None
    importance_split: Annotated[str | None, typer.Option(help="Split for importance; default train.")] = None
    split: Annotated[str | None, typer.Option(help="Split that is evaluated; default validation.")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Evaluate only so many examples, from the first.")] = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that have a value, lists as tuples."""
        present = {name: value for name, value in vars(self).items() if value is not None and value != []}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in present.items()}


class ManyNumbers(TyperCommand):
    """A command whose options --percent and --number take all the numbers that follow: `--percent 20 30 40`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before every further number, as the parser needs it."""
        return super().parse_args(ctx, spread_numbers(args))


def spread_numbers(words: list[str]) -> list[str]:
    """`--percent 20 30` as `--percent 20 --percent 30`."""
    spread: list[str] = []
    option = ""  # the one that the next number belongs to
    for word in words:
        if (name := word.partition("=")[0]) in ("--percent", "--number"):
            option = name
        elif not option or not _is_number(word):
            option = ""
        elif spread[-1] != option:
            spread.append(option)
        spread.append(word)
    return spread


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _number(value: float | None, digits: int = 1, missing: str = "n/a") -> str:
    return missing if value is None or isnan(value) else f"{value:.{digits}f}"


@heads.command("patterns")
@opt.grouped
def patterns(
    run: opt.Run,
    source: opt.DataOptions,
    split: opt.Split = "test",
    task: opt.OneTask = None,
    pattern: Annotated[
        list[str] | None, typer.Option(help="A pattern to look for; may be repeated. Default: all fixed ones.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of examples, from the first of the split.")] = 200,
    top: Annotated[int, typer.Option(min=1, help="Heads to name for each pattern.")] = 3,
    batch: opt.Batch = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show which heads of RUN follow which pattern.

    For each pattern, such as looking at the next token: the share of attention on the targets of the pattern, if
    attention were even, for the mean of all heads, and for the strongest. Layers and heads count from 0.
    """
    from headwise.experiments.head_studies.head_patterns import study_patterns

    options: dict[str, Any] = {"pattern": pattern or (), "task": task, "limit": limit, "batch": batch}
    with progress() as shown:
        scores = study_patterns(run, split, source.source, **options, progress=shown)
    content, rows = scores.as_dict(), []
    for name, each in scores.patterns.items():
        strongest = scores.strongest(name, top)
        content["patterns"][name]["strongest"] = [head._asdict() for head in strongest]
        named = "\n".join(f"layer {head.layer} head {head.head}: {head.share:.2f}" for head in strongest)
        rows.append([name, str(each.examples), _number(each.even, 2, "-"), _number(each.share, 2, "-"), named or "-"])
    table = text_table(["pattern", "examples", "even", "mean", "strongest heads"], rows)
    show(as_json, {"run": str(run), "split": split, **content}, table)


@heads.command("importance")
@opt.grouped
def importance(
    run: opt.Run,
    estimate: ImportanceOptions,
    study: StudyOptions,
    task: Annotated[list[str] | None, typer.Option(help="A task; may be repeated. Default: all of RUN.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Heads to name for each task.")] = 5,
) -> None:
    """Show how much each task of RUN needs each head, and how sure that is.

    A head's score is the slope of the loss when its output is turned down. Writes importance.json and importance.csv.
    """
    from headwise.experiments.apply import load_tasks
    from headwise.experiments.head_studies.head_files import write_result
    from headwise.experiments.head_studies.head_importance import importance_rows, measure_importance

    settings = estimate.settings
    with study.results(run, "importance") as (folder, shown):
        content = measure_importance(load_tasks(run, task or ()), settings, study.source, progress=shown)
        rows = list(importance_rows(content))
        paths = write_result(folder, "importance", content, rows=rows)
    strongest = []
    for name, each in content["tasks"].items():
        ranked = sorted((row for row in rows if row["task"] == name), key=lambda row: row["rank"])
        lines = [
            f"layer {row['layer']} head {row['head']}: {row['score']:.4g}"
            + ("" if row["half_width"] is None else f" ± {row['half_width']:.3g}")
            for row in ranked[:top]
        ]
        strongest.append([name, str(each["examples"]), "\n".join(lines)])
    halves = {name: each["stability"] for name, each in content["tasks"].items() if each["stability"]}
    shares = sorted({share for each in halves.values() for share in each["overlap"]}, key=float)
    stability = text_table(
        ["task"],
        (
            [name, f"{each['spearman']:.3f}", *(_number(each["overlap"].get(share), 2, "-") for share in shares)]
            for name, each in halves.items()
        ),
        numbers=["rank correlation", *(f"overlap of top {float(share):.0%}" for share in shares)],
        title="two halves of the examples",
        whole=True,
    )
    between = [_overlap_table(content["similarity"])] if "similarity" in content else []
    study.show(content, paths, text_table(["task", "examples", "strongest heads"], strongest), stability, *between)


def _overlap_table(similarity: Mapping[str, Any]) -> Table:
    """How far tasks need the same heads, with the overlap to expect by chance in the column names."""
    overlap, tasks = similarity["overlap"], similarity["tasks"]
    chance = (f"top {float(share):.0%} (chance {similarity['chance'][share]:.2f})" for share in overlap)
    rows = (
        [
            f"{tasks[one]}, {tasks[other]}",
            _number(similarity["spearman"][one][other], 3),
            *(f"{values[one][other]:.2f}" for values in overlap.values()),
        ]
        for one, other in combinations(range(len(tasks)), 2)
    )
    return text_table(["tasks"], rows, numbers=["rank correlation", *chance], title="between tasks", whole=True)


@heads.command("prune-curve", cls=ManyNumbers)
@opt.grouped
def prune_curve(
    run: opt.Run, curve: CurveOptions, study: StudyOptions, seed: Seed = 0, batch: opt.Batch = None
) -> None:
    """Silence the heads that each task of RUN needs most, and evaluate every task without them.

    Beside them, as controls: the heads that a task needs least, random heads, and random heads of the same layers.
    Writes prune-curve.json, prune-curve.csv and prune-curve.safetensors (the predictions).
    """
    from headwise.experiments.apply import load_tasks
    from headwise.experiments.head_studies.curve_masks import CurveSettings
    from headwise.experiments.head_studies.prune_curve import measure_curve, write_curve

    settings = CurveSettings(**curve.given, seed=seed)
    with study.results(run, "prune-curve") as (folder, shown):
        measured = measure_curve(load_tasks(run), settings, study.source, batch=batch, progress=shown)
        paths = write_curve(folder, measured)
    study.show(measured.as_dict(), paths, _curve_table(measured))


def _curve_table(curve: PruneCurve) -> Table:
    """Whose heads were pruned, and how many, in rows; what is left of each task in columns."""
    from headwise.experiments.head_studies.curve_masks import step_label

    settings, base = curve.settings, curve.base
    pruned = [(index, task) for index, task in enumerate(curve.tasks) if task in curve.pruned_for]
    words = {"descending": "", "ascending": "least of "}
    parts = [
        (words[order] + task, curve.matrix(order)[:, index, None])
        for order in settings.orders
        for index, task in pruned
    ]
    caption = ""
    if settings.repeats:
        caption = f"random, like: means of {settings.repeats} masks; like: as many heads in each layer."
        parts.append(("random", curve.random))
        parts += [(f"like {task}", curve.layer_matched[:, index]) for index, task in pruned]
    rows = [["none", "", *(f"{value:.4f}       " for value in base)]]
    for what, masked in parts:  # [K,R,T]
        for step, values in enumerate(masked.mean(1)):
            shares = (f"{value / whole:.0%}" if whole > 0 else "n/a" for value, whole in zip(values, base, strict=True))
            cells = (f"{value:.4f} {share:>6}" for value, share in zip(values, shares, strict=True))
            rows.append([step_label(curve.percent(step), curve.counts[step]), what, *cells])
    return text_table(
        ["pruned", "heads of"],
        rows,
        numbers=[f"{task}\n{metric}" for task, metric in curve.metrics.items()],
        title=f"{settings.split}, of {curve.shape[0] * curve.shape[1]} heads",
        caption=caption,
        whole=True,
    )


@heads.command("dissociation", cls=ManyNumbers)
@opt.grouped
def dissociation(
    run: opt.Run,
    curve: CurveOptions,
    study: StudyOptions,
    resamples: Annotated[int, typer.Option(min=1, help="Draws of the examples for the intervals.")] = 1000,
    seed: Annotated[
        int,
        typer.Option(
            min=0, help="For the intervals, and for the curve if it is measured now: one on disk has its own."
        ),
    ] = 0,
    batch: opt.Batch = None,
) -> None:
    """Show whether losing one task's heads hurts that task, and that task more than the others: D-scores.

    Uses the curve of `headwise heads prune-curve`; without one it is measured first, with the same options. Writes
    dissociation.json and dissociation.csv; --overwrite replaces these, never the curve.
    """
    from headwise.experiments.head_studies.head_dissociation import study_dissociation

    more: dict[str, Any] = {"resamples": resamples, "seed": seed, "batch": batch}
    with study.results(run, "dissociation") as (folder, shown):
        scores, paths = study_dissociation(run, folder, curve.given, study.source, **more, progress=shown)
    study.show(scores, paths, *_score_tables(scores), *_remarks(scores))


def _labelled_steps(scores: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The steps of the curve by their names, and their mean."""
    from headwise.experiments.head_studies.curve_masks import step_label

    steps = {step_label(step["percent"], step["heads"]): step for step in scores["steps"]}
    return {**steps, "mean": scores["mean"]}


def _score_tables(scores: Mapping[str, Any]) -> tuple[Table, Table]:
    """The scores of steps and variants with their intervals, and the mean by row beside its controls."""

    def cell(variant: str, task: str | None, score: Any, low: Any, high: Any) -> str:
        """A score with its interval, of one task or of the mean."""
        values = [
            part[variant]["mean"] if task is None else part[variant]["tasks"][task] for part in (score, low, high)
        ]
        return "n/a" if values[0] is None else "{} [{}, {}]".format(*map(_number, values))

    rows, controls = [], []
    for label, step in _labelled_steps(scores).items():
        for variant in ("reference", "row", "column"):
            ends = step, step["interval"]["low"], step["interval"]["high"]
            first = label if variant == "reference" else ""
            rows.append([first, variant, *(cell(variant, task, *ends) for task in (*scores["tasks"], None))])
        # The mean by column is the same as that by row.
        cells = [_number(step["row"]["mean"]), _number(step["ascending"]["row"]["mean"]) if step["ascending"] else "-"]
        for null in step["null"].values():
            p = null and null["p"] and null["p"]["row"]["mean"]
            cells += [cell("row", None, null["mean"], null["low"], null["high"]), _number(p, 3)] if null else ["-", "-"]
        controls.append([label, *cells])
    caption = (
        "D-scores in points; row: losing a task's heads hurts it more than others, column: it is hurt more by losing "
        f"its own than others'. [95 % interval over examples, {scores['resamples']} draws]"
    )
    columns = ["observed", "ascending", "random masks", "p", "layer-matched", "p"]
    return (
        text_table(["pruned", "D-score"], rows, numbers=[*scores["tasks"], "mean"], caption=caption, whole=True),
        text_table(["pruned"], controls, numbers=columns, title="mean by row, and its controls", whole=True),
    )


def _remarks(scores: Mapping[str, Any]) -> Iterator[str]:
    mean = scores["mean"]
    for number, pair in enumerate(mean["double_dissociation"]):
        steps = _labelled_steps(scores).items()
        labels = [label for label, step in steps if step["double_dissociation"][number]["holds"]]
        where = f"at {', '.join(labels)}" if labels else "no"
        if pair["holds"] is None:
            where = "n/a"
        share = mean["interval"]["double_dissociation"][number]["holds"]
        resampled = "" if share is None else f" (on average over steps in {share:.0%} of the draws)"
        yield f"double dissociation of {' and '.join(pair['tasks'])}: {where}{resampled}"
    for task, reason in mean["undefined"].items():
        yield f"n/a for {task}: {reason}"
    for control, reason in scores["missing"].items():
        yield f"no {control.replace('_', '-')} null: {reason}"
    if scores["dropped"]:
        yield f"{scores['dropped']} draws were left out, in which a task fell to 0 or below"


@heads.command("similarity")
@opt.grouped
def similarity(run: opt.Run, estimate: SimilarityOptions, study: StudyOptions) -> None:
    """Show how alike the tasks of RUN are: the heads they need, and where their losses pull the shared encoder.

    Shows the D-scores of `headwise heads dissociation` too, if it was run before. Writes similarity.json.
    """
    from headwise.experiments.apply import load_tasks
    from headwise.experiments.head_studies.head_files import write_result
    from headwise.experiments.head_studies.head_importance import measure_similarity

    settings = estimate.settings
    with study.results(run, "similarity") as (folder, shown):
        content = measure_similarity(load_tasks(run), settings, study.source, folder=folder, progress=shown)
        paths = write_result(folder, "similarity", content)
    gradients, rows = content["gradients"], []
    pairs = {
        ", ".join(pair["tasks"]): [content["tasks"].index(task) for task in pair["tasks"]] for pair in content["pairs"]
    }
    for pair, (names, indices) in zip(content["pairs"], pairs.items(), strict=True):
        halves = ", ".join(_number(gradients["ceiling"][index], 3) for index in indices)
        rows.append([names, _number(pair["gradient_cosine"], 3), halves, _number(pair["d_score"], 1, "-")])
    cosines = text_table(
        ["tasks"],
        rows,
        numbers=["cosine", "halves of each", "D-score of the two"],
        title="gradients of the encoder",
        caption="halves: cosine between two halves of one task's examples; if it is low, a gradient is mostly noise.",
        whole=True,
    )
    layers = (
        [part, *(_number(values["cosine"][one][other], 3) for one, other in pairs.values())]
        for part, values in gradients["groups"].items()
    )
    by_layer = text_table(["part"], layers, numbers=pairs, title="by layer", whole=True)
    study.show(content, paths, _overlap_table(content["importance"]), cosines, by_layer)

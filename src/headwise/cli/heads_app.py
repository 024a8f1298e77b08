"""The commands `headwise heads ...`: what the heads of a trained model do, and which of them its tasks need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from headwise.cli.allow_code import AllowCode

heads = typer.Typer(help="Ask what the heads of a trained model do.", no_args_is_help=True, rich_markup_mode=None)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Data = Annotated[Path | None, typer.Option(help="Folder with the tasks' files.", show_default=False)]
Download = Annotated[bool, typer.Option("--download", help="Allow the network for data that are not here.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Examples at a time.", show_default=False)]
Run = Annotated[Path, typer.Argument(help="Folder that `headwise train` made.", show_default=False)]
OneTask = Annotated[
    str | None, typer.Option("--task", help="Of a run on several tasks, which one.", show_default=False)
]
Output = Annotated[Path | None, typer.Option(help="Folder for the results; default RUN/heads.", show_default=False)]
Seed = Annotated[int, typer.Option(min=0, help="Decides what is left to chance.")]
DissociationSeed = Annotated[
    int,
    typer.Option(min=0, help="For the intervals, and for the curve if it is measured now: one on disk has its own."),
]
Granularity = Annotated[str, typer.Option(help="sample, token (the authors') or batch.")]
Normalise = Annotated[str, typer.Option(help="none, or layer: divide each layer's scores by their length.")]

# Of the curve: without a value where the user gave none, so that a curve on disk is compared with what was asked only.
Percent = Annotated[
    list[float] | None,
    typer.Option(help="Percent of all heads to prune, one or more; default 20 30 40.", show_default=False),
]
Number = Annotated[
    list[int] | None,
    typer.Option(help="Numbers of heads to prune, one or more, instead of --percent.", show_default=False),
]
PrunedFor = Annotated[
    list[str] | None,
    typer.Option("--task", help="Whose heads are pruned; may be given again. Default: every task's in turn."),
]
Order = Annotated[
    str | None,
    typer.Option(help="descending (default): the most important heads first; or ascending.", show_default=False),
]
Controls = Annotated[
    bool | None,
    typer.Option(
        "--controls/--no-controls", help="Also random masks and the ascending order; default yes.", show_default=False
    ),
]
Random = Annotated[
    int | None,
    typer.Option(min=0, help="Random masks for each step, and as many layer-matched ones; default 3."),
]
Exact = Annotated[
    bool | None,
    typer.Option("--exact/--one-shot", help="Measure importance anew before every step; default no."),
]
KeepPerLayer = Annotated[
    int | None, typer.Option(min=0, help="Heads of each layer that always stay; default 0.", show_default=False)
]
CurveGranularity = Annotated[str | None, typer.Option(help="sample (default), token (the authors') or batch.")]
CurveNormalise = Annotated[str | None, typer.Option(help="none (default) or layer.")]
CurveExamples = Annotated[int | None, typer.Option(min=1, help="Examples for importance; default 10000.")]
ImportanceSplit = Annotated[str | None, typer.Option(help="Split for importance; default train.")]
CurveSplit = Annotated[str | None, typer.Option(help="Split that is evaluated; default validation.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Evaluate the first examples of the split only.")]


class ManyNumbers(TyperCommand):
    """A command whose options --percent and --number take all the numbers that follow: `--percent 20 30 40`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before every further number, as the parser wants it."""
        return super().parse_args(ctx, spread_numbers(args))


def spread_numbers(words: list[str]) -> list[str]:
    """`--percent 20 30` as `--percent 20 --percent 30`."""
    spread: list[str] = []
    option = ""  # the one whose numbers go on
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


@heads.command("patterns")
def patterns(
    run: Run,
    split: Annotated[str, typer.Option(help="train, validation, test, or another split of the task.")] = "test",
    task: OneTask = None,
    data: Data = None,
    pattern: Annotated[
        list[str] | None, typer.Option(help="A pattern to look for; may be given again. Default: all fixed ones.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Examples to look at, the first of the split.")] = 200,
    top: Annotated[int, typer.Option(min=1, help="Heads to name for each pattern.")] = 3,
    batch: Batch = None,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Tell which heads of RUN follow which pattern.

    For each pattern, such as looking at the next token: the share of attention that lies where the pattern wants it, if
    attention were even, for the mean of all heads, and for the strongest. Layers and heads count from 0.
    """
    from headwise.cli.heads_output import show_patterns
    from headwise.experiments.apply import Source

    source = Source(data, download)
    show_patterns(
        run, split, source, task=task, names=pattern or [], limit=limit, top=top, batch=batch, as_json=as_json
    )


@heads.command("importance")
def importance(
    run: Run,
    task: Annotated[list[str] | None, typer.Option(help="A task; may be given again. Default: all of RUN.")] = None,
    granularity: Granularity = "sample",
    normalise: Normalise = "none",
    examples: Annotated[int, typer.Option(min=1, help="At most so many of each task, a seeded choice.")] = 10_000,
    split: Annotated[str, typer.Option(help="Which examples.")] = "train",
    seed: Seed = 0,
    top: Annotated[int, typer.Option(min=1, help="Heads to name for each task.")] = 5,
    data: Data = None,
    output: Output = None,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Tell how much each task of RUN needs each head, and how sure that is.

    A head's score is the slope of the loss when its output is turned down. Writes importance.json and importance.csv.
    """
    from headwise.cli.heads_output import show_importance
    from headwise.experiments.apply import Source
    from headwise.experiments.head_studies.head_importance import ImportanceSettings

    settings = ImportanceSettings(granularity, normalise, examples, split, seed)
    show_importance(run, task or [], settings, Source(data, download), top=top, output=output, as_json=as_json)


@heads.command("prune-curve", cls=ManyNumbers)
def prune_curve(
    run: Run,
    percent: Percent = None,
    number: Number = None,
    task: PrunedFor = None,
    order: Order = None,
    controls: Controls = None,
    random: Random = None,
    exact: Exact = None,
    keep_per_layer: KeepPerLayer = None,
    granularity: CurveGranularity = None,
    normalise: CurveNormalise = None,
    examples: CurveExamples = None,
    importance_split: ImportanceSplit = None,
    split: CurveSplit = None,
    limit: Limit = None,
    seed: Seed = 0,
    batch: Batch = None,
    data: Data = None,
    output: Output = None,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Silence the heads that each task of RUN needs most, and see what is left of every task.

    Beside them, as controls: the heads that a task needs least, random heads, and random heads of the same layers.
    Writes prune-curve.json, prune-curve.csv and prune-curve.safetensors (the predictions).
    """
    from headwise.cli.heads_output import CurveOrder, show_curve
    from headwise.experiments.apply import Source

    asked = given(
        percent=percent,
        number=number,
        task=task,
        order=order,
        controls=controls,
        random=random,
        exact=exact,
        keep_per_layer=keep_per_layer,
        granularity=granularity,
        normalise=normalise,
        examples=examples,
        importance_split=importance_split,
        split=split,
        limit=limit,
    )
    show_curve(CurveOrder(run, asked, seed, Source(data, download), output, batch), as_json=as_json)


@heads.command("dissociation", cls=ManyNumbers)
def dissociation(
    run: Run,
    percent: Percent = None,
    number: Number = None,
    task: PrunedFor = None,
    order: Order = None,
    controls: Controls = None,
    random: Random = None,
    exact: Exact = None,
    keep_per_layer: KeepPerLayer = None,
    granularity: CurveGranularity = None,
    normalise: CurveNormalise = None,
    examples: CurveExamples = None,
    importance_split: ImportanceSplit = None,
    split: CurveSplit = None,
    limit: Limit = None,
    resamples: Annotated[int, typer.Option(min=1, help="Draws of the examples for the intervals.")] = 1000,
    seed: DissociationSeed = 0,
    batch: Batch = None,
    data: Data = None,
    output: Output = None,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Tell whether losing one task's heads hurts that task, and that task more than the others: D-scores.

    Takes the curve that `headwise heads prune-curve` left; without one it is measured first, with the same options.
    Writes dissociation.json and dissociation.csv.
    """
    from headwise.cli.heads_output import CurveOrder, show_dissociation
    from headwise.experiments.apply import Source

    asked = given(
        percent=percent,
        number=number,
        task=task,
        order=order,
        controls=controls,
        random=random,
        exact=exact,
        keep_per_layer=keep_per_layer,
        granularity=granularity,
        normalise=normalise,
        examples=examples,
        importance_split=importance_split,
        split=split,
        limit=limit,
    )
    wanted = CurveOrder(run, asked, seed, Source(data, download), output, batch)
    show_dissociation(wanted, resamples=resamples, as_json=as_json)


@heads.command("similarity")
def similarity(
    run: Run,
    examples: Annotated[int, typer.Option(min=1, help="At most so many of each task, a seeded choice.")] = 2000,
    split: Annotated[str, typer.Option(help="Which examples.")] = "train",
    granularity: Granularity = "sample",
    normalise: Normalise = "none",
    seed: Seed = 0,
    data: Data = None,
    output: Output = None,
    download: Download = False,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Tell how alike the tasks of RUN are: the heads they need, and where their losses pull the shared encoder.

    Shows the D-scores of `headwise heads dissociation` beside them, if they are there. Writes similarity.json.
    """
    from headwise.cli.heads_output import show_similarity
    from headwise.experiments.apply import Source
    from headwise.experiments.head_studies.head_importance import ImportanceSettings

    settings = ImportanceSettings(granularity, normalise, examples, split, seed)
    show_similarity(run, settings, Source(data, download), output=output, as_json=as_json)


def given(**options: Any) -> dict[str, Any]:
    """The options that have a value, lists as tuples."""
    present = {name: value for name, value in options.items() if value is not None and value != []}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in present.items()}

"""The report: one offline HTML file that shows what the heads of one run do, or of several side by side.

No model is loaded. A page is a payload of plain JSON values, arrays of bytes, and the files of the folder assets; the
browser needs nothing else.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from headwise import __version__
from headwise.disk import save_content
from headwise.errors import InputError
from headwise.experiments.comparison.run_plots import (
    LOG,
    dissociation_matrices,
    pruning_plots,
    similarity_matrices,
    training_curves,
)
from headwise.reports.report_runs import ReportRun, common_examples, gather_runs
from headwise.reports.report_summary import caveats_payload, compare_sides, comparison_tables, sides_of, summary_payload
from headwise.reports.report_views import (
    KEPT,
    Arrays,
    changes_of,
    diversity_payload,
    examples_payload,
    flips_payload,
    heads_payload,
    retrieval_payload,
)

if TYPE_CHECKING:
    from headwise.experiments.comparison import Comparison

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
NOTE = (
    "Weights are rounded to a byte on a root scale (the error is below 0.004, and far below for small weights). "
    f"Where maps are not whole, the {KEPT} largest weights of every row are there; in a difference the others count as "
    "0, which they are nearly."
)


def asset(name: str) -> str:
    """The text of a file of the folder assets."""
    return (files("headwise.reports") / "assets" / name).read_text(encoding="utf-8")


def page(payload: Mapping[str, Any], arrays: Mapping[str, bytes], *, live: bool = False) -> str:
    """The whole page as text: the payload as JSON, each array deflated beside it, styles and scripts inside.

    Args:
        payload: what the page shows, as plain JSON values; numbers that are not finite are refused.
        arrays: raw bytes by the names that the payload uses.
        live: whether the page may send requests to the server that it came from, at `payload["live"]`.
    """
    text = json.dumps(payload, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    elements = [
        f'<script type="text/plain" class="array" id="array-{escape(name)}" data-bytes="{len(content)}">'
        f"{packed(content)}</script>"
        for name, content in arrays.items()
    ]
    return Template(asset("page.html")).substitute(
        policy=POLICY + ("; connect-src 'self'" if live else ""),
        title=escape(str(payload.get("title", ""))),
        style=asset("page.css"),
        # Nothing in the JSON may end the element that holds it.
        payload=text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        arrays="\n".join(elements),
        # One function: first what other scripts use, then the views, then the start.
        script="\n".join(asset(name) for name in asset("scripts.txt").split()),
    )


def packed(content: bytes) -> str:
    """An array as the page unpacks it: base64 of raw deflate, which DecompressionStream("deflate-raw") reads."""
    press = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(press.compress(content) + press.flush()).decode("ascii")


@dataclass(frozen=True)
class Page:
    """A payload and its arrays, as `page` takes them."""

    payload: dict[str, Any]
    arrays: Arrays

    def html(self, *, live: bool = False) -> str:
        """The whole page."""
        return page(self.payload, self.arrays, live=live)

    def save(self, path: Path | str, *, force: bool = False) -> Path:
        """Write the page to a new file, or replace one with `force`."""
        target = Path(path)
        if target.exists() and not force:
            raise InputError(f"{target} exists already: choose another name, or pass force=True.")
        save_content(target, self.html())
        return target

    def _repr_html_(self) -> str:
        """For notebooks: the page in a separate frame, which can reach neither the notebook nor the network."""
        frame = 'sandbox="allow-scripts allow-downloads" width="100%" height="800" style="border:0"'
        return f'<iframe {frame} srcdoc="{escape(self.html())}"></iframe>'

    @property
    def views(self) -> list[str]:
        """The names of the views."""
        return list(self.payload["views"])


def report(
    run: Path | str,
    baseline: Path | str | None = None,
    *,
    also: Sequence[Path | str] = (),
    results: Path | str | None = None,
    task: str | None = None,
    title: str | None = None,
) -> Page:
    """Put what `hw.analyze` or `headwise analyze` found on a page; show it in a notebook, or `.save("report.html")`.

    Args:
        run: a folder of `headwise train`.
        baseline: the run to compare with, such as the same one without guides.
        also: more runs beside them.
        results: a folder of `headwise sweep`, for plots and tests over seeds.
        task: of runs on several tasks, which one.
        title: of the page.
    """
    runs = gather_runs(Path(run), None if baseline is None else Path(baseline), [Path(each) for each in also], task)
    return build_page(runs, results=None if results is None else Path(results), title=title)


def build_page(
    runs: Sequence[ReportRun],
    *,
    results: Path | None = None,
    title: str | None = None,
    exact: Sequence[int] = (),
) -> Page:
    """All views that there is data for.

    Args:
        runs: those of `gather_runs`.
        results: a folder of `headwise sweep`, for plots and tests over seeds.
        title: of the page; by default the names of the runs.
        exact: examples to show with whole maps, by their positions in the split; the first ones if none is named.
    """
    examples = common_examples(runs)
    numbers = {views[0].place: number for number, views in enumerate(examples)}
    for position in exact:
        again = f"analyse the run again with pick={position}."
        if position not in numbers:
            kept = ", ".join(str(each) for each in numbers if each is not None)
            raise InputError(f"exact={position}: the analysis kept the examples {kept}; {again}")
        if not all(view.maps.exact for view in examples[numbers[position]]):
            raise InputError(f"exact={position}: the analysis kept only its largest weights; {again}")
    sides = sides_of(runs)
    whole = [numbers[position] for position in exact]
    listed, arrays = examples_payload([run.id for run in runs], examples, whole=whole, foremost=1 if sides else 0)
    views: dict[str, Any] = {"heads": heads_payload(runs), "examples": {"note": NOTE, "list": listed}}
    if sides:
        pairs = [(one, other) for one, other, *_ in examples]
        shown = {one.place: (row["id"], one, other) for row, (one, other) in zip(listed, pairs, strict=True)}
        views["heads"]["changes"] = changes_of(pairs)
        views["flips"] = flips_payload(sides[0], sides[1], shown)
    logged = [run for run in runs if (run.folder / LOG).is_file()]  # older versions left none
    series = [each for run in logged for each in training_curves(run.folder, run.id)]
    views["curves"] = {"series": series} if series else None
    views["diversity"] = diversity_payload(runs)
    views["retrieval"] = retrieval_payload(runs)
    of_folder = {"pruning": pruning_plots, "dissociation": dissociation_matrices, "overlap": similarity_matrices}
    for name, parts_of in of_folder.items():
        parts: list[tuple[ReportRun, dict[str, Any]]] = [(run, part) for run in runs for part in parts_of(run.folder)]
        views[name] = [
            part if len(runs) == 1 else part | {"title": f"{run.name}: {part['title']}"} for run, part in parts
        ]
    sweeps, over_seeds = ({}, []) if results is None else _add_sweep_views(results, views)
    comparison, refusal = compare_sides(runs)
    views["summary"] = summary_payload(runs, comparison, views)
    views["results"] = [table for each in over_seeds for table in comparison_tables(each)]
    every = [*([comparison] if comparison else []), *over_seeds]
    views["caveats"] = caveats_payload(runs, every, refusal, sweeps)
    payload = {
        "format": 1,
        "title": title or " and ".join(run.name for run in runs),
        "version": __version__,
        "models": [
            {"id": run.id, "name": run.name, "role": run.role}
            | {"layers": run.analysis.layers, "heads": run.analysis.heads}
            for run in runs
        ],
        "views": {name: view for name, view in views.items() if view},
    }
    return Page(payload, arrays)


def _add_sweep_views(results: Path, views: dict[str, Any]) -> tuple[dict[str, str], list[Comparison]]:
    """Plots and comparisons of a folder of results; of each of its sweeps, whether it could be compared."""
    from headwise.experiments.comparison import CompareOptions, compare
    from headwise.experiments.comparison.sweep_plots import (
        layer_plots,
        size_plots,
        sweeps_of,
        time_tables,
        weight_plots,
    )
    from headwise.experiments.record import read_stored
    from headwise.experiments.sweeps.result_folder import run_files

    outcomes: dict[str, str] = {}
    comparisons: list[Comparison] = []
    plots = {"layers": layer_plots, "sizes": size_plots, "weights": weight_plots, "times": time_tables}
    for path in run_files(results).values():  # a damaged one is an error, not a sweep that cannot be compared
        read_stored(path)
    for name in [manifest.name for manifest in sweeps_of(results)]:
        try:
            for view, plots_of in plots.items():
                views.setdefault(view, []).extend(plots_of(results, name))
            comparisons.append(compare([results], CompareOptions(sweep=name, common_seeds=True)))
            outcomes[name] = "compared"
        except InputError as error:  # runs that cannot be compared; the page says so
            outcomes[name] = f"not compared: {error}"
    return outcomes, comparisons

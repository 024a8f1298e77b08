"""Runs in, one page out; no model is loaded."""

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
from typing import Any

from headwise import __version__
from headwise.disk import save_content
from headwise.errors import InputError
from headwise.experiments.analysis.analysis_files import ExampleView
from headwise.experiments.comparison import CompareOptions, Comparison, compare
from headwise.experiments.comparison.run_plots import (
    LOG,
    dissociation_matrices,
    pruning_plots,
    similarity_matrices,
    training_curves,
)
from headwise.experiments.comparison.sweep_plots import layer_plots, size_plots, sweeps_of, time_tables, weight_plots
from headwise.experiments.results import read_stored, run_files
from headwise.reports.explorer.example_payload import KEPT, Arrays, examples_payload, flips_payload
from headwise.reports.explorer.heads_payload import changes_of, diversity_payload, heads_payload, retrieval_payload
from headwise.reports.explorer.report_runs import BASELINE, RUN, ReportRun, common_examples, gather_runs
from headwise.reports.explorer.summary_payload import compared, comparison_tables, honesty_payload, summary_payload

# One HTML file from a payload, arrays and the assets beside this file; the browser needs nothing else.


_ASSETS = files("headwise.reports.explorer") / "assets"

# The scripts are joined in this order into one function: first what others stand on, then the views, then the start.
_SCRIPTS = (
    "elements.js",
    "numbers.js",
    "payload.js",
    "arrays.js",
    "maps.js",
    "state.js",
    "colours.js",
    "vector.js",
    "chart.js",
    "scatter.js",
    "heat.js",
    "downloads.js",
    "views.js",
    "view_summary.js",
    "view_curves.js",
    "view_heads.js",
    "view_live.js",
    "token_lines.js",
    "view_detail.js",
    "view_figures.js",
    "view_diversity.js",
    "view_plots.js",
    "view_silenced.js",
    "view_tables.js",
    "view_ssa.js",
    "view_retrieval.js",
    "view_flips.js",
    "keyboard.js",
    "start.js",
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def page(payload: Mapping[str, Any], arrays: Mapping[str, bytes], *, live: bool = False) -> str:
    """The whole page as text: the payload as JSON, each array deflated beside it, styles and scripts inside.

    Args:
        payload: What the page shows, as plain JSON values; numbers that are not finite are refused.
        arrays: Raw bytes by the names under which the payload speaks of them.
        live: Whether the page may ask the server that it came from (`payload["live"]` says where).
    """
    return Template(_asset("page.html")).substitute(
        policy=_POLICY + ("; connect-src 'self'" if live else ""),
        title=escape(str(payload.get("title", ""))),
        style=_asset("page.css"),
        payload=_json(payload),
        arrays="\n".join(_array(name, content) for name, content in arrays.items()),
        script="\n".join(_asset(name) for name in _SCRIPTS),
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _json(payload: Mapping[str, Any]) -> str:
    """JSON in which nothing can end the element that holds it."""
    text = json.dumps(payload, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def packed(content: bytes) -> str:
    """An array as the page unpacks it: base64 of raw deflate, which DecompressionStream("deflate-raw") reads."""
    press = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(press.compress(content) + press.flush()).decode("ascii")


def _array(name: str, content: bytes) -> str:
    return (
        f'<script type="text/plain" class="array" id="array-{escape(name)}" data-bytes="{len(content)}">'
        f"{packed(content)}</script>"
    )


NOTE = (
    "Weights are rounded to a byte on a root scale (the error is below 0.004, and far below for small weights). "
    f"Where maps are not whole, the {KEPT} largest weights of every row are there; in a difference the others count as "
    "0, which they are nearly."
)


@dataclass(frozen=True)
class Page:
    """A payload and its arrays, as `page` takes them."""

    payload: dict[str, Any]
    arrays: Arrays

    def html(self, *, live: bool = False) -> str:
        """The whole page."""
        return page(self.payload, self.arrays, live=live)

    def save(self, path: Path | str, *, force: bool = False) -> Path:
        """Write the page to a file that is not there yet, or whatever is there with `force`."""
        target = Path(path)
        if target.exists() and not force:
            raise InputError(f"{target} exists already: choose another name, or give force=True.")
        save_content(target, self.html())
        return target

    def _repr_html_(self) -> str:
        """For notebooks: the page in a frame of its own, which can reach neither the notebook nor the network."""
        frame = 'sandbox="allow-scripts allow-downloads" width="100%" height="800" style="border:0"'
        return f'<iframe {frame} srcdoc="{escape(self.html())}"></iframe>'

    @property
    def views(self) -> list[str]:
        """Which views there are."""
        return list(self.payload["views"])


def build_page(
    runs: Sequence[ReportRun],
    *,
    results: Path | None = None,
    title: str | None = None,
    exact: Sequence[int] = (),
) -> Page:
    """All views that there are data for.

    Args:
        runs: those of `gather_runs`.
        exact: examples to show with whole maps, by their places in the split; the first ones if none is named.
        results: a folder of `headwise sweep`, for plots and tests over seeds.
        title: of the page; by default the names of the runs.
    """
    models = [run.id for run in runs]
    examples = common_examples(runs)
    sides = {run.role: place for place, run in enumerate(runs) if run.role in (BASELINE, RUN)}
    listed, arrays = examples_payload(
        models, examples, exact_places=_exact(examples, exact), foremost=sides.get(RUN, 0)
    )
    views: dict[str, Any] = {"heads": heads_payload(runs), "examples": {"note": NOTE, "list": listed}}
    if BASELINE in sides:
        before, after = sides[BASELINE], sides[RUN]
        pairs = [(views_of[before], views_of[after]) for views_of in examples]
        views["heads"]["changes"] = changes_of([one for one, _ in pairs], [other for _, other in pairs])
        views["flips"] = flips_payload(runs[before], runs[after], _by_place(listed, pairs))
    logged = [run for run in runs if (run.folder / LOG).is_file()]  # an older headwise left none
    views["curves"] = {"series": [series for run in logged for series in training_curves(run.folder, run.id)]}
    views["diversity"] = diversity_payload(runs)
    views["retrieval"] = retrieval_payload(runs)
    views["pruning"] = [_named(plot, run, runs) for run in runs for plot in pruning_plots(run.folder)]
    views["dissociation"] = [_named(found, run, runs) for run in runs for found in dissociation_matrices(run.folder)]
    views["overlap"] = [_named(found, run, runs) for run in runs for found in similarity_matrices(run.folder)]
    sweeps, comparisons = _sweep_views(results, views)
    comparison, refusal = compared(runs)
    views["summary"] = summary_payload(runs, comparison, views)
    views["results"] = [table for each in comparisons for table in comparison_tables(each)]
    told = [*([comparison] if comparison else []), *comparisons]
    views["honesty"] = honesty_payload(runs, told, refusal, sweeps)
    payload = {
        "format": 1,
        "title": title or " and ".join(run.name for run in runs),
        "version": __version__,
        "models": [_model(run) for run in runs],
        "views": {name: view for name, view in views.items() if _has_content(name, view)},
    }
    return Page(payload, arrays)


def _exact(examples: Sequence[Sequence[ExampleView]], wanted: Sequence[int]) -> list[int]:
    """Where the examples that are asked for stand on the page; refuses those that cannot be shown whole."""
    places = {views[0].place: number for number, views in enumerate(examples)}
    for place in wanted:
        if place not in places:
            kept = ", ".join(str(each) for each in places if each is not None)
            raise InputError(
                f"--exact {place}: the analysis kept the examples {kept}; add it by `headwise analyze RUN --pick "
                f"{place}`."
            )
        if not all(view.maps.exact for view in examples[places[place]]):
            raise InputError(
                f"--exact {place}: the analysis kept only its largest weights; analyse again with --pick {place}."
            )
    return [places[place] for place in wanted]


def _model(run: ReportRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "role": run.role,
        "layers": run.analysis.layers,
        "heads": run.analysis.heads,
        "pruned": [],
    }


def _by_place(
    listed: Sequence[Mapping[str, Any]], pairs: Sequence[tuple[ExampleView, ExampleView]]
) -> dict[int, tuple[str, ExampleView, ExampleView]]:
    return {
        one.place: (described["id"], one, other)
        for described, (one, other) in zip(listed, pairs, strict=True)
        if one.place is not None
    }


def _sweep_views(results: Path | None, views: dict[str, Any]) -> tuple[dict[str, str], list[Comparison]]:
    """Plots and comparisons of a folder of results; of each of its sweeps, what could be done with it."""
    told: dict[str, str] = {}
    comparisons: list[Comparison] = []
    if results is None:
        return told, comparisons
    for path in run_files(results).values():  # a damaged one is an error, not a sweep that cannot be compared
        read_stored(path)
    for name in [manifest.name for manifest in sweeps_of(results)]:
        try:
            for view, plots in (("layers", layer_plots), ("sizes", size_plots), ("weights", weight_plots)):
                views.setdefault(view, []).extend(plots(results, name))
            views.setdefault("times", []).extend(time_tables(results, name))
            comparisons.append(compare([results], CompareOptions(sweep=name, common_seeds=True)))
            told[name] = "compared"
        except InputError as error:  # runs that cannot be held against each other; the page says so
            told[name] = f"not compared: {error}"
    return told, comparisons


def _named(part: dict[str, Any], run: ReportRun, runs: Sequence[ReportRun]) -> dict[str, Any]:
    return part if len(runs) == 1 else part | {"title": f"{run.name}: {part['title']}"}


def _has_content(name: str, view: Any) -> bool:
    if name == "curves":
        return bool(view["series"])
    return bool(view)


# `hw.report`: the page of one run, or of several side by side, in one call.


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

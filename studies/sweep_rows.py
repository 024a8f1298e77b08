"""What studies of sweeps share: a row for every finished run, seed after seed, and differences as text."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the shared harness

from harness import finish, progress, put_between, write_rows

from headwise.errors import HeadwiseError
from headwise.experiments.sweeps.jobs import JobSettings
from headwise.experiments.sweeps.result_folder import ResultFolder
from headwise.experiments.sweeps.sweep import run_sweep
from headwise.experiments.sweeps.sweep_file import SweepPlan
from headwise.experiments.sweeps.worker_pool import choose_engine
from headwise.metrics.significance import SeedScores, SeedTest
from headwise.training import Silence

Row = dict[str, Any]
# (name of the sweep, point of the run, its result) -> its row.
RowOf = Callable[[str, Any, Row], Row]


class Rows(Silence):
    """The rows of a study, in a file that is written after every run."""

    def __init__(self, path: Path, row_of: RowOf, in_order: Callable[[Row], Any]) -> None:
        self._path, self._row_of, self._in_order = path, row_of, in_order
        self._rows: dict[str, Row] = {}
        if path.is_file():
            self._rows = {row["key"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
        self._collect: Callable[[], None] = lambda: None

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    @property
    def finished(self) -> list[Row]:
        return sorted(self._rows.values(), key=self._in_order)

    def log(self, message: str) -> None:
        """Called by a sweep, as after every run."""
        progress(message)
        self._collect()

    def collect(self, name: str, plan: SweepPlan, folder: ResultFolder) -> None:
        """Add the finished runs of a sweep."""
        for planned in plan.runs:
            if planned.key not in self and folder.has(planned.key):
                content = json.loads(folder.result(planned.key).read_text(encoding="utf-8"))
                self._rows[planned.key] = self._row_of(name, planned.point, content)
        write_rows(self._path, self.finished)

    def fill(self, name: str, plan: SweepPlan, work: Path, data: Path | None, options: argparse.Namespace) -> None:
        """Train what is missing, one seed after the other, so that a stopped study has complete seeds."""
        if (work / "runs").is_dir():
            self.collect(name, plan, ResultFolder(work))
        for seed in [] if options.tables else dict.fromkeys(planned.recipe.seed for planned in plan.runs):
            runs = tuple(each for each in plan.runs if each.recipe.seed == seed and each.key not in self)
            if not runs:
                continue
            part, folder = replace(plan, runs=runs), ResultFolder(work)
            self._collect = lambda part=part, folder=folder: self.collect(name, part, folder)
            engine = choose_engine("local", workers=options.workers)
            result = run_sweep(part, JobSettings(work, data, cache=options.work / "cache"), engine, self)
            self._collect()
            if result.interrupted:
                raise KeyboardInterrupt


def add_options(parser: argparse.ArgumentParser, rows: Path, work: Path) -> None:
    """The options of every such study."""
    parser.add_argument("--data", type=Path, help="folder with the data sets that the sweeps name")
    parser.add_argument("--work", type=Path, default=work, help="folder for unfinished runs")
    parser.add_argument("--rows", type=Path, default=rows, help="file of the finished runs")
    parser.add_argument("--seeds", type=int, nargs="+", help="default: those of the sweeps")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each; default: 2")
    parser.add_argument("--tables", action="store_true", help="train nothing, use the runs that are finished")
    parser.add_argument("--markdown", type=Path, help="write the tables into this page, between their marks")
    parser.add_argument("--quick", action="store_true", help="a few examples, 1 seed: tries the program only")
    parser.add_argument("--check", action="store_true", help="nothing to miss: there is no bar")


def run_study(
    options: argparse.Namespace,
    row_of: RowOf,
    in_order: Callable[[Row], Any],
    plans: Iterable[tuple[str, Callable[[], SweepPlan], Path]],
    write_page: Callable[[list[Row]], None],
    data_of: Callable[[str], Path | None] | None = None,
) -> int:
    """Run all sweeps, write the tables, and print the rows; the exit code.

    Args:
        options: of `add_options`.
        row_of: makes a row.
        in_order: the order of rows.
        plans: name, plan and folder of each sweep.
        write_page: puts the tables into the page.
        data_of: the folder with the files of a sweep; default: --data.
    """
    if options.quick:
        options.seeds, options.rows = [1], options.work / "quick.json"
        options.work.mkdir(parents=True, exist_ok=True)
    rows = Rows(options.rows, row_of, in_order)
    try:
        for name, plan, folder in plans:
            data = data_of(name) if data_of and not options.tables else options.data
            rows.fill(name, plan(), folder, data, options)
    except HeadwiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        progress("stopped; the same command resumes")
        return 130
    if options.markdown or getattr(options, "figure", None):
        write_page(rows.finished)
    return finish({"rows": rows.finished, "bars": []}, options.check)


def put_part(page: Path, name: str, lines: Iterable[str]) -> None:
    """Replace a part of a page, which stands between marks with this name."""
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    put_between(page, opening, closing, "\n".join([opening, "", *lines, "", closing]))


def scores(rows: Iterable[Row], arm: str) -> dict[int, float]:
    """Accuracy on test in percent, by seed."""
    return {row["seed"]: 100 * row["test"] for row in rows if row["arm"] == arm}


def spread(values: Iterable[float]) -> str:
    """Mean and standard deviation."""
    summary = SeedScores.of(list(values))
    return f"{summary.mean:.1f}" + ("" if summary.deviation is None else f" ± {summary.deviation:.1f}")


def interval(test: SeedTest, digits: int = 2) -> str:
    """A difference with its interval."""
    ends = "" if test.low is None or test.high is None else f" ({test.low:+.{digits}f} to {test.high:+.{digits}f})"
    return f"{test.difference:+.{digits}f}{ends}"

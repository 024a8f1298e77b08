"""From the results of sweeps to docs/reproduction.md: what was measured, beside what the papers report.

    python studies/reproduce.py RESULTS...     folders of `headwise sweep`

Writes studies/results/sweeps.json and the page. Every sweep of every folder is compared as it says itself (`headwise
compare`): the mean over seeds, the difference to the baseline by seed, and the p of its t-test, corrected by Holm for
all tests of the sweep. Table 4 is of seconds per epoch; sweeps that measure heads have the D-score as well, by row, the
mean over tasks and percentages. A sweep that is not whole yet is left as it was, and that is said.

stdout carries one JSON object {"rows", "bars"}, stderr the progress. There is no bar: what comes out, comes out.
"""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # the shared harness

from harness import UsageError, fail, finish, progress
from step import Parser

from headwise.errors import HeadwiseError
from headwise.experiments.comparison import CompareOptions, compare
from headwise.metrics.significance import SeedScores, holm, paired_by_seed

DOCS = Path(__file__).parents[1] / "docs"
MEASURED = DOCS / "measured" / "sweeps.json"
TIMED = "table4"
Row = dict[str, Any]


def rows_of(folder: Path, manifest: dict[str, Any]) -> list[Row]:
    """Of one sweep: a row for each block, system and metric."""
    compared = compare([folder], CompareOptions(sweep=manifest["name"])).as_data()
    rows = []
    for table in compared["tables"]:
        for each in table["rows"]:
            test = each["by_seed"] or {}
            row = {
                "block": table["within"],
                "system": each["system"],
                "metric": table["metric"],
                "seeds": len(each["seeds"]),
                "mean": each["mean"],
                "sd": each["deviation"],
                "difference": test.get("difference"),
                "interval": None if test.get("low") is None else [test["low"], test["high"]],
                "p": each["holm"].get("t"),
            }
            rows.append(row)
    return rows + (times(folder, manifest) if manifest["name"] == TIMED else []) + scores(folder, manifest)


def runs(folder: Path, manifest: dict[str, Any]) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The point and the content of every run."""
    paths = {each["key"]: folder / "runs" / f"{each['key']}.json" for each in manifest["runs"]}
    content = {key: json.loads(path.read_text(encoding="utf-8")) for key, path in paths.items()}
    return [(each["point"], content[each["key"]]) for each in manifest["runs"]]


def minutes(folder: Path, manifest: dict[str, Any]) -> float:
    """What its trainings took together, each on one core, whatever ran beside them."""
    seconds = {run["key"]: run["environment"]["times"]["seconds"] for _, run in runs(folder, manifest)}
    return round(sum(seconds.values()) / 60, 1)


def times(folder: Path, manifest: dict[str, Any]) -> list[Row]:
    found: dict[tuple[Any, ...], dict[str, dict[str, float]]] = {}
    for point, run in runs(folder, manifest):
        seconds = run["environment"]["times"]["seconds_per_epoch"]
        at, system = block_of(point, manifest)
        found.setdefault(at, {}).setdefault(system, {})[point["seed"]] = sum(seconds) / len(seconds)
    return by_seed(found, "seconds_per_epoch", manifest)


def scores(folder: Path, manifest: dict[str, Any]) -> list[Row]:
    """D-scores, of sweeps that measure heads."""
    found: dict[tuple[Any, ...], dict[str, dict[str, float]]] = {}
    for point, run in runs(folder, manifest):
        heads = run["results"].get("heads", {}).get("dissociation")
        score = None if heads is None else heads["mean"]["row"]["mean"]
        if score is not None:
            at, system = block_of(point, manifest)
            found.setdefault(at, {}).setdefault(system, {})[point["seed"]] = score
    return by_seed(found, "dissociation", manifest)


def block_of(point: dict[str, str], manifest: dict[str, Any]) -> tuple[tuple[tuple[str, str], ...], str]:
    """The labels within which systems are compared, and the system."""
    compared = manifest["compare"]
    return tuple((name, point[name]) for name in compared["within"]), point[compared["by"][0]]


def by_seed(found: dict[Any, dict[str, dict[str, float]]], metric: str, manifest: dict[str, Any]) -> list[Row]:
    base, rows = manifest["compare"]["baseline"], []
    for block, systems in found.items():
        for system, values in systems.items():
            summary = SeedScores.of(list(values.values())).as_data()
            row = {
                "block": dict(block),
                "system": system,
                "metric": metric,
                "seeds": len(values),
                "mean": summary["mean"],
                "sd": summary["deviation"],
            }
            if system != base and systems.get(base, {}).keys() == values.keys():
                test = paired_by_seed(list(systems[base].values()), [values[seed] for seed in systems[base]]).as_data()
                row |= {"difference": test["difference"], "p": test["t_test_p"]}
                row["interval"] = None if test["low"] is None else [test["low"], test["high"]]
            rows.append(row)
    tested = [row for row in rows if row.get("p") is not None]
    for row, corrected in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p"] = corrected
    return rows


def main() -> int:
    parser = Parser(description="What sweeps measured, into docs/reproduction.md.")
    parser.add_argument("results", nargs="+", type=Path, help="folders of `headwise sweep`")
    parser.add_argument("--machine", default="2 cores of an x86-64 server, torch 2.13.0, transformers 5.22.2")
    parser.add_argument("--quick", action="store_true", help="as without: there is nothing to shorten")
    parser.add_argument("--check", action="store_true", help="as without: there is no bar")
    options = parser.parse_args()
    kept = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else {}
    rows: list[Row] = []
    try:
        for folder in options.results:
            for path in sorted((folder / "sweeps").glob("*.json")):
                manifest = json.loads(path.read_text(encoding="utf-8"))
                name = manifest["name"] + (f"/{manifest['scale']}" if manifest["scale"] else "")
                try:
                    found = rows_of(folder, manifest)
                except (HeadwiseError, FileNotFoundError) as error:
                    progress(f"{name}: left out: {error}")
                    continue
                kept[name] = {"machine": options.machine, "minutes": minutes(folder, manifest), "rows": found}
                rows += [{"sweep": name, **row} for row in found]
                progress(f"{name}: {len(found)} rows")
        if not rows:
            raise UsageError("no sweep in these folders is whole: let `headwise sweep` finish one.")
    except UsageError as error:
        fail(str(error), 2)
    MEASURED.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    sys.argv = ["reproduction.py"]
    try:
        runpy.run_path(str(DOCS / "reproduction.py"), run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            fail(f"docs/reproduction.py: {ended.code}", 1)
    return finish({"rows": rows, "bars": []}, options.check)


if __name__ == "__main__":
    sys.exit(main())

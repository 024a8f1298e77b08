"""Writes docs/which-guide.md: the guides of the registry, and what was measured of them.

    python docs/which_guide.py           write the page
    python docs/which_guide.py --check   exit 1 if the page is not what would be written

Costs come from studies/results/guides.json (benchmarks/guides.py --output), results from studies/results/table2.json
(studies/table2.py --output).
"""

import inspect
import json
import math
import sys
from dataclasses import MISSING, Field, fields
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy import stats

from headwise.guides import GUIDES, Guide, build

HERE = Path(__file__).parent
PAGE = HERE / "which-guide.md"
COSTS = HERE / "../studies/results" / "guides.json"
RESULTS = HERE / "../studies/results" / "table2.json"
# Options of a guide that needs some.
NEEDED = {"match": {"pattern": "next"}}
INPUTS = {"received": "received attention", "map": "maps", "value": "values", "output": "outputs"}

OPENING = """# Which guide?

<!-- Written by docs/which_guide.py from the registry: change the docstrings, not this page. -->

A guide adds a loss on attention while you fine-tune. Use it in your own script, `hw.guide(model, hw.Match("next"))`,
or by name in a recipe (`guides: {next: {weight: {share: 0.03}}}`). In short:

- **Heads should differ from each other**: `mdg`, `pdg` or both (the paper), or `disagreement`, which compares the
  heads of one layer only.
- **You know where heads should look**: `first`, `next`, `prev`, `delim`, `period`, or `match` with your own pattern.
  They guide half of the heads of each layer on their maps and leave the others free.
- **You know something about the words**: `pmi` (from your training texts), `dependency` (grammar), `wordsim`
  (meaning). They guide received attention, which costs almost nothing; `on: map` guides whole maps.
- **Look first**: `headwise heads patterns RUN` shows how much each head of a trained model already follows each
  pattern, `headwise knowledge show RECIPE --example 3` shows the knowledge about a pair of texts.
"""
TABLE_TEXT = """
Time and memory are those of a training step, divided by plain training; the largest measured ratio is shown (the size
of MiniLM-L6, 16 examples of 128 and of 256 tokens, attention dropout 0 and 0.1; [performance.md](performance.md) has
all figures). "Did it help?" is the accuracy on SICK minus that of plain training with the same seeds, with its 95 %
interval ([results.md](results.md)): if the interval contains 0, nothing was shown.
"""


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """The whole page."""
    names = sorted(GUIDES, key=lambda name: (INPUTS.get(default_guide(name).what, ""), name))
    parts = [OPENING, TABLE_TEXT.strip(), "", *table(names), ""]
    parts += [section(name) for name in sorted(GUIDES)]
    return "\n".join(parts).rstrip() + "\n"


def default_guide(name: str) -> Guide:
    return build(name, **NEEDED.get(name, {}))


def table(names: list[str]) -> list[str]:
    lines = [
        "| guide | goal | input | needs | time | memory | did it help? |",
        "|---|---|---|---|---:|---:|---|",
    ]
    for name in names:
        guide = default_guide(name)
        goal = first_sentence(guide)
        needs = "a pattern" if name == "match" else guide.needs
        time, memory = cost(guide, "time"), cost(guide, "memory")
        lines.append(
            f"| [`{name}`](#{name}) | {goal} | {INPUTS[guide.what]} | {needs} | {time} | {memory} | {helped(name)} |"
        )
    return lines


def first_sentence(guide: Guide) -> str:
    """The first line of the docstring, without the guide's own name in front and without formulas behind."""
    line = (guide.__doc__ or "").strip().splitlines()[0].partition(": T[")[0]
    short, colon, rest = line.partition(": ")
    return (rest[:1].upper() + rest[1:] if colon and " " not in short else line).rstrip(".")


def cost(guide: Guide, kind: str) -> str:
    """The worst ratio to plain training of the guide with its defaults; a dash if it was not measured."""
    label = f"{guide.name} on {getattr(guide, 'on', guide.what)}"
    ratios = [row["ratio"] for row in rows_of(COSTS) if row["kind"] == kind and row.get("guide") == label]
    return f"{max(ratios):.2f}" if ratios else "–"


def helped(name: str) -> str:
    """Accuracy minus that of plain training, by seed."""
    setting = "mdg-pdg" if name in ("mdg", "pdg") else name
    rows = rows_of(RESULTS)
    plain = {row["seed"]: row["test"] for row in rows if row["setting"] == "plain"}
    paired = [row for row in rows if row["setting"] == setting and row["seed"] in plain]
    gaps = [100 * (row["test"] - plain[row["seed"]]) for row in paired]
    if len(gaps) < 2:
        return "–"
    half = stats.t.ppf(0.975, len(gaps) - 1) * stdev(gaps) / math.sqrt(len(gaps))
    both = " (both)" if setting != name else ""
    targets = {row.get("targets", {}).get(name) for row in paired}
    if targets - {None}:
        most, examples = max(targets - {None}), paired[0]["examples"]["train"]
        if most < examples / 10:  # then the guide was hardly there
            return f"not tried: only {most} of {examples} examples have a target"
    verdict = "not shown" if abs(mean(gaps)) <= half else "yes" if mean(gaps) > 0 else "it hurt"
    return f"{verdict}: {mean(gaps):+.2f} ± {half:.2f}{both}"


def section(name: str) -> str:
    """The docstring of a guide and its options."""
    guide = default_guide(name)
    text = inspect.cleandoc(guide.__doc__ or "")
    options = [f"`{each.name}` ({shown(default_of(guide, each))})" for each in fields(guide)]
    own = getattr(guide, "pattern", None)
    inside = (
        [f"`{each.name}` ({shown(each.default)})" for each in fields(own)]
        if own is not None and name != "match"
        else []
    )
    pattern = f"\n\nOptions of its pattern, as `pattern: {{...}}`: {', '.join(inside)}." if inside else ""
    return f"## {name}\n\n{text}\n\nOptions: {', '.join(options)}.{pattern}\n"


def default_of(guide: Guide, option: Field[Any]) -> Any:
    return getattr(guide, option.name) if option.default in (MISSING, None) else option.default


def shown(value: Any) -> str:
    """A default as a recipe would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "share"):
        return f"share {value.share:g}"
    if hasattr(value, "name"):
        return str(value.name)
    return "none" if value is None else str(value)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []


if __name__ == "__main__":
    sys.exit(main())

"""Writes docs/which-guide.md: the guides of the registry, and what was measured of them.

    python docs/which_guide.py           write the page
    python docs/which_guide.py --check   exit 1 if the page is not what would be written

Costs come from studies/results/guides.json (benchmarks/guides.py --output), results from studies/results/effects.json
(studies/effects.py) and, for marked words, studies/results/guiding.json (studies/guiding.py).
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

from headwise.guides import GUIDES, Guide, Regulariser, build

HERE = Path(__file__).parent
PAGE = HERE / "which-guide.md"
COSTS = HERE / "../studies/results" / "guides.json"
RESULTS = HERE / "../studies/results" / "effects.json"
# The sweeps that have every guide.
TASKS = {"sick-300": "SICK", "sst2-300": "SST-2"}
MARKED = HERE / "../studies/results" / "guiding.json"
# Options of a guide that needs some.
NEEDED = {"match": {"pattern": "next"}}
INPUTS = {
    "received": "received attention",
    "cls": "attention of [CLS]",
    "map": "maps",
    "value": "values",
    "output": "outputs",
}

OPENING = """# Which guide?

<!-- Written by docs/which_guide.py from the registry: change the docstrings, not this page. -->

A guide adds a loss on attention while you fine-tune. Use it in your own script, `hw.guide(model, hw.Match("next"))`,
or by name in a recipe (`guides: {next: {weight: {share: 0.03}}}`). In short:

- **Heads should differ from each other**: `mdg`, `pdg` or both (the paper), or `disagreement`, which compares the
  heads of one layer only.
- **People marked the words that decide**: `rationale`. Mark a hundred examples ([marks.md](marks.md)) and compare with
  its control, `shuffle: true`.
- **You know where heads should look**: `first`, `next`, `prev`, `delim`, `period`, or `match` with your own pattern.
  They guide half of the heads of each layer on their maps and leave the others free.
- **You know something about the words**: `pmi` (from your training texts), `dependency` (grammar), `wordsim`
  (meaning). They guide received attention, which costs almost nothing; `on: map` guides whole maps.
- **You know which terms belong together**: `relations` (your table of term pairs, or an ontology). It guides maps.
- **Pairs of texts**: `alignment` shows a few heads the equal words of the other text. Choose heads that the task hardly
  needs: `heads=hw.head_importance(model, loader).bottom(0.1)`.
- **Attention should be more or less even**: `entropy`. With `on: received` it needs no maps.
- **You want regularisation, whatever the heads look at**: `head_dropout` silences random heads, and `consistency`
  (R-Drop) makes two passes with different dropout agree. They are no losses on attention and go with all guides.
- **Look first**: `headwise heads patterns RUN` shows how much each head of a trained model already follows each
  pattern, `headwise knowledge show RECIPE --example 3` shows the knowledge about a pair of texts.
"""
TABLE_TEXT = """
Time and memory are those of a training step, divided by plain training; the largest measured ratio is shown (the size
of MiniLM-L6, 16 examples of 128 and of 256 tokens, attention dropout 0 and 0.1; [performance.md](performance.md) has
all figures). "Did it help?" is the accuracy after training on 300 examples of SICK and of SST-2 minus that of plain
training with the same seeds, in points with the 95 % interval ([results.md](results.md)). "not shown": no difference
that is larger than chance, corrected for all arms of the table. For marked words it is the same on data with marks, and
"yes" only if the guide also beats its control, random marks.
"""


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """The whole page."""
    names = sorted(GUIDES, key=lambda name: (not issubclass(GUIDES[name], Guide), input_of(default_guide(name)), name))
    parts = [OPENING, TABLE_TEXT.strip(), "", *table(names), ""]
    parts += [section(name) for name in sorted(GUIDES)]
    return "\n".join(parts).rstrip() + "\n"


def default_guide(name: str) -> Regulariser:
    return build(name, **NEEDED.get(name, {}))


def input_of(guide: Regulariser) -> str:
    """The attention that a guide reads, or what it does instead."""
    return INPUTS[guide.what] if isinstance(guide, Guide) else guide.kind


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
            f"| [`{name}`](#{name}) | {goal} | {input_of(guide)} | {needs} | {time} | {memory} | {helped(name)} |"
        )
    return lines


def first_sentence(guide: Regulariser) -> str:
    """The first line of the docstring, without the guide's own name in front and without formulas behind."""
    line = (guide.__doc__ or "").strip().splitlines()[0].partition(": T[")[0]
    short, colon, rest = line.partition(": ")
    return (rest[:1].upper() + rest[1:] if colon and " " not in short else line).rstrip(".")


def cost(guide: Regulariser, kind: str) -> str:
    """The worst ratio to plain training of the guide with its defaults; a dash if it was not measured."""
    label = f"{guide.name} on {getattr(guide, 'on', guide.what)}" if isinstance(guide, Guide) else guide.name
    ratios = [row["ratio"] for row in rows_of(COSTS) if row["kind"] == kind and row.get("guide") == label]
    return f"{max(ratios):.2f}" if ratios else "–"


def helped(name: str) -> str:
    """What was measured of a guide; a dash if nothing was."""
    return helped_by_marks() if name == "rationale" else helped_on_tasks(name)


def helped_by_marks() -> str:
    """On each data set with marks, accuracy minus that of plain training and of the shuffled control, by seed."""
    found = []
    for name in sorted({row["set"] for row in rows_of(MARKED)}):
        arms = {arm: scores(name, arm) for arm in ("plain", "guided", "shuffled")}
        gaps = [gap(arms["guided"], arms[other]) for other in ("plain", "shuffled")]
        if any(each is None for each in gaps):
            continue
        both = all(each is not None and each[0] > each[1] for each in gaps)
        (plain, half), (control, other_half) = (each or (0.0, 0.0) for each in gaps)
        found.append(
            f"{name}: {'yes' if both else 'not shown'}, {plain:+.1f} ± {half:.1f}, over its control "
            f"{control:+.1f} ± {other_half:.1f}"
        )
    return "; ".join(found) or "–"


def scores(name: str, arm: str) -> dict[int, float]:
    """Accuracy by seed."""
    return {row["seed"]: 100 * row["test"] for row in rows_of(MARKED) if row["set"] == name and row["arm"] == arm}


def gap(first: dict[int, float], second: dict[int, float]) -> tuple[float, float] | None:
    """The mean difference over the seeds of both, and half of its 95 % interval; None with fewer than three."""
    gaps = [first[seed] - second[seed] for seed in first.keys() & second.keys()]
    if len(gaps) < 3:
        return None
    return mean(gaps), stats.t.ppf(0.975, len(gaps) - 1) * stdev(gaps) / math.sqrt(len(gaps))


def helped_on_tasks(name: str) -> str:
    """On each task, accuracy minus that of plain training, by seed."""
    found = [f"{task}: {text}" for sweep, task in TASKS.items() if (text := helped_on(sweep, name))]
    return "; ".join(found) or "–"


def helped_on(sweep: str, name: str) -> str:
    """The verdict on a guide in one sweep, corrected for its arms; empty if it was not measured."""
    rows = [row for row in rows_of(RESULTS) if row["sweep"] == sweep]
    arms = {arm: {row["seed"]: 100 * row["test"] for row in rows if row["arm"] == arm} for arm in ("plain", name)}
    found = gap(arms[name], arms["plain"])
    if found is None:
        return ""
    targets = {row["targets"].get(name) for row in rows if row["arm"] == name} - {None}
    examples = rows[0]["examples"]["train"]
    if targets and max(targets) < examples / 10:  # then the guide was hardly there
        return f"not tried, since only {max(targets)} of {examples} examples have a target"
    difference, half = found
    seeds, others = len(arms[name]), len({row["arm"] for row in rows}) - 1
    corrected = half * stats.t.ppf(1 - 0.025 / others, seeds - 1) / stats.t.ppf(0.975, seeds - 1)
    verdict = "not shown" if abs(difference) <= corrected else "yes" if difference > 0 else "it hurt"
    return f"{verdict}, {difference:+.1f} ± {half:.1f}"


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


def default_of(guide: Regulariser, option: Field[Any]) -> Any:
    return getattr(guide, option.name) if option.default in (MISSING, None) else option.default


def shown(value: Any) -> str:
    """A default as a recipe would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "share"):
        return f"share {value.share:g}" + (f", falling to 0 in {value.decay} steps" if value.decay else "")
    if hasattr(value, "name"):
        return str(value.name)
    return "none" if value is None else str(value)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []


if __name__ == "__main__":
    sys.exit(main())

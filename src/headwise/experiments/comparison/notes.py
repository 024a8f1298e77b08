"""What must be known about the runs of a comparison, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwise.experiments.comparison.asked import Asked
from headwise.experiments.comparison.differences import Difference
from headwise.experiments.comparison.gather import Gathered
from headwise.experiments.comparison.seeds import progress_note
from headwise.experiments.comparison.tables import Row, Table
from headwise.metrics.significance import smallest_permutation_p

# A permutation test that cannot go below this is told of.
TOO_FEW = 0.01


def notes_on_files(gathered: Gathered, passed: Sequence[Difference], left_out: Sequence[str]) -> list[str]:
    """Runs that are not there, failed or stand there twice, and differences that were passed over."""
    notes = []
    if (progress := progress_note(gathered)) is not None:
        notes.append(progress)
    if gathered.failed:
        count, first = len(gathered.failed), gathered.failed[0]
        names = ", ".join(str(each.path) for each in gathered.failed)
        reason = " ".join(first.reason.split())[:200]
        notes.append(f"{count} failed {'run is' if count == 1 else 'runs are'} left out: {names} ({reason}).")
    if gathered.repeated:
        what = "file repeats" if gathered.repeated == 1 else "files repeat"
        notes.append(f"{gathered.repeated} {what} the results of another run: counted once.")
    notes += left_out
    notes += [f"The runs differ in {each}; passed over, as asked." for each in passed]
    return notes


def notes_on_tables(tables: Sequence[Table], split: str, asked: Asked) -> list[str]:
    """What the numbers can and cannot show."""
    rows = [row for table in tables for row in table.rows]
    tested = [row for row in rows if row.by_seed is not None]
    return [
        *_on_split(split, asked),
        *_on_seeds({len(row.seeds) for row in rows}),
        *_on_spread(tested),
        *_on_answers(tables),
    ]


def _on_split(split: str, asked: Asked) -> list[str]:
    if split != "validation":
        return [f"Scores on {split}."]
    why = "" if asked.split else "Not all runs have scores on test, so "
    return [
        f"{why}{'scores' if why else 'Scores'} on validation, which also chose the best model of each run: they "
        "flatter all systems."
    ]


def _on_seeds(counts: Iterable[int]) -> list[str]:
    notes = []
    for count in sorted(counts):
        smallest = smallest_permutation_p(count)
        if count == 1:
            notes.append(
                "One seed: no test by seed is possible, and nothing is known about other seeds; only tests by example "
                "are made."
            )
        elif smallest > TOO_FEW:
            notes.append(f"Permutation test: with {count} seeds this test cannot go below p = {smallest:.2g}.")
    return notes


def _on_spread(rows: Iterable[Row]) -> list[str]:
    same = [row.system for row in rows if row.by_seed is not None and row.by_seed.seeds > 1 and row.by_seed.low is None]
    if not same:
        return []
    return [f"{', '.join(dict.fromkeys(same))}: the difference is the same for every seed, so there is no t-test."]


def _on_answers(tables: Sequence[Table]) -> list[str]:
    notes = []
    silent = [table for table in tables if len(table.rows) > 1 and table.rows[1].by_example is None]
    if silent:
        what = ", ".join(dict.fromkeys(table.metric for table in silent))
        notes.append(f"No tests by example for {what}: not all runs keep the answers that they need.")
    own = [row for table in tables for row in table.rows if row.by_example is not None and row.by_example.low is None]
    if own:
        notes.append(
            "The seeds were scored on examples of their own: tests by example are made for each, and twice the median "
            "of their p-values is shown."
        )
    return notes

"""The examples to which two models give different answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.experiments.analysis import ExampleView
from headwise.reports.explorer.heads_payload import head_distances
from headwise.reports.explorer.runs import ReportRun

# So many are listed of each kind; the numbers above the list are of all.
LISTED = 100
MOVED = 3


def flips_payload(
    before: ReportRun, after: ReportRun, shown: Mapping[int, tuple[str, ExampleView, ExampleView]]
) -> dict[str, Any] | None:
    """What flipped; None where nothing did, or answers are no classes.

    Args:
        before: the baseline.
        after: the run.
        shown: by their places in the split, the examples of the page: name, and both views.
    """
    mine, theirs = before.analysis.content, after.analysis.content
    if mine["answers"] is None or not mine["labels"]:
        return None
    first, second = mine["answers"], theirs["answers"]
    listed: dict[str, list[dict[str, Any]]] = {"gained": [], "lost": [], "other": []}
    parts = zip(first["predictions"], second["predictions"], first["gold"], first["texts"], strict=True)
    for place, (was, now, gold, texts) in enumerate(parts):
        if was == now:
            continue
        kind = "gained" if now == gold else "lost" if was == gold else "other"
        title = f"{mine['split']} {place}"
        listed[kind].append(
            {"example": place, "title": title, "texts": texts, "gold": gold, "before": was, "after": now, "kind": kind}
        )
    if not any(listed.values()):
        return None
    entries = [entry for kind in listed.values() for entry in kind[:LISTED]]
    return {
        "gained": len(listed["gained"]),
        "lost": len(listed["lost"]),
        "other": len(listed["other"]),
        "split": mine["split"],
        "list": [entry | _link(entry["example"], shown) for entry in sorted(entries, key=lambda each: each["example"])],
    }


def _link(place: int, shown: Mapping[int, tuple[str, ExampleView, ExampleView]]) -> dict[str, Any]:
    """To the example on the page, if it is there, and the heads that moved most in it."""
    if place not in shown:
        return {"page_example": None, "heads": None}
    name, before, after = shown[place]
    distances = head_distances(before, after)
    order: Sequence[int] = (-distances).argsort(axis=None, kind="stable")[:MOVED].tolist()
    heads = [[*divmod(each, distances.shape[1]), round(float(distances.flat[each]), 4)] for each in order]
    return {"page_example": name, "heads": heads}

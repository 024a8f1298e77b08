"""Examples as the page wants them: tokens and answers as plain data, maps as bytes.

Shapes: M heads of all layers, T tokens, k kept keys of a row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from headwise.experiments.analysis.analysis_files import ExampleMaps, ExampleView, marked_cells, to_bytes
from headwise.heads import principal_components
from headwise.reports.explorer.heads_payload import head_distances
from headwise.reports.explorer.report_runs import ReportRun

# The examples to which two models give different answers.


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


# Of examples whose maps are not shown whole, the largest weights of every row.
KEPT = 8
# Bytes that whole maps of all models may take in a page, before they are deflated and written in base64.
WHOLE = 3 << 20
Arrays = dict[str, bytes]


def examples_payload(
    models: Sequence[str],
    examples: Sequence[Sequence[ExampleView]],
    *,
    exact_places: Collection[int] = (),
    whole: int = WHOLE,
    foremost: int = 0,
) -> tuple[list[dict[str, Any]], Arrays]:
    """The list of examples, and their arrays.

    Examples that are asked for (by their places among these) keep their whole maps, as far as the analysis has them;
    of the others, the first ones, as far as `whole` bytes go. The rest have the largest weights of every row. What a
    pattern wants is shown as the model at the place `foremost` has it, if that has one.
    """
    listed: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for number, views in enumerate(examples):
        size = sum(view.maps.values.size for view in views if view.maps.exact)
        exact = number in exact_places
        if not exact and not exact_places:
            exact = size <= whole
            whole -= size if exact else 0
        described, own = example_payload(models, views, f"e{number}", exact=exact, foremost=foremost)
        listed.append(described)
        arrays |= own
    return listed, arrays


def example_payload(
    models: Sequence[str], views: Sequence[ExampleView], name: str, *, exact: bool, foremost: int = 0
) -> tuple[dict[str, Any], Arrays]:
    """One example as all models see it."""
    first = views[0]
    arrays: Arrays = {}
    maps, means, answers, scored = {}, {}, {}, {}
    for model, view in zip(models, views, strict=True):
        chosen = view.maps if exact else view.maps.largest(KEPT)
        array, mean = f"{model}{name}", f"{model}{name}mean"
        maps[model], arrays[array] = _map(chosen, array, len(view.tokens))
        means[model], arrays[mean] = mean, to_bytes(view.mean_map).tobytes()
        answers[model] = {"prediction": view.prediction, "probabilities": view.probabilities}
        if view.token_scores is not None:
            scored[model] = {
                "scores": list(view.token_scores),
                "kept": list(view.pooled or ()),
                "threshold": view.threshold,
            }
    points, explained = _points(models, views)
    described: dict[str, Any] = {
        "id": name,
        "title": first.title,
        "tokens": list(first.tokens),
        "segments": list(first.sources),
        "texts": list(first.texts),
        "gold": first.gold,
        "answers": answers,
        "maps": maps,
        "means": means,
        "points": points,
        "explained": explained,
    }
    if scored:
        described["ssa"] = scored
    wanted = next((view.wanted for view in (views[foremost], *views) if view.wanted is not None), None)
    if wanted is not None:
        described["target"] = {"name": wanted[0], "array": f"{name}target"}
        # The cells themselves: halves of a wish would not be halves on the scale of bytes.
        arrays[f"{name}target"] = to_bytes(marked_cells(wanted[1])).tobytes()
    return described, arrays


def _map(maps: ExampleMaps, name: str, tokens: int) -> tuple[dict[str, Any], bytes]:
    if maps.keys is None:
        return {"array": name, "form": "exact"}, maps.values.tobytes()
    wide = tokens > 256
    keys = maps.keys.astype("<u2" if wide else np.uint8)
    about = {"array": name, "form": "top", "kept": maps.values.shape[3], "wide": wide}
    return about, keys.tobytes() + maps.values.tobytes()


def _points(models: Sequence[str], views: Sequence[ExampleView]) -> tuple[dict[str, Any], list[float]]:
    """The heads of all models on common axes."""
    vectors = torch.from_numpy(np.concatenate([view.vectors for view in views]))
    points, explained = principal_components(vectors)
    parts = points.split([len(view.vectors) for view in views])
    found = {model: _rounded(part.tolist()) for model, part in zip(models, parts, strict=True)}
    return found, [round(float(each), 4) for each in explained]


def _rounded(points: list[list[float]]) -> list[list[float]]:
    return [[round(value, 5) for value in point] for point in points]

"""Views of a report: the grid of heads, examples with their maps, flips, heads over training, re-ranked papers.

Shapes: S snapshots, M heads of all layers, T tokens of an example.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headwise.experiments.analysis.analysis_files import marked_cells, to_bytes
from headwise.experiments.head_studies.head_files import FOLDER, IMPORTANCE, read_result
from headwise.experiments.snapshots import read_snapshots
from headwise.reports.report_runs import RUN, ReportRun

if TYPE_CHECKING:
    from headwise.experiments.analysis.analysis_files import ExampleView

# Flips: so many are listed of each kind, each with the heads that moved most; the numbers above the list are of all.
LISTED, MOVED = 100, 3
# Of examples whose maps are not shown whole, the largest weights of every row.
KEPT = 8
# Bytes that whole maps of all models may take in a page, before they are deflated and written in base64.
WHOLE = 3 << 20
# Entries of an axis that are this near to its largest one count as equal to it.
TIE = 1 - 1e-6
Arrays = dict[str, bytes]
Grid = dict[str, Any]
# Id -> name, unit, help.
STATISTICS = {
    "entropy": ("Entropy", "", "How evenly a token's attention is spread over all tokens: 1 evenly, 0 all on one."),
    "sink": ("Sink mass", "", "Share of attention that goes to special tokens such as [CLS] and [SEP]."),
    "distance": ("Distance", "tokens", "How many tokens away a token looks, on average."),
    "cross": ("Cross-segment share", "", "Share of a text token's attention that goes to the other text of the pair."),
    "match": ("Match", "", "Share of attention that goes where {pattern} wants it, of the tokens for which it does."),
    "similarity": (
        "Similarity",
        "",
        "Mean cosine between what tokens receive from this head and from each of the others: 1 if all look alike.",
    ),
    "importance": (
        "Importance",
        "",
        "How much the loss would change if the head's output did: the mean size of the gradient of its gate.",
    ),
}


def heads_payload(runs: Sequence[ReportRun]) -> dict[str, Any]:
    """Statistics of every head by model; those that no model has are left out."""
    # The pattern of the run itself before those of the runs that it is compared with; older versions wrote none.
    patterns = [run.analysis.content.get("pattern") for run in sorted(runs, key=lambda run: run.role != RUN)]
    pattern = next((each for each in patterns if each is not None), None)
    grids: dict[str, dict[str, Grid]] = {}
    for run in runs:
        grids[run.id] = own = dict(run.analysis.content["statistics"])
        if run.analysis.content.get("pattern") != pattern:  # measured against another one
            own.pop("match", None)
        if "importance" not in own:  # that of `headwise heads importance`, if there is one
            found = read_result(run.folder / FOLDER, IMPORTANCE, run.folder)
            measured = {} if found is None else found[0]["tasks"]
            if run.analysis.content["task"] in measured:
                own["importance"] = {"mean": measured[run.analysis.content["task"]]["scores"], "error": None}
    statistics = []
    for id, (name, unit, meaning) in STATISTICS.items():
        means = [each[id]["mean"] for each in grids.values() if id in each]
        values = [value for grid in means for row in grid for value in row if value is not None]
        if id == "match" and pattern is not None:
            name, meaning = f"Match with {pattern['name']}", meaning.format(pattern=f"the pattern {pattern['name']}")
        about = {"id": id, "name": name, "unit": unit, "help": meaning}
        if means:
            statistics.append(about | {"low": min(values), "high": max(values)})
    return {
        "statistics": statistics,
        "values": {
            model: {name: {"mean": grid["mean"], "error": grid["error"]} for name, grid in own.items()}
            for model, own in grids.items()
        },
        "examples": runs[0].analysis.content["examples"],
        "split": runs[0].analysis.content["split"],
        "changes": None,
    }


def changes_of(pairs: Sequence[tuple[ExampleView, ExampleView]]) -> list[dict[str, Any]]:
    """For each head the mean distance between its rows in two models, the largest first.

    The distance of two rows is half the sum of the differences of their weights: the part of a token's attention that
    has gone elsewhere. It is a mean over the rows of an example, then over examples, with a standard error over these.
    Examples whose maps are cut count only where there are no others.

    Args:
        pairs: every example as the two models see it.
    """
    whole = [(one, other) for one, other in pairs if one.maps.exact and other.maps.exact]
    distances = np.stack([head_distances(one, other) for one, other in whole or pairs])
    mean, count = distances.mean(0), len(distances)
    error = distances.std(0, ddof=1) / np.sqrt(count) if count > 1 else None
    changes = []
    for index in np.argsort(-mean, axis=None, kind="stable").tolist():
        layer, head = divmod(index, mean.shape[1])
        spread = None if error is None else round(float(error[layer, head]), 5)
        changes.append({"layer": layer, "head": head, "change": round(float(mean[layer, head]), 5), "error": spread})
    return changes


def head_distances(one: ExampleView, other: ExampleView) -> NDArray[np.float64]:
    """[layers, heads] the mean distance between the rows of two models' maps of one example.

    Of cut maps, what is left out of a row counts as one more key: that can make the distance smaller, not larger, where
    both kept the same keys.
    """
    distances = np.zeros(one.maps.heads)
    for layer, head in np.ndindex(distances.shape):
        first, second = one.head_map(layer, head), other.head_map(layer, head)
        moved = np.abs(first - second).sum(1)
        if not (one.maps.exact and other.maps.exact):
            moved = moved + np.abs(first.sum(1) - second.sum(1))
        distances[layer, head] = 0.5 * float(moved.mean())
    return distances


def flips_payload(
    before: ReportRun, after: ReportRun, shown: Mapping[int | None, tuple[str, ExampleView, ExampleView]]
) -> dict[str, Any] | None:
    """The examples to which two models give different answers; None if there is none, or answers are no classes.

    Args:
        before: the baseline.
        after: the run.
        shown: by their positions in the split, the examples of the page: name, and both views.
    """
    content, answers = before.analysis.content, before.analysis.content["answers"]
    if answers is None or not content["labels"]:
        return None
    flips: dict[str, list[dict[str, Any]]] = {"gained": [], "lost": [], "other": []}
    predictions = after.analysis.content["answers"]["predictions"]
    rows = zip(answers["predictions"], predictions, answers["gold"], answers["texts"], strict=True)
    for position, (was, now, gold, texts) in enumerate(rows):
        if was == now:
            continue
        kind = "gained" if now == gold else "lost" if was == gold else "other"
        about = {"example": position, "title": f"{content['split']} {position}", "texts": texts, "gold": gold}
        flips[kind].append(about | {"before": was, "after": now, "kind": kind})
    if not any(flips.values()):
        return None
    listed = sorted((flip for each in flips.values() for flip in each[:LISTED]), key=lambda flip: flip["example"])
    for flip in listed:
        flip |= {"page_example": None, "heads": None}
        if flip["example"] in shown:
            name, one, other = shown[flip["example"]]
            distances = head_distances(one, other)
            order = (-distances).argsort(axis=None, kind="stable")[:MOVED].tolist()
            heads = [[*divmod(each, distances.shape[1]), round(float(distances.flat[each]), 4)] for each in order]
            flip |= {"page_example": name, "heads": heads}
    return {**{kind: len(each) for kind, each in flips.items()}, "split": content["split"], "list": listed}


def examples_payload(
    models: Sequence[str],
    examples: Sequence[Sequence[ExampleView]],
    *,
    whole: Collection[int] = (),
    budget: int = WHOLE,
    foremost: int = 0,
) -> tuple[list[dict[str, Any]], Arrays]:
    """The list of examples, and their arrays.

    Args:
        models: their ids.
        examples: each as every model sees it.
        whole: the numbers of examples that keep their whole maps, as far as the analysis has them. If there is none,
            the first ones keep theirs, as far as `budget` goes. The rest have the largest weights of every row.
        budget: bytes of whole maps.
        foremost: the model whose pattern is shown, if it has one.
    """
    listed: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for number, views in enumerate(examples):
        size = sum(view.maps.values.size for view in views if view.maps.exact)
        exact = number in whole if whole else size <= budget
        budget -= size if exact else 0
        described, own = example_payload(models, views, f"e{number}", exact=exact, foremost=foremost)
        listed.append(described)
        arrays |= own
    return listed, arrays


def example_payload(
    models: Sequence[str], views: Sequence[ExampleView], name: str, *, exact: bool, foremost: int = 0
) -> tuple[dict[str, Any], Arrays]:
    """One example as all models see it: tokens and answers as plain data, maps as bytes."""
    first = views[0]
    arrays: Arrays = {}
    maps: dict[str, dict[str, Any]] = {}
    means, answers, scored = {}, {}, {}
    for model, view in zip(models, views, strict=True):
        array, kept = f"{model}{name}", view.maps if exact else view.maps.largest(KEPT)
        if kept.keys is None:
            maps[model], arrays[array] = {"array": array, "form": "exact"}, kept.values.tobytes()
        else:
            wide = len(view.tokens) > 256
            maps[model] = {"array": array, "form": "top", "kept": kept.values.shape[3], "wide": wide}
            arrays[array] = kept.keys.astype("<u2" if wide else np.uint8).tobytes() + kept.values.tobytes()
        means[model], arrays[f"{array}mean"] = f"{array}mean", to_bytes(view.mean_map).tobytes()
        answers[model] = {"prediction": view.prediction, "probabilities": view.probabilities}
        if view.token_scores is not None:
            pooled = list(view.pooled or ())
            scored[model] = {"scores": list(view.token_scores), "kept": pooled, "threshold": view.threshold}
    points, explained = principal_components(np.concatenate([view.vectors for view in views]))
    parts = np.split(points, np.cumsum([len(view.vectors) for view in views])[:-1])
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
        "points": {model: _rounded(part) for model, part in zip(models, parts, strict=True)},
        "explained": _rounded(explained, 4),
    }
    if scored:
        described["ssa"] = scored
    target = next((view.wanted for view in (views[foremost], *views) if view.wanted is not None), None)
    if target is not None:
        described["target"] = {"name": target[0], "array": f"{name}target"}
        # The cells themselves: halves of a weight would not be halves on the scale of bytes.
        arrays[f"{name}target"] = to_bytes(marked_cells(target[1])).tobytes()
    return described, arrays


def diversity_payload(runs: Sequence[ReportRun]) -> dict[str, Any]:
    """By model, how alike its heads were at each snapshot; models without snapshots are left out.

    The points of all snapshots of all models are on common axes, so that a head that stays does not move. Models that
    looked at texts of different lengths have nothing in common: each has separate axes.
    """
    found = {run.id: each for run in runs if (each := read_snapshots(run.folder)) is not None and len(each.steps) > 1}
    lengths = {each.vectors.shape[2] for each in found.values()}
    groups = [[model] for model in found] if len(lengths) > 1 else [list(found)]
    points = {}
    for group in groups if found else ():
        rows = [found[model].vectors.reshape(-1, found[model].vectors.shape[2]) for model in group]
        common, _ = principal_components(np.concatenate(rows))
        parts = np.split(common, np.cumsum([len(each) for each in rows])[:-1])
        for model, part in zip(group, parts, strict=True):
            points[model] = part.reshape(*found[model].vectors.shape[:2], 2)  # [S,M,2]
    return {
        model: {
            "steps": each.steps.tolist(),
            "similarity": _rounded(each.similarity),
            "entropy": _rounded(each.entropy),
            "points": _rounded(points[model]),
            "examples": each.examples,
        }
        for model, each in found.items()
    }


def retrieval_payload(runs: Sequence[ReportRun]) -> dict[str, Any] | None:
    """The claims that all re-rankers have, with the ranks that each gave; None for other runs."""
    claims = {run.id: {claim["id"]: claim for claim in run.analysis.content["claims"] or ()} for run in runs}
    first = next(iter(claims.values()))
    common = [
        {
            "id": name,
            "text": claim["text"],
            "papers": [
                {
                    "id": paper["id"],
                    "text": paper["text"],
                    "relevant": paper["relevant"],
                    "ranks": {model: each[name]["papers"][number]["rank"] for model, each in claims.items()},
                    "scores": {model: each[name]["papers"][number]["score"] for model, each in claims.items()},
                }
                for number, paper in enumerate(claim["papers"])
            ],
        }
        for name, claim in first.items()
        if all(name in each for each in claims.values())
    ]
    return {"claims": common} if common else None


def principal_components(vectors: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[M,2] the rows of vectors [M,T] on the two axes along which they differ most, and the shares of variance [2].

    As `headwise.heads.principal_components`, but without torch: the largest entry of an axis is positive.
    """
    values = vectors.astype(np.float64)
    left, lengths, axes = np.linalg.svd(values - values.mean(0), full_matrices=False)
    size = np.abs(axes)
    largest = (size >= TIE * size.max(1, keepdims=True)).argmax(1)
    signs = np.sign(axes[np.arange(len(axes)), largest])
    shares = lengths**2 / max(float((lengths**2).sum()), np.finfo(np.float64).tiny)
    missing = max(0, 2 - len(lengths))
    return np.pad((left * (lengths * signs))[:, :2], ((0, 0), (0, missing))), np.pad(shares[:2], (0, missing))


def _rounded(values: Any, digits: int = 5) -> Any:
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()

"""Whether the runs along an axis differ in the weights of their guides alone, and how large these are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwise.experiments.comparison.grouping import Seeds
from headwise.experiments.results import canonical
from headwise.experiments.story.plotting import Places
from headwise.experiments.story.points import AxisRuns, Lines

SHARE = "share"
# Of a weight: whether it is a number or a share of the task's gradient, and how large.
Size = tuple[str, float]

Guides = Mapping[str, Mapping[str, Any]]


def places_by_weight(runs: AxisRuns, lines: Lines) -> Places | None:
    """Where the labels stand, runs without guides at 0; None if the axis changes more than weights, or no weight."""
    sizes: dict[str, set[Size | None]] = {}
    varied = False
    for points in lines.systems.values():
        guides = {label: _guides_of(seeds) for label, seeds in points.items()}
        guided = [each for each in guides.values() if each]
        if len({canonical(_without_weights(each)) for each in guided}) > 1:
            return None
        changed = [name for name in (guided[0] if guided else {}) if len({_weight(each, name) for each in guided}) > 1]
        varied = varied or bool(changed)
        for label, each in guides.items():
            sizes.setdefault(label, set()).update(_size(each[name].get("weight")) for name in changed if each)
    return _places(runs, sizes) if varied else None


def _places(runs: AxisRuns, sizes: Mapping[str, set[Size | None]]) -> Places:
    """By the weights, if every label has one, all of one kind; else one after the other."""
    kinds = {kind for found in sizes.values() for kind, _ in (size for size in found if size is not None)}
    single = all(None not in found and len(found) <= 1 for found in sizes.values())
    if not single or len(kinds) != 1:
        labels = [label for label in runs.labels if label in sizes]
        return Places("weight of the guides", {label: at for at, label in enumerate(labels)}, tuple(labels))
    name = "gradient share of the guides" if kinds == {SHARE} else "weight of the guides"
    at = {label: next((number for each in found if each for number in each[1:]), 0.0) for label, found in sizes.items()}
    return Places(name, {label: float(number) for label, number in at.items()})


def _guides_of(seeds: Seeds) -> Guides:
    run = next(iter(seeds.values()))
    return {
        name: options if isinstance(options, Mapping) else {}
        for name, options in (run.recipe.get("guides") or {}).items()
    }


def _without_weights(guides: Guides) -> dict[str, dict[str, Any]]:
    return {name: {key: value for key, value in each.items() if key != "weight"} for name, each in guides.items()}


def _weight(guides: Guides, name: str) -> str:
    return canonical(guides[name].get("weight"))


def _size(weight: Any) -> Size | None:
    """None for a weight that is no single number, such as one that changes with the steps."""
    kind = SHARE if isinstance(weight, Mapping) and SHARE in weight else "weight"
    value = weight[SHARE] if kind == SHARE else weight
    return (kind, float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None

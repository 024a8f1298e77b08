"""What a sweep measures on the model of each run on several tasks, once it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments.apply import Source
from headwise.experiments.head_dissociation import NAME as DISSOCIATION
from headwise.experiments.head_dissociation import dissociate
from headwise.experiments.measure_curve import measure_curve
from headwise.experiments.prune_curve import NAME as CURVE
from headwise.experiments.prune_masks import CurveSettings
from headwise.experiments.run_tasks import load_tasks
from headwise.training import Listener

RESAMPLES = 1000


def check_then(value: Any) -> Any:
    """`then: [prune-curve]` and `then: {prune-curve: {percent: [20]}}`; unknown names and options are refused."""
    if value is None:
        return {}
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        value = {name: None for name in value}
    if not isinstance(value, dict):
        raise ValueError("a list of what to measure, such as [prune-curve, dissociation]")
    given = {str(name): dict(options or {}) for name, options in value.items()}
    for name in given:
        if name not in (CURVE, DISSOCIATION):
            raise ValueError(f"something that can be measured: {choices(name, (CURVE, DISSOCIATION))}")
    settings_of(given)
    return given


def settings_of(then: dict[str, dict[str, Any]]) -> CurveSettings:
    """The settings of the pruning curve, which the D-scores need as well."""
    given = then.get(CURVE, {})
    options: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in given.items()}
    known = CurveSettings.__dataclass_fields__
    for name in options:
        if name not in known:
            raise ValueError(f"{CURVE} has no option {name!r}: {choices(name, known)}")
    try:
        return CurveSettings(**options)
    except InputError as error:
        raise ValueError(str(error).rstrip(".")) from error


def measure_heads(
    run: Path, then: dict[str, dict[str, Any]], data: Path | None, *, network: bool, listener: Listener
) -> dict[str, Any]:
    """The pruning curve of a run, and its D-scores if asked for; plain data."""
    curve = measure_curve(load_tasks(run), settings_of(then), Source(data, network), listener=listener)
    found: dict[str, Any] = {CURVE: {**curve.as_dict(), "run": None}}  # its folder is but a place to work in
    if DISSOCIATION in then:
        resamples = int(then[DISSOCIATION].get("resamples", RESAMPLES))
        found[DISSOCIATION] = {**dissociate(curve, resamples=resamples).as_dict(), "run": None}
    return found

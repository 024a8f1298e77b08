"""The list that a sweep leaves of its runs: which axes it went along, and which run stands at which point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import InputError, choices
from headwise.experiments import documents
from headwise.experiments.results import SWEEPS, read_json
from headwise.experiments.sweeps.folder import FORMAT
from headwise.experiments.sweeps.schema import ManifestFile

SEED = "seed"


@dataclass(frozen=True)
class Axis:
    """What a sweep varies."""

    labels: tuple[str, ...]
    keys: tuple[str, ...]
    """The dotted keys of the recipe that it changes; one covers all below it."""


@dataclass(frozen=True)
class Manifest:
    """A sweep."""

    name: str
    axes: Mapping[str, Axis]
    by: tuple[str, ...]
    """The axes that tell the systems apart that are to be compared; none if the sweep does not say."""
    baseline: str | None
    within: tuple[str, ...]
    """The axes whose points are compared by themselves."""
    points: tuple[tuple[str, Mapping[str, str]], ...]
    """The key of a run, and its label on every axis; a run may stand at several points."""


def read_manifest(folder: Path, name: str | None) -> Manifest | None:
    """The sweep of a folder that is asked for, or its only one; None if it has none."""
    names = sorted(path.stem for path in (folder / SWEEPS).glob("*.json") if not path.name.startswith("."))
    if name is not None and name not in names:
        known = choices(name, names) if names else "the folder has none"
        raise InputError(f"--sweep {name}: {folder} holds no such sweep; {known}.")
    if name is None and len(names) > 1:
        raise InputError(f"{folder} holds several sweeps ({', '.join(names)}): choose one with --sweep.")
    if not names:
        return None
    path = folder / SWEEPS / f"{name or names[0]}.json"
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise InputError(f"{path} has format {content.get('format')!r:.40}: this headwise reads format {FORMAT}.")
    return _manifest(documents.check(content, ManifestFile, path, "`headwise sweep` writes it again"))


def _manifest(content: Mapping[str, Any]) -> Manifest:
    axes = {
        name: Axis(tuple(str(label) for label in axis["labels"]), tuple(axis["keys"]))
        for name, axis in content["axes"].items()
    }
    compare = content.get("compare") or {}
    points = tuple(
        (str(run["key"]), {axis: str(label) for axis, label in run["point"].items()}) for run in content["runs"]
    )
    baseline = compare.get("baseline")
    return Manifest(
        name=str(content["name"]),
        axes=axes,
        by=_names(compare.get("by")),
        baseline=None if baseline is None else str(baseline),
        within=_names(compare.get("within")),
        points=points,
    )


def _names(value: Any) -> tuple[str, ...]:
    """One name, several, or none."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(name) for name in value)

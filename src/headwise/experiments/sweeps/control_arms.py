"""The arms of a sweep with controls: each recipe with guides also without them, and with shuffled targets.

This module imports no torch before guides are looked up: comparisons read the arms, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from headwise.errors import InputError

ARM = "arm"
RECIPE, PLAIN, SHUFFLED = "recipe", "plain", "shuffled"
SHUFFLE, GUIDES = "shuffle", "guides"
# The points of the axis, and whether the key of recipes changes there.
ARMS: Mapping[str, Mapping[str, Any]] = {RECIPE: {}, PLAIN: {GUIDES: {}}, SHUFFLED: {GUIDES: SHUFFLE}}

# By name, the options of the guides of a recipe.
GuideOptions = Mapping[str, Mapping[str, Any] | None]


def with_target(guides: Iterable[str]) -> list[str]:
    """The guides that have a target: those with the option shuffle."""
    from headwise.guides import GUIDES as registry

    return [name for name in guides if any(field.name == SHUFFLE for field in fields(registry[name]))]


def guides_of_arm(guides: GuideOptions, arm: str) -> dict[str, dict[str, Any]] | None:
    """The guides of a recipe in an arm; None if it has no such arm, as without guides or without a target."""
    own = {name: dict(options or {}) for name, options in guides.items()}
    if arm == RECIPE:
        return own
    if not own or arm == PLAIN:
        return {} if own else None
    shuffled = own | {name: {**own[name], SHUFFLE: True} for name in with_target(own)}
    return None if shuffled == own else shuffled


def check_arms(guides: Sequence[GuideOptions], *, shuffled: bool, where: str) -> tuple[str, ...]:
    """Refuse controls that do not exist, and say in notes which guides are not shuffled.

    Args:
        guides: of every run before it has an arm.
        shuffled: whether the shuffled arm is requested.
        where: the sweep, for messages.
    """
    names = list(dict.fromkeys(tuple(each) for each in guides if each))
    if not names:
        raise InputError(f"{where}: controls is for guides, and no run has any: add guides, or leave controls out.")
    if not shuffled:
        return ()
    targets = {each: with_target(each) for each in names}
    if not any(targets.values()):
        every = ", ".join(dict.fromkeys(name for each in names for name in each))
        raise InputError(
            f"{where}: controls asks for the shuffled twin of a guide without targets ({every}): leave controls out, "
            f"or compare with plain runs only, by only={ARM}={RECIPE},{PLAIN}."
        )
    notes = []
    for each, shuffling in targets.items():
        rest = [name for name in each if name not in shuffling]
        if rest:
            what = f"the shuffled arm shuffles {', '.join(shuffling)} only" if shuffling else "no shuffled arm"
            have = "has no target" if len(rest) == 1 else "have no targets"
            notes.append(f"{'+'.join(each)}: {what}, since {', '.join(rest)} {have}.")
    return tuple(notes)


# -- reading them ------------------------------------------------------------------------------------------------------


def shuffled_guides(guides: GuideOptions | None) -> list[str]:
    """The guides that have a shuffled target."""
    return [name for name, options in (guides or {}).items() if (options or {}).get(SHUFFLE) is True]


def before_shuffling(guides: GuideOptions | None) -> dict[str, dict[str, Any]]:
    """The guides without the option shuffle: the same for a recipe and its shuffled twin."""
    return {
        name: {key: value for key, value in (options or {}).items() if key != SHUFFLE}
        for name, options in (guides or {}).items()
    }


@dataclass(frozen=True)
class ArmRun:
    """A run of a sweep with controls, finished or not."""

    key: str
    cell: tuple[str, ...]
    """Its labels on the axes with a separate table for each point."""
    system: str
    """Its label on the axes that separate systems, without the arm; empty if there are no others."""
    arm: str
    seed: str
    guides: tuple[str, ...] = ()
    """The names of its guides, if it is finished."""


def system_names(runs: Sequence[ArmRun]) -> list[str]:
    """A name for the system of each run: that of its point, `plain`, or that of its point with `(shuffled)`.

    A plain arm that is a point of the sweep anyway has the name of this point. Several plain runs of a seed, as with
    points that change more than guides, have names with `(plain)`.
    """
    guides = {run.cell: "+".join(run.guides) for run in runs if run.guides}
    points = [run.system or guides.get(run.cell, "guided") for run in runs]
    own = {(run.cell, run.key): point for run, point in zip(runs, points, strict=True) if run.arm == RECIPE}
    taken = {(run.cell, point) for run, point in zip(runs, points, strict=True) if run.arm == RECIPE}
    plain: dict[tuple[tuple[str, ...], str], set[str]] = {}
    for run in runs:
        if run.arm == PLAIN and (run.cell, run.key) not in own:
            plain.setdefault((run.cell, run.seed), set()).add(run.key)
    several = {cell for (cell, _), keys in plain.items() if len(keys) > 1 or (cell, PLAIN) in taken}

    def name(run: ArmRun, point: str) -> str:
        if run.arm == PLAIN:
            return own.get((run.cell, run.key)) or (f"{point} ({PLAIN})" if run.cell in several else PLAIN)
        return f"{point} ({SHUFFLED})" if run.arm == SHUFFLED else point

    return [name(run, point) for run, point in zip(runs, points, strict=True)]

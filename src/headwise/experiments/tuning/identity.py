"""What a study is about: another recipe, space or set of seeds under the same name is another study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwise.errors import InputError
from headwise.experiments.comparison.differences import MISSING, covered, flat, shown, value_name
from headwise.experiments.sweeps.plan import WORDS
from headwise.experiments.tuning.library import optuna
from headwise.experiments.tuning.search import Search
from headwise.experiments.tuning.space import Space
from headwise.experiments.tuning.storage import Storage

ABOUT = "headwise"
FORMAT = 1


def open_study(storage: Storage, name: str, space: Space, search: Search) -> Any:
    """The study of a name, made if it is not there; refuses one that is about something else."""
    library = optuna()
    with storage.turn:
        study = library.create_study(
            storage=storage.backend,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=search.pruner(),
        )
        ours = study.directions == [library.study.StudyDirection.MAXIMIZE]
        if ours and ABOUT not in study.user_attrs and not study.get_trials(deepcopy=False):
            study.set_user_attr(ABOUT, about(space, search.sampler))
        kept = study.user_attrs.get(ABOUT)
    place = f"study {name!r} of {storage.name}"
    if kept is None:
        raise InputError(f"{place} was not made by headwise: choose another name with --study.")
    _check_same(kept, about(space, search.sampler), place)
    return study


def about(space: Space, sampler: str) -> dict[str, Any]:
    """Plain data: all that decides the trials, whatever their number."""
    keys = [axis.key for axis in space.axes]
    recipe = {
        key: value for key, value in flat(space.recipe.as_data()).items() if not covered(key, ["seed", *WORDS, *keys])
    }
    return {
        "format": FORMAT,
        "recipe": recipe,
        "space": space.as_data(),
        "seeds": ",".join(map(str, space.seeds)),
        "sampler": sampler,
    }


def _check_same(kept: Mapping[str, Any], now: Mapping[str, Any], place: str) -> None:
    if kept["format"] != FORMAT:
        raise InputError(f"{place} has format {kept['format']}, and this headwise reads {FORMAT}: choose another name.")
    for part, what in (("recipe", "another recipe"), ("space", "another space")):
        if said := _difference(kept[part], now[part]):
            raise InputError(
                f"{place} is of {what}: {said}; choose another folder with --output, or another name with --study."
            )
    for part in ("seeds", "sampler"):
        if kept[part] != now[part]:
            raise InputError(
                f"{place} has --{part} {kept[part]}, and here it is {now[part]}: give that, or choose another name "
                "with --study."
            )


def _difference(kept: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first key that is not the same, and how many more there are."""
    keys = [
        key
        for key in dict.fromkeys([*kept, *now])
        if value_name(kept.get(key, MISSING)) != value_name(now.get(key, MISSING))
    ]
    if not keys:
        return ""
    key, more = keys[0], len(keys) - 1
    others = f", and in {more} other {'key' if more == 1 else 'keys'}" if more else ""
    return f"{key} is {shown(kept.get(key, MISSING))} there and {shown(now.get(key, MISSING))} here{others}"

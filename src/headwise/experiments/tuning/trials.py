"""Trials of a study: whose they are, which count, and which are put back to be done again.

A trial that is to be done exactly once, as a point of a grid or a trial that was put back, has a ticket. Of several
trials with the same ticket the first one that has not failed is done, and the others are withdrawn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from headwise.experiments.tuning.library import optuna
from headwise.experiments.tuning.storage import GRACE

# Attributes that we give to trials.
TICKET, WORKER, WITHDRAWN, DEATHS, ERROR = "ticket", "worker", "withdrawn", "deaths", "error"
# How often a trial is begun again after whoever worked on it has died.
RETRIES = 2


def of_point(point: Mapping[str, Any]) -> str:
    """The ticket of a point of a grid."""
    return json.dumps(dict(point), sort_keys=True)


def ticket(trial: Any) -> str:
    """The ticket of a trial; one that was drawn by a sampler has its number."""
    return str(trial.user_attrs.get(TICKET, f"trial {trial.number}"))


def in_state(trials: Iterable[Any], *names: str) -> list[Any]:
    """Those of the trials that are COMPLETE, say."""
    return [trial for trial in trials if trial.state.name in names]


def current(trials: Iterable[Any]) -> list[Any]:
    """Without those that were withdrawn, and of those with the same ticket the last one."""
    kept = {ticket(trial): trial for trial in trials if WITHDRAWN not in trial.user_attrs}
    return sorted(kept.values(), key=lambda trial: trial.number)


def given_up(trials: Iterable[Any]) -> list[Any]:
    """Those on which too many have died."""
    return [
        trial
        for trial in in_state(current(trials), "FAIL")
        if trial.user_attrs.get(DEATHS, 0) >= RETRIES and ERROR not in trial.user_attrs
    ]


def superfluous(trial: Any, trials: Iterable[Any], wanted: int) -> bool:
    """Whether a trial that was just drawn is already done, or at work, or more than were asked for.

    Two processes may draw at the same time; both come to the same answer, since the one with the lower number stays.
    """
    earlier = [each for each in trials if each.number < trial.number and each.state.name != "FAIL"]
    twice = TICKET in trial.user_attrs and any(ticket(each) == ticket(trial) for each in earlier)
    return twice or len(in_state(earlier, "COMPLETE", "PRUNED", "RUNNING")) >= wanted


def put_back(study: Any, trial: Any, deaths: int = 0) -> None:
    """Let somebody do a trial again that has failed through no fault of its own, with what it has reported so far."""
    library = optuna()
    study.add_trial(
        library.trial.create_trial(
            state=library.trial.TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={TICKET: ticket(trial), DEATHS: trial.user_attrs.get(DEATHS, 0) + deaths},
            system_attrs=trial.system_attrs,
            intermediate_values=trial.intermediate_values,
        )
    )


def lost(study: Any, trial: Any) -> None:
    """Whoever worked on a trial, which is marked as failed by now, has died: put it back, but not for ever."""
    if trial.user_attrs.get(DEATHS, 0) < RETRIES:
        put_back(study, trial, deaths=1)


def nobodys(trial: Any) -> bool:
    """Whether a running trial was drawn by somebody who died before they could sign it."""
    start = trial.datetime_start
    return WORKER not in trial.user_attrs and start is not None and datetime.now() - start > timedelta(seconds=GRACE)

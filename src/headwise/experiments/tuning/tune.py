"""Tune a recipe: check everything, go on with the study, and keep what came out."""

from __future__ import annotations

from headwise.errors import InputError, StateError
from headwise.experiments.sweeps.available import Shelf
from headwise.experiments.sweeps.folder import ResultFolder
from headwise.experiments.tuning.identity import open_study
from headwise.experiments.tuning.library import optuna, storage_errors
from headwise.experiments.tuning.objective import TunePlace
from headwise.experiments.tuning.outcome import TuneOutcome, save_outcome
from headwise.experiments.tuning.search import Search
from headwise.experiments.tuning.space import Space
from headwise.experiments.tuning.storage import Storage, file_url
from headwise.experiments.tuning.trials import lost
from headwise.experiments.tuning.tuner import Tuner
from headwise.training import Listener, processes

DATABASE = "study.db"


def tune(
    space: Space, place: TunePlace, search: Search, listener: Listener, *, name: str, storage: str | None = None
) -> TuneOutcome:
    """Go on with a study until as many trials are finished or pruned as were asked for; leave best.yaml and trials.csv.

    Args:
        space: what to try.
        place: where.
        search: how.
        listener: shows progress.
        name: of the study.
        storage: URL of a database; default a file of SQLite in the output folder.
    """
    optuna()
    if processes.launched() > 1:
        raise InputError(
            f"headwise tune runs in one process, and a launcher has started {processes.launched()}: start the command "
            "by itself, and once more for each process that should help."
        )
    folder = ResultFolder(place.output)
    folder.check()
    _check_files(space, place)
    if storage is None:
        folder.open()
    opened = Storage(storage or file_url(place.output / DATABASE), place.output, lost)
    try:
        study = open_study(opened, name, space, search)
        folder.open()
        tuner = Tuner(study, opened, space, place, search, listener)
        interrupted = tuner.run()
        outcome = TuneOutcome.of(study, space, place.output, opened.name, search.trials, interrupted=interrupted)
    except storage_errors() as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200].rstrip(".")
        raise StateError(
            f"the study in {opened.name} cannot be reached any more ({reason}): finished runs are kept, and the same "
            "command goes on."
        ) from error
    finally:
        opened.close()
    save_outcome(outcome, space)
    return outcome


def _check_files(space: Space, place: TunePlace) -> None:
    """Refuse before the first trial what each of them would fail for."""
    shelf = Shelf(place.data, network=place.network)
    missing = dict.fromkeys(lack for recipe in space.corners() for lack in shelf.lacks(recipe))
    if missing:
        raise InputError(
            f"{space.recipe.name} lacks files: {'; '.join(missing)}. Give the folder of your files with --data, or "
            "allow the network with --download."
        )

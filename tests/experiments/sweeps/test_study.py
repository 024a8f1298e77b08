"""Processes that tune together: every trial once, and trials of processes that die are queued again."""

import sqlite3
import time
from collections import Counter
from contextlib import contextmanager

import optuna
import pytest
from filelock import FileLock
from small_sweeps import finished_counts, results, wait_until
from small_tunes import QUICK, RATES, SHORT, Lines, trials_of

from headwise.experiments.sweeps import study as studies
from headwise.experiments.sweeps.search_space import Search, plan_space
from headwise.experiments.sweeps.study import RETRIES, Storage, Study, died_too_often, queue_again, sqlite_url

FAIL = optuna.trial.TrialState.FAIL


@pytest.fixture
def study(write_recipe, tmp_path):
    """An empty study of a process, in a file and with a folder for locks, as `headwise tune` makes it."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "tune-dead.lock").touch()
    space = plan_space(write_recipe(**QUICK), vary=[RATES])
    storage = Storage(sqlite_url(tmp_path / "study.db"), tmp_path)
    yield Study(storage, "quick", space, Search.of(space, None, None), tmp_path / "locks")
    storage.close()


@contextmanager
def opened(folder):
    """The study of a folder as another process has it."""
    storage = Storage(sqlite_url(folder / "study.db"), folder)
    yield optuna.load_study(study_name="quick", storage=storage.backend)
    storage.close()


def drawn(study, worker):
    """A running trial of a study of Optuna."""
    with pytest.warns(UserWarning, match="Heartbeat"):  # it is meant for another way to draw
        trial = study.ask()
    trial.suggest_float("x", 0, 1)
    trial.set_user_attr(studies.WORKER, worker)
    return trial


def states(study):
    return [trial.state.name for trial in study.trials]


def test_processes_that_died_are_known_by_their_locks(study, tmp_path):
    for name in ("alive", "dead", "elsewhere", study.worker):
        drawn(study.optuna, name)
    with FileLock(tmp_path / "locks" / "tune-alive.lock"):
        study.queue_dead()
    assert states(study) == ["RUNNING", "FAIL", "RUNNING", "RUNNING", "WAITING"]
    again = study.trials[4]
    assert again.params == study.trials[1].params
    assert studies.identity(again) == "trial 1"
    study.queue_dead()  # nobody holds the first lock any more
    assert states(study) == ["FAIL", "FAIL", "RUNNING", "RUNNING", "WAITING", "WAITING"]
    assert [trial.number for trial in studies.latest(study.trials)] == [2, 3, 4, 5]


def test_a_heartbeat_survives_a_database_that_is_away_for_a_moment(study, tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "HEARTBEAT", 0.01)
    trial, database = drawn(study.optuna, study.worker), sqlite3.connect(tmp_path / "study.db")
    with database:
        database.execute("ALTER TABLE trial_heartbeats RENAME TO away")
    with study.heartbeat(trial):
        time.sleep(0.3)
        with database:
            database.execute("ALTER TABLE away RENAME TO trial_heartbeats")
        wait_until(lambda: len(database.execute("SELECT * FROM trial_heartbeats").fetchall()) == 1)
    database.close()


def test_a_trial_whose_processes_keep_dying_is_given_up_and_one_that_is_stopped_is_not(study):
    for death in range(RETRIES + 1):
        assert died_too_often(study.trials) == []
        drawn(study.optuna, "dead")
        study.queue_dead()
        assert states(study).count("WAITING") == (death < RETRIES)
    assert [trial.number for trial in died_too_often(study.trials)] == [RETRIES]
    for _ in range(RETRIES + 2):
        trial = drawn(study.optuna, study.worker)
        trial.report(0.5, trial.number)
        study.put_back(trial)
    study.put_back(trial)  # another process has done so
    assert states(study).count("WAITING") == 1
    assert states(study)[-1] == "WAITING"
    assert len(died_too_often(study.trials)) == 1
    assert len(study.trials[-1].intermediate_values) == RETRIES + 2  # what was reported goes along


def test_a_trial_of_another_machine_that_died_is_queued_again(tuned, tmp_path):
    """Its lock is in another folder: the heartbeat of Optuna stops, by the clock of the database."""
    tuned(RATES, trials=1, **SHORT)
    with opened(tmp_path / "out") as study:
        study.enqueue_trial({"training.learning_rate": 2e-3})
        study._storage.record_heartbeat(drawn(study, "elsewhere")._trial_id)
    with sqlite3.connect(tmp_path / "out" / "study.db") as database:
        late = f"-{studies.GRACE + 5} seconds"
        database.execute("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, ?)", (late,))
    database.close()
    result = tuned(RATES, prune=False, **SHORT)
    assert Counter(row.state for row in result.rows) == {"finished": 3}
    assert len(results(tmp_path / "out")) == 3
    assert [trial.state.name for trial in trials_of(tmp_path / "out")].count("FAIL") == 1


class TakesForDead(Lines):
    """In the middle of the first run, takes the process for dead."""

    folder = None

    def log(self, message):
        if "step 1:" in message and not any("step 1:" in line for line in self.lines):
            with opened(self.folder) as study:
                study.tell(0, state=FAIL)
                queue_again(study, study.get_trials()[0], died=True)
        super().log(message)


def test_a_process_that_was_taken_for_dead_finishes_its_run(tuned, tmp_path):
    """The trial that took its place finds it there."""
    progress = TakesForDead()
    progress.folder = tmp_path / "out"
    result = tuned(RATES, trials=1, progress=progress, **SHORT)
    assert [(row.number, row.state) for row in result.rows] == [(1, "finished")]
    assert finished_counts(tmp_path / "out") == dict.fromkeys(results(tmp_path / "out"), 1)
    assert sum("step 2:" in line for line in progress.lines) == 1
    (first, second) = trials_of(tmp_path / "out")
    assert (first.state.name, first.params) == ("FAIL", second.params)
    assert second.intermediate_values.keys() == {1, 2}


def test_trials_of_other_processes_are_waited_for(tuned, tmp_path, monkeypatch):
    """And what they finish is not repeated."""
    tuned(RATES, trials=1, **SHORT)
    progress, looked = Lines(), []
    with opened(tmp_path / "out") as study:
        other = drawn(study, "elsewhere")

        def finish_at_the_third_look(seconds):
            looked.append(seconds)
            if len(looked) == 3:
                study.tell(other, 0.99)

        monkeypatch.setattr("headwise.experiments.sweeps.tune.time.sleep", finish_at_the_third_look)
        result = tuned(RATES, trials=2, progress=progress, **SHORT)
    assert len(looked) == 3
    assert result.count("finished") == 2
    assert sum("other processes" in line for line in progress.lines) == 1

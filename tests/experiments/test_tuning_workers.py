"""Processes that tune together: what each does once, and what becomes of the trials of those that die."""

import sqlite3
from collections import Counter
from pathlib import Path

import optuna
import pytest
from filelock import FileLock
from small_sweeps import finished_counts, results
from small_tunes import RATES, SHORT, Lines, trials_of

from headwise.experiments.sweeps.sweep_folder import ResultFolder
from headwise.experiments.tuning import study as tickets
from headwise.experiments.tuning.study import GRACE, Storage, Worker, file_url


@pytest.fixture
def study(tmp_path):
    """An empty study, in a file and with a folder for locks, as `headwise tune` makes it."""
    (tmp_path / "locks").mkdir()
    storage = Storage(file_url(tmp_path / "study.db"), tmp_path, tickets.lost)
    yield optuna.create_study(study_name="quick", storage=storage.backend, direction="maximize")
    storage.close()


def drawn(study, worker, **attributes):
    """A trial at work."""
    with pytest.warns(UserWarning, match="Heartbeat"):  # it is meant for another way to draw
        trial = study.ask()
    trial.suggest_float("x", 0, 1)
    for name, value in {tickets.WORKER: worker, **attributes}.items():
        trial.set_user_attr(name, value)
    return trial


def states(study):
    return [trial.state.name for trial in study.get_trials()]


def test_the_dead_are_known_by_their_locks(study, tmp_path):
    alive, dead, elsewhere = "a" * 8, "b" * 8, "c" * 8
    (tmp_path / "locks" / f"tune-{dead}.lock").touch()
    for name in (alive, dead, elsewhere):
        drawn(study, name)
    study.get_trials()
    with FileLock(tmp_path / "locks" / f"tune-{alive}.lock"):
        Worker(tmp_path).bury(study)
    assert states(study) == ["RUNNING", "FAIL", "RUNNING", "WAITING"]
    again = study.get_trials()[3]
    assert again.params == study.get_trials()[1].params
    assert tickets.ticket(again) == "trial 1"
    Worker(tmp_path).bury(study)  # nobody holds the first lock any more
    assert states(study) == ["FAIL", "FAIL", "RUNNING", "WAITING", "WAITING"]
    assert [trial.number for trial in tickets.current(study.get_trials())] == [2, 3, 4]


def test_a_database_that_is_gone_for_a_moment(study, tmp_path):
    """No sign of life can be given then, and that is no reason to end."""
    trial = drawn(study, "me")
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("ALTER TABLE trial_heartbeats RENAME TO away")
    study._storage.record_heartbeat(trial._trial_id)
    with database:
        database.execute("ALTER TABLE away RENAME TO trial_heartbeats")
    study._storage.record_heartbeat(trial._trial_id)
    assert len(database.execute("SELECT * FROM trial_heartbeats").fetchall()) == 1
    database.close()


def test_one_is_enough(study, tmp_path):
    me = Worker(tmp_path)
    with me.at_work():
        drawn(study, me.name)
        me.bury(study)
        Worker(tmp_path).bury(study)
        assert states(study) == ["RUNNING"]


def test_a_trial_that_kills_is_given_up(study, tmp_path):
    (tmp_path / "locks" / "tune-dead.lock").touch()
    for death in range(tickets.RETRIES + 1):
        assert tickets.given_up(study.get_trials()) == []
        drawn(study, "dead")
        Worker(tmp_path).bury(study)
        assert states(study).count("WAITING") == (death < tickets.RETRIES)
    assert states(study) == ["FAIL"] * (tickets.RETRIES + 1)
    assert [trial.number for trial in tickets.given_up(study.get_trials())] == [tickets.RETRIES]


def test_stops_by_hand_do_not_count_as_deaths(study):
    for _ in range(5):
        trial = drawn(study, "me")
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        tickets.put_back(study, study.get_trials()[trial.number])
    assert tickets.given_up(study.get_trials()) == []
    assert states(study) == ["FAIL"] * 5 + ["WAITING"]


def test_what_was_reported_goes_along(study):
    trial = drawn(study, "me")
    trial.report(0.5, 3)
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    tickets.put_back(study, study.get_trials()[0])
    again = drawn(study, "you")
    assert again.number == 1
    assert again.params == trial.params
    assert study.get_trials()[1].intermediate_values == {3: 0.5}


def test_of_two_with_the_same_ticket_the_first_stays(study):
    first, twin = (drawn(study, name, ticket="point") for name in "ab")
    other = drawn(study, "c", ticket="another")

    def superfluous(trial, wanted=9):
        now = study.get_trials()
        return tickets.superfluous(now[trial.number], now, wanted)

    assert [superfluous(each) for each in (first, twin, other)] == [False, True, False]
    assert [superfluous(each, wanted=2) for each in (first, twin, other)] == [False, True, True]
    study.tell(first, state=optuna.trial.TrialState.FAIL)
    assert not superfluous(twin)  # the first has failed: it is to be done after all
    assert not superfluous(other, wanted=2)


@pytest.mark.slow
def test_a_machine_that_died_elsewhere(tuned, tmp_path):
    """Its lock is in no folder of ours: Optuna's heartbeat tells, by the clock of the database."""
    tuned(RATES, trials=1, **SHORT)
    storage = Storage(file_url(tmp_path / "out" / "study.db"), tmp_path, tickets.lost)
    study = optuna.load_study(study_name="quick", storage=storage.backend)
    point = {"training.learning_rate": 2e-3}
    study.enqueue_trial(point, user_attrs={tickets.TICKET: tickets.of_point(point)})
    with pytest.warns(UserWarning, match="Heartbeat"):
        trial = study.ask()
    trial.set_user_attr(tickets.WORKER, "elsewhere")
    storage.backend.record_heartbeat(trial._trial_id)
    storage.close()
    with sqlite3.connect(tmp_path / "out" / "study.db") as database:
        late = f"-{GRACE + 5} seconds"
        database.execute("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, ?)", (late,))
    database.close()
    outcome = tuned(RATES, prune=False, **SHORT)
    assert Counter(row.state for row in outcome.rows) == {"finished": 3}
    assert len(results(tmp_path / "out")) == 3
    assert [trial.state.name for trial in trials_of(tmp_path / "out")].count("FAIL") == 1


def test_a_folder_that_somebody_else_is_just_making(tmp_path, monkeypatch):
    """Whoever looks at any moment of that does not take it for a stranger's."""
    folder, make, looks = ResultFolder(tmp_path / "new"), Path.mkdir, []

    def make_and_look(path, *args, **options):
        make(path, *args, **options)
        looks.append(folder.check())

    monkeypatch.setattr(Path, "mkdir", make_and_look)
    folder.open()
    assert len(looks) > 4


class Meddler(Lines):
    """In the middle of the first run, takes whoever is at it for dead."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.meddled = folder, False

    def tell(self, message):
        super().tell(message)
        if "step 1:" in message and not self.meddled:
            self.meddled = True
            storage = Storage(file_url(self.folder / "study.db"), self.folder, tickets.lost)
            study = optuna.load_study(study_name="quick", storage=storage.backend)
            study.tell(0, state=optuna.trial.TrialState.FAIL)
            tickets.lost(study, study.get_trials()[0])
            storage.close()


def test_to_be_taken_for_dead(tuned, tmp_path):
    """The run comes to its end all the same, and the trial that took its place finds it there."""
    listener = Meddler(tmp_path / "out")
    outcome = tuned(RATES, trials=1, listener=listener, **SHORT)
    assert listener.meddled
    assert [(row.number, row.state) for row in outcome.rows] == [(1, "finished")]
    assert finished_counts(tmp_path / "out") == dict.fromkeys(results(tmp_path / "out"), 1)
    assert sum("step 2:" in line for line in listener.told) == 1
    (first, second) = trials_of(tmp_path / "out")
    assert (first.state.name, first.params) == ("FAIL", second.params)
    assert second.intermediate_values.keys() == {1, 2}


def test_somebody_else_who_is_alive_is_waited_for(tuned, tmp_path, monkeypatch):
    """And what they finish is not done again."""
    tuned(RATES, trials=1, **SHORT)
    storage = Storage(file_url(tmp_path / "out" / "study.db"), tmp_path, tickets.lost)
    study = optuna.load_study(study_name="quick", storage=storage.backend)
    other = drawn(study, "elsewhere")
    looked = []

    def finish_at_the_third_look(seconds):
        looked.append(seconds)
        if len(looked) == 3:
            study.tell(other, 0.99)

    monkeypatch.setattr("headwise.experiments.tuning.tuner.time.sleep", finish_at_the_third_look)
    listener = Lines()
    outcome = tuned(RATES, trials=2, listener=listener, **SHORT)
    storage.close()
    assert len(looked) == 3
    assert outcome.count("finished") == 2
    assert sum("other processes" in line for line in listener.told) == 1

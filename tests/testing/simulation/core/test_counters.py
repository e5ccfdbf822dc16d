import pytest

from onceward.testing.simulation.core.counters import Counters
from onceward.testing.simulation.history import Note
from tests.testing.simulation.core.judging import Judged


@pytest.fixture
def run() -> Judged:
    return Judged(Counters, "local")


def last(run, number="0"):
    return run.history.values("counter")[number]


def test_an_increment_that_is_there_twice_was_applied_twice(run):
    tokens = last(run)
    run.store("counter", "0", [*tokens, tokens[0]])
    run.violates("applied twice")


def test_an_acknowledged_increment_that_is_not_there_is_lost(run):
    run.store("counter", "0", last(run)[:-1])
    run.violates("lost")


def test_an_increment_in_another_place_is_a_lost_update(run):
    tokens = last(run)
    run.store("counter", "0", [*tokens[:-2], tokens[-1], tokens[-2]])
    run.violates("lost update")


def test_a_look_at_what_never_was_is_not_durable(run):
    call = run.calls("peek", bool)[0]
    run.answer(call, [*call.answer, "c9-9@a.1:1"])
    run.violates("not durable", call.id)


def test_a_look_that_is_behind_its_time_is_not_linearizable(run):
    call = run.calls("scan", lambda body: body and len(body) > 3)[-1]
    run.answer(call, call.answer[:1])
    run.violates("not linearizable", call.id)


def test_increments_against_the_order_of_time_are_not_linearizable(run):
    calls = run.calls("count")
    first = next(call for call in calls if call.answer[1] == 1)
    first.called_ns = 10**15
    run.violates("not linearizable")


def notes(run, topic):
    return [note for note in run.history.notes if note.topic == topic]


@pytest.mark.parametrize("topic", ["counter hook", "counter transaction hook"])
def test_a_hook_that_missed_an_acknowledged_commit_is_found(run, topic):
    run.history.notes.remove(notes(run, topic)[0])
    run.violates("hook", "did not get")


@pytest.mark.parametrize("topic", ["counter hook", "counter transaction hook"])
def test_a_hook_that_was_told_of_what_is_not_there_is_found(run, topic):
    run.history.notes.append(Note(0, "a.1", topic, ["0", "c9-9@a.1:1"]))
    run.violates("hook", "which is not stored")


def test_a_hook_that_was_told_twice_is_found(run):
    run.history.notes.append(notes(run, "counter hook")[0])
    run.violates("hook", "twice")


def test_a_hook_that_was_told_out_of_order_is_found_where_there_is_an_order(run):
    run.history.notes.reverse()
    run.history.mode = "shared"
    run.scenario.judge(run.history)
    run.history.mode = "local"
    run.violates("hook", "out of order")

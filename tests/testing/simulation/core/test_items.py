import pytest

from onceward.testing.simulation.core.items import Items
from tests.testing.simulation.core.judging import Judged


@pytest.fixture
def run() -> Judged:
    return Judged(Items, seed=2)


def took(body) -> bool:
    return body["item"] is not None


def found_nothing(body) -> bool:
    return body["item"] is None


def change(run, call, **fields) -> None:
    run.answer(call, {**call.answer, **fields})


def test_a_head_that_does_not_fit_its_line_is_torn(run):
    added, taken = run.history.values("line head")["0"]
    run.store("line head", "0", [added + 1, taken])
    run.violates("torn read", "the line is")


def test_an_answer_beyond_what_is_there_is_not_durable(run):
    call = run.calls("survey")[-1]
    change(run, call, added=99)
    run.violates("not durable", call.id)


def test_an_added_item_that_was_not_found_is_an_own_write_unseen(run):
    call = run.calls("add")[0]
    change(run, call, last=[])
    run.violates("own write", call.id)


def test_a_survey_that_does_not_fit_its_head_is_torn(run):
    call = run.calls("survey", lambda body: body["numbers"])[0]
    change(run, call, numbers=call.answer["numbers"][1:])
    run.violates("torn read", "surveyed")


def test_nothing_found_where_there_is_something_is_torn(run):
    call = run.calls("take", took)[-1]
    change(run, call, item=None, added=1, taken=0)
    run.violates("torn read", "found nothing")


def test_an_item_taken_out_of_turn_is_torn(run):
    call = run.calls("take", took)[0]
    change(run, call, item=[call.answer["item"][0] + 1, "x"])
    run.violates("torn read", "out of turn")


def test_two_that_took_the_same_place_are_a_lost_update(run):
    one, *_, other = [call for call in run.history.calls if call.request[0] == "add"]
    change(run, other, added=one.answer["added"], taken=one.answer["taken"])
    run.violates("lost update", "are both add")


def test_an_item_that_was_another_is_not_durable(run):
    call = run.calls("take", took)[0]
    change(run, call, item=[call.answer["item"][0], "another"])
    run.violates("not durable", "and also")


def test_a_glance_at_what_is_gone_is_not_durable(run):
    call = run.calls("glance", bool)[0]
    run.answer(call, [[99, "c9-9@a.1:1"]])
    run.violates("not durable", "gone")


def test_a_survey_that_is_behind_its_time_is_not_linearizable(run):
    first, last = run.calls("survey")[0], run.calls("survey")[-1]
    assert last.answer["added"] > first.answer["added"]
    run.answer(last, first.answer)
    run.violates("not linearizable", "did not see what had ended")


def test_a_survey_that_is_ahead_of_its_time_is_not_linearizable(run):
    first, last = run.calls("survey")[0], run.calls("survey")[-1]
    run.answer(first, last.answer)
    run.violates("not linearizable", "saw what had not begun")

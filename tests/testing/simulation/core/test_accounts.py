import pytest

from onceward.testing.simulation.core.accounts import Accounts
from tests.testing.simulation.core.judging import Judged


@pytest.fixture
def run() -> Judged:
    return Judged(Accounts)


def made(answer) -> bool:
    return "given" in answer


def short(answer) -> bool:
    return "short" in answer


def test_an_answer_that_is_not_what_was_recorded_is_lost(run):
    call = run.calls("transfer", made)[0]
    run.answer(call, {"given": [9, 9], "taken": [9, 9]})
    run.violates("lost", call.id)


def test_a_transfer_without_a_record_is_lost(run):
    call = run.calls("transfer", made)[-1]
    del run.history.final[("transfer", call.id)]
    run.violates("lost", call.id)


def test_two_transfers_that_made_the_same_change_are_a_lost_update(run):
    one, other = run.calls("transfer", made)[:2]
    other.request = (*one.request[:3], *other.request[3:])
    run.store("transfer", other.id, one.answer)
    run.answer(other, one.answer)
    run.violates("lost update")


def test_a_change_that_no_transfer_made_is_a_lost_update(run):
    call = run.calls("transfer", made)[0]
    run.history.calls.remove(call)
    run.violates("lost update")


def test_an_account_that_is_not_what_its_transfers_say_is_a_lost_update(run):
    changes, balance = run.history.values("account")["0"]
    run.store("account", "0", [changes, balance + 1])
    run.violates("lost update", "not as its transfers say")


def test_a_balance_that_does_not_add_up_is_a_wrong_answer(run):
    call = run.calls("transfer", made)[-1]
    false = {**call.answer, "given": [call.answer["given"][0], call.answer["given"][1] - 1]}
    run.answer(call, false)
    run.store("transfer", call.id, false)
    run.violates("wrong answer", call.id)


def test_a_refusal_with_money_enough_is_a_wrong_answer(run):
    call = run.calls("transfer", short)[0]
    call.request = (*call.request[:3], 0, call.request[4])
    run.violates("wrong answer", "was refused")


def test_an_audit_that_shows_what_never_was_is_not_durable(run):
    call = run.calls("audit")[0]
    run.answer(call, [[99, 1], *call.answer[1:]])
    run.violates("not durable", call.id)


def test_an_audit_of_different_moments_is_torn(run):
    call, last = run.calls("audit")[0], run.calls("audit")[-1]
    assert call.answer != last.answer
    call.called_ns, call.answers[0] = 0, call.answers[0]._replace(returned_ns=10**15)
    mixed = [call.answer[0], *last.answer[1:]]
    if mixed[0] == last.answer[0]:
        mixed = [*last.answer[:-1], call.answer[-1]]
    run.answer(call, mixed)
    run.violates("torn read", call.id)


def test_an_audit_that_is_behind_its_time_is_not_linearizable(run):
    first, last = run.calls("audit")[0], run.calls("audit")[-1]
    run.answer(last, first.answer)
    run.violates("not linearizable")

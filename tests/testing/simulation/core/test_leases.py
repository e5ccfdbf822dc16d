import pytest

from onceward.testing.simulation.core.leases import Leases
from tests.testing.simulation.core.judging import Judged


class ShortLeases(Leases):
    def setup(self, random):
        self.count, self.ttl_ms = 1, 1_000


@pytest.fixture
def run() -> Judged:
    return Judged(ShortLeases, seed=6)


def granted(body) -> bool:
    return body[1] is not None and body[0] == body[1][1]


def held(body) -> bool:
    return body[1] is not None and body[0] != body[1][1]


def test_a_lease_that_shows_after_its_end_is_found(run):
    call = run.calls("take", held)[0]
    run.answer(call, [call.answer[1][2], call.answer[1]])
    run.violates("expired", call.id)


def test_two_holders_at_a_time_are_found(run):
    call = run.calls("take", held)[0]
    now_ms = call.answer[0]
    run.answer(call, [now_ms, [f"{call.id}@a.1:0", now_ms, now_ms + 1_000]])
    run.violates("two holders")


def test_a_lease_granted_before_the_last_one_has_ended_is_early(run):
    first, second = run.calls("take", granted)[:2]
    second.called_ns = first.called_ns
    second.answers[0] = second.answers[0]._replace(returned_ns=first.returned_ns + 1)
    run.violates("early")


def test_a_lease_that_a_later_look_does_not_see_is_lost(run):
    grant = run.calls("take", granted)[0]
    call = next(
        c
        for c in run.calls("take", held) + run.calls("look", held)
        if c.answer[1] == grant.answer[1] and c.called_ns > grant.returned_ns
    )
    run.answer(call, [call.answer[0], None])
    run.violates("lost", call.id)
    call.answers[0] = call.answers[0]._replace(returned_ns=call.called_ns + 10**12)
    run.scenario.judge(run.history)

"""The free capacity of a worker: what it takes, what it reserves, and what it gives back."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from onceward.schedule import Claim
from onceward.schedule.local_workers import Capacity
from onceward.schedule.records import HandedOver
from onceward.store.transaction import Transaction


def claims(*ids: str) -> list[Claim]:
    return [Claim(id_, "q", None, 1, "t", 0) for id_ in ids]


class Desk:
    """Where the hands are known."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def freed(self) -> None:
        self.told.append("freed")

    def handed_over(self, claims: list[Claim]) -> None:
        self.told.append(("handed over", *(claim.id for claim in claims)))

    def give_back(self, claims: list[Claim]) -> None:
        self.told.append(("back", *(claim.id for claim in claims)))


class Worker:
    """A worker with so many free hands, at a desk."""

    def __init__(self, free: int, **options: Any) -> None:
        self.free = free
        self.told: list[Any] = []
        self.capacity = Capacity(
            "w", 1_000, free=lambda: self.free, take=self.take, failed=self.told.append, **options
        )
        self.capacity.post = self.claim_queue = Desk()

    def take(self, claims: list[Claim]) -> None:
        self.free -= len(claims)
        self.told += [claim.id for claim in claims]


class Ending:
    """A transaction, as far as hands know it."""

    outcome_unknown = False

    def __init__(self) -> None:
        self.hooks: list[Callable[[bool], None]] = []
        self.notes: list[Any] = []

    def on_end(self, hook: Callable[[bool], None]) -> bool:
        self.hooks.append(hook)
        return True

    def end(self, durable: bool) -> None:
        [hook] = self.hooks
        hook(durable)


def handed_over(worker: Worker, *ids: str) -> Ending:
    tx = Ending()
    for claim in claims(*ids):
        local_worker = worker.capacity.reserve(cast(Transaction, tx))
        tx.notes.append(HandedOver(local_worker, claim))
    return tx


def test_they_would_take_as_many_as_their_worker_besides_what_they_may_get() -> None:
    worker = Worker(5)
    assert worker.capacity.free == 5
    asking = worker.capacity.ask(2)
    assert asking is not None
    assert worker.capacity.free == 3
    handed_over(worker, "a")
    assert worker.capacity.free == 2
    asking.give(claims("b"))
    assert worker.told == ["b"]
    assert worker.capacity.free == 3, "one at work, one promised"
    worker.free = 0
    assert worker.capacity.free == 0, "never fewer than none"


def test_those_that_are_gone_take_nothing() -> None:
    worker = Worker(5)
    worker.capacity.gone = True
    assert worker.capacity.free == 0
    assert not worker.capacity.takes_new
    assert worker.capacity.ask(1) is None


def test_they_take_new_jobs_while_they_are_free_unless_they_want_batches() -> None:
    assert Worker(1).capacity.takes_new
    assert not Worker(0).capacity.takes_new
    assert not Worker(5, batch=2).capacity.takes_new
    assert Worker(5, batch=2).capacity.free == 5


@pytest.mark.parametrize(
    ("free", "batch", "most", "asked"),
    [
        (5, 0, 9, 5),
        (5, 0, 3, 3),
        (9, 4, 5, 4),
        (9, 4, 3, 3),
        (2, 4, 9, 2),
        (1, 0, 1, 1),
        (1, 1, 9, 1),
    ],
)
def test_they_ask_for_as_many_as_they_and_the_desk_can(
    free: int, batch: int, most: int, asked: int
) -> None:
    worker = Worker(free, batch=batch)
    asking = worker.capacity.ask(most)
    assert asking is not None
    assert (asking.most, asking.worker, asking.lease_ms, asking.gone) == (asked, "w", 1_000, False)


@pytest.mark.parametrize(("free", "most"), [(0, 5), (5, 0)])
def test_they_do_not_ask_for_nothing(free: int, most: int) -> None:
    assert Worker(free).capacity.ask(most) is None


def test_they_ask_once_at_a_time() -> None:
    worker = Worker(5)
    asking = worker.capacity.ask(1)
    assert asking is not None
    assert worker.capacity.ask(1) is None
    asking.give([])
    assert worker.told == [], "they got nothing, so there is nothing to take"
    assert worker.capacity.ask(1) is not None


def test_when_none_could_be_claimed_they_are_free_again_and_know_why() -> None:
    worker, error = Worker(1), ValueError("no")
    asking = worker.capacity.ask(1)
    assert asking is not None
    asking.fail(error)
    assert worker.told == [error]
    assert worker.capacity.free == 1
    assert worker.capacity.ask(1) is not None


def test_what_comes_when_they_are_gone_is_given_back() -> None:
    worker = Worker(2)
    asking, tx = worker.capacity.ask(1), handed_over(worker, "b")
    assert asking is not None
    worker.capacity.gone = True
    asking.give(claims("a"))
    tx.end(durable=True)
    assert worker.told == []
    assert worker.claim_queue.told == [("back", "a"), ("handed over", "b"), ("back", "b")]


def test_what_was_promised_is_theirs_when_the_commit_is_durable() -> None:
    worker = Worker(5)
    one, other = handed_over(worker, "a", "b"), handed_over(worker, "c")
    assert worker.capacity.free == 2
    assert worker.told == []
    one.end(durable=True)
    assert worker.told == ["a", "b"]
    assert worker.claim_queue.told == [("handed over", "a", "b")]
    other.end(durable=True)
    assert worker.told == ["a", "b", "c"]
    assert worker.capacity.free == 2


def test_what_was_promised_is_nobodys_when_the_commit_has_failed() -> None:
    worker = Worker(5)
    handed_over(worker, "a", "b").end(durable=False)
    assert worker.told == []
    assert worker.claim_queue.told == ["freed"], "others may have it now"
    assert worker.capacity.free == 5


def test_a_job_that_its_transaction_has_undone_is_not_taken() -> None:
    worker = Worker(5)
    tx = handed_over(worker, "a", "b")
    del tx.notes[1:]
    tx.end(durable=True)
    assert worker.told == ["a"]
    assert worker.claim_queue.told == [("handed over", "a"), "freed"]
    assert worker.capacity.free == 4


def test_the_desk_knows_when_they_are_freed_if_there_is_one() -> None:
    worker = Worker(1)
    worker.capacity.freed()
    assert worker.claim_queue.told == ["freed"]
    worker.capacity.post = None
    worker.capacity.freed()
    assert worker.claim_queue.told == ["freed"]

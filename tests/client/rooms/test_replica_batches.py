"""A batch is one step, or nothing; and only so many steps may wait."""

from typing import Any

import pytest

from onceward import limits
from onceward.api import room_changes as op
from onceward.client.rooms.replica import Replica
from onceward.errors import BadInput, OncewardError
from onceward.rooms.frames import Ack
from tests.client.rooms.copies import by_bob, code, entries, hear, live, put, sent


def test_a_batch_shows_at_once_and_is_sent_as_one_step() -> None:
    replica = live()
    step = replica.begin()
    assert replica.change([put("a")]) is step
    assert replica.change([put("b"), put("c")]) is step
    assert entries(replica) == {"a": 1, "b": 1, "c": 1}
    assert (replica.waiting, sent(replica)) == ([], [])
    assert replica.commit() is step
    assert replica.open is None
    assert replica.waiting == [step]
    assert [frame.ops for frame in replica.out] == [[put("a"), put("b"), put("c")]]  # type: ignore[union-attr]
    hear(replica, Ack("r", 1, 1))
    assert (step.n, step.seq, step.error) == (1, 1, None)
    assert entries(replica) == {"a": 1, "b": 1, "c": 1}


def test_a_batch_that_is_given_up_leaves_nothing() -> None:
    replica = live({"m": {"a": 0}})
    replica.change([put("own")])
    step = replica.begin()
    replica.change([put("a"), put("b")])
    replica.change([put("a", 2)])
    replica.abort()
    assert entries(replica) == {"a": 0, "own": 1}
    assert (step.answered, code(step.error)) == (True, "bad_request")
    assert replica.open is None
    assert sent(replica) == [1]
    assert replica.change([put("c")]).n == 2


def test_a_batch_of_nothing_is_done_at_once() -> None:
    replica = live(seq=7)
    step = replica.begin()
    assert replica.commit() is step
    assert (step.answered, step.seq, step.error) == (True, 7, None)
    assert (replica.open, replica.waiting, sent(replica)) == (None, [], [])


def test_batches_are_not_in_each_other() -> None:
    replica = live()
    step = replica.begin()
    with pytest.raises(BadInput, match="changes is already open"):
        replica.begin()
    assert replica.open is step


def test_what_others_do_meanwhile_goes_below_a_batch() -> None:
    replica = live({"m": {"n": 1}})
    replica.change([op.MapAdd("m", "n", 10)])
    replica.begin()
    replica.change([op.MapAdd("m", "n", 100)])
    hear(replica, by_bob(1, op.MapSet("m", "n", 5)))
    assert entries(replica) == {"n": 115}
    replica.change([op.MapAdd("m", "n", 1_000)])
    replica.abort()
    assert entries(replica) == {"n": 15}


def test_a_batch_that_does_not_fit_after_what_others_did_is_nothing() -> None:
    replica = live({"m": {"k": 1}})
    step = replica.begin()
    replica.change([op.MapCompare("m", "k", 2, 1), put("a")])
    hear(replica, by_bob(1, put("k", 5)))
    assert entries(replica) == {"k": 5}
    replica.change([put("b")])
    with pytest.raises(BadInput) as refused:
        replica.commit()
    assert refused.value.code == "not_expected"
    assert code(step.error) == "not_expected"
    assert replica.open is None
    assert (replica.waiting, sent(replica)) == ([], [])


def test_a_batch_that_is_too_much_for_a_step_is_nothing() -> None:
    replica = live()
    half = [op.MapAdd("m", "n", 1)] * (limits.ROOM_OPS_MAX // 2)
    for rest, fits in (([], True), ([op.MapAdd("m", "n", 1)], False)):
        step = replica.begin()
        for ops in (half, half, rest):
            if ops:
                replica.change(ops)
        if fits:
            replica.commit()
        else:
            with pytest.raises(BadInput):
                replica.commit()
            assert code(step.error) == "value_too_large"
    assert replica.open is None
    assert entries(replica) == {"n": limits.ROOM_OPS_MAX}


def test_what_is_done_before_all_that_came_is_settled_goes_on_top_of_it() -> None:
    """`receive` leaves the own steps taken back: whatever is done next puts them back first."""

    def heard() -> Replica:
        replica = live({"m": {"n": 0}})
        replica.change([op.MapAdd("m", "n", 1)])
        replica.receive(by_bob(1, op.MapSet("m", "n", 10)))
        return replica

    replica = heard()
    assert replica.change([op.MapCompare("m", "n", 20, 11)]).n == 2
    assert entries(replica) == {"n": 20}
    replica = heard()
    replica.begin()
    assert entries(replica) == {"n": 11}
    replica.receive(by_bob(2, op.MapSet("m", "n", 30)))
    replica.commit()
    assert entries(replica) == {"n": 31}
    replica = heard()
    replica.begin()
    replica.change([op.MapAdd("m", "n", 100)])
    replica.receive(by_bob(2, op.MapSet("m", "n", 20)))
    replica.abort()
    assert entries(replica) == {"n": 21}


@pytest.mark.parametrize("ops", [[], [op.MapSet("", "k", 1)], [op.MapCompare("m", "k", 1, 2)]])
def test_what_is_no_step_or_does_not_fit_changes_nothing(ops: Any) -> None:
    for batch in (False, True):
        replica = live({"m": {"k": 1}})
        if batch:
            replica.begin()
        with pytest.raises(BadInput):
            replica.change(ops)
        assert entries(replica) == {"k": 1}
        assert (replica.waiting, replica.changed, sent(replica)) == ([], [], [])


def size(value: str) -> int:
    return len('[{"op":"map.set","map":"m","key":"k","value":""}]') + len(value)


def full(monkeypatch: pytest.MonkeyPatch, what: str) -> Replica:
    """A copy in which one more step may wait."""
    replica = live()
    replica.change([put("k", "xxxx")])
    if what == "steps":
        monkeypatch.setattr(limits, "ROOM_WAITING_STEPS_MAX", 2)
    else:
        monkeypatch.setattr(limits, "ROOM_WAITING_BYTES_MAX", size("xxxx") + size("yyy"))
    return replica


@pytest.mark.parametrize("what", ["steps", "bytes"])
def test_only_so_much_waits_for_an_answer(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    replica = full(monkeypatch, what)
    if what == "bytes":
        with pytest.raises(OncewardError, match="changes already wait for a response"):
            replica.change([put("k", "yyyy")])
    replica.change([put("k", "yyy")])
    with pytest.raises(OncewardError) as refused:
        replica.change([put("k", "")])
    assert refused.value.code == "overloaded"
    assert entries(replica) == {"k": "yyy"}
    hear(replica, Ack("r", 1, 1), Ack("r", 2, 2))
    for value in ("xxxx", "yyy"):
        replica.change([put("k", value)])
    assert sent(replica) == [1, 2, 3, 4]


@pytest.mark.parametrize("what", ["steps", "bytes"])
def test_a_batch_is_too_much_only_when_it_is_done(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    replica = full(monkeypatch, what)
    replica.change([put("k", "yyy")])
    step = replica.begin()
    replica.change([put("k", "z")])
    with pytest.raises(OncewardError) as refused:
        replica.commit()
    assert refused.value.code == code(step.error) == "overloaded"
    assert entries(replica) == {"k": "yyy"}
    assert len(replica.waiting) == 2

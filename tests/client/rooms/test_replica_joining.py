"""A copy comes to the server's position whatever it is told, and notices what cannot follow."""

from typing import Any

import pytest

from onceward import limits
from onceward.api import room_changes as op
from onceward.client.rooms.replica import Replica
from onceward.errors import BadInput, OncewardError
from onceward.rooms.frames import (
    Ack,
    Change,
    Join,
    Refused,
    Snapshot,
    encode,
)
from onceward.rooms.frames import Step as SentStep
from tests.client.rooms.copies import by_bob, code, entries, hear, joined, live, put, sent


def test_a_new_copy_knows_nothing_and_says_so() -> None:
    assert Replica("r", "me").join() == Join("r", "me")
    assert Replica("r", "me", create=True).join() == Join("r", "me", create=True)
    assert not Replica("r", "me").live
    assert Replica("r", "me").user == ""


@pytest.mark.parametrize("create", [None, 0, 1, "yes", []])
def test_whether_a_room_is_to_be_made_is_true_or_false(create: Any) -> None:
    with pytest.raises(BadInput, match="`create` must be true or false, not") as refused:
        Replica("r", "me", create=create)
    assert refused.value.code == "wrong_type"


def test_a_copy_joins_again_with_its_position_and_what_waits() -> None:
    replica = live(seq=5)
    replica.change([put("a")])
    replica.change([put("b")])
    hear(replica, Ack("r", 1, 6))
    replica.change([put("c")])
    assert replica.join() == Join(
        "r", "me", "e", 6, [SentStep(2, [put("b")]), SentStep(3, [put("c")])]
    )
    assert not replica.live
    assert replica.out == []
    hear(replica, joined(6, 1))
    assert replica.live
    assert sent(replica) == [], "they went with the join"


def test_a_lost_connection_takes_what_was_to_be_sent_with_it() -> None:
    replica = live()
    step = replica.change([put("a")])
    replica.lost()
    assert (replica.live, replica.out, replica.waiting) == (False, [], [step])
    replica.change([put("b")])
    assert replica.out == []
    hear(replica, by_bob(1, put("z")), Ack("r", 1, 1), Snapshot("r", 9, {}, {}))
    assert (replica.seq, entries(replica)) == (0, {"a": 1, "b": 1}), "nothing is heard any more"


def test_what_is_done_before_a_copy_is_live_is_sent_then() -> None:
    replica = live()
    replica.join()
    replica.change([put("a")])
    replica.receive(joined(2))
    replica.change([put("b")])
    hear(replica, by_bob(1, put("z")))
    assert (replica.live, sent(replica)) == (False, [])
    hear(replica, by_bob(2, put("z", 2)))
    assert (replica.live, sent(replica)) == (True, [1, 2])
    replica.change([put("c")])
    assert sent(replica) == [3]


def test_a_copy_that_loads_a_snapshot_is_live_when_all_of_it_has_come() -> None:
    replica = live({"m": {"old": 1}}, seq=3)
    replica.change([put("own")])
    replica.join()
    replica.receive(joined(9, reset="gap"))
    replica.receive(Snapshot("r", 9, {"m": {"a": 1}}, {}, more=True))
    replica.settle()
    assert (replica.live, replica.seq, entries(replica)) == (False, 3, {"old": 1, "own": 1})
    hear(replica, Snapshot("r", 9, {"m": {"b": 1}}, {}))
    assert (replica.live, replica.epoch, replica.seq) == (True, "e", 9)
    assert entries(replica) == {"a": 1, "b": 1, "own": 1}
    hear(replica, by_bob(10, put("z")))
    assert replica.seq == 10


# What a join brings along has room in a frame; the rest follows.

OPS = len('[{"op":"map.set","map":"m","key":"k","value":""}]')
FITS = limits.FRAME_BYTES_MAX - 64_000


def lost_with(*sizes: int) -> Replica:
    replica = live()
    replica.lost()
    for size in sizes:
        replica.change([put("k", "x" * (size - OPS))])
    return replica


def test_a_join_brings_as_many_steps_as_it_has_room_for_and_the_rest_follows() -> None:
    fourth = FITS - 3 * 250_000 - 4 * 32
    replica = lost_with(250_000, 250_000, 250_000, fourth)
    join = replica.join()
    assert [step.n for step in join.steps] == [1, 2, 3, 4]
    assert len(encode(join)) <= limits.FRAME_BYTES_MAX
    replica = lost_with(250_000, 250_000, 250_000, fourth + 1, 100)
    assert [step.n for step in replica.join().steps] == [1, 2, 3]
    hear(replica, joined())
    assert sent(replica) == [4, 5]


# What became of the steps.


@pytest.mark.parametrize(("detail", "told"), [("it is 2", "it is 2"), ("", "the room rejected it")])
def test_a_refused_step_says_why(detail: str, told: str) -> None:
    replica = live()
    one, two = replica.change([put("a")]), replica.change([put("b")])
    hear(replica, Refused("r", 1, "bad_shape", detail))
    assert one.error is not None
    assert (one.error.code, one.error.message) == ("bad_shape", told)
    assert not two.answered
    assert entries(replica) == {"b": 1}
    hear(replica, Refused("r", 2, "not_joined"), Refused("r", 9, "bad_shape"))
    assert replica.waiting == [two]


def test_a_step_is_refused_also_before_those_that_were_sent_earlier_are_answered() -> None:
    replica = live()
    one, two, three = (replica.change([put(key)]) for key in "abc")
    hear(replica, Refused("r", 2, "bad_shape"))
    assert code(two.error) == "bad_shape"
    assert (replica.waiting, entries(replica)) == ([one, three], {"a": 1, "c": 1})


def test_one_s_own_step_among_the_changes_is_its_answer() -> None:
    replica = live()
    step = replica.change([op.MapAdd("m", "n", 1)])
    hear(replica, Change("r", 1, [op.MapAdd("m", "n", 1)], "ann", "me", 1))
    assert (step.seq, replica.waiting, entries(replica)) == (1, [], {"n": 1})
    hear(replica, Change("r", 2, [op.MapAdd("m", "n", 1)], "ann", "me", 9))
    assert entries(replica) == {"n": 2}, "what does not wait here is a change like others"
    later = replica.change([op.MapAdd("m", "n", 1)])
    hear(replica, Change("r", 3, [op.MapAdd("m", "n", 1)], "ann", "another", later.n))
    assert (later.answered, entries(replica)) == (False, {"n": 4})


def test_an_answer_to_a_later_step_says_that_those_before_were_refused() -> None:
    replica = live()
    one, two, three = (replica.change([put(key)]) for key in "abc")
    hear(replica, Ack("r", 2, 1))
    assert one.error is not None
    assert one.error.message == "the room rejected it; the reason was lost with the connection"
    assert (one.error.code, two.seq, three.answered) == ("bad_request", 1, False)
    assert entries(replica) == {"b": 1, "c": 1}
    hear(replica, Ack("r", 3, 2))
    assert three.seq == 2


def test_an_acknowledgement_of_what_is_below_the_position_says_nothing() -> None:
    replica = live(seq=5)
    step = replica.change([put("a")])
    hear(replica, Ack("r", 1, 5))
    assert (replica.seq, step.answered) == (5, False)


@pytest.mark.parametrize(
    ("n", "known", "skipped", "codes"),
    [
        (0, 0, (), [None, None, None]),
        (2, 1, (), ["done", "done", None]),
        (3, 2, (), ["outcome_unknown", "done", "done"]),
        (3, 1, (1, 2), ["bad_request", "bad_request", "done"]),
        (3, 3, (1,), ["bad_request", "outcome_unknown", "done"]),
    ],
)
def test_a_snapshot_tells_what_became_of_the_steps_that_waited(
    n: int, known: int, skipped: tuple[int, ...], codes: list[str | None]
) -> None:
    replica = live()
    steps = [replica.change([put(key)]) for key in "abc"]
    replica.join()
    hear(
        replica,
        joined(9, n, reset="gap", known=known, skipped=skipped),
        Snapshot("r", 9, {}, {}),
    )
    found = [(code(step.error) or "done") if step.answered else None for step in steps]
    assert found == codes
    assert replica.waiting == steps[n:]
    assert entries(replica) == dict.fromkeys("abc"[n:], 1)


def test_a_room_that_was_made_again_takes_none_of_what_waited() -> None:
    replica = live()
    step = replica.change([put("a")])
    replica.join()
    hear(replica, joined(1, epoch="f", reset="epoch"), Snapshot("r", 1, {}, {}))
    assert (code(step.error), replica.waiting) == ("room_deleted", [])
    assert (replica.epoch, replica.seq, entries(replica)) == ("f", 1, {})


def test_who_was_forgotten_gives_up_only_what_the_server_may_have_heard_of() -> None:
    replica = live()
    heard = replica.change([put("a")])
    replica.lost()
    never = replica.change([put("b")])
    replica.join()
    sent(replica)
    hear(replica, joined(1, reset="forgotten"), Snapshot("r", 1, {}, {}))
    assert (code(heard.error), never.answered) == ("outcome_unknown", False)
    assert sent(replica) == [2]
    assert entries(replica) == {"b": 1}


def test_who_was_forgotten_before_saying_anything_gives_nothing_up() -> None:
    replica = live()
    replica.lost()
    step = replica.change([put("a")])
    replica.join()
    hear(replica, joined(1, reset="forgotten"), Snapshot("r", 1, {}, {}))
    assert (step.answered, sent(replica)) == (False, [1])


def test_steps_are_given_up_with_a_number_or_all() -> None:
    replica = live()
    steps = [replica.change([put(key)]) for key in "abc"]
    replica.drop(OncewardError("enough", code="room_moved"), 2)
    assert [code(step.error) for step in steps] == ["room_moved", "room_moved", None]
    assert entries(replica) == {"c": 1}
    replica.drop(OncewardError("enough", code="room_moved"))
    assert (code(steps[2].error), replica.waiting, entries(replica)) == ("room_moved", [], {})
    assert replica.change([put("d")]).n == 4


def test_a_copy_that_is_healed_begins_anew() -> None:
    replica = live(seq=5)
    step = replica.change([put("a")])
    replica.heal()
    assert code(step.error) == "outcome_unknown"
    assert (replica.live, replica.out, replica.waiting) == (False, [], [])
    assert replica.join() == Join("r", "me")


# What cannot follow.


@pytest.mark.parametrize(
    "frames",
    [
        [by_bob(7, put("z"))],
        [by_bob(5, put("z"))],
        [Ack("r", 1, 7)],
        [Ack("r", 2, 6)],
        [Snapshot("r", 9, {}, {})],
        [joined(4)],
        [joined(5, epoch="f")],
        [joined(9, reset="gap"), by_bob(6, put("z"))],
        [joined(9, reset="gap"), Ack("r", 1, 6)],
    ],
)
def test_what_does_not_follow_is_noticed(frames: Any) -> None:
    replica = live(seq=5)
    replica.change([put("a")])
    with pytest.raises(BadInput) as refused:
        hear(replica, *frames)
    assert refused.value.code == "bad_request"
    assert replica.seq in (5, 6)


def test_where_nothing_waits_nothing_is_acknowledged() -> None:
    replica = live()
    with pytest.raises(BadInput) as refused:
        hear(replica, Ack("r", 1, 1))
    assert refused.value.code == "bad_request"


def test_a_step_that_the_room_took_fits_here_or_something_is_wrong() -> None:
    replica = live({"m": {"k": 1}})
    replica.change([op.MapCompare("m", "k", 2, 1)])
    hear(replica, by_bob(1, put("k", 5)))
    with pytest.raises(BadInput) as refused:
        hear(replica, Ack("r", 1, 2))
    assert refused.value.code == "bad_request"


def test_a_join_at_one_s_own_position_goes_on() -> None:
    replica = live(seq=5)
    replica.join()
    hear(replica, joined(5))
    assert replica.live
    hear(replica, by_bob(6, put("z")))
    assert (replica.seq, entries(replica)) == (6, {"z": 1})

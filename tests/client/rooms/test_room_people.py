"""Who is in a room, what they show of themselves, and what they say."""

from typing import Any

import pytest

from onceward.client.rooms.replica import Who
from onceward.errors import OncewardError
from onceward.rooms.frames import (
    Came,
    Crowd,
    Error,
    PresenceChanged,
    PresenceGone,
    RemovePresence,
    Said,
    Say,
    SetPresence,
    Snapshot,
    Tell,
    Went,
)
from tests.client.rooms.guests import joined, live


def test_members_come_and_go() -> None:
    ann = live()
    told: list[Any] = []
    ann.room.on_members(lambda members: told.append(sorted(members)))
    ann.hear(Came("r", "m2", "bob"), Came("r", "m3", "bob"), Went("r", "m2"), Went("r", "m9"))
    assert (ann.room.me, sorted(ann.room.members)) == ("m1", ["m1", "m3"])
    assert ann.room.members["m3"].user == "bob"
    assert told[:2] == [["m1", "m2"], ["m1", "m2", "m3"]]


def test_in_a_very_large_room_members_are_counted() -> None:
    ann = live()
    counts: list[int] = []
    ann.room.on_members(lambda members: counts.append(ann.room.count))
    assert ann.room.count == 1
    ann.hear(Crowd("r", 4_000), Came("r", "m2", "bob"), Crowd("r"))
    assert counts == [4_000, 4_000, 2]
    ann.hear(joined(count=300), Snapshot("r", 0, {}, {}))
    assert ann.room.count == 300


def test_presences_are_one_s_own_at_once_and_those_of_others_as_they_come() -> None:
    ann = live()
    cursor = ann.room.presence("cursor")
    told: list[Any] = []
    cursor.subscribe(lambda values, who: told.append((values, who)))
    cursor.set({"x": 1}, ttl_s=5)
    assert cursor.mine == {"x": 1}
    assert list(ann.room.take_out()) == [SetPresence("r", "cursor", {"x": 1}, 5_000)]
    ann.hear(PresenceChanged("r", "cursor", "bob", 2))
    assert cursor.all() == {"ann": {"x": 1}, "bob": 2}
    ann.hear(PresenceGone("r", "cursor", "bob"), PresenceGone("r", "cursor", "nobody"))
    cursor.remove()
    cursor.remove()
    assert list(ann.room.take_out()) == [RemovePresence("r", "cursor")]
    assert [who for _, who in told] == [Who("ann", True), Who("bob"), Who("bob"), Who("ann", True)]
    assert told[-1][0] == {}


def test_a_presence_that_is_refused_is_taken_back_and_reported() -> None:
    ann = live()
    cursor = ann.room.presence("cursor")
    told: list[Any] = []
    ann.room.on_refused(lambda error, operations: told.append((error.code, list(operations))))

    def refuse(value: Any) -> None:
        ann.room.presence_refused(Error("bad_shape", "no", "r", "cursor", value))

    def send(value: Any) -> None:
        cursor.set(value)
        ann.room.take_out()

    send({"x": 1})
    send("wrong")
    assert cursor.mine == "wrong"
    refuse("wrong")
    assert (cursor.mine, told) == ({"x": 1}, [("bad_shape", [])])
    # One that was replaced meanwhile changes nothing.
    send("worse")
    send({"x": 2})
    refuse("worse")
    assert (cursor.mine, len(told)) == ({"x": 2}, 2)
    refuse("never sent")
    assert len(told) == 2
    # The first of all leaves nothing.
    cursor.remove()
    ann.room.take_out()
    send("wrong")
    refuse("wrong")
    assert (cursor.mine, cursor.all()) == (None, {})


def test_of_many_presences_in_a_row_the_last_is_sent() -> None:
    ann = live()
    for number in range(5):
        ann.room.presence("cursor").set(number)
    ann.room.presence("name").set("ann")
    assert [(one.name, one.value) for one in ann.room.take_out()] == [
        ("cursor", 4),
        ("name", "ann"),
    ]  # type: ignore[union-attr]


def test_one_s_own_presences_are_set_again_on_a_new_connection_for_the_time_left() -> None:
    ann = live()
    ann.room.presence("short").set(1, ttl_s=1)
    ann.room.presence("long").set(2, ttl_s=60)
    ann.room.lost()
    ann.room.presence("away").set(3)
    ann.clock_ms += 10_000
    others = {"long": {"bob": 1}, "gone": {"bob": 1}}
    ann.hear(joined(presences=others), Snapshot("r", 0, {}, {}))
    assert list(ann.room.take_out()) == [
        SetPresence("r", "long", 2, 50_000),
        SetPresence("r", "away", 3, 50_000),
    ]
    assert ann.room.presence("long").all() == {"ann": 2, "bob": 1}
    assert ann.room.presence("short").mine is None


def test_what_is_said_is_heard_by_its_event() -> None:
    ann = live()
    heard: list[Any] = []
    end = ann.room.on("wave", lambda value, said: heard.append((value, said.by, said.direct)))
    ann.hear(Said("r", "wave", 1, "m2", "bob"), Said("r", "other"), Said("r", "wave", direct=True))
    end()
    ann.hear(Said("r", "wave"))
    assert heard == [(1, "bob", False), (None, "", True)]
    ann.room.say("wave", {"a": 1})
    ann.room.tell("m2", "wave")
    assert list(ann.room.take_out()) == [
        Say("r", "wave", {"a": 1}),
        Tell("r", "m2", "wave"),
    ]
    ann.room.lost()
    with pytest.raises(OncewardError) as refused:
        ann.room.say("wave")
    assert refused.value.code == "not_joined"


def test_a_presence_that_was_removed_while_away_does_not_come_back() -> None:
    ann = live()
    for name in ("cursor", "mood", "name"):
        ann.room.presence(name).set(None if name == "mood" else name)
    ann.room.take_out()
    ann.room.presence("cursor").remove()  # it is not sent any more
    ann.room.lost()
    ann.room.presence("mood").remove()
    ann.room.presence("name").remove()
    ann.replica.join()
    there = {"cursor": {"ann": "cursor", "bob": 1}, "name": {"ann": "of another tab"}}
    ann.hear(joined(presences=there), Snapshot("r", 0, {}, {}))
    assert ann.room.presence("cursor").all() == {"bob": 1}
    assert ann.room.presence("name").mine == "of another tab"
    assert list(ann.room.take_out()) == [RemovePresence("r", "cursor")]
    ann.room.lost()
    ann.replica.join()
    ann.hear(joined(), Snapshot("r", 0, {}, {}))
    assert list(ann.room.take_out()) == []

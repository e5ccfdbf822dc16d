"""A room keeps within its bounds: what is in it, whom it remembers, and its pieces."""

from typing import Any

import msgspec
import pytest

from onceward import limits
from onceward.api import room_changes as op
from onceward.errors import BadInput
from onceward.rooms.room import Entry, Mark, Piece, Room, Tail
from tests.rooms.making import sizes

LATER_MS = limits.ROOM_CLIENT_MS  # everything in these rooms was done at the time 0


def set_to(value: Any, key: str = "k") -> list[Any]:
    return [op.MapSet("m", key, value)]


def refuse(room: Room, ops: list[Any]) -> None:
    """A room is too large for a step, which leaves nothing."""
    before = room.state.plain(), sizes(room.state), room.seq
    with pytest.raises(BadInput) as refused:
        room.take(ops)
    assert refused.value.code == "room_too_large"
    assert (room.state.plain(), sizes(room.state), room.seq) == before


def test_a_room_grows_up_to_its_bounds_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room("e")
    room.take(set_to(""))
    monkeypatch.setattr(limits, "ROOM_BYTES_MAX", room.state.bytes + 10)
    refuse(room, set_to("x" * 11))
    assert room.take(set_to("x" * 10))
    monkeypatch.undo()
    monkeypatch.setattr(limits, "ROOM_CELLS_MAX", 3)
    assert room.take(set_to(1, "another"))
    refuse(room, set_to(1, "one more"))
    refuse(room, [op.MapMake("n")])


def test_a_room_that_is_too_large_may_shrink_or_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room("e")
    room.take([*set_to("x" * 500), *set_to(1, "j")])
    monkeypatch.setattr(limits, "ROOM_BYTES_MAX", 400)
    refuse(room, set_to("x" * 501))
    assert room.take(set_to("y" * 500))
    assert room.take(set_to("x" * 450))
    monkeypatch.setattr(limits, "ROOM_CELLS_MAX", 2)
    refuse(room, [*set_to("", "k"), *set_to("", "another")])
    assert room.take(set_to("", "k"))
    assert room.take([op.MapDelete("m", "k")])


# Whom a room remembers.


def room_at_ten() -> Room:
    room = Room("e")
    for number in range(1, 11):
        room.take(set_to(number), by="ann", client="old" if number < 4 else "new", n=number)
    return room


def test_clients_are_remembered_while_the_log_reaches_back_to_them_and_for_a_while() -> None:
    room = room_at_ten()
    room.forget(2, LATER_MS)
    assert ("ann", "old") in room.clients
    room.forget(3, LATER_MS - 1_000)
    assert ("ann", "old") in room.clients
    room.forget(3, LATER_MS)
    assert room.clients.keys() == {("ann", "new")}


def test_clients_to_forget_are_looked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOM_CLIENTS_MAX", 2)
    room = room_at_ten()
    room.forget(3, LATER_MS - 1)
    room.forget(3, LATER_MS + 998)
    assert room.clients.keys() == {("ann", "old"), ("ann", "new")}
    room.forget(3, LATER_MS + 999)
    assert room.clients.keys() == {("ann", "new")}
    room.take(set_to(0), client="one", n=1)
    room.take(set_to(0), client="two", n=1)
    room.forget(3, LATER_MS + 999)
    assert room.clients.keys() == {("", "one"), ("", "two")}, "too many go at once"


def test_a_room_reaches_back_to_where_its_log_begins() -> None:
    room = room_at_ten()
    assert room.greet(0, "ann", "new", "e", 0, waiting=True).reset == ""
    room.forget(1, 0)
    assert room.floor == 1
    room.forget(3, 0)
    room.forget(2, 0)
    assert room.floor == 3
    assert room.greet(0, "ann", "new", "e", 2, waiting=True).reset == "gap"
    assert room.greet(0, "ann", "new", "e", 3, waiting=True).reset == ""


def test_of_too_many_clients_the_longest_silent_get_a_new_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ROOM_CLIENTS_MAX", 2)
    room = Room("e")
    for number in range(1, 6):
        room.take(set_to(number), client=f"c{number}", n=1)
    room.forget(0, 0)
    assert [client for _, client in room.clients] == ["c4", "c5"]
    again = Room("e", seq=5)
    for piece in room.pieces():
        again.add_piece(piece)
    for one in (room, again):
        assert one.greet(0, "", "c2", "e", 2, waiting=True).reset == "forgotten"
        assert one.greet(0, "", "c2", "e", 3, waiting=True).reset == ""


def test_a_tail_knows_what_it_reaches_back_to() -> None:
    tail = Tail(5, most=3)
    for seq in range(6, 11):
        tail.add(Entry(seq, []))
    assert tail.floor == 7
    assert tail.since(6) is None
    assert [entry.seq for entry in tail.since(7) or ()] == [8, 9, 10]
    assert [entry.seq for entry in tail.since(8) or ()] == [9, 10]
    assert tail.since(10) == []


# The pieces of a snapshot.


def keys(room: Room, bytes_max: int) -> list[list[str]]:
    """The keys and items in each piece."""
    return [
        [
            *(key for entries in piece.maps.values() for key in entries),
            *(id_ for items in piece.lists.values() for id_, _, _ in items),
            *(client for _, client, _ in piece.clients),
        ]
        for piece in room.pieces(bytes_max)
    ]


def test_pieces_are_as_full_as_may_be() -> None:
    room = Room("e")
    for key in "abc":
        room.take(set_to(1, key))
    assert room.state.bytes == 19 + 3 * 20  # of the map, and of each key
    assert keys(room, 79) == [["a", "b", "c"]]
    assert keys(room, 78) == [["a", "b"], ["c"]]
    assert keys(room, 40) == [["a"], ["b", "c"]]
    assert keys(room, 39) == [["a"], ["b"], ["c"]]
    assert keys(room, 38) == [[], ["a"], ["b"], ["c"]]
    room = Room("e")
    room.take([op.ListInsert("l", id_, 1) for id_ in "abc"])
    assert keys(room, 19 + 3 * 22) == [["a", "b", "c"]]
    assert keys(room, 18 + 3 * 22) == [["a", "b"], ["c"]]


def test_clients_have_room_for_their_names_and_numbers_in_pieces() -> None:
    room = Room("e")
    for client in ("c1", "c2", "c3", "c4"):
        room.clients["ann", client] = Mark(1, 1, 1, 1)
    each = 16 + len('"ann"') + len("c1") + 64
    assert keys(room, 4 * each) == [["c1", "c2", "c3", "c4"]]
    assert keys(room, 2 * each) == [["c1", "c2"], ["c3", "c4"]]
    assert keys(room, 2 * each - 1) == [["c1"], ["c2"], ["c3"], ["c4"]]
    assert keys(room, 1) == [["c1"], ["c2"], ["c3"], ["c4"]]
    room.clients["ann", "c2"] = Mark(9, 9, 9, 1, (2, 3))
    assert keys(room, 2 * each + 34) == [["c1", "c2"], ["c3", "c4"]]
    assert keys(room, 2 * each + 33) == [["c1"], ["c2"], ["c3", "c4"]]


def test_no_piece_is_larger_than_what_it_is_said_to_hold() -> None:
    """Also with numbers as long as they come, but for what is around all of it."""
    room = Room("e")
    most = limits.ROOM_NUMBER_MAX
    for number in range(50):
        mark = Mark(most, most, most, most, (most,) * (number % 3))
        room.clients["u" * number, f"client-{number}"] = mark
    pieces = [msgspec.json.encode(piece) for piece in room.pieces(1_000)]
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= 1_000 + 50


def test_a_room_of_nothing_is_one_piece_and_a_large_value_too() -> None:
    assert list(Room("e").pieces(1)) == [Piece()]
    room = Room("e")
    room.take(set_to("x" * 1_000))
    assert keys(room, 1) == [[], ["k"]]
    client = Room("e")
    client.clients["ann", "c"] = Mark(1, 1, 1, 1)
    assert keys(client, 1) == [["c"]]


def test_a_piece_that_says_nothing_changes_nothing() -> None:
    room = Room("e")
    room.add_piece(Piece())
    assert (room.floor, room.clients, sizes(room.state)) == (0, {}, (0, 0))


def test_a_room_is_as_large_as_its_snapshot_is_whatever_its_keys_are() -> None:
    room = Room("e")
    room.take([op.MapSet("m", "\x01" * 200 + str(number), 1) for number in range(100)])
    room.take([op.ListInsert("l", "é\x01" * 50 + str(number), 1) for number in range(100)])
    pieces = [msgspec.json.encode(piece) for piece in room.pieces(20_000)]
    assert sum(map(len, pieces)) <= room.state.bytes
    assert max(map(len, pieces)) <= 20_000 + 1_000

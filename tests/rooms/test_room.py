"""A room takes each step once, remembers clients as long as it must, and tells who needs what."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.api import room_changes as op
from onceward.api.rooms import Schemas
from onceward.errors import BadInput, OncewardError
from onceward.rooms.frames import Change
from onceward.rooms.room import Entry, Piece, Room, refusal, replayed
from onceward.rooms.schemas import Shapes
from tests.rooms.making import STEPS, sizes

LATER_MS = limits.ROOM_CLIENT_MS  # everything in these rooms was done at the time 0


def set_to(value: Any, key: str = "k") -> list[Any]:
    return [op.MapSet("m", key, value)]


def test_a_step_that_comes_again_changes_nothing() -> None:
    room = Room("e")
    taken = room.take([op.MapAdd("m", "k", 1)], by="ann", client="c", n=1)
    assert taken is not None
    assert taken.entry.seq == 1
    assert room.take([op.MapAdd("m", "k", 1)], by="ann", client="c", n=1) is None
    room.take([op.MapAdd("m", "k", 1)], by="ann", client="c", n=5)
    assert room.take([op.MapAdd("m", "k", 1)], by="ann", client="c", n=3) is None
    assert room.state.plain()["maps"] == {"m": {"k": 2}}
    assert room.seq == 2


def test_clients_of_other_users_with_the_same_name_are_others() -> None:
    room = Room("e")
    for by in ("ann", "bob", ""):
        assert room.take([op.MapAdd("m", "k", 1)], by=by, client="c", n=1)
    assert room.state.plain()["maps"] == {"m": {"k": 3}}


def test_what_a_server_does_is_always_new() -> None:
    room = Room("e")
    assert room.take(set_to(1))
    assert room.take(set_to(1))
    assert room.seq == 2
    assert room.clients == {}


def test_a_refused_step_takes_no_number_and_may_come_again() -> None:
    room = Room("e")
    compare = [op.MapCompare("m", "k", 2, 1)]
    with pytest.raises(BadInput):
        room.take(compare, client="c", n=1)
    assert (room.seq, room.clients) == (0, {})
    room.take(set_to(1))
    assert room.take(compare, client="c", n=1)


@given(STEPS)
def test_steps_can_be_given_back_in_turn(steps: Any) -> None:
    room = Room("e")
    room.take(set_to(0), client="c", n=1)
    before, clients = room.state.plain(), dict(room.clients)
    taken = []
    for number, ops in enumerate(steps, 2):
        try:
            taken.append(room.take(ops, client="cd"[number % 2], n=number))
        except BadInput:
            pass
    for one in reversed(taken):
        assert one is not None
        room.give_back(one)
    assert (room.state.plain(), room.clients, room.seq) == (before, clients, 1)


@given(STEPS, st.integers(1, 200))
def test_a_room_is_the_same_from_its_log_or_from_a_snapshot_and_the_rest(
    steps: Any, piece_bytes: int
) -> None:
    room, entries = Room("e"), []
    half: list[bytes] = []
    half_seq, half_digest = 0, ""
    for number, ops in enumerate(steps, 1):
        try:
            taken = room.take(ops, by="ann", client="c", n=number)
        except BadInput:
            continue
        assert taken is not None
        entries.append(msgspec.json.decode(msgspec.json.encode(taken.entry), type=Entry))
        if number == len(steps) // 2:
            half = [msgspec.json.encode(piece) for piece in room.pieces(piece_bytes)]
            half_seq, half_digest = room.seq, room.digest
    again = replayed(Room("e"), entries)
    later = Room("e", seq=half_seq, digest=half_digest)
    for raw in half:
        later.add_piece(msgspec.json.decode(raw, type=Piece))
    replayed(later, entries)
    for other in (again, later):
        assert other.state.plain() == room.state.plain()
        assert sizes(other.state) == sizes(room.state)
        assert (other.seq, other.digest) == (room.seq, room.digest)
        assert other.clients == room.clients


def test_a_room_is_seen_as_of_any_sequence_number() -> None:
    room = Room("e")
    entries = []
    for number in range(5):
        taken = room.take(set_to(number))
        assert taken is not None
        entries.append(taken.entry)
    for seq in range(1, 6):
        past = replayed(Room("e"), entries[:seq])
        assert past.state.plain()["maps"] == {"m": {"k": seq - 1}}
        assert past.seq == seq


def test_an_entry_says_who_did_what_and_when_and_others_are_told() -> None:
    room = Room("e", seq=6)
    taken = room.take(set_to(1), by="ann", client="c", n=2, at_ms=3)
    assert taken is not None
    digest = taken.entry.digest
    assert len(digest) == 16
    assert taken.entry == Entry(7, set_to(1), "ann", "c", 2, 3, digest)
    assert taken.entry.change("r") == Change("r", 7, set_to(1), "ann", "c", 2, digest)
    taken = room.take(set_to(1))
    assert taken is not None
    for entry in (taken.entry, Entry(8, set_to(1))):
        assert entry.change("r") == Change("r", 8, set_to(1), "", "", 0, entry.digest)
        assert entry.at_ms == 0


def test_who_follows_a_log_is_told_what_changes() -> None:
    room = Room("e")
    taken = room.take(set_to(1))
    assert taken is not None
    assert Room("e").follow(taken.entry) == taken.effects


def test_a_refusal_is_told_by_its_code_and_not_too_long_a_text() -> None:
    assert refusal(BadInput("x" * 500, code="bad_shape")) == ("bad_shape", "x" * 500)
    assert refusal(BadInput("x" * 501, code="bad_shape")) == ("bad_shape", "x" * 500)


def test_an_entry_that_does_not_follow_is_damage() -> None:
    with pytest.raises(OncewardError, match="entry 1 of the room's log is missing"):
        Room("e").follow(Entry(2, set_to(1)))


def test_a_digest_is_of_all_that_is_in_the_log() -> None:
    def log(*steps: dict[str, Any]) -> Room:
        room = Room("e")
        for step in steps:
            room.take(**{"ops": set_to(1), "client": "c", "n": room.seq + 1, **step})
        return room

    first = log({}, {}, {})
    assert log({}, {}, {}).digest == first.digest
    others = [
        log({"ops": set_to(2)}, {}, {}),
        log({}, {"by": "ann"}, {}),
        log({}, {"client": "d"}, {}),
        log({}, {}, {"at_ms": 7}),
        log({"n": 2}, {"n": 3}, {"n": 4}),
        log({}, {}, {}, {}),
        log({}, {}),
    ]
    assert len({room.digest for room in (first, *others)}) == 8
    # Given back, a step has left no trace.
    taken = first.take(set_to(9))
    assert taken is not None
    first.give_back(taken)
    assert first.digest == log({}, {}, {}).digest


def test_an_entry_of_another_history_is_damage() -> None:
    one, other = Room("e"), Room("e")
    one.take(set_to(1))
    other.take(set_to(2))
    taken = other.take(set_to(3))
    assert taken is not None
    with pytest.raises(OncewardError, match=r"entry 2 .* does not continue the previous one"):
        one.follow(taken.entry)
    assert (one.seq, one.state.plain()["maps"]) == (1, {"m": {"k": 1}})
    changed = msgspec.structs.replace(taken.entry, ops=set_to(4))
    assert taken.entry.follows(other.digest) is False
    assert not changed.follows(replayed(Room("e"), []).digest)


# How clients are greeted: position, waiting steps, and what the room remembers.


def room_at_ten() -> Room:
    room = Room("e")
    for number in range(1, 11):
        room.take(set_to(number), by="ann", client="old" if number < 4 else "new", n=number)
    return room


@pytest.mark.parametrize(
    ("client", "epoch", "seq", "waiting", "expected"),
    [
        ("fresh", "", 0, False, ("new", 0, True)),
        ("new", "", 0, False, ("new", 10, True)),
        ("new", "e", 10, True, ("", 10, True)),
        ("new", "e", 5, True, ("", 10, True)),
        ("fresh", "e", 5, True, ("", 0, True)),
        ("new", "e", 4, True, ("gap", 10, True)),
        ("old", "e", 4, True, ("forgotten", 0, False)),
        ("old", "e", 4, False, ("gap", 0, True)),
        ("new", "e", 11, True, ("ahead", 10, True)),
        ("new", "other", 5, True, ("epoch", 0, False)),
    ],
)
def test_a_client_is_told_all_it_missed_or_that_it_must_start_anew(
    client: str, epoch: str, seq: int, waiting: bool, expected: Any
) -> None:
    room = room_at_ten()
    room.forget(5, LATER_MS)
    greeting = room.greet(5, "ann", client, epoch, seq, waiting=waiting)
    assert greeting[:3] == expected
    assert greeting[3:] == (4 if greeting.n else 0, ())


def test_a_room_knows_which_steps_of_a_client_it_refused() -> None:
    room = Room("e")
    for n in (2, 3, 7, 8):
        room.take(set_to(n), client="c", n=n)
    greeting = room.greet(0, "", "c", "e", 1, waiting=True)
    assert (greeting.n, greeting.known, greeting.skipped) == (8, 2, (4, 5, 6))
    most = limits.ROOM_SKIPPED_MAX
    room.take(set_to(0), client="c", n=9 + most - 3)
    greeting = room.greet(0, "", "c", "e", 1, waiting=True)
    assert (greeting.known, greeting.skipped) == (2, (4, 5, 6, *range(9, 9 + most - 3)))
    room.take(set_to(0), client="c", n=11 + most - 3)
    greeting = room.greet(0, "", "c", "e", 1, waiting=True)
    assert (greeting.known, greeting.skipped[:3], greeting.skipped[-1]) == (5, (5, 6, 9), 7 + most)
    room.take(set_to(0), client="c", n=1_000)
    greeting = room.greet(0, "", "c", "e", 1, waiting=True)
    first = 1_000 - limits.ROOM_SKIPPED_MAX
    assert (greeting.known, greeting.skipped) == (first, tuple(range(first, 1_000)))


# What a room does not take.


@pytest.mark.parametrize(
    ("ops", "code"),
    [
        ([], "bad_request"),
        ([op.MapMake("m")] * (limits.ROOM_OPS_MAX + 1), "value_too_large"),
        ([op.MapSet("m", "k", "x" * limits.ROOM_STEP_BYTES_MAX)], "value_too_large"),
        ([op.MapSet("", "k", 1)], "bad_name"),
        ([op.MapSet("m" * 200, "k", 1)], "bad_name"),
        ([op.MapSet("m", "k" * 300, 1)], "bad_name"),
        ([op.MapSet("m", "\ud800", 1)], "bad_name"),
        ([op.MapSet("m", "k", float("nan"))], "bad_value"),
        ([op.MapSet("m", "k", object())], "bad_value"),
        ([op.ListInsert("l", "", 1)], "bad_name"),
        ([op.ListInsert("l", "i", 1, after="x" * 300)], "bad_name"),
        ([op.ListInsert("l", "i", 1, at="?")], "bad_value"),
        ([op.ListMake(7)], "bad_name"),
        ([7], "wrong_type"),
    ],
)
def test_what_cannot_be_a_step_is_refused(ops: list[Any], code: str) -> None:
    room = Room("e")
    with pytest.raises(BadInput) as refused:
        room.take(ops)
    assert refused.value.code == code
    assert (room.seq, room.state.plain()) == (0, {"maps": {}, "lists": {}})


@pytest.mark.parametrize(("client", "n"), [("c" * 65, 1), ("é", 1), ("c", 0), ("c", 2**53)])
def test_what_cannot_be_a_client_or_a_number_is_refused(client: str, n: int) -> None:
    with pytest.raises(BadInput):
        Room("e").take(set_to(1), client=client, n=n)


def test_values_are_checked_against_the_schemas_also_counters() -> None:
    schemas = Schemas(maps={"m": {"type": "integer", "maximum": 2}}, lists={"l": {"type": "null"}})
    room = Room("e", shapes=Shapes(schemas))
    room.take([op.MapAdd("m", "k", 2), op.ListInsert("l", "i", None)])
    for does in (op.MapAdd("m", "k", 1), op.MapSet("m", "j", "x"), op.ListSet("l", "i", 1)):
        with pytest.raises(BadInput) as refused:
            room.take([does])
        assert refused.value.code == "bad_shape"
    assert room.state.plain()["maps"] == {"m": {"k": 2}}


def test_a_step_that_changes_too_much_is_refused_however_short_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each insertion between two long positions numbers the whole list anew."""
    monkeypatch.setattr(limits, "ROOM_CHANGES_MAX", 1_000)
    room = Room("e")
    room.take([op.ListInsert("l", f"i{number}", 0) for number in range(300)])
    before = room.state.plain()

    def numbered(name: str) -> list[op.RoomOperation]:
        return [
            op.ListInsert("l", f"{name}1", 0, at="a0" * 24),
            op.ListInsert("l", f"{name}2", 0, at="a0" * 23 + "a1"),
            op.ListInsert("l", f"{name}3", 0, after=f"{name}1"),
        ]

    with pytest.raises(BadInput) as refused:
        room.take([*numbered("x"), *numbered("y")])
    assert refused.value.code == "value_too_large"
    assert (room.state.plain(), room.seq) == (before, 1)
    assert room.take(numbered("x")) is not None


def test_a_schema_that_came_later_leaves_what_was_there_in_its_order() -> None:
    room = Room("e")
    room.take([op.ListInsert("l", "i1", "old"), op.ListInsert("l", "i2", "old", at="hzzzzzzzz")])
    room.shapes = Shapes(Schemas(lists={"l": {"type": "integer"}}))
    assert room.take([op.ListMove("l", "i1", after="i2")]) is not None
    assert room.take([op.ListMove("l", "i1", after="")]) is not None
    assert room.take([op.ListInsert("l", "i3", 3)]) is not None, "all are numbered anew"
    assert [id_ for id_, _ in room.state.lists["l"].in_order()] == ["i1", "i2", "i3"]
    for ops in (
        [op.ListSet("l", "i1", "new")],
        [op.ListInsert("l", "i4", "new")],
        [op.ListDelete("l", "i1"), op.ListInsert("l", "i1", "new")],
    ):
        with pytest.raises(BadInput) as refused:
            room.take(ops)
        assert refused.value.code == "bad_shape"

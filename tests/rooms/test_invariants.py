"""Damage to the records of a room: each kind is reported by its rules, and none is served."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from onceward import keys, limits
from onceward.api import room_changes as op
from onceward.engine.base import Record
from onceward.errors import OncewardError
from onceward.keys import Key
from onceward.rooms.invariants import RULES
from onceward.rooms.part import Rooms
from onceward.rooms.records import head_key, info_key, listed_key
from onceward.rooms.room import Entry
from onceward.store.transaction import Transaction
from tests.rooms.rooming import House, house

Records = dict[Key, Any]
"""Values by key."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots after a few steps, in several pieces, and a short log."""
    monkeypatch.setattr(limits, "ROOM_SNAPSHOT_STEPS", 8)
    monkeypatch.setattr(limits, "ROOM_SWEEP_RECORDS", 2)


async def a_room(count: int = 30) -> House:
    home = await house()
    await home.create(keep=10, meta={"team": "a"})
    for number in range(count):
        await home.change(op.MapSet("m", f"k{number % 5}", number))
    return home


def records(home: House) -> Records:
    partitions = home.engine.memory.table.partitions.values()
    return {
        record.key: msgspec.json.decode(record.value)
        for partition in partitions
        for record in partition.rows.values()
    }


def problems(all_: Records) -> list[str]:
    rows = {key: Record(key, msgspec.json.encode(value), 1) for key, value in all_.items()}
    found = []
    for key, row in rows.items():
        for rule in RULES:
            if rule.kind == keys.kind_of(key[0]):
                found += [f"{' '.join(key)}: {problem}" for problem in rule.judge(row, rows.get)]
    return found


async def put_back(home: House, all_: Records) -> None:
    """Let the database have these records, and no others; nobody keeps copies."""
    table = home.engine.memory.table
    home.engine.memory.version += 1_000
    for key in records(home):
        table.drop(key)
    for key, value in all_.items():
        table.put(Record(key, msgspec.json.encode(value), home.engine.memory.version))


def log_of(all_: Records) -> list[Key]:
    """The keys of what is kept of the log, in order."""
    floor = all_[head_key("r")]["snapshots"][0][0]
    found = sorted(key for key in all_ if key[0].startswith("roomlog#"))
    return [key for key in found if int(key[1]) > floor]


def snapshots_of(all_: Records) -> list[Key]:
    floor = all_[head_key("r")]["snapshots"][0][0]
    found = sorted(key for key in all_ if key[0].startswith("roomsnap#"))
    return [key for key in found if int(key[1].partition("#")[0]) >= floor]


# What is done to the records, and whether a room that is opened shows it.


def without_log(all_: Records) -> None:
    for key in log_of(all_):
        del all_[key]


def without_the_first_entry(all_: Records) -> None:
    del all_[log_of(all_)[0]]


def without_an_entry(all_: Records) -> None:
    del all_[log_of(all_)[-3]]


def without_the_last_entry(all_: Records) -> None:
    del all_[log_of(all_)[-1]]


def with_another_value(all_: Records) -> None:
    all_[log_of(all_)[-2]][0]["ops"][0]["value"] = 99


def with_another_author(all_: Records) -> None:
    all_[log_of(all_)[-1]][0]["by"] = "eve"


def with_another_digest(all_: Records) -> None:
    all_[head_key("r")]["digest"] = "0" * 16


def set_back(all_: Records) -> None:
    """As if the head were of an older backup than the rest."""
    all_[head_key("r")]["seq"] -= 1


def set_forward(all_: Records) -> None:
    all_[head_key("r")]["seq"] += 1


def without_a_piece(all_: Records) -> None:
    del all_[snapshots_of(all_)[-1]]


def without_settings(all_: Records) -> None:
    del all_[info_key("r")]


def without_head(all_: Records) -> None:
    del all_[head_key("r")]


def of_another_epoch(all_: Records) -> None:
    all_[info_key("r")]["epoch"] = all_[listed_key("r")]["epoch"] = "other"


def that_is_no_head(all_: Records) -> None:
    all_[head_key("r")] = 7


DAMAGE: list[Callable[[Records], None]] = [
    without_log,
    without_an_entry,
    without_the_last_entry,
    with_another_value,
    with_another_author,
    with_another_digest,
    set_back,
    set_forward,
    without_a_piece,
    without_settings,
    without_head,
    of_another_epoch,
    that_is_no_head,
]


ACTS: list[Callable[[Transaction, Rooms], Awaitable[Any]]] = [
    lambda tx, rooms: rooms.load(tx, "r"),
    lambda tx, rooms: rooms.map(tx, "r", "m"),
    lambda tx, rooms: rooms.map_set(tx, "r", "m", "k", 1),
]


@pytest.mark.usefixtures("small")
async def test_the_records_of_a_room_agree_after_every_step() -> None:
    home = await house()
    await home.create(keep=10)
    for number in range(60):
        await home.change(op.MapSet("m", f"k{number % 7}", "x" * number))
        assert problems(records(home)) == []
    head = records(home)[head_key("r")]
    assert head["snapshots"][0][0] > 0, "the log was trimmed"
    assert len(head["snapshots"]) > 1
    await home.run(lambda tx: home.rooms.configure(tx, "r", meta={"b": 1}))
    assert problems(records(home)) == []
    await home.run(lambda tx: home.rooms.remove(tx, "r"))
    assert home.records("roomlog"), "they are removed little by little"
    assert problems(records(home)) == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_reported_and_the_room_is_not_served(
    damage: Callable[[Records], None],
) -> None:
    home = await a_room()
    all_ = records(home)
    assert problems(all_) == []
    damage(all_)
    assert problems(all_)
    await put_back(home, all_)
    for act in ACTS:
        fresh = await house(home.engine.memory)
        with pytest.raises(OncewardError) as refused:
            await fresh.run(lambda tx, act=act, rooms=fresh.rooms: act(tx, rooms))  # type: ignore[misc]
        assert refused.value.code == "damaged"
    assert records(home) == all_, "nothing is written over it"


@pytest.mark.usefixtures("small")
async def test_a_log_with_a_gap_is_not_read() -> None:
    home = await a_room()
    all_ = records(home)
    floor = all_[head_key("r")]["snapshots"][0][0]
    del all_[log_of(all_)[0]]
    assert problems(all_)
    await put_back(home, all_)
    for act in (
        lambda tx: home.rooms.log(tx, "r", floor),
        lambda tx: home.rooms.newest(tx, "r", 1_000, 1_000_000),
    ):
        with pytest.raises(OncewardError, match=f"entry {floor + 1} of its log is missing"):
            await home.run(act)


async def test_a_room_without_settings_is_not_made_anew() -> None:
    home = await a_room(3)
    all_ = records(home)
    del all_[info_key("r")]
    await put_back(home, all_)
    with pytest.raises(OncewardError, match="it has a head but no settings") as refused:
        await home.create("r")
    assert refused.value.code == "damaged"
    assert records(home) == all_


async def test_the_list_of_all_rooms_is_compared_with_them() -> None:
    home = await a_room(2)
    all_ = records(home)
    listed = all_.pop(listed_key("r"))
    assert problems(all_) == ["room#r info: the room is not in the list of rooms"]
    for other in ({**listed, "epoch": "other"}, {**listed, "meta": {}}):
        assert problems({**all_, listed_key("r"): other}) == [
            "rooms r: it differs from the settings of the room 'r'"
        ]
    assert problems({listed_key("r"): listed}) == ["rooms r: room 'r' not found"]


@pytest.mark.usefixtures("small")
async def test_records_that_no_room_has_are_reported() -> None:
    home = await a_room()
    all_ = records(home)
    epoch = all_[head_key("r")]["epoch"]
    ahead = msgspec.structs.asdict(Entry(99, []))
    for key, value, told in (
        ((f"roomlog#r#{epoch}", keys.number(99)), [ahead], "the log of the room ends at 30"),
        ((f"roomlog#r#{epoch}", keys.number(98)), [ahead], "not a part of the log"),
        ((f"roomsnap#r#{epoch}", keys.join(29, 0)), {}, "no snapshot with this piece at 29"),
        (("due#0000", keys.join(1, "r", "room-purge")), "room-purge", "room to remove"),
    ):
        [problem] = problems({**all_, key: value})
        assert told in problem
    # Those of a deleted room of the same name are being removed.
    assert problems({**all_, ("roomlog#r#old", keys.number(1)): [{**ahead, "seq": 1}]}) == []

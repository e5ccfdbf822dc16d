"""Who serves a room changes, or two nodes think that they do: nothing is lost, or taken twice."""

import asyncio
from typing import Any

import pytest

from onceward.app import App
from onceward.errors import Contention
from onceward.store.transaction import Transaction
from tests.rooms.people import Person, map_set
from tests.rooms.test_relay import cluster, enter
from tests.schedule.cluster import virtual

ADD = {"op": "map.add", "map": "m", "key": "k", "by": 1}


def both_serve(monkeypatch: pytest.MonkeyPatch, *apps: App) -> None:
    """As after a pause that was longer than a lease."""
    for app in apps:
        monkeypatch.setattr(app.hub.owners, "own", lambda id_: True)


async def made(app: App, room: str) -> tuple[Person, str]:
    """Someone who has made a room and is in it, and its epoch."""
    ann = await enter(app, "ann")
    return ann, (await ann.join(room, create=True))["epoch"]


async def come_back(app: App, room: str, epoch: str) -> Person:
    """The same one at another node, with two steps of which nothing was heard."""
    ann = await enter(app, "ann")
    await ann.join(room, epoch=epoch, seq=0, steps=[{"n": n, "ops": [ADD]} for n in (1, 2)])
    return ann


async def found(app: App, room: str) -> Any:
    """What someone finds who comes late."""
    late = await enter(app, "late")
    return await late.join(room)


def seqs(person: Person) -> list[int]:
    return [frame["seq"] for frame in person.got if frame["t"] in ("ack", "change")]


@virtual
async def test_a_node_whose_lease_is_over_lets_its_rooms_go_whatever_else_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as (nodes, one, _two):
        room = nodes.room_of(one)
        ann, _ = await made(one, room)
        monkeypatch.setattr(one.hub.owners, "own", lambda id_: False)
        assert (await ann.next("left"))["code"] == "room_moved"
        assert room not in one.hub.rooms


@virtual
async def test_two_nodes_that_both_serve_a_room_number_its_steps_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        both_serve(monkeypatch, one, two)
        ann, _ = await made(one, room)
        ben = await enter(two, "ben")
        await ben.join(room)
        for n in range(1, 21):
            ann.step(room, n, ADD)
            ben.step(room, n, ADD)
            await asyncio.sleep(0)
        await nodes.apps.sleep(30)
        assert seqs(ann) == seqs(ben) == list(range(1, 41))
        assert (await found(two, room))["maps"] == {"m": {"k": 40}}


@virtual
async def test_a_step_under_way_at_the_node_before_is_taken_once_by_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        ann, epoch = await made(one, room)
        ledger = one.hub.rooms[room].loaded
        attempt, under_way, may_end = ledger.attempt, asyncio.Event(), asyncio.Event()

        async def slow(tx: Transaction, batch: Any) -> Any:
            answers = await attempt(tx, batch)
            under_way.set()
            await may_end.wait()
            return answers

        monkeypatch.setattr(ledger, "attempt", slow)
        ann.step(room, 1, ADD)
        await under_way.wait()
        both_serve(monkeypatch, two)
        one.hub.rooms[room].end("room_moved", "another node serves it")
        assert (await ann.next("left"))["code"] == "room_moved"
        again = await come_back(two, room, epoch)
        assert [(await again.next("ack"))["seq"] for _ in range(2)] == [1, 2]
        may_end.set()
        await nodes.apps.sleep(30)
        joined = await found(two, room)
        assert (joined["seq"], joined["maps"]) == (2, {"m": {"k": 2}})


@pytest.mark.parametrize("how", ["ended", "lease over"])
@virtual
async def test_a_step_that_the_next_node_has_refused_is_not_applied_by_the_node_before(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        ann, epoch = await made(one, room)
        ann.step(room, 1, map_set("m", "k", 1))
        await ann.next("ack")
        ledger = one.hub.rooms[room].loaded
        attempt, under_way, may_end = ledger.attempt, asyncio.Event(), asyncio.Event()

        async def slow(tx: Transaction, batch: Any) -> Any:
            answers = await attempt(tx, batch)
            under_way.set()
            await may_end.wait()
            return answers

        monkeypatch.setattr(ledger, "attempt", slow)
        compare = {"op": "map.compare", "map": "m", "key": "k", "value": 2, "expect": 1}
        ann.step(room, 2, compare)
        await under_way.wait()
        both_serve(monkeypatch, two)
        if how == "ended":
            one.hub.rooms[room].end("room_moved", "another node serves it")
        else:
            monkeypatch.setattr(one.hub.owners, "own", lambda id_: False)
        ben, again = await enter(two, "ben"), await enter(two, "ann")
        await ben.join(room, "b")
        ben.step(room, 1, map_set("m", "k", 9))
        await ben.next("ack")
        await again.join(room, epoch=epoch, seq=0, steps=[{"n": 2, "ops": [compare]}])
        assert (await again.next("refused"))["n"] == 2
        ben.step(room, 2, map_set("m", "k", 1))
        await ben.next("ack")
        may_end.set()  # its commit conflicts, and the step would be valid again
        await nodes.apps.sleep(30)
        joined = await found(two, room)
        assert (joined["seq"], joined["maps"]) == (3, {"m": {"k": 1}})


@virtual
async def test_a_step_that_the_node_before_commits_late_is_told_by_the_next_one_and_not_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        both_serve(monkeypatch, one, two)
        ann, epoch = await made(one, room)
        ben = await enter(two, "ben")
        await ben.join(room, "b")
        ledger = two.hub.rooms[room].loaded
        attempt = ledger.attempt
        tries = 0

        async def after_the_other(tx: Transaction, batch: Any) -> Any:
            nonlocal tries
            answers = await attempt(tx, batch)
            if batch and not tries:
                tries += 1
                ann.step(room, 1, ADD)  # the node before commits it while this one is about to
                await ann.next("ack")
            return answers

        monkeypatch.setattr(ledger, "attempt", after_the_other)
        again = await come_back(two, room, epoch)
        change = await again.next("change", "ack")
        assert (change["t"], change["seq"], change["client"], change["n"]) == ("change", 1, "c", 1)
        await nodes.apps.sleep(30)
        assert tries == 1
        assert seqs(ben) == [1, 2]
        acks = [(frame["n"], frame["seq"]) for frame in again.got if frame["t"] == "ack"]
        assert (2, 2) in acks
        assert all(seq <= 2 for _, seq in acks)
        assert (await found(two, room))["maps"] == {"m": {"k": 2}}


@virtual
async def test_who_comes_to_the_next_node_never_finds_the_room_at_an_earlier_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        both_serve(monkeypatch, one, two)
        ann, epoch = await made(one, room)
        ben = await enter(two, "ben")
        for n in range(1, 30):
            # A copy of its head is in the other node's memory, and out of date.
            await two.run(lambda tx: two.rooms.head(tx, room))
            ann.step(room, n, ADD)
            ack = await ann.next("ack")
            assert ack["seq"] == n
            joined = await ben.join(room, epoch=epoch, seq=n, digest=ack["digest"])
            assert (joined.get("reset", ""), joined["seq"]) == ("", n)
            ben.ask("leave", room=room)
            two.hub.rooms[room].end("room_moved", "it rests")


@virtual
async def test_conflicts_without_end_make_members_join_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as (nodes, one, _two):
        room = nodes.room_of(one)
        ann, _ = await made(one, room)

        async def never(tx: Transaction, batch: Any) -> Any:
            raise Contention("others are always faster")

        monkeypatch.setattr(one.hub.rooms[room].loaded, "attempt", never)
        ann.step(room, 1, ADD)
        assert (await ann.next("left"))["code"] == "contention"
        assert await ann.join(room)
        assert "always faster" in caplog.text

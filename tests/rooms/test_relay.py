"""Rooms on several nodes that share a database: one serves a room, the others lead there."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward import limits
from onceward.app import App
from onceward.errors import Unavailable
from onceward.rooms.loaded import LoadedRoom
from onceward.rooms.owners import Address
from onceward.rooms.wire import messages
from tests.rooms.people import Badge, Person, map_set
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


class Pipe:
    """Leads to the hub of another node in this process."""

    def __init__(
        self,
        app: App,
        user: str,
        on_message: Callable[[bytes], None],
        on_end: Callable[[], None],
        _ready: Any,
    ) -> None:
        self._on_message = on_message
        self._on_end = on_end
        self._session = app.hub.connect(self, Badge(user), relayed=True)

    def send(self, data: bytes, sent: Callable[[], None] = lambda: None) -> None:
        """What this node asks; and, as a wire, what the other one tells."""
        if data[:1] == b"{":
            self._session.receive(data)
            sent()
            return
        for message in messages(data):
            self._on_message(message)

    def close(self, code: int = 0, reason: str = "") -> None:
        if code:
            self._on_end()
        else:
            self._session.lost()

    async def drained(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def authenticate(self) -> None: ...


class Cluster:
    """Nodes, and the ways between them."""

    def __init__(self) -> None:
        self.apps = Apps()
        self.nodes: dict[str, App] = {}
        self.calls = 0

    async def add(self, name: str) -> App:
        app = self.nodes[name] = self.apps.make()
        await self.apps.start(app)
        app.hub.dial = self._dial
        app.hub.owners.announce(name)
        return app

    async def _dial(self, address: Address, user: str, *told: Any) -> Pipe:
        self.calls += 1
        app = self.nodes[address.url]
        assert app.hub.owners.is_node(address.secret)
        if app.hub._closed:
            raise Unavailable("it is gone")
        return Pipe(app, user, *told)

    async def even(self) -> None:
        """Wait until all have told their addresses and divided the slots."""
        await self.apps.sleep(30)

    def room_of(self, app: App) -> str:
        """The id of a room that an application serves."""
        return next(id_ for id_ in map(str, range(1000)) if app.hub.owners.own(id_))


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Cluster, App, App]]:
    nodes = Cluster()
    one, two = await nodes.add("one"), await nodes.add("two")
    await nodes.even()
    try:
        yield nodes, one, two
    finally:
        for app in nodes.nodes.values():
            await app.stop()


async def enter(app: App, name: str) -> Person:
    person = Person(app.hub, Badge(name))
    person.ask("hello")
    assert (await person.next())["t"] == "welcome"
    return person


@virtual
async def test_people_on_two_nodes_are_in_one_room() -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        assert not two.hub.owners.own(room)
        ann, ben = await enter(one, "ann"), await enter(two, "ben")
        await ann.join(room, create=True)
        joined = await ben.join(room, "b")
        assert [member["user"] for member in joined["members"]] == ["ann", "ben"]
        ben.step(room, 1, map_set("m", "k", 1))
        ack = await ben.next()
        assert (ack["t"], ack["n"], ack["seq"]) == ("ack", 1, 1)
        change = await ann.next("change")
        assert (change["by"], change["client"]) == ("ben", "b")
        ann.step(room, 1, map_set("m", "k", 2))
        assert (await ben.next())["seq"] == 2
        ben.ask("presence.set", room=room, name="cursor", value=7)
        assert (await ann.next("presence"))["user"] == "ben"
        ann.ask("say", room=room, event="wave")
        assert (await ben.next("said"))["by"] == "ann"
        ben.ask("tell", room=room, to=joined["members"][0]["id"], event="hush")
        assert (await ann.next("said"))["direct"] is True
        ben.step(room, 2, {"op": "map.add", "map": "m", "key": "k", "by": "x"})
        assert await ben.closed() == "wrong_type"
        assert (await ann.next("went"))["t"] == "went"
        assert room not in two.hub.rooms


@virtual
async def test_rooms_of_one_node_share_a_way_and_each_can_be_left() -> None:
    async with cluster() as (nodes, one, two):
        first = nodes.room_of(one)
        second = next(
            id_ for id_ in map(str, range(int(first) + 1, 1000)) if one.hub.owners.own(id_)
        )
        own = nodes.room_of(two)
        ann = await enter(two, "ann")
        for room in (first, second, own):
            await ann.join(room, create=True)
        assert nodes.calls == 1
        ann.ask("join", room=first, client="c")
        assert (await ann.next("left"))["code"] == "bad_request"
        ann.ask("leave", room=first)
        ann.step(second, 1, map_set("m", "k", 1))
        assert (await ann.next("ack"))["room"] == second
        ann.step(first, 1, map_set("m", "k", 1))
        assert (await ann.next("refused"))["code"] == "not_joined"
        ann.step(own, 1, map_set("m", "k", 1))
        assert (await ann.next("ack"))["room"] == own


@virtual
async def test_a_room_that_is_not_there_is_not_there_elsewhere_either() -> None:
    async with cluster() as (nodes, one, two):
        ann = await enter(two, "ann")
        room = nodes.room_of(one)
        ann.ask("join", room=room, client="c")
        assert (await ann.next("left"))["code"] == "no_such_room"
        await ann.join(room, create=True)


@virtual
async def test_when_the_node_of_a_room_stops_its_members_join_again_elsewhere() -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        ann = await enter(two, "ann")
        epoch = (await ann.join(room, create=True))["epoch"]
        ann.step(room, 1, map_set("m", "k", 1))
        digest = (await ann.next("ack"))["digest"]
        await one.stop()
        left = await ann.next("left")
        assert left["code"] in ("room_moved", "node_stopped")
        await nodes.even()
        joined = await ann.join(room, epoch=epoch, seq=1, digest=digest)
        assert joined.get("reset", "") == ""
        ann.step(room, 2, map_set("m", "k", 2))
        assert (await ann.next("ack"))["seq"] == 2
        assert room in two.hub.rooms


@virtual
async def test_a_node_that_dies_loses_its_rooms_to_others() -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        ann = await enter(one, "ann")
        epoch = (await ann.join(room, create=True))["epoch"]
        ann.step(room, 1, map_set("m", "k", 1))
        await ann.next("ack")
        nodes.apps.processes[one].kill()
        del nodes.nodes["one"]
        await nodes.even()
        again = await enter(two, "ann")
        await again.join(room, epoch=epoch, seq=0)
        assert (await again.next("change"))["seq"] == 1


@virtual
async def test_what_other_nodes_append_is_told() -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        ann = await enter(one, "ann")
        await ann.join(room, create=True)
        await two.run(lambda tx: two.rooms.map_set(tx, room, "m", "k", 1, by="shop"))
        assert (await ann.next("change"))["by"] == "shop"


@virtual
async def test_a_new_node_takes_its_share_and_members_follow() -> None:
    nodes = Cluster()
    one = await nodes.add("one")
    await nodes.even()
    ann = await enter(one, "ann")
    epochs = {}
    for number in range(20):
        epochs[str(number)] = (await ann.join(str(number), create=True))["epoch"]
    two = await nodes.add("two")
    await nodes.even()
    moved = [id_ for id_ in epochs if two.hub.owners.own(id_)]
    assert moved
    told = {frame["room"] for frame in ann.got if frame["t"] == "left"}
    assert told == set(moved)
    ann.skip()
    for id_ in moved:
        assert (await ann.join(id_, epoch=epochs[id_], seq=0)).get("reset", "") == ""
        ann.step(id_, 1, map_set("m", "k", 1))
        assert (await ann.next("ack"))["room"] == id_
    for app in (one, two):
        await app.stop()


@virtual
async def test_nobody_is_sent_round_in_circles() -> None:
    async with cluster() as (nodes, one, two):
        lost = Person(two.hub, Badge("ann"), relayed=True)
        lost.ask("hello")
        lost.ask("join", room=nodes.room_of(one), client="c", create=True)
        assert (await lost.next("left"))["code"] == "room_moved"
        assert nodes.calls == 0


@virtual
async def test_an_address_lasts_only_while_its_node_renews_it() -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        assert (await two.hub.owners.find(room)).url == "one"
        await nodes.apps.sleep(3 * limits.ADDRESS_MS / 1000)
        assert (await two.hub.owners.find(room)).url == "one"
        assert not two.hub.owners.is_node("guessed")


@virtual
async def test_a_connection_lost_while_the_way_is_made_leaves_none_open() -> None:
    async with cluster() as (nodes, one, two):
        dial, dialled, go = two.hub.dial, asyncio.Event(), asyncio.Event()

        async def slowly(*asked: Any) -> Any:
            pipe = await dial(*asked)
            dialled.set()
            await go.wait()
            return pipe

        two.hub.dial = slowly
        ann = await enter(two, "ann")
        ann.ask("join", room=nodes.room_of(one), client="c", create=True)
        await dialled.wait()
        ann.lose()
        go.set()
        await nodes.apps.sleep(limits.HELLO_S / 2)
        assert not one.hub.sessions


@virtual
async def test_a_room_that_changes_hands_while_it_is_fetched_is_not_served_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as (nodes, one, _):
        room = nodes.room_of(one)
        slot, load = one.hub.owners.slot(room), LoadedRoom.load

        async def slowly(*asked: Any) -> LoadedRoom:
            ledger = await load(*asked)
            one.hub.owners._placement.owned.discard(slot)
            one.hub._changed_hands(set(), {slot})
            return ledger

        monkeypatch.setattr(LoadedRoom, "load", slowly)
        ann = await enter(one, "ann")
        ann.ask("join", room=room, client="c", create=True)
        assert (await ann.next("joined", "left")).get("code") == "room_moved"
        assert room not in one.hub.rooms


@virtual
async def test_while_another_node_takes_nothing_no_more_is_read_for_it() -> None:
    async with cluster() as (nodes, one, two):
        room = nodes.room_of(one)
        ann = await enter(two, "ann")
        await ann.join(room, create=True)
        [relay] = ann.session.relays.values()
        kept: list[Any] = []
        send, relay._pipe.send = relay._pipe.send, lambda *asked: kept.append(asked)  # type: ignore
        for _ in range(limits.STEPS_AHEAD_MAX):
            assert not ann.paused
            ann.ask("say", room=room, event="wave")
        assert ann.paused
        for asked in kept:
            send(*asked)
        assert not ann.paused

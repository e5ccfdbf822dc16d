"""The copies of clients come to be the same as the room of a real hub, whatever connections, the
store and the hub do meanwhile. All of it runs in virtual time from one seed, so it can be repeated.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from onceward import limits
from onceward.clock import new_clock
from onceward.engine.memory import MemoryEngine
from onceward.errors import OutcomeUnknown, Unavailable
from onceward.ids import Ids
from onceward.rooms.hub import Hub
from onceward.rooms.part import Rooms
from onceward.rooms.session import Session
from onceward.rooms.wire import messages
from onceward.schedule.placement import Placement
from onceward.store import Store
from onceward.testing.clock import run_virtual
from tests.client.rooms.world import ROOM, Link, Peer, World
from tests.rooms.people import Badge

SEEDS, SOAK_SEEDS = 8, 500
REST_SEEDS = 30
TURNS = 400
REST_TRIES = 2_000
MOMENT_S = 0.000_1
REPLAY = "python -c 'import tests.rooms.test_hub_convergence as t; t.play({}, {}, {})'"
_ABOUT_STATE = tuple(
    f'{{"t":"{t}"'.encode() for t in ("joined", "snapshot", "change", "ack", "refused", "left")
)


class Links(list[Link]):
    """Connections that the server knows of: one that is removed is lost there."""

    def remove(self, link: Link) -> None:
        super().remove(link)
        session = link.__dict__.get("session")
        if session is not None:
            session.lost()


class End:
    """The server's end of a connection."""

    def __init__(self, link: Link, hub: Hub) -> None:
        self._link = link
        self.paused = False
        self.session: Session = hub.connect(self, Badge(link.peer.name))
        self.session.receive(b'{"t":"hello"}')

    def send(self, frames: bytes) -> None:
        self._link.down += [one for one in messages(frames) if one.startswith(_ABOUT_STATE)]

    def close(self, code: int, reason: str) -> None:
        raise AssertionError(f"nobody did anything wrong: {reason}")

    async def drained(self) -> None:
        await asyncio.sleep(0)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def authenticate(self) -> None: ...


class HubServer:
    """What `World` needs of a server: here a hub on a store, with commits that take their time,
    fail, or lose their answer."""

    def __init__(self, world: "HubWorld", store: Store, parts: Rooms) -> None:
        self.links = Links()
        self.store = store
        self.parts = parts
        self.hubs: list[Hub] = []
        self.tally: Counter[str] = Counter()
        self.calm = False
        self._world = world
        self._commit = store.engine.commit
        store.engine.commit = self._slowly  # type: ignore[method-assign]
        self.start()

    def start(self) -> None:
        """A new hub; the one before has lost its lease, though it may be at work."""
        for hub in self.hubs:
            hub.owners.own = lambda id_: False  # type: ignore[method-assign]
        self.hubs.append(Hub(self.store, self.parts, Placement(self.store, limits.SLOTS_DEFAULT)))

    def receive(self, link: Link, raw: bytes) -> bool:
        """Take a frame; says whether it was read."""
        end: End | None = link.__dict__.get("end")
        if end is None:
            end = link.__dict__["end"] = End(link, self.hubs[-1])
            link.__dict__["session"] = end.session
        if end.paused:
            return False
        end.session.receive(raw)
        return True

    def crash(self) -> None:
        for link in list(self.links):
            if link.peer.link is link:
                link.peer.cut()
            else:
                self.links.remove(link)
        self.start()

    async def append(self, value: int) -> None:
        """What any transaction may do, past the hub."""
        await self.store.run(lambda tx: self.parts.map_set(tx, ROOM, "one", "a", value))
        self.tally["appended"] += 1

    async def _slowly(self, *asked: Any) -> Any:
        chance = 1.0 if self.calm else self._world.random.random()
        await self._linger()
        if chance < 0.08:
            self.tally["failed"] += 1
            raise Unavailable("out of reach")
        version = await self._commit(*asked)
        await self._linger()
        if chance < 0.16:
            self.tally["answer lost"] += 1
            raise OutcomeUnknown("the answer is lost")
        return version

    async def _linger(self) -> None:
        await self._world.pass_time(self._world.random.randrange(4))


class HubWorld(World):
    """Peers at a hub, from one seed."""

    def __init__(self, seed: int, peers: int, store: Store, parts: Rooms) -> None:
        super().__init__(seed, peers)
        self.server: Any = HubServer(self, store, parts)

    async def live(self, turns: int) -> None:
        random, server = self.random, self.server
        server.calm = False
        for _ in range(turns):
            peer = random.choice(self.peers)
            chance = random.random()
            if chance < 0.40:
                self._edit(peer)
            elif chance < 0.60:
                self._up(peer.link, random.randint(1, 4))
            elif chance < 0.62 and server.links:
                self._up(random.choice(server.links), random.randint(1, 4))
            elif chance < 0.82:
                peer.receive(random.randint(1, 6))
            elif chance < 0.94:
                await self.pass_time(random.randint(1, 6))
            elif chance < 0.97:
                peer.cut(noticed=chance < 0.955)
            elif chance < 0.972:
                server.crash()
            elif chance < 0.98:
                server.hubs[-1].spawn(server.append(random.randrange(10)))
            elif peer.link is None:
                peer.connect()

    async def pass_time(self, times: int) -> None:
        """Let others run, with or without virtual time that passes."""
        for _ in range(times):
            await self.server.store.clock.sleep(self.random.choice((0, MOMENT_S)))

    async def rest(self) -> None:
        """Let everyone connect, and everything arrive, also what is on its way into the store."""
        self.server.calm = True
        for _ in range(REST_TRIES):
            for peer in self.peers:
                if peer.link is None:
                    peer.connect()
            for link in list(self.server.links):
                self._up(link, 1_000)
            await self.server.store.clock.sleep(MOMENT_S)
            # An append or a commit may be waiting to be tried again after a conflict.
            at_work = len(asyncio.all_tasks()) > 1
            for peer in self.peers:
                peer.receive(1_000)
            head = await self.server.store.run(lambda tx: self.server.parts.head(tx, ROOM))
            if not at_work and all(self._rests(peer, head.seq) for peer in self.peers):
                return
        raise AssertionError("somebody waits for something that does not come")

    def _rests(self, peer: Peer, seq: int) -> bool:
        link, replica = peer.link, peer.replica
        under_way = link is None or link.up or link.down
        return replica.live and not (under_way or replica.waiting) and replica.seq == seq

    def _up(self, link: Link | None, most: int) -> None:
        for _ in range(most):
            if link is None or not link.up or not self.server.receive(link, link.up[0]):
                return
            link.up.popleft()

    async def check(self) -> None:
        """As in `judge`, by what is in the store."""
        server = self.server
        room = await server.store.run(lambda tx: server.parts.load(tx, ROOM))
        log = await server.store.run(lambda tx: server.parts.log(tx, ROOM, 0))
        expected = room.state.plain()
        taken = Counter((entry.by, entry.n) for entry in log if entry.client)
        assert set(taken.values()) <= {1}, "nothing was taken twice"
        for peer in self.peers:
            assert peer.replica.state.plain() == expected
            assert len(set(peer.acked)) == len(peer.acked)
            for n in peer.acked:
                assert taken[peer.name, n] == 1
            for n, code in peer.failed.items():
                assert taken[peer.name, n] == 0 or code == "outcome_unknown", (n, code)
            server.tally["acked"] += len(peer.acked)


@asynccontextmanager
async def hub_world(seed: int) -> AsyncIterator[HubWorld]:
    engine = MemoryEngine()
    await engine.open()
    engine.shared = False
    clock = new_clock()
    store = Store(engine, clock, Ids(clock.now_ms, Random(seed).randbytes))
    parts = Rooms(store.ids, limits.SLOTS_DEFAULT)
    await store.run(lambda tx: parts.create(tx, ROOM, keep=limits.ROOM_KEEP_STEPS_MAX))
    world = HubWorld(seed, 3 + seed % 6, store, parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "REPLAY_STEPS_MAX", 30)
        patch.setattr(limits, "ROOM_COMMIT_STEPS_MAX", 5)
        patch.setattr(limits, "STEPS_AHEAD_MAX", 8)
        patch.setattr(limits, "ROOM_SNAPSHOT_STEPS", 40)
        try:
            yield world
        finally:
            world.server.calm = True
            for hub in world.server.hubs:
                for session in list(hub.sessions):
                    session.lost()
                await hub.close()
            await engine.close()


def play(seed: int, turns: int = TURNS, late: int = 0) -> Counter[str]:
    """A world from a seed, with `late` appends before each rest; returns what has happened."""

    async def live() -> Counter[str]:
        async with hub_world(seed) as world:
            server = world.server
            for _ in range(2):
                await world.live(turns)
                for value in range(late):
                    server.hubs[-1].spawn(server.append(value))
                await world.rest()
            await world.check()
            tally: Counter[str] = server.tally
            return tally

    try:
        return run_virtual(live())
    except Exception as error:
        error.add_note(f"seed {seed}; replay: {REPLAY.format(seed, turns, late)}")
        raise


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "onceward.rooms")  # the store fails on purpose


@pytest.mark.rooms
def test_copies_are_the_same_as_the_room_of_a_hub(soak: bool) -> None:
    tally: Counter[str] = Counter()
    for seed in range(SOAK_SEEDS if soak else SEEDS):
        tally += play(seed)
    for event in ("failed", "answer lost", "appended", "acked"):
        assert tally[event] > 5, tally


def test_a_world_plays_the_same_from_the_same_seed() -> None:
    async def digest() -> tuple[str, float]:
        async with hub_world(5) as world:
            await world.live(TURNS)
            await world.rest()
            store, parts = world.server.store, world.server.parts
            head = await store.run(lambda tx: parts.head(tx, ROOM))
            return head.digest, asyncio.get_running_loop().time()

    assert run_virtual(digest()) == run_virtual(digest())


def test_a_world_is_not_at_rest_while_an_append_is_tried_again() -> None:
    for seed in range(REST_SEEDS):
        play(seed, 5, late=6)

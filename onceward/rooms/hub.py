"""The hub: all WebSocket connections of a node and the rooms they have joined.

Frames of rooms are collected during one turn of the event loop, and then each connection is written
once. A room is loaded when a client joins it, and unloaded when it has been empty for a while. Any
transaction may append to a room; the hub is notified, and the room catches up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from itertools import islice
from typing import Any

from onceward import limits
from onceward.api.rooms import RoomMember
from onceward.engine.base import Delete, Incarnation, Put, Watch
from onceward.errors import TABLE, BadInput, NoSuchRoom, OncewardError, Unavailable
from onceward.json_values import decode
from onceward.rooms import frames
from onceward.rooms.frames import Join
from onceward.rooms.live import LiveRoom, Member
from onceward.rooms.loaded import LoadedRoom
from onceward.rooms.owners import Address, Owners
from onceward.rooms.part import Rooms
from onceward.rooms.records import ROOM, Head, head_key
from onceward.rooms.relay import Dial, Pipe, Relay, Remote
from onceward.rooms.session import Session, Visitor
from onceward.rooms.wire import Wire
from onceward.schedule.placement import Placement
from onceward.store import Store
from onceward.store.sharing import SharedCommits

logger = logging.getLogger("onceward.rooms")

# A room may end while a client joins it.
_JOIN_TRIES = 5


Act = Callable[[Visitor, frames.Act], Awaitable[Any]]
"""Performs an act at a table for a visitor and returns the response. Raises `OncewardError`."""


class Hub:
    """One per process."""

    def __init__(self, store: Store, parts: Rooms, placement: Placement) -> None:
        self.store = store
        self.owners = Owners(store, placement)
        self.dial: Dial = _nowhere
        """Connects to other nodes. The server sets it."""
        self.parts = parts
        """The room operations in transactions."""
        self.visitor: Callable[[str], Visitor] = _nobody
        """Authenticates a token; raises `no_credentials`. The server sets it."""
        self.act: Act = _no_acts
        """Performs acts at tables. The application sets it."""
        self._user_hooks: list[Callable[[str, str, bool], None]] = []
        self._over_hooks: list[Callable[[str], None]] = []
        self.rooms: dict[str, LiveRoom] = {}
        self._by_partition: dict[str, LiveRoom] = {}
        """The rooms by the partition of their heads."""
        self.sharing = SharedCommits(store)
        self._with_work: list[LiveRoom] = []
        self.sessions: dict[Session, None] = {}
        self._opening: dict[str, asyncio.Task[LiveRoom]] = {}
        self._watches: dict[str, Watch] = {}
        self._resting: dict[LiveRoom, asyncio.TimerHandle] = {}
        self._with_news: dict[LiveRoom, None] = {}
        self._to_flush: list[Session] = []
        self._slow: dict[Session, None] = {}
        """Connections to close."""
        self._turning = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._unhook = store.on_change(ROOM, self._saw)
        self._unhook_restored = store.engine.on_incarnation(self._restored)
        self._polling: asyncio.Task[None] | None = None
        if store.engine.shared:
            self._polling = self._loop.create_task(self._poll(), name="onceward-room-poll")
        placement.on_change(self._changed_hands)

    # Connections.

    def connect(
        self, wire: Wire, visitor: Visitor | None = None, *, relayed: bool = False
    ) -> Session:
        """Create the listener of a new connection; `relayed` if it comes from another node.

        Raises `Unavailable` if the node is stopping.
        """
        if self._closed:
            raise Unavailable("the node is stopping; connect to another one", code="node_stopped")
        session = Session(self, wire, visitor, relayed=relayed)
        self.store.meters.count("room_connections")
        self.sessions[session] = None
        return session

    def on_user(self, hook: Callable[[str, str, bool], None]) -> None:
        """Call `hook(room, user, here)` when the first connection of a user joins a room on this
        node, and when the last one leaves.
        """
        self._user_hooks.append(hook)

    def on_over(self, hook: Callable[[str], None]) -> None:
        """Call `hook(room)` when a room ends on this node; its members are then unknown here."""
        self._over_hooks.append(hook)

    def user_changed(self, room: str, user: str, here: bool) -> None:
        """Call the user hooks. For use by rooms."""
        for hook in self._user_hooks:
            hook(room, user, here)

    def forget(self, session: Session) -> None:
        """Remove a closed connection. For use by sessions."""
        self.sessions.pop(session, None)

    def dismiss(self, visitor: Visitor) -> None:
        """Close all connections with these credentials, which have become invalid.

        Connections of the same name with other credentials stay open.
        """
        for session in list(self.sessions):
            if session.is_of(visitor):
                session.end("no_credentials")

    def gauges(self) -> dict[str, float]:
        """Current values for metrics."""
        members = sum(len(room.members) for room in self.rooms.values())
        return {
            "rooms": len(self.rooms),
            "room_members": members,
            "connections": len(self.sessions),
        }

    def drain(self) -> None:
        """Reject new connections, and close each one when its steps are answered. Idempotent."""
        self._closed = True
        for session in list(self.sessions):
            session.drain()

    async def close(self) -> None:
        """Close all connections and finish pending work. Idempotent."""
        self._closed = True
        self._unhook()
        self._unhook_restored()
        await self.owners.close()
        if self._polling is not None:
            self._polling.cancel()
        await self.sharing.finish()
        while self._tasks:
            await asyncio.wait(self._tasks)
            await self.sharing.finish()
        for session in list(self.sessions):
            session.end("node_stopped")
        for room in list(self.rooms.values()):
            room.end("node_stopped", "the node is stopping")
        for timer in self._resting.values():
            timer.cancel()

    # Rooms.

    async def join(self, session: Session, asked: Join) -> Member | Remote:
        """Add a connection to a room. Raises `BadInput`, and the errors of the store."""
        if not self.owners.own(asked.room):
            if session.relayed:
                raise Unavailable(
                    f"another node serves the room {asked.room[:100]!r}; join it again",
                    code="room_moved",
                )
            return await self._relay(session, asked)
        for _ in range(_JOIN_TRIES):
            room = await self.fetch(asked.room, create=asked.create, by=session.user)
            try:
                member = await room.join(session, asked)
            except OncewardError:
                if not room.over:
                    raise
                continue
            if room.loaded.info.reserved and room.loaded.info.by == session.user:
                await self._creator_joined(room)
            return member
        raise Unavailable(
            f"the room {asked.room[:100]!r} ended during every attempt to join; join again",
            code="room_moved",
        )

    async def _creator_joined(self, room: LiveRoom) -> None:
        epoch = room.loaded.room.epoch
        try:
            await self.store.run(lambda tx: self.parts.creator_joined(tx, room.id, epoch))
        except OncewardError as error:  # its next join retries it
            logger.warning(
                "cannot end the reservation of the creator of the room %s: %s", room.id, error
            )

    async def _relay(self, session: Session, asked: Join) -> Remote:
        """Add a connection to a room that another node serves."""
        address = await self.owners.find(asked.room)
        relay = session.relays.get(address)
        if relay is None or relay.over:
            relay = session.relays[address] = Relay(session)
            try:
                await relay.open(self.dial, address)
            except BaseException:
                relay.end()
                raise
        return relay.join(asked)

    async def fetch(self, id_: str, *, create: bool = False, by: str = "") -> LiveRoom:
        """Return a room in memory; load it if necessary. Raises `NoSuchRoom` unless `create` is
        set.
        """
        room = self.rooms.get(id_)
        if room is not None:
            return room
        opening = self._opening.get(id_)
        if opening is None:
            opening = self._opening[id_] = self.spawn(self._open(id_))
        try:
            return await asyncio.shield(opening)
        except NoSuchRoom:
            if not create:
                raise
        await self.create(id_, by)
        return await self.fetch(id_)

    async def create(self, id_: str, by: str) -> None:
        """Create a room unless it exists."""
        try:
            await self.store.run(lambda tx: self.parts.create(tx, id_, by=by, reserve=False))
        except BadInput as error:
            if error.code != "room_exists":
                raise

    async def _open(self, id_: str) -> LiveRoom:
        try:
            incarnation = self.store.engine.incarnation
            loaded = await LoadedRoom.load(self.store, self.parts, id_)
            if self.store.engine.incarnation != incarnation:
                raise Unavailable(
                    f"the database was restored while the room {id_!r} was loaded; join it again",
                    code="room_moved",
                )
            if not self.owners.own(id_):  # another node may have members in it now
                raise Unavailable(
                    f"another node serves the room {id_!r}; join it again", code="room_moved"
                )
            room = self.rooms[id_] = LiveRoom(self, id_, loaded)
            self._by_partition[head_key(id_)[0]] = room
        except OncewardError as error:
            if error.code == "damaged":
                self.store.alarms.damaged(head_key(id_), error.message)
            raise
        finally:
            del self._opening[id_]
        if self.store.engine.shared:
            watch = self._watches[id_] = self.store.engine.watch(head_key(id_)[0])
            watch.on_hint = room.hint
        room.look()  # for steps that were appended while it was loaded
        return room

    def members(self, id_: str) -> list[RoomMember]:
        """The members of a room."""
        room = self.rooms.get(id_)
        return [] if room is None else room.member_list()

    def presences(self, id_: str) -> dict[str, dict[str, Any]]:
        """The presences of a room, by name and user."""
        room = self.rooms.get(id_)
        return {} if room is None else room.crowd.whole()

    def drop_presence(self, id_: str, name: str) -> bool:
        """Remove a presence of all users; return whether it existed."""
        room = self.rooms.get(id_)
        return room is not None and room.crowd.remove_name(name)

    def say(self, said: frames.Said, to: str = "") -> int:
        """Send an event to all members of a room, or to one; return their number.

        Raises `no_such_member`.
        """
        room = self.rooms.get(said.room)
        if to:
            if room is None:
                raise BadInput(
                    f"{to[:100]!a} is not in the room; send to a member, or to everyone",
                    code="no_such_member",
                )
            room.tell(to, said)
            return 1
        if room is not None:
            room.say(said)
        return 0 if room is None else len(room.members)

    def may_rest(self, room: LiveRoom) -> None:
        """Schedule the unloading of a room if it is idle."""
        if room.over or room in self._resting or not room.idle:
            return
        self._resting[room] = self.later(limits.ROOM_IDLE_S, self._rest, room)
        if len(self._resting) > limits.ROOMS_IDLE_MAX:
            self._rest(next(iter(self._resting)))

    def wake(self, room: LiveRoom) -> None:
        """Cancel the unloading of a room."""
        timer = self._resting.pop(room, None)
        if timer is not None:
            timer.cancel()

    def _rest(self, room: LiveRoom) -> None:
        self.wake(room)
        if room.idle:
            room.end("room_moved", "the room was idle")

    def drop(self, room: LiveRoom) -> None:
        """Remove a room that has ended. For use by rooms."""
        if self.rooms.get(room.id) is room:
            del self.rooms[room.id]
            del self._by_partition[head_key(room.id)[0]]
            watch = self._watches.pop(room.id, None)
            if watch is not None:
                watch.close()
        self.wake(room)
        self._with_news.pop(room, None)
        for hook in self._over_hooks:
            hook(room.id)

    # Turns.

    def has_work(self, room: LiveRoom) -> None:
        """Schedule the room's commit for the end of this turn."""
        if not self._with_work:
            self._loop.call_soon(self._work)
        self._with_work.append(room)

    def _work(self) -> None:
        rooms, self._with_work = self._with_work, []
        for room in rooms:
            if len(rooms) > 1 and room.has_little:
                room.share()
            else:
                self.spawn(room.work())

    def has_news(self, room: LiveRoom) -> None:
        """Schedule the room's frames for the end of this turn."""
        self._with_news[room] = None
        self._will_turn()

    def will_flush(self, session: Session) -> None:
        """Schedule a write to the connection for the end of this turn."""
        self._to_flush.append(session)
        if not self._turning:
            self._will_turn()

    def _will_turn(self) -> None:
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        rooms, self._with_news = self._with_news, {}
        for room in rooms:
            room.settle(last=True)
        self._turning = False
        sessions, self._to_flush = self._to_flush, []
        for session in sessions:
            session.flush()

    def cut_off(self, session: Session) -> None:
        """Close a connection that does not read.

        All members of a room become too slow at the same moment, so only a few are closed in each
        turn of the loop.
        """
        if not self._slow:
            self._loop.call_soon(self._cut_off_some)
        self._slow[session] = None

    def _cut_off_some(self) -> None:
        for session in list(islice(self._slow, limits.CUT_OFF_AT_ONCE)):
            del self._slow[session]
            session.end("slow_reader")
        if self._slow:
            self._loop.call_soon(self._cut_off_some)

    # For rooms and sessions.

    def now_ms(self) -> int:
        return self.store.clock.now_ms()

    def new_id(self) -> str:
        return self.store.ids.new()

    def later(self, after_s: float, call: Callable[..., None], *with_: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(max(after_s, 0.0), call, *with_)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a task to its end."""
        task = self._loop.create_task(work, name="onceward-rooms")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OncewardError):
            logger.error("a task of a room failed", exc_info=error)

    async def _poll(self) -> None:
        """Check for steps of other nodes in case a hint was lost, and end rooms whose lease has
        expired.
        """
        while True:
            used = sum(bool(room.readers) for room in self.rooms.values())
            await self.store.clock.sleep(max(limits.POLL_S, used / limits.POLL_SCANS_PER_S))
            for room in list(self.rooms.values()):
                if not self.owners.own(room.id):
                    room.end("room_moved", TABLE["room_moved"].title)
                elif room.readers:
                    room.look()

    def _changed_hands(self, gained: set[int], lost: set[int]) -> None:
        for room in list(self.rooms.values()):
            if self.owners.slot(room.id) in lost:
                room.end("room_moved", TABLE["room_moved"].title)

    def _restored(self, incarnation: Incarnation) -> None:
        """End all rooms, since their steps may be lost; they are loaded again."""
        for room in list(self.rooms.values()):
            room.end("room_moved", "the database was restored or failed over")

    def _saw(self, write: Put | Delete) -> None:
        """Check a room after a commit of this process, unless it was the room's own."""
        room = self._by_partition.get(write.key[0])
        if room is None:
            return
        if write.key[1] == "head" and type(write) is Put:
            if room.loaded.knows(write.value):
                return
            head: Head = decode(write.value, Head, write.key)
            if head.seq <= room.loaded.room.seq and head.epoch == room.loaded.room.epoch:
                return
        room.look()


async def _no_acts(visitor: Visitor, asked: frames.Act) -> Any:
    raise BadInput(
        "this server has no tables; declare a game, or use another server", code="not_found"
    )


async def _nowhere(address: Address, *_: Any) -> Pipe:
    raise Unavailable(f"cannot connect to the node at {address.url}; join again", code="room_moved")


def _nobody(token: str) -> Visitor:
    raise BadInput("this server accepts no tokens; set up JWT keys", code="no_credentials")

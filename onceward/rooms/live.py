"""A live room: members, pending steps, and the frames sent to each member.

Steps are applied in order of arrival and committed in batches: those that arrive during a commit
wait for the next one. Members receive a step only when it is durable. After a failed commit the
room is closed on this node. Its members join again with their unanswered steps, and then learn
which of them were applied.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from onceward import limits
from onceward.api.rooms import RoomMember
from onceward.errors import (
    TABLE,
    BadInput,
    EngineStopped,
    NoSuchRoom,
    OncewardError,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)
from onceward.rooms import frames
from onceward.rooms.fanout import News
from onceward.rooms.frames import Ack, Join, Joined, Said, Snapshot, Step, encode
from onceward.rooms.live_presence import LivePresence
from onceward.rooms.loaded import Answer, LoadedRoom, Told, Waiting
from onceward.rooms.members import Members
from onceward.rooms.names import admit_name, encoded
from onceward.rooms.room import Entry
from onceward.rooms.wire import frame
from onceward.store.transaction import Transaction

logger = logging.getLogger("onceward.rooms")

if TYPE_CHECKING:
    from onceward.rooms.hub import Hub
    from onceward.rooms.session import Session


class Member:
    """One connection in one room."""

    __slots__ = ("client", "id", "room", "session", "user")

    def __init__(self, room: "LiveRoom", session: "Session", id_: str, client: str) -> None:
        self.room = room
        self.session = session
        self.id = id_
        self.user = session.user
        self.client = client

    @property
    def over(self) -> bool:
        """Whether the membership has ended, or the room is not served here."""
        return self.room.over or self.room.members.get(self.id) is not self

    def submit(self, *steps: Step) -> None:
        """Apply steps as soon as possible; each gets a response."""
        self.session.expects_answer(len(steps))
        self.room.submit([Waiting(self, step) for step in steps])

    def say(self, event: str, value: Any) -> None:
        """Send an event to all other members. Raises `BadInput`."""
        admit_said(event, value)
        self.room.say(Said(self.room.id, event, value, self.id, self.user), self)

    def tell(self, to: str, event: str, value: Any) -> None:
        """Send an event to one member. Raises `BadInput`."""
        admit_said(event, value)
        self.room.tell(to, Said(self.room.id, event, value, self.id, self.user, direct=True))

    def set_presence(self, name: str, value: Any, ttl_ms: int) -> None:
        """Set or renew this member's entry. Raises `BadInput`."""
        self.room.crowd.set(self, name, value, ttl_ms)

    def remove_presence(self, name: str) -> None:
        """Remove this member's entry. Idempotent."""
        self.room.crowd.remove(self, name)

    def settle(self) -> None:
        """Receive the room's pending frames before the end of the turn."""
        self.room.settle()

    def leave(self, *, lost: bool = False) -> None:
        """Leave the room. Idempotent. With `lost` the user may return soon."""
        self.room.remove(self, lost=lost)


class LiveRoom:
    """A room that the hub serves. It can be a member of a shared commit."""

    writes = 3  # its log and its head; it checks its settings
    reads = ()

    def __init__(self, hub: "Hub", id_: str, loaded: LoadedRoom) -> None:
        self.id = id_
        self.hub = hub
        self.loaded = loaded
        loaded.moved = lambda: self.over or not hub.owners.own(id_)
        self.news: News[Session] = News()
        self.members: dict[str, Member] = {}
        self.readers: dict[Session, Member] = {}
        self._users: dict[str, int] = {}
        """The number of connections of each user."""
        self.crowd = LivePresence(self)
        self.doors = Members(self)
        self.over = False
        self._clients: dict[tuple[str, str], Member] = {}
        """The members by user and client, which are unique."""
        self._waiting: deque[Waiting] = deque()
        self._batch: list[Waiting] = []
        """The steps in a shared commit."""
        self._joins: deque[tuple[Session, Join, asyncio.Future[Member]]] = deque()
        self._behind = False
        """Whether the log may have unread entries."""
        self._hinted: asyncio.TimerHandle | None = None
        self._working = False
        self._snapshot: tuple[int, bytes] = (-1, b"")

    @property
    def idle(self) -> bool:
        return not (self.readers or self._joins or self._working or self.crowd)

    # Joining and leaving.

    async def join(self, session: "Session", asked: Join) -> Member:
        """Make a connection a member and send it the state. Raises `BadInput`, and `Unavailable` if
        the room has ended here.
        """
        if self.over:
            raise Unavailable(
                f"the room {self.id!r} has ended on this node; join again", code="room_moved"
            )
        if not self._working and not self._behind:
            return self._admit(session, asked)
        admitted: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        self._joins.append((session, asked, admitted))
        self._work()
        return await admitted

    def _admit(self, session: "Session", asked: Join) -> Member:
        old = self._clients.get((session.user, asked.client))
        if old is not None:
            # Its previous connection is lost without notice. No step may arrive on it after the
            # room has dropped its deduplication records. If the new connection is the lost one, the
            # other joins again.
            old.session.dismissed(self.id, "room_moved", "its client has joined again")
            self.remove(old, lost=True)
        self._admit_one_more(session.user)
        greeting, missed = self.loaded.greet(session.user, asked)
        # sends pending frames to the present members; the new one gets them with its state
        self.settle()
        member = Member(self, session, self.hub.new_id(), asked.client)
        self.hub.wake(self)
        self.members[member.id] = member
        self.readers[session] = member
        self._clients[member.user, member.client] = member
        self._users[member.user] = self._users.get(member.user, 0) + 1
        if self._users[member.user] == 1:
            self.hub.user_changed(self.id, member.user, True)
        self.doors.came(member)
        self.crowd.came(member.user)
        room = self.loaded.room
        joined = Joined(
            self.id,
            room.epoch,
            room.seq,
            greeting.n,
            member.id,
            self.doors.told_to(member),
            self.crowd.whole(),
            greeting.reset,
            greeting.known,
            greeting.skipped,
            self.doors.count,
            room.digest,
        )
        session.say(joined)
        session.put(self._whole() if greeting.reset else missed)
        steps = [step for step in asked.steps if step.n > greeting.n]
        if greeting.takes and steps:
            member.submit(*steps)
        return member

    def _admit_one_more(self, user: str) -> None:
        """Raise `room_full` if the user may not have another connection to the room."""
        info, own = self.loaded.info, self._users.get(user, 0)
        if own >= info.per_user:
            text = f"{user!r} has {own} connections to the room {self.id!r}, the maximum; close one"
            raise OncewardError(text, code="room_full")
        if not own and len(self._users) >= info.capacity:
            text = (
                f"the room {self.id!r} has {len(self._users)} users, the maximum; try again later"
            )
            raise OncewardError(text, code="room_full")
        if len(self.members) >= limits.ROOM_MEMBERS_MAX:
            text = f"the room {self.id!r} has {len(self.members)} connections; try again later"
            raise OncewardError(text, code="room_full")

    def _whole(self) -> bytes:
        """The frames of a snapshot, cached for all that join at this sequence number."""
        room = self.loaded.room
        if self._snapshot[0] != room.seq:
            *pieces, last = list(room.pieces())
            told = [Snapshot(self.id, room.seq, p.maps, p.lists, more=True) for p in pieces]
            told.append(Snapshot(self.id, room.seq, last.maps, last.lists))
            self._snapshot = room.seq, b"".join([frame(encode(one)) for one in told])
        return self._snapshot[1]

    def remove(self, member: Member, *, lost: bool) -> None:
        """Remove a member."""
        if self.members.pop(member.id, None) is None:
            return
        self.settle()
        del self.readers[member.session]
        self._clients.pop((member.user, member.client), None)
        self._users[member.user] -= 1
        if not self._users[member.user]:
            del self._users[member.user]
            self.hub.user_changed(self.id, member.user, False)
        self.doors.went(member)
        self.crowd.left(member.user, lost=lost)
        if not self.readers:
            self.hub.may_rest(self)

    def member_list(self) -> list[RoomMember]:
        return [RoomMember(member.id, member.user) for member in self.members.values()]

    def has_user(self, user: str) -> bool:
        return user in self._users

    def end(self, code: str, detail: str) -> None:
        """Dismiss all members with an error code. Idempotent."""
        if self.over:
            return
        self.over = True
        self.settle()
        self.hub.drop(self)
        self.crowd.close()
        self.doors.close()
        if self._hinted is not None:
            self._hinted.cancel()
        error = OncewardError(detail, code=code)
        for member in list(self.members.values()):
            member.session.dismissed(self.id, code, detail)
        self.members, self.readers = {}, {}
        for _, _, admitted in self._joins:
            if not admitted.done():
                admitted.set_exception(error)
        self._joins.clear()
        for waiting in self._waiting:
            waiting.member.session.answered()
        self._waiting.clear()

    # Events.

    def say(self, said: frames.ServerFrame, author: Member | None = None) -> None:
        """Send a frame to all members except the author, at the end of the turn."""
        self.doors.tell()
        self.news.add(frame(encode(said)), None if author is None else author.session)
        self.hub.has_news(self)

    def tell(self, to: str, said: Said) -> None:
        """Send an event to one member. Raises `no_such_member`."""
        member = self.members.get(to)
        if member is None:
            raise BadInput(
                f"{to[:100]!a} is not in the room; send to a member, or to everyone",
                code="no_such_member",
            )
        self.doors.tell()
        self.settle()  # keeps the order of events
        member.session.say(said)

    def settle(self, *, last: bool = False) -> None:
        """Send pending frames to the current members; `last` at the end of a turn."""
        self.news.tell(self.readers, last=last)

    # Steps.

    def submit(self, steps: list[Waiting]) -> None:
        """Queue steps; each gets a response when it is durable."""
        if self.over:
            for waiting in steps:
                waiting.member.session.answered()
            return
        self._waiting += steps
        self._work()

    def hint(self) -> None:
        """Schedule a check of the log after a commit, at most one for many hints."""
        if self._hinted is None and not self.over:
            self._hinted = self.hub.later(limits.HINT_PAUSE_S, self.look)

    def look(self) -> None:
        """Check the log for entries of other processes."""
        if self._hinted is not None:
            self._hinted.cancel()
            self._hinted = None
        self._behind = True
        self._work()

    def _work(self) -> None:
        if not self._working and not self.over:
            self._working = True
            self.hub.has_work(self)

    # The hub calls `work`, or shares a commit, for a room with work. Only one of these runs at a
    # time.

    @property
    def has_little(self) -> bool:
        """Whether it has only a few steps to commit."""
        return (
            0 < len(self._waiting) <= limits.ROOM_FEW_STEPS
            and not (self._joins or self._behind or self.over)
            and self.loaded.writes_little
        )

    def take_up(self) -> list[Waiting]:
        """Take the next steps to commit, limited to one commit."""
        self._behind = False
        if len(self._waiting) > limits.ROOM_COMMIT_STEPS_MAX:
            return [self._waiting.popleft() for _ in range(limits.ROOM_COMMIT_STEPS_MAX)]
        batch = list(self._waiting)
        self._waiting.clear()
        return batch

    def answered(self, batch: list[Waiting]) -> None:
        """Count steps that got a response, or will get none here."""
        for waiting in batch:
            waiting.member.session.answered()

    def share(self) -> None:
        """Commit the waiting steps together with other rooms."""
        self._batch = self.take_up()
        self.hub.sharing.add(self)

    async def attempt(self, tx: Transaction) -> list[Answer]:
        """Apply the steps, as a member of a shared commit."""
        answers = self.loaded.attempt_few(tx, self._batch)
        if answers is None:
            return await self.loaded.attempt(tx, self._batch)
        if self.loaded.effort > limits.ROOM_CHANGES_MAX:
            await asyncio.sleep(0)  # yields to other tasks
        return answers

    def on_undo(self) -> None:
        """Roll back the applied steps, which were not written."""
        self.loaded.give_back()

    def on_outcome(self, outcome: Any) -> None:
        """Send the results of a shared commit, or commit separately after an error."""
        batch, self._batch = self._batch, []
        if isinstance(outcome, BaseException):
            self.loaded.give_back()
            if isinstance(outcome, EngineStopped | OutcomeUnknown | Unavailable):
                # The outcome is unknown, or would be the same without the others.
                self.give_up(outcome)
            if self.over:
                self.answered(batch)
            else:
                self._waiting.extendleft(reversed(batch))
                self.hub.spawn(self.work())
            return
        try:
            self.tell_of(self.loaded.outcome(batch, outcome, self.hub.now_ms()))
        except Exception:
            logger.exception("sending the results of the room %s failed", self.id)
            self.end("room_moved", "internal error; the server has logged it")
        self.answered(batch)
        self.go_on()

    def go_on(self) -> None:
        """Continue with steps and joins that have arrived since."""
        while self._joins and not self.over:
            self._let_in(*self._joins.popleft())
        if not self.over and (self._waiting or self._behind):
            self.hub.has_work(self)
        else:
            self._working = False
            if not self.readers:
                self.hub.may_rest(self)

    async def work(self) -> None:
        """Commit until no step waits."""
        try:
            while not self.over and (self._waiting or self._joins or self._behind):
                await self._commit()
                while self._joins and not self.over:
                    self._let_in(*self._joins.popleft())
        except OncewardError as error:
            self.give_up(error)
        except Exception:
            self.end("room_moved", "internal error; the server has logged it")
            raise
        finally:
            self._working = False
        self.hub.may_rest(self)

    def give_up(self, error: OncewardError) -> None:
        """Close the room after a failed commit, so that members join again if that helps."""
        code = error.code if error.kind.retry and error.code in TABLE else "room_moved"
        if isinstance(error, NoSuchRoom):
            code = "room_deleted"
        else:
            logger.error("closing the room %s after an error: %s", self.id, error)
        self.end(code, f"{TABLE[code].title}.")

    def _let_in(self, session: "Session", asked: Join, admitted: "asyncio.Future[Member]") -> None:
        if admitted.done():
            return
        try:
            admitted.set_result(self._admit(session, asked))
        except OncewardError as error:
            admitted.set_exception(error)

    async def _commit(self) -> None:
        """Commit the waiting steps, limited to one commit, and send the results."""
        batch = self.take_up()
        try:
            told = await self.loaded.commit(batch)
            self.tell_of(told)
        finally:
            self.answered(batch)

    def tell_of(self, told: Told) -> None:
        """Send the outcome of a durable commit to all members, in order."""
        if steps := told.steps:
            self.hub.store.meters.count("room_steps", steps)
        self.doors.tell()
        for result, author in told.results:
            # An author that left may have joined again on the same connection, as another client.
            here = author is not None and self.members.get(author.id) is author
            session = author.session if author is not None and here else None
            if type(result) is not Entry:
                if session is not None:
                    self.news.add(b"", session, frame(encode(result)))
                continue
            change = self.loaded.add(result)
            if session is None:
                self.news.add(change)
            else:
                ack = frame(encode(Ack(self.id, result.n, result.seq, result.digest)))
                self.news.add(change, session, ack)
        self.hub.has_news(self)


def admit_said(event: str, value: Any) -> None:
    """Raise `BadInput` for an invalid event."""
    admit_name(event, "the name of an event")
    size = len(encoded(value))
    if size > limits.SAID_BYTES_MAX:
        raise TooLarge(
            f"the value of an event must have at most {limits.SAID_BYTES_MAX} bytes, not {size}",
            code="value_too_large",
        )

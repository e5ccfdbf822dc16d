"""A room in memory: loads it from the log, commits steps, and follows other commits.

During a commit the room in memory is ahead of the store. Members receive steps only when they are
durable. If another process appends to the log, the commit conflicts: the steps are rolled back, the
log is followed, and the steps are applied again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from onceward import limits
from onceward.errors import TABLE, BadInput, NoSuchRoom, OncewardError, TooLarge
from onceward.rooms.frames import Ack, Join, Refused, Step, encode
from onceward.rooms.log import writes_little
from onceward.rooms.part import Rooms
from onceward.rooms.records import Head, Info, head_key
from onceward.rooms.room import Entry, Greeting, Room, Taken, refusal
from onceward.rooms.schemas import Shapes
from onceward.rooms.wire import frame
from onceward.store import Store
from onceward.store.transaction import Transaction

if TYPE_CHECKING:
    from onceward.rooms.live import Member


logger = logging.getLogger("onceward.rooms")

_REFUSED: Final = 10_000  # the work that a rejected step counts as


class Waiting(msgspec.Struct, frozen=True, eq=False):
    """A step that waits to be applied."""

    member: "Member"
    step: Step


Answer = Refused | Ack | None
"""The response to a step; None if it is applied and acknowledged when durable."""


class Told(msgspec.Struct, frozen=True, eq=False):
    """The outcome of a commit."""

    results: "list[tuple[Entry | Refused | Ack, Member | None]]"
    """In order: new entries of the log, each with its author if it was committed here, and
    responses to steps that were not applied. A client reads an acknowledgement as the response to
    all its earlier steps, so responses must be in the order of steps.
    """

    @property
    def steps(self) -> int:
        """The number of new entries in the log."""
        return sum(type(result) is Entry for result, _ in self.results)


class Replay:
    """The newest changes, as frames."""

    def __init__(self, floor: int, digest: str) -> None:
        """`digest` is the digest of the log at `floor`."""
        self.floor = floor
        """It contains all changes after this sequence number."""
        self._frames: deque[bytes] = deque()
        self._digests = deque([digest])
        """At `floor`, and at each sequence number after it."""
        self._bytes = 0

    def add(self, change: bytes, digest: str) -> None:
        self._frames.append(change)
        self._digests.append(digest)
        self._bytes += len(change)
        while len(self._frames) > limits.REPLAY_STEPS_MAX or self._bytes > limits.REPLAY_BYTES_MAX:
            self._bytes -= len(self._frames.popleft())
            self._digests.popleft()
            self.floor += 1

    def has(self, seq: int, digest: str) -> bool | None:
        """Whether the log has this digest at a sequence number; None if that is unknown."""
        at = seq - self.floor
        return self._digests[at] == digest if 0 <= at < len(self._digests) else None

    def since(self, seq: int) -> bytes | None:
        """All changes after a sequence number; None if some were dropped."""
        left_out = seq - self.floor
        if left_out < 0:
            return None
        return b"".join([change for at, change in enumerate(self._frames) if at >= left_out])


class LoadedRoom:
    """One room. Only one task commits at a time."""

    def __init__(self, store: Store, rooms: Rooms, id_: str, room: Room, info: Info, head: Head):
        self.room = room
        self.info = info
        self.replay = Replay(room.seq, room.digest)
        self._store = store
        self._rooms = rooms
        self._id = id_
        self._head = head
        self._key = head_key(id_)
        self._text: bytes | None = None
        """`_head` as JSON, or None if it is unknown."""
        self._taken: list[Taken] = []
        """The steps of the current commit."""
        self.effort = 0
        """The work of an attempt since it last yielded to other tasks."""
        self._followed: list[Entry] = []
        """Steps of other processes that members have not received yet."""
        self.moved: Callable[[], bool] = lambda: False
        """Whether the room is not served here any more; the live room sets it."""

    @classmethod
    async def load(cls, store: Store, rooms: Rooms, id_: str) -> "LoadedRoom":
        """Load a room from the store. Raises `NoSuchRoom`."""

        async def fn(tx: Transaction) -> tuple[LoadedRoom, list[Entry]]:
            head, info = await rooms.head(tx, id_), await rooms.info(tx, id_)
            room = await rooms.load(tx, id_)
            newest = await rooms.newest(tx, id_, limits.REPLAY_STEPS_MAX, limits.REPLAY_BYTES_MAX)
            return cls(store, rooms, id_, room, info, head), newest

        loaded, entries = await store.run(fn)
        if entries:
            floor, _, digest = loaded._head.snapshots[0]
            if entries[0].seq != floor + 1:  # the digest before them is unknown
                floor, digest = entries[0].seq, entries[0].digest
            loaded.replay = Replay(floor, digest)
            for entry in entries:
                if entry.seq > floor:
                    loaded.add(entry)
        return loaded

    def add(self, entry: Entry) -> bytes:
        """Add an entry to the replay buffer; return its frame."""
        change = frame(encode(entry.change(self._id)))
        self.replay.add(change, entry.digest)
        return change

    def greet(self, by: str, asked: Join) -> tuple[Greeting, bytes]:
        """How to bring a joining client up to date, and the changes that it missed."""
        greeting = self.room.greet(
            self._head.floor,
            by,
            asked.client,
            asked.epoch,
            asked.seq,
            waiting=bool(asked.steps),
            # If the client is behind the replay buffer, a snapshot is cheaper than reading the log.
            same=self.replay.has(asked.seq, asked.digest),
        )
        if greeting.reset:
            return greeting, b""
        missed = self.replay.since(asked.seq)
        assert missed is not None, "the replay has a digest for each step"
        return greeting, missed

    async def commit(self, batch: Sequence[Waiting]) -> Told:
        """Commit steps, after applying entries of other processes.

        Raises `NoSuchRoom` if the room was deleted, and the errors of `Store.run`. The object is
        unusable after an error.
        """
        try:
            answers = await self._store.run(lambda tx: self.attempt(tx, batch))
        except TooLarge as error:
            self.give_back()
            if len(batch) == 1:
                refused = Refused(self._id, batch[0].step.n, error.code, error.message)
                return Told([(refused, batch[0].member)])
            first = await self.commit(batch[: len(batch) // 2])
            second = await self.commit(batch[len(batch) // 2 :])
            return Told(first.results + second.results)
        except BaseException:
            self.give_back()
            raise
        return self.outcome(batch, answers, self._store.clock.now_ms())

    @property
    def writes_little(self) -> bool:
        """Whether a commit of a few more steps writes only these and the head."""
        return writes_little(self.room, self.info, self._head)

    def outcome(self, batch: Sequence[Waiting], answers: Sequence[Answer], now_ms: int) -> Told:
        """The outcome of an attempt whose commit is durable."""
        self.room.forget(self._head.snapshots[0][0], now_ms)
        results: list[tuple[Entry | Refused | Ack, Member | None]] = []
        if self._followed:
            results += [(entry, None) for entry in self._followed]
            self._followed = []
        own = iter(self._taken)
        self._taken = []
        for waiting, answer in zip(batch, answers, strict=True):
            results.append((next(own).entry if answer is None else answer, waiting.member))
        return Told(results)

    async def attempt(self, tx: Transaction, batch: Sequence[Waiting]) -> list[Answer]:
        """Apply the steps and write them in this transaction.

        Afterwards call `outcome`, or if the commit fails `give_back` or another attempt.
        """
        self.give_back()
        await self._catch_up(tx)
        # The next owner may have rejected a step, which must never be applied then. Checked after
        # the reads, because entries that it adds later conflict with this commit.
        if self.moved():
            raise OncewardError(
                f"the room {self._id!r} has moved to another node; members must join again",
                code="room_moved",
            )
        answers: list[Answer] = []
        self.effort = 0
        for waiting in batch:
            answers.append(self._take(waiting, tx.now_ms))
            if self.effort > limits.ROOM_CHANGES_MAX:
                self.effort = 0
                await asyncio.sleep(0)  # yields to other tasks, none of which reads the room now
        if self._taken:
            entries = [taken.entry for taken in self._taken]
            self._head = await self._rooms.append(
                tx, self._id, self.room, entries, read=(self.info, self._head)
            )
            self._text = tx.glance(self._key)
        return answers

    def attempt_few(self, tx: Transaction, batch: Sequence[Waiting]) -> list[Answer] | None:
        """Apply a few steps without reads, if the room is current and `writes_little`.

        Otherwise return None and do nothing.
        """
        self.give_back()
        if not self._is_known(tx) or self.moved():
            return None
        self.effort = 0
        answers = [self._take(waiting, tx.now_ms) for waiting in batch]
        if self._taken:
            entries = [taken.entry for taken in self._taken]
            self._head, self._text = self._rooms.append_few(tx, self._id, self._head, entries)
        return answers

    def knows(self, head: bytes) -> bool:
        """Whether `head` is, as JSON, the head of the room in memory."""
        return head == self._text and self._head.seq == self.room.seq

    def _is_known(self, tx: Transaction) -> bool:
        """Whether the room and its settings are unchanged, as far as cached; the commit validates
        that.
        """
        text = tx.glance(self._key)
        return text is not None and text == self._text and self._head.seq == self.room.seq

    async def _catch_up(self, tx: Transaction) -> None:
        if self._is_known(tx):
            return
        info = await self._rooms.info(tx, self._id, known=self.info)
        head = await self._rooms.head(tx, self._id)
        if head.epoch != self.room.epoch:
            raise NoSuchRoom(f"the room {self._id!r} was deleted and created again; join it again")
        if info is not self.info:
            self.info, self.room.shapes = info, Shapes(info.schemas)
        if head.seq < self.room.seq or (
            head.seq == self.room.seq and head.digest != self.room.digest
        ):
            # The store validates this error, so a stale copy of the head causes another run.
            raise OncewardError(
                f"the room {self._id!r} was restored to {head.seq} while it was in memory at "
                f"{self.room.seq}; members must join again",
                code="room_moved",
            )
        self._head = head
        self._text = tx.glance(self._key)
        if head.seq > self.room.seq:
            for entry in await self._rooms.log(tx, self._id, self.room.seq):
                self.room.follow(entry)
                self._followed.append(entry)

    def _take(self, waiting: Waiting, at_ms: int) -> Answer:
        member, step = waiting.member, waiting.step
        try:
            taken = self.room.take(
                step.ops, by=member.user, client=member.client, n=step.n, at_ms=at_ms
            )
        except Exception as error:
            self.effort += _REFUSED
            return self._refusal(member, step, error)
        if taken is None:  # applied before, which is rare
            self.effort += _REFUSED
            mark = self.room.clients[member.user, member.client]
            return Ack(self._id, step.n, mark.seq)
        self.effort += len(taken.effects)
        self._taken.append(taken)
        return None

    def _refusal(self, member: "Member", step: Step, error: Exception) -> Refused:
        if isinstance(error, BadInput):
            return Refused(self._id, step.n, *refusal(error))
        # The client would repeat it endlessly, so the step is rejected to keep the room usable.
        logger.error("a step of %s in the room %s failed", member.user, self._id, exc_info=error)
        return Refused(self._id, step.n, "internal", f"{TABLE['internal'].title}.")

    def give_back(self) -> None:
        """Roll back the steps of an attempt."""
        while self._taken:
            self.room.give_back(self._taken.pop())

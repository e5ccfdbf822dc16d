"""A table in a transaction: reads, changes, writes, and updates of its live view."""

from collections.abc import Sequence
from typing import Any

import msgspec

from onceward import limits
from onceward.api.tables import Policy, Seat, Table, Then
from onceward.errors import BadInput, NoSuchTable
from onceward.store.transaction import Transaction
from onceward.tables import rules as seating
from onceward.tables.protocols import Board, Change
from onceward.tables.records import (
    CLOCK_DUE,
    WAIT_DUE,
    Head,
    Info,
    Lane,
    Stand,
    Wait,
    clock_entry,
    head_key,
    info_key,
    stand_key,
    wait_entry,
)
from onceward.tables.waitlist import Waitlist, number_of


class OpenTable:
    """A table between its read and its write in a transaction."""

    def __init__(
        self,
        tx: Transaction,
        id_: str,
        info: Info,
        head: Head,
        board: Board,
        slots: int,
        *,
        new: bool = False,
    ) -> None:
        self.tx = tx
        self.id = id_
        self.info = info
        self.head = head
        self.line = Waitlist(tx, id_, head.epoch)
        self.more = False
        """Whether more work remains than fits in one commit; then the table is due again at
        once."""
        self.judged = False
        """Whether a referee has acted since the table was read, so that it may have changed."""
        self._board = board
        self._slots = slots
        self._shown = {} if new else _view(self)
        self._lanes: dict[str, None] = {}
        """The lanes that changed."""
        self._waits: dict[tuple[str, int], Wait | None] = {}
        """Entries that were added to the live view or, without a value, removed from it."""
        self._news: list[Change] = []

    @classmethod
    async def load(
        cls, tx: Transaction, id_: str, board: Board, slots: int, *, looks: bool = False
    ) -> "OpenTable":
        """Read a table. Raises `NoSuchTable`. With `looks`, it is read-only and must not be
        saved."""
        info = await tx.get(info_key(id_), Info, cached=True)
        head = await tx.get(head_key(id_), Head, cached=True)
        if info is None or head is None:
            raise NoSuchTable(f"table {id_!r} not found; check its id, or create it", id=id_)
        return cls(tx, id_, info, head, board, slots, new=looks)

    @property
    def policy(self) -> Policy:
        return self.info.policy

    @property
    def now_ms(self) -> int:
        return self.tx.now_ms

    @property
    def clock_ms(self) -> int:
        """The time on the table's clocks, which stop during a pause."""
        return self.head.paused_ms or self.now_ms

    @property
    def rests(self) -> bool:
        """Whether automatic changes are suspended."""
        return self.head.phase == "closed" or self.head.paused_ms > 0

    def must_be_open(self) -> None:
        """Raise `table_closed` for a closed table."""
        if self.head.phase == "closed":
            raise BadInput(f"table {self.id!r} is closed; use another one", code="table_closed")

    async def save(self) -> None:
        """Write the head, schedule the next deadline, and publish the changes."""
        head = self.head
        want_ms = self.now_ms if self.more else seating.next_ms(self.policy, head, self.now_ms)
        # An early due entry finds nothing to do and is moved to the right time. That is cheaper
        # than moving it with every change.
        if want_ms and (not head.due_ms or want_ms < head.due_ms):
            if head.due_ms:
                self.tx.delete(clock_entry(self.id, head, self._slots))
            head.due_ms = want_ms
            self.tx.put(clock_entry(self.id, head, self._slots), CLOCK_DUE)
        self.tx.put(head_key(self.id), head)
        shown = _view(self)
        changes = [
            Change(*place, value)
            for place, value in shown.items()
            if place not in self._shown or self._shown[place] != value
        ]
        changes += [Change(*place, gone=True) for place in self._shown if place not in shown]
        changes += [
            Change("line", key, _lane_view(self.head.lanes[key]))
            for key in self._lanes
            if key in self.head.lanes
        ]
        changes += [
            Change("waitlist", f"{key}#{number}", gone=True)
            if wait is None
            else Change("waitlist", f"{key}#{number}", self._wait_view(key, number, wait))
            for (key, number), wait in self._waits.items()
        ]
        changes += self._news
        self._shown, self._lanes, self._waits, self._news = shown, {}, {}, []
        if changes:
            await self._board.show(self.tx, self.id, changes)

    def _wait_view(self, key: str, number: int, wait: Wait) -> dict[str, Any]:
        names = {"users": wait.users} if self.policy.waitlist_names else {}
        place = {"lane": key, "number": number, "size": len(wait.users)}
        return {**place, "since_ms": wait.since_ms, **names}

    def hide_line(self) -> None:
        """Remove all lanes and their entries from the live view."""
        if self.head.lanes:
            self._waits.clear()
            self._lanes.clear()
            self._news += [Change("line", gone=True), Change("waitlist", gone=True)]

    def tell(self, map_: str, key: str, value: Any) -> None:
        """Publish a value outside of seats and waitlist."""
        self._news.append(Change(map_, key, value))

    def table(self) -> Table:
        """The table as its public struct."""
        head, info = self.head, self.info
        return Table(
            self.id,
            head.phase,
            head.game,
            {
                marker: None if seat is None else msgspec.structs.replace(seat)
                for marker in self.policy.seats
                for seat in [head.seats.get(marker)]
            },
            head.waiting,
            head.spectators,
            self.policy,
            game=info.game,
            created_ms=info.created_ms,
            began_ms=head.began_ms,
            paused=head.paused_ms > 0,
            paused_why=head.paused_why,
            pace_ms=seating.pace_ms(self.policy, head),
            lanes={key: lane.waiting for key, lane in head.lanes.items() if lane.waiting},
            by=info.by,
            meta=info.meta,
            pool=info.pool,
        )

    # Users.

    def seat_of(self, user: str) -> Seat | None:
        for seat in self.head.seats.values():
            if seat.user == user:
                return seat
        return None

    async def stand(self, user: str) -> Stand | None:
        """Return the record of a user, or None."""
        stand = await self.tx.get(stand_key(self.id, self.head.epoch, user), Stand)
        return stand if stand is not None and stand.role else None

    def put_stand(self, user: str, stand: Stand, *, expires_at_ms: int | None = None) -> None:
        key = stand_key(self.id, self.head.epoch, user)
        self.tx.put(key, stand, expires_at_ms=expires_at_ms)

    async def stand_back(self, users: Sequence[str], name: str, tier: int, idle: int = 0) -> None:
        """Add a user or a party to the back of a lane."""
        head, policy, now_ms = self.head, self.policy, self.now_ms
        key = seating.lane_key(name, tier, len(users))
        lane = head.lanes.get(key)
        if lane is None:
            lane = head.lanes[key] = Lane(policy.lanes.index(name), tier, len(users))
        if not head.waiting:
            # The running game counts for the first waiter's pace.
            playing = head.phase == "playing"
            head.measured_ms = head.paced_ms if playing and head.paced_ms else self.clock_ms
            head.paced_ms = head.measured_ms
        wait = Wait(tuple(users), now_ms, head.order, name)
        number = self.line.stand(key, lane, wait)
        if lane.shown < max(limits.SEATS_SHOWN // lane.size, 1):
            self._show(key, lane, number, wait)
        head.order += 1
        self._lanes[key] = None
        for user in users:
            await self._wait(user, Stand("waiting", now_ms, key, number, idle=idle))

    def _show(self, key: str, lane: Lane, number: int, wait: Wait) -> None:
        lane.shown += 1
        lane.last = number
        self._waits[key, number] = wait

    async def _hide(self, key: str, lane: Lane, number: int) -> None:
        """Remove an entry from the live view, and add the next one that was not shown."""
        if number > lane.last:
            return
        lane.shown -= 1
        if self._waits.pop((key, number), None) is None:
            self._waits[key, number] = None
        if lane.waiting > lane.shown:
            [row] = await self.line.first(key, lane, 1, lane.last + 1)
            self._show(key, lane, number_of(row), row.value)

    async def _wait(self, user: str, stand: Stand) -> None:
        """Write the record of a user and schedule the check of heartbeats."""
        known = await self.tx.get(stand_key(self.id, self.head.epoch, user), Stand)
        if known is not None:
            stand.key, stand.made, stand.answer = known.key, known.made, known.answer
        if known is not None and known.due_ms > self.now_ms:
            stand.due_ms = known.due_ms  # its due entry still exists
        elif self.policy.waiting_ms:
            stand.due_ms = self.now_ms + self.policy.waiting_ms
            self.tx.put(self.entry(user, stand.due_ms), WAIT_DUE)
        self.put_stand(user, stand)

    def entry(self, user: str, due_ms: int) -> tuple[str, str]:
        """The key of the due entry that checks heartbeats."""
        return wait_entry(self.id, self.head.epoch, user, due_ms, self._slots)

    async def watch(self, user: str) -> None:
        self.head.spectators += 1
        await self._wait(user, Stand("watching", self.now_ms))

    async def unline(self, key: str, number: int) -> Wait:
        """Remove an entry from the waitlist; its users have no place then."""
        wait = await self.line.get(key, number)
        lane = self.head.lanes[key]
        await self.line.remove(key, lane, number)
        await self._hide(key, lane, number)
        lane.went += 1
        lane.recent = [*lane.recent, number][-limits.SEATS_RECENT :]
        self._lanes[key] = None
        return wait

    async def next(self, key: str) -> Wait:
        """Remove the first entry of a lane."""
        front = self.head.lanes[key].front
        assert front is not None
        return await self.unline(key, front.number)

    async def sit(self, users: Sequence[str], lane: str, tier: int) -> None:
        """Seat users at the first free markers."""
        for user in users:
            known = await self.tx.get(stand_key(self.id, self.head.epoch, user), Stand)
            party = self.head.order + 1 if len(users) > 1 else 0
            seat = Seat(user, self.now_ms, lane, tier, party=party)
            stand = Stand("seated", self.now_ms)
            if known is not None:
                stand.key, stand.made, stand.answer = known.key, known.made, known.answer
                stand.due_ms = known.due_ms
                seat.idle = known.idle
            self.put_stand(user, stand)
            self._take(seat)

    def sit_bot(self, name: str) -> None:
        self._take(Seat(name, self.now_ms, bot=True))

    def _take(self, seat: Seat) -> None:
        seats = self.head.seats
        seats[seating.free_marker(self.policy, seats)] = seat
        self.head.again = False

    async def rise(self, marker: str, then: Then) -> None:
        """Remove a user from a seat, to the back of the waitlist or away from the table."""
        seat = self.head.seats.pop(marker)
        self.head.again = False
        if seat.bot:
            return
        if then == "back":
            await self.stand_back([seat.user], seat.lane, seat.tier, seat.idle)
        else:
            await self.forget(seat.user)

    async def forget(self, user: str) -> None:
        """Remove a user from the table."""
        known = await self.tx.get(stand_key(self.id, self.head.epoch, user), Stand)
        if known is not None:
            if known.due_ms > self.now_ms:
                self.tx.delete(self.entry(user, known.due_ms))
            self.tx.delete(stand_key(self.id, self.head.epoch, user))


def _view(sitting: OpenTable) -> dict[tuple[str, str], Any]:
    """The published state of seats and game, by map and key."""
    head = sitting.head
    starts_ms = seating.starts_ms(sitting.policy, head)
    shown: dict[tuple[str, str], Any] = {
        ("seats", marker): msgspec.to_builtins(head.seats.get(marker))
        for marker in sitting.policy.seats
    }
    shown["table", "state"] = {
        "phase": head.phase,
        "game": head.game,
        "began_ms": head.began_ms,
        "paused": head.paused_ms > 0,
        "waiting": head.waiting,
        "came": head.order,
        "spectators": head.spectators,
        "pace_ms": seating.pace_ms(sitting.policy, head),
        "paced_ms": head.paced_ms,
        **({"starts_ms": starts_ms} if starts_ms else {}),
        **({"paused_ms": head.paused_ms} if head.paused_ms else {}),
        **({"paused_why": head.paused_why} if head.paused_why else {}),
    }
    return shown


def _lane_view(lane: Lane) -> dict[str, Any]:
    return {
        "priority": lane.priority,
        "tier": lane.tier,
        "size": lane.size,
        "waiting": lane.waiting,
        "went": lane.went,
        "gone": lane.recent,
    }

"""A room as a pure state machine: state, sequence number and accepted steps of each client.

Steps are the input, entries of the log the output. A step has a number from its client. The room
keeps the highest applied number of each client, so a repeated step has no effect. It keeps a client
at least until the log no longer reaches back to its last step. A client whose position is in the
log gets all missed changes and the outcome of its steps. A client with an older position that the
room has dropped gets a reset.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from onceward import limits
from onceward.api.room_changes import RoomOperation
from onceward.api.rooms import RoomEntry
from onceward.errors import BadInput, OncewardError, TooLarge
from onceward.rooms.frames import Change, Reset
from onceward.rooms.names import admit_client, admit_number, admit_step
from onceward.rooms.schemas import Shapes
from onceward.rooms.state import Cell, Effect, State, cell_of, weight

# How often to look for clients to drop while the start of the log is unchanged.
_FORGET_MS = 1_000
_DIGEST_BYTES = 8
_encode = msgspec.json.Encoder().encode


class Entry(RoomEntry, frozen=True):
    """A step in the log, as stored."""

    ops: list[RoomOperation]  # type: ignore[assignment]

    def change(self, room: str) -> Change:
        """The frame for other members."""
        return Change(room, self.seq, self.ops, self.by, self.client, self.n, self.digest)

    def follows(self, digest: str) -> bool:
        """Whether this entry continues the log with the given digest."""
        text = _encode(self.ops)
        chained = chain(digest, text, self.seq, self.by, self.client, self.n, self.at_ms)
        return chained == self.digest


def chain(before: str, ops: bytes, seq: int, by: str, client: str, n: int, at_ms: int) -> str:
    """The digest of a log with this last entry; `ops` is the JSON of its operations.

    The digest of an empty log is empty.
    """
    rest = _encode((before, seq, by, client, n, at_ms))
    return blake2b(rest + ops, digest_size=_DIGEST_BYTES).hexdigest()


class Mark(NamedTuple):
    """The last step of a client: its number, and its sequence number."""

    n: int
    seq: int
    at_ms: int
    known: int
    """The outcome of all steps from this number on is known."""
    skipped: tuple[int, ...] = ()
    """Those of them that were rejected."""


class Taken(msgspec.Struct, frozen=True, eq=False):
    """An applied step, with the data to undo it."""

    entry: Entry
    effects: list[Effect]
    before: Mark | None
    digest: str
    """The digest of the log before it."""


class Piece(msgspec.Struct, omit_defaults=True):
    """A part of a snapshot. Together they contain the state and the marks of clients."""

    maps: dict[str, dict[str, Any]] = {}
    lists: dict[str, list[tuple[str, str, Any]]] = {}
    clients: list[tuple[str, str, Mark]] = []
    floor: int = 0
    """Clients whose last step is not after this sequence number may have been dropped."""


class Greeting(NamedTuple):
    """How to bring a joining client up to date."""

    reset: Reset
    """The reason for a snapshot; empty if the log after the client's position is sufficient."""
    n: int
    """The client's highest applied number."""
    takes: bool
    """Whether unanswered steps with higher numbers may be applied now."""
    known: int = 0
    """The room has the outcome of this client's steps from this number on."""
    skipped: tuple[int, ...] = ()
    """Those of them below `n` that were rejected."""


class Room:
    """The complete state of a room at one sequence number."""

    def __init__(
        self,
        epoch: str,
        *,
        seq: int = 0,
        digest: str = "",
        shapes: Shapes | None = None,
        state: State | None = None,
    ) -> None:
        self.epoch = epoch
        self.seq = seq
        self.digest = digest
        """The digest of the log up to `seq`."""
        self.shapes = shapes or Shapes()
        self.state = state or State()
        self.clients: dict[tuple[str, str], Mark] = {}
        """By user and client."""
        self.floor = 0
        """Clients whose last step is not after this sequence number may have been dropped."""
        self._forgot = 0, 0

    def take(
        self,
        ops: Sequence[RoomOperation],
        *,
        by: str = "",
        client: str = "",
        n: int = 0,
        at_ms: int = 0,
        text: bytes = b"",
    ) -> Taken | None:
        """Apply a step; return None, without a change, if it was applied before.

        Without a client it is always new. `text` is the JSON of operations that `admit_step` has
        accepted. Raises `BadInput`, without a change, if it is rejected.
        """
        before = None
        if client:
            admit_number(n)
            before = self.clients.get((by, client))
            if before is None:
                admit_client(client)
            elif n <= before.n:
                return None
        text = text or admit_step(ops)
        state = self.state
        bytes_before, cells_before = state.bytes, state.cells
        admit = self.shapes.step() if self.shapes.any else None
        effects = state.apply(ops, admit, limits.ROOM_CHANGES_MAX)
        if (state.bytes > limits.ROOM_BYTES_MAX and state.bytes > bytes_before) or (
            state.cells > limits.ROOM_CELLS_MAX and state.cells > cells_before
        ):
            bytes_after, cells_after = state.bytes, state.cells
            state.revert(effects)
            raise TooLarge(
                f"a room must have at most {limits.ROOM_BYTES_MAX} bytes and "
                f"{limits.ROOM_CELLS_MAX} keys and items, not {bytes_after} and {cells_after}; "
                "remove others first",
                code="room_too_large",
            )
        digest = self.digest
        self.seq += 1
        self.digest = chain(digest, text, self.seq, by, client, n, at_ms)
        entry = Entry(self.seq, list(ops), by, client, n, at_ms, self.digest)
        self._mark(entry)
        return Taken(entry, effects, before, digest)

    def give_back(self, taken: Taken) -> None:
        """Undo the last `take`."""
        entry = taken.entry
        assert entry.seq == self.seq
        self.state.revert(taken.effects)
        self.seq -= 1
        self.digest = taken.digest
        if taken.before is not None:
            self.clients[entry.by, entry.client] = taken.before
        else:
            self.clients.pop((entry.by, entry.client), None)

    def follow(self, entry: Entry) -> list[Effect]:
        """Apply the next entry of the log; return the changes."""
        if entry.seq != self.seq + 1:
            raise OncewardError(
                f"entry {self.seq + 1} of the room's log is missing; the next one is "
                f"{entry.seq}. Restore a backup",
                code="damaged",
            )
        if not entry.follows(self.digest):
            raise OncewardError(
                f"entry {entry.seq} of the room's log does not continue the previous one: the "
                "digests differ. Restore a backup",
                code="damaged",
            )
        effects = self.state.apply(entry.ops)
        self.seq, self.digest = entry.seq, entry.digest
        self._mark(entry)
        return effects

    def forget(self, floor: int, now_ms: int) -> None:
        """Drop clients whose last step is not in the durable log, which starts after `floor`.

        Recently active clients are kept, since a step may still arrive on a connection that they
        have given up. If there are too many, the least recently active are dropped, as if the log
        started after their last step.
        """
        last_floor, last_ms = self._forgot
        few = len(self.clients) <= limits.ROOM_CLIENTS_MAX
        if few and floor == last_floor and now_ms - last_ms < _FORGET_MS:
            return
        self._forgot = floor, now_ms
        self.floor = max(self.floor, floor)
        before_ms = now_ms - limits.ROOM_CLIENT_MS
        for key, mark in list(self.clients.items()):
            if mark.seq <= floor and mark.at_ms <= before_ms:
                del self.clients[key]
        if len(self.clients) > limits.ROOM_CLIENTS_MAX:
            oldest = sorted(self.clients, key=lambda key: self.clients[key].seq)
            for key in oldest[: -limits.ROOM_CLIENTS_MAX]:
                self.floor = max(self.floor, self.clients.pop(key).seq)

    def greet(
        self,
        floor: int,
        by: str,
        client: str,
        epoch: str,
        seq: int,
        *,
        waiting: bool,
        same: bool | None = True,
    ) -> Greeting:
        """How to bring a client up to date that joins with a position, and perhaps unanswered
        steps.

        The replay starts after `floor`. `same` is whether the log has the client's digest at `seq`,
        or None if that is unknown.
        """
        floor = max(floor, self.floor)
        mark = self.clients.get((by, client))
        n, known, skipped = (mark.n, mark.known, mark.skipped) if mark else (0, 0, ())
        if not epoch:
            return Greeting("new", n, True, known, skipped)
        if epoch != self.epoch:
            return Greeting("epoch", 0, False)
        reset: Reset = ""
        if seq > self.seq:
            reset = "ahead"
        elif same is False:
            reset = "diverged"
        elif same is None or seq < floor:
            reset = "gap"
        # Without a reset, the log after the position contains all steps whose outcome the client
        # does not have. Otherwise its sequence number may be of another history. If clients may
        # have been dropped, this one may be among them.
        if reset and floor and mark is None and waiting:
            return Greeting("forgotten", 0, False)
        return Greeting(reset, n, True, known, skipped)

    def pieces(self, bytes_max: int = limits.ROOM_PIECE_BYTES) -> Iterator[Piece]:
        """The state in pieces of about `bytes_max` bytes, at least one.

        A piece that contains a single larger value is larger.
        """
        piece, size = Piece({}, {}, []), 0
        for kind, name, key, cell in self._parts():
            added = weight(name if key is None else key, cell)
            if size and size + added > bytes_max:
                yield piece
                piece, size = Piece({}, {}, []), 0
            size += added
            if kind == "map":
                entries = piece.maps.setdefault(name, {})
                if key is not None:
                    entries[key] = cell.value
            else:
                items = piece.lists.setdefault(name, [])
                if key is not None:
                    items.append((key, cell.position, cell.value))
        for (by, client), mark in self.clients.items():
            added = weight(by, Cell(None, 0)) + len(client) + 64 + 17 * len(mark.skipped)
            if size and size + added > bytes_max:
                yield piece
                piece, size = Piece({}, {}, []), 0
            size += added
            piece.clients.append((by, client, mark))
        piece.floor = self.floor
        yield piece

    def add_piece(self, piece: Piece) -> None:
        """Add a piece of a snapshot."""
        load_piece(self.state, piece.maps, piece.lists)
        for by, client, mark in piece.clients:
            self.clients[by, client] = mark
        self.floor = max(self.floor, piece.floor)

    def _parts(self) -> Iterator[tuple[str, str, str | None, Cell]]:
        nothing = Cell(None, 0)
        for name, entries in self.state.maps.items():
            yield "map", name, None, nothing
            for key, cell in entries.items():
                yield "map", name, key, cell
        for name, items in self.state.lists.items():
            yield "list", name, None, nothing
            for id_, cell in items.in_order():
                yield "list", name, id_, cell

    def _mark(self, entry: Entry) -> None:
        if not entry.client:
            return
        key, n = (entry.by, entry.client), entry.n
        before = self.clients.get(key)
        if before is None:
            # The outcome of earlier steps is unknown, since the client may have been dropped
            # before.
            self.clients[key] = Mark(n, entry.seq, entry.at_ms, n)
            return
        most = limits.ROOM_SKIPPED_MAX
        known = before.known
        skipped = (*before.skipped, *range(max(before.n + 1, n - most - 1), n))
        if len(skipped) > most:
            skipped = skipped[-most:]
            known = skipped[0]
        self.clients[key] = Mark(n, entry.seq, entry.at_ms, known, skipped)


class Tail:
    """The newest entries of a log, in memory."""

    def __init__(self, floor: int, most: int = limits.ROOM_KEEP_STEPS) -> None:
        self.floor = floor
        """It contains all entries after this sequence number."""
        self._entries: deque[Entry] = deque()
        self._most = most

    def add(self, entry: Entry) -> None:
        assert entry.seq == self.floor + len(self._entries) + 1, "entries are contiguous"
        self._entries.append(entry)
        if len(self._entries) > self._most:
            self.floor = self._entries.popleft().seq

    def since(self, seq: int) -> list[Entry] | None:
        """All entries after a sequence number; None if some were dropped."""
        if seq < self.floor:
            return None
        return [entry for entry in self._entries if entry.seq > seq]


def load_piece(
    state: State,
    maps: dict[str, dict[str, Any]],
    lists: dict[str, list[tuple[str, str, Any]]],
) -> None:
    """Load a piece of a snapshot into a state."""
    there = Cell(None, 0)
    for name, entries in maps.items():
        state.load("map", name, None, there)
        for key, value in entries.items():
            state.load("map", name, key, cell_of(value))
    for name, items in lists.items():
        state.load("list", name, None, there)
        for id_, position, value in items:
            state.load("list", name, id_, cell_of(value, position))


def replayed(room: Room, entries: Iterable[Entry]) -> Room:
    """Apply entries of the log to a room, except those that it already has."""
    for entry in entries:
        if entry.seq > room.seq:
            room.follow(entry)
    return room


def refusal(error: BadInput) -> tuple[str, str]:
    """The code and the text of a rejected step."""
    return error.code, error.message[:500]

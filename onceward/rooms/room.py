"""A room as a pure state machine: state, sequence number and accepted steps of each client.

Pure: steps in, entries of the log out. A step has the number that its client gave it; the room
knows the highest number it has taken from each client, so one that comes again changes nothing.
A client is remembered for at least as long as the log reaches back to its last step: who comes
with a position that the log reaches can be told all that was missed, and which of its steps were
taken; who comes with an older one and is not remembered gets a new start.
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

# How often to look for clients to forget, while the log begins at the same place.
_FORGET_MS = 1_000
_DIGEST_BYTES = 8
_encode = msgspec.json.Encoder().encode


class Entry(RoomEntry, frozen=True):
    """A step in the log, as it is stored."""

    ops: list[RoomOperation]  # type: ignore[assignment]

    def change(self, room: str) -> Change:
        """What others are told."""
        return Change(room, self.seq, self.ops, self.by, self.client, self.n, self.digest)

    def follows(self, digest: str) -> bool:
        """Whether this entry continues the log that has the given digest."""
        text = _encode(self.ops)
        chained = chain(digest, text, self.seq, self.by, self.client, self.n, self.at_ms)
        return chained == self.digest


def chain(before: str, ops: bytes, seq: int, by: str, client: str, n: int, at_ms: int) -> str:
    """The digest of a log whose last entry is this one, with the JSON of its operations. The
    digest of an empty log is empty."""
    rest = _encode((before, seq, by, client, n, at_ms))
    return blake2b(rest + ops, digest_size=_DIGEST_BYTES).hexdigest()


class Mark(NamedTuple):
    """The last step taken from a client: the client's number for it, and the room's."""

    n: int
    seq: int
    at_ms: int
    known: int
    """Of all numbers from this one on it is known whether they were taken …"""
    skipped: tuple[int, ...] = ()
    """… or not, because the steps were refused."""


class Taken(msgspec.Struct, frozen=True, eq=False):
    """A step that was taken, with what it takes to take it back."""

    entry: Entry
    effects: list[Effect]
    before: Mark | None
    digest: str
    """Of the log before it."""


class Piece(msgspec.Struct, omit_defaults=True):
    """A part of a snapshot. Together they are the state, and what is remembered of clients."""

    maps: dict[str, dict[str, Any]] = {}
    lists: dict[str, list[tuple[str, str, Any]]] = {}
    clients: list[tuple[str, str, Mark]] = []
    floor: int = 0
    """Clients whose last step is not behind this may be forgotten."""


class Greeting(NamedTuple):
    """How a client that joins is brought up to date."""

    reset: Reset
    """Why it needs a snapshot, or empty: the log from its position on is enough."""
    n: int
    """The highest number taken from it."""
    takes: bool
    """Whether steps of it without an answer, with higher numbers, may be taken now."""
    known: int = 0
    """From which number on the room knows what became of this client's steps …"""
    skipped: tuple[int, ...] = ()
    """… and which of them, below `n`, were refused."""


class Room:
    """Everything that is true of a room at one sequence number."""

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
        """Of the log up to `seq`."""
        self.shapes = shapes or Shapes()
        self.state = state or State()
        self.clients: dict[tuple[str, str], Mark] = {}
        """By user and client."""
        self.floor = 0
        """Clients whose last step is not behind this sequence number may be forgotten."""
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
        """Take a step; None if it was taken before, and nothing changes. Without a client it is
        always new. `text` is the JSON of operations that `admit_step` has admitted already.
        Raises `BadInput` if it is refused, and nothing changes either."""
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
            state.revert(effects)
            raise TooLarge(
                f"a room holds at most {limits.ROOM_BYTES_MAX} bytes in {limits.ROOM_CELLS_MAX} "
                "keys and items",
                code="room_too_large",
            )
        digest = self.digest
        self.seq += 1
        self.digest = chain(digest, text, self.seq, by, client, n, at_ms)
        entry = Entry(self.seq, list(ops), by, client, n, at_ms, self.digest)
        self._mark(entry)
        return Taken(entry, effects, before, digest)

    def give_back(self, taken: Taken) -> None:
        """Undo `take`, the last one first."""
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
        """Apply the next entry of the log; returns what it has changed."""
        if entry.seq != self.seq + 1:
            raise OncewardError(
                f"entry {self.seq + 1} of the room's log is missing: {entry.seq} comes next",
                code="damaged",
            )
        if not entry.follows(self.digest):
            raise OncewardError(
                f"entry {entry.seq} of the room's log does not continue the one before: "
                "their digests do not agree",
                code="damaged",
            )
        effects = self.state.apply(entry.ops)
        self.seq, self.digest = entry.seq, entry.digest
        self._mark(entry)
        return effects

    def forget(self, floor: int, now_ms: int) -> None:
        """Forget the clients whose last step the log does not reach back to any more, since it
        begins behind `floor`, and that is durable; but not those who were here lately, since a
        step of theirs may yet arrive over a connection that they have given up. If there are too
        many, the longest silent go: for them it is as if the log began behind their last step."""
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
        """How to bring a client up to date that comes with a position, and maybe with steps that
        wait for an answer. What can be replayed begins behind `floor`. `same` says whether the
        log has the client's digest at `seq`; None if that is no longer known."""
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
        # Without a reset, whatever was taken from it without its knowing is in the log from there
        # on. Else the client's sequence number may be of another history, and says nothing of when
        # its steps were taken: if clients may have been forgotten, this one may be.
        if reset and floor and mark is None and waiting:
            return Greeting("forgotten", 0, False)
        return Greeting(reset, n, True, known, skipped)

    def pieces(self, bytes_max: int = limits.ROOM_PIECE_BYTES) -> Iterator[Piece]:
        """The state in pieces of about so many bytes, one at the least; one that holds a single
        larger value is as large as that."""
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
        """Put a piece of a snapshot here."""
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
            # Whether earlier ones were taken, and forgotten since, is not known.
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
        """It holds everything behind this sequence number."""
        self._entries: deque[Entry] = deque()
        self._most = most

    def add(self, entry: Entry) -> None:
        assert entry.seq == self.floor + len(self._entries) + 1, "nothing is left out"
        self._entries.append(entry)
        if len(self._entries) > self._most:
            self.floor = self._entries.popleft().seq

    def since(self, seq: int) -> list[Entry] | None:
        """All entries behind a sequence number; None if they do not reach back to it."""
        if seq < self.floor:
            return None
        return [entry for entry in self._entries if entry.seq > seq]


def load_piece(
    state: State,
    maps: dict[str, dict[str, Any]],
    lists: dict[str, list[tuple[str, str, Any]]],
) -> None:
    """Put a piece of a snapshot into a state."""
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
    """The room after entries of its log; those that it has followed already are left out."""
    for entry in entries:
        if entry.seq > room.seq:
            room.follow(entry)
    return room


def refusal(error: BadInput) -> tuple[str, str]:
    """The code and the text by which a refused step is told."""
    return error.code, error.message[:500]

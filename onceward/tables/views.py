"""What callers see of a table, and what it calls: its referee, and the board that shows it."""

from typing import Any, Literal, Protocol

import msgspec

from onceward.store.transaction import Transaction
from onceward.store.user_records import UserTransaction
from onceward.tables.policy import Policy
from onceward.tables.records import Phase, Role, Seat

Reason = Literal["result", "left", "idle", "lost", "void"]


class Leader(msgspec.Struct, omit_defaults=True):
    """Someone on a ladder."""

    user: str
    rating: int
    games: int = 0
    won: int = 0
    drawn: int = 0


class Place(msgspec.Struct, omit_defaults=True):
    """Where someone is at a table."""

    table: str
    user: str
    role: Role
    """Empty: not there."""
    phase: Phase
    game: int = 0
    marker: str = ""
    lane: str = ""
    """The key of the lane in the live view."""
    number: int = 0
    """One's number in that lane. It stays; when a lower one goes, the position goes down by one."""
    position: int = 0
    """In the lane, from 1 on."""
    went: int = 0
    """How many had gone from the lane by then: those of the live view who went later count."""
    ahead: int = 0
    """How many people are to be seated before, as things are."""
    waiting: int = 0
    """How many people wait in all."""
    wait_ms: int = 0
    """About how long it will take."""
    opened: str = ""
    """The table that was opened for one, to go to."""


class Waiter(msgspec.Struct, omit_defaults=True):
    """A place in the waitlist: of one person, or of a party."""

    lane: str
    """The key of the lane in the live view."""
    number: int
    position: int
    """In the lane, from 1 on."""
    since_ms: int
    size: int = 1
    """How many people wait there together."""
    users: tuple[str, ...] = ()
    """Their names; none where the policy hides them."""


class Table(msgspec.Struct, omit_defaults=True):
    """A table as it is, for referees and for whoever looks."""

    id: str
    phase: Phase
    number: int
    """Of the game that is on, or was the last."""
    seats: dict[str, Seat | None]
    """By marker, in the order of the policy; None: empty."""
    waiting: int
    spectators: int
    policy: Policy
    game: str = ""
    made_ms: int = 0
    began_ms: int = 0
    paused: bool = False
    paused_why: str = ""
    """Why it has paused by itself; empty: it has not."""
    pace_ms: int = 0
    lanes: dict[str, int] = {}
    """How many places are taken in each lane that anyone waits in."""
    by: str = ""
    meta: dict[str, Any] = {}
    pool: str = ""
    """The table that this one was opened from."""

    def marker_of(self, user: str) -> str | None:
        """The marker under which someone sits, or None."""
        for marker, seat in self.seats.items():
            if seat is not None and seat.user == user:
                return marker
        return None

    @property
    def players(self) -> dict[str, str]:
        """Who sits there, by marker."""
        return {marker: seat.user for marker, seat in self.seats.items() if seat is not None}


class Ending(msgspec.Struct, omit_defaults=True):
    """How a game has ended."""

    number: int
    players: dict[str, str]
    """Who sat where, by marker."""
    winners: tuple[str, ...]
    """Their user names; empty: a draw, or it does not count."""
    reason: Reason
    ratings: dict[str, int] = {}
    """After it, if the table is rated."""


class Referee(Protocol):
    """Judges the games of one name. All is called within the transaction that it is about; what
    it writes is part of that commit, and what it raises undoes all of it."""

    async def begin(self, tx: UserTransaction, table: Table) -> None:
        """The game `table.number` begins with those who are seated. If it is over with that, it may
        be ended at once: the next one begins with another commit."""

    async def move(self, tx: UserTransaction, table: Table, user: str, move: Any) -> Any:
        """Someone who is seated moves. Raises `BadInput` for what is no legal move; says whose
        turn it is by `Seats.turn`, and ends the game by `Seats.result`. What it returns is the
        answer."""

    async def ended(self, tx: UserTransaction, table: Table, ending: Ending) -> None:
        """A game has ended: by its result, or because someone left or ran out of time. `table` is
        as it was before anyone got up."""


class Board(Protocol):
    """Shows a table to all who watch: the parts know nothing of rooms."""

    async def open(self, tx: Transaction, table: str) -> None:
        """There is a table."""

    async def show(self, tx: Transaction, table: str, changes: list["Change"]) -> None:
        """Things have changed, with this commit."""

    async def close(self, tx: Transaction, table: str) -> None:
        """There is one no more."""


class Change(msgspec.Struct, frozen=True):
    """One entry of a live view: a value under a key of a map, or none any more. Without a key the
    whole map is gone."""

    map: str
    key: str = ""
    value: Any = None
    gone: bool = False

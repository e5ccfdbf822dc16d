"""What the client returns about tables: as the server has it, and what that comes in."""

from typing import Any

import msgspec

from onceward.api.tables import Leader, Place, Waiter
from onceward.api.tables import Seat as TableSeat

__all__ = [
    "Ended",
    "Ladder",
    "Leader",
    "Moved",
    "Place",
    "Rated",
    "RatedView",
    "Table",
    "TableSeat",
    "Tables",
    "Waiter",
    "Waitlist",
]


class Table(msgspec.Struct):
    """A table as it is."""

    id: str
    phase: str
    number: int
    """Of the game that is on, or was the last."""
    seats: dict[str, TableSeat | None]
    waiting: int
    spectators: int
    policy: dict[str, Any]
    game: str = ""
    made_ms: int = 0
    began_ms: int = 0
    paused: bool = False
    paused_why: str = ""
    """Why it has paused by itself; empty: it has not."""
    pace_ms: int = 0
    lanes: dict[str, int] = {}
    by: str = ""
    meta: dict[str, Any] = {}
    pool: str = ""

    @property
    def players(self) -> dict[str, str]:
        """Who sits there, by marker."""
        return {marker: seat.user for marker, seat in self.seats.items() if seat is not None}


class Tables(msgspec.Struct):
    """A page of them."""

    tables: list[Table]
    next: str | None


class Waitlist(msgspec.Struct):
    """A page of a waitlist."""

    table: str
    waitlist: list[Waiter]
    next: str | None


class Ended(msgspec.Struct):
    """How a game has ended."""

    number: int
    players: dict[str, str]
    winners: list[str]
    reason: str
    ratings: dict[str, int] = {}


class Moved(msgspec.Struct):
    """What a referee has answered."""

    answer: Any = None


class Ladder(msgspec.Struct):
    """The best ones."""

    ladder: str
    leaders: list[Leader]


class Rated(msgspec.Struct):
    """How well someone plays; games is 0 if that is not known."""

    rating: int = 0
    games: int = 0
    won: int = 0
    drawn: int = 0


class RatedView(msgspec.Struct):
    """The same as it is answered."""

    ladder: str
    user: str
    rating: Rated | None = None

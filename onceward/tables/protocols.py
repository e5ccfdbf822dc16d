"""Interfaces that a table calls: its referee and its live view."""

from typing import Any, Protocol

import msgspec

from onceward.api.tables import Ending, Table
from onceward.store.transaction import Transaction
from onceward.store.user_records import UserTransaction


class Referee(Protocol):
    """Judges the games of one name.

    All methods run in the transaction of the table: their writes are part of that commit, and an
    exception rolls it back.
    """

    async def begin(self, tx: UserTransaction, table: Table) -> None:
        """Start the game `table.number` with the seated players. It may end the game immediately;
        the next one then starts in another commit."""

    async def move(self, tx: UserTransaction, table: Table, user: str, move: Any) -> Any:
        """Judge a move of a seated user; the return value is the response.

        Raises `BadInput` for an illegal move. Sets the turn with `Seats.turn` and ends the game
        with `Seats.result`.
        """

    async def ended(self, tx: UserTransaction, table: Table, ending: Ending) -> None:
        """Called after a game has ended: by its result, a departure or a timeout. `table` has the
        seats as they were during the game."""


class Board(Protocol):
    """Publishes a table to its spectators. Keeps this package independent of rooms."""

    async def open(self, tx: Transaction, table: str) -> None:
        """Publish a new table."""

    async def show(self, tx: Transaction, table: str, changes: list["Change"]) -> None:
        """Publish changes of a table in this commit."""

    async def close(self, tx: Transaction, table: str) -> None:
        """Remove the view of a table."""


class Change(msgspec.Struct, frozen=True):
    """One change of a live view: the value of a key of a map, or its removal. Without a key the
    whole map is removed."""

    map: str
    key: str = ""
    value: Any = None
    gone: bool = False

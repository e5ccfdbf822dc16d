"""Interfaces that a table calls: its referee and its live view."""

from typing import Any, Protocol

import msgspec

from onceward.api.tables import Ending, Table
from onceward.store.transaction import Transaction
from onceward.store.user_records import UserTransaction


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

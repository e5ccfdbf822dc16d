"""Synchronous classes. Written by `make generate` from `onceward.tables.part`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from onceward.api.tables import Ending, Leader, Place, Policy, Rating, Table, Waiter
from onceward.store.user_records import SyncTransaction
from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Facade, target
from onceward.tables.part import Seats as AsyncSeats


class Seats(Facade[AsyncSeats]):
    """The tables of one database, within transactions."""

    def create(
        self,
        tx: Transaction | SyncTransaction,
        id_: str = "",
        *,
        policy: Policy | Mapping[str, Any] | None = None,
        game: str = "",
        by: str = "",
        meta: dict[str, Any] | None = None,
    ) -> Table:
        """Create a table; without an id it gets a new one."""
        return self._portal.run(
            self._target.create(target(tx), id_, policy=policy, game=game, by=by, meta=meta)
        )

    def get(self, tx: Transaction | SyncTransaction, id_: str) -> Table:
        """Return a table. A closed table stays readable for a day."""
        return self._portal.run(self._target.get(target(tx), id_))

    def find(
        self,
        tx: Transaction | SyncTransaction,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 50,
    ) -> list[Table]:
        """Return tables whose ids begin with `prefix`, ordered by id, starting after `after`."""
        return self._portal.run(
            self._target.find(target(tx), prefix=prefix, after=after, limit=limit)
        )

    def pause(self, tx: Transaction | SyncTransaction, id_: str) -> Table:
        """Stop all clocks, and start no games and seat no players until `resume`. Idempotent."""
        return self._portal.run(self._target.pause(target(tx), id_))

    def resume(self, tx: Transaction | SyncTransaction, id_: str) -> Table:
        """Resume a paused table. Idempotent."""
        return self._portal.run(self._target.resume(target(tx), id_))

    def close(self, tx: Transaction | SyncTransaction, id_: str) -> Table:
        """Close the table immediately; a running game does not count. Idempotent."""
        return self._portal.run(self._target.close(target(tx), id_))

    def rating(self, tx: Transaction | SyncTransaction, ladder: str, user: str) -> Rating | None:
        """Return the rating of a user, or None."""
        return self._portal.run(self._target.rating(target(tx), ladder, user))

    def leaders(
        self,
        tx: Transaction | SyncTransaction,
        ladder: str,
        *,
        limit: int = 100,
        after: tuple[int, str] | None = None,
    ) -> list[Leader]:
        """Return the players by rating, highest first, starting after a rating and user."""
        return self._portal.run(self._target.leaders(target(tx), ladder, limit=limit, after=after))

    def join(
        self,
        tx: Transaction | SyncTransaction,
        id_: str,
        user: str,
        *,
        lane: str = "",
        party: Sequence[str] = (),
    ) -> Place:
        """Take the first free seat, or the last place of a lane."""
        return self._portal.run(self._target.join(target(tx), id_, user, lane=lane, party=party))

    def leave(self, tx: Transaction | SyncTransaction, id_: str, user: str) -> Place:
        """Leave the seat or waitlist, together with the waiting party. Idempotent."""
        return self._portal.run(self._target.leave(target(tx), id_, user))

    def watch(self, tx: Transaction | SyncTransaction, id_: str, user: str) -> Place:
        """Become a spectator. Users with a seat or a place in the waitlist keep it. Raises
        `table_full`."""
        return self._portal.run(self._target.watch(target(tx), id_, user))

    def ready(self, tx: Transaction | SyncTransaction, id_: str, user: str) -> Place:
        """Confirm that the user is ready, or wants to play again. The game starts when all have
        confirmed."""
        return self._portal.run(self._target.ready(target(tx), id_, user))

    def move(
        self, tx: Transaction | SyncTransaction, id_: str, user: str, move: Any, *, key: str = ""
    ) -> Any:
        """Pass a move of a seated user to the referee; returns the referee's response."""
        return self._portal.run(self._target.move(target(tx), id_, user, move, key=key))

    def turn(
        self,
        tx: Transaction | SyncTransaction,
        id_: str,
        users: Collection[str],
        *,
        keep: bool = False,
    ) -> None:
        """Set the users whose turn it is, and start their clocks. For referees."""
        return self._portal.run(self._target.turn(target(tx), id_, users, keep=keep))

    def result(
        self,
        tx: Transaction | SyncTransaction,
        id_: str,
        winners: Sequence[str],
        *,
        game: int | None = None,
    ) -> Ending:
        """End the running game. `winners` win and all others lose; without winners it is a draw."""
        return self._portal.run(self._target.result(target(tx), id_, winners, game=game))

    def draw(
        self, tx: Transaction | SyncTransaction, id_: str, *, game: int | None = None
    ) -> Ending:
        """End the running game as a draw."""
        return self._portal.run(self._target.draw(target(tx), id_, game=game))

    def away(self, tx: Transaction | SyncTransaction, id_: str, user: str) -> Place:
        """Record a lost connection. The seat is kept for the grace period. Idempotent."""
        return self._portal.run(self._target.away(target(tx), id_, user))

    def back(self, tx: Transaction | SyncTransaction, id_: str, user: str) -> Place:
        """Record a restored connection, which also counts as a heartbeat."""
        return self._portal.run(self._target.back(target(tx), id_, user))

    def heartbeat(self, tx: Transaction | SyncTransaction, id_: str, user: str) -> None:
        """Record a heartbeat. For waiting users it writes only their own record; for players it
        does not count as a move."""
        return self._portal.run(self._target.heartbeat(target(tx), id_, user))

    def place(self, tx: Transaction | SyncTransaction, id_: str, user: str) -> Place:
        """Return the exact place of a user at a table. It costs a few reads."""
        return self._portal.run(self._target.place(target(tx), id_, user))

    def waitlist(
        self,
        tx: Transaction | SyncTransaction,
        id_: str,
        *,
        after: str = "",
        limit: int = 50,
        public: bool = False,
    ) -> list[Waiter]:
        """Return the users on the waitlist, by lane."""
        return self._portal.run(
            self._target.waitlist(target(tx), id_, after=after, limit=limit, public=public)
        )

"""Synchronous classes. Written by `make generate` from `onceward.tables.server`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Facade
from onceward.tables import Ending, Leader, Place, Policy, Rating, Table, Waiter
from onceward.tables.server import T
from onceward.tables.server import Tables as AsyncTables


class Tables(Facade[AsyncTables]):
    """The tables of one application. `Seats` documents the errors of each method."""

    def run(self, id_: str, fn: Callable[[Transaction], T], users: Collection[str] = ()) -> T:
        """Run your own transaction that changes a table, like `App.run`. `users` allows
        prefetching."""
        return self._portal.run_with(
            fn,
            lambda back: self._target.run(
                id_, lambda tx: back(Transaction(self._portal, tx)), users
            ),
        )

    def new_id(self) -> str:
        """Generate the id of a new table."""
        return self._target.new_id()

    def create(
        self,
        id_: str = "",
        *,
        policy: Policy | Mapping[str, Any] | None = None,
        game: str = "",
        by: str = "",
        meta: dict[str, Any] | None = None,
    ) -> Table:
        """Create a table; see `Seats.create`."""
        return self._portal.run(
            self._target.create(id_, policy=policy, game=game, by=by, meta=meta)
        )

    def get(self, id_: str) -> Table:
        """Return a table."""
        return self._portal.run(self._target.get(id_))

    def find(self, *, prefix: str = "", after: str = "", limit: int = 50) -> list[Table]:
        """Return tables whose ids begin with `prefix`, starting after `after`."""
        return self._portal.run(self._target.find(prefix=prefix, after=after, limit=limit))

    def pause(self, id_: str) -> Table:
        """Stop all clocks, and start no games and seat no players until `resume`."""
        return self._portal.run(self._target.pause(id_))

    def resume(self, id_: str) -> Table:
        """Resume a paused table."""
        return self._portal.run(self._target.resume(id_))

    def close(self, id_: str) -> Table:
        """Close the table for all users."""
        return self._portal.run(self._target.close(id_))

    def join(self, id_: str, user: str, *, lane: str = "", party: Sequence[str] = ()) -> Place:
        """Take the first free seat, or a place on the waitlist."""
        return self._portal.run(self._target.join(id_, user, lane=lane, party=party))

    def leave(self, id_: str, user: str) -> Place:
        """Leave the seat or the waitlist."""
        return self._portal.run(self._target.leave(id_, user))

    def watch(self, id_: str, user: str) -> Place:
        """Become a spectator."""
        return self._portal.run(self._target.watch(id_, user))

    def ready(self, id_: str, user: str) -> Place:
        """Confirm that the user is ready, or wants to play again."""
        return self._portal.run(self._target.ready(id_, user))

    def move(self, id_: str, user: str, move: Any, *, key: str = "") -> Any:
        """Pass a move to the referee; returns its response."""
        return self._portal.run(self._target.move(id_, user, move, key=key))

    def turn(self, id_: str, users: Collection[str], *, keep: bool = False) -> None:
        """Set the users whose turn it is."""
        return self._portal.run(self._target.turn(id_, users, keep=keep))

    def result(self, id_: str, winners: Sequence[str], *, game: int | None = None) -> Ending:
        """End the running game; without winners it is a draw."""
        return self._portal.run(self._target.result(id_, winners, game=game))

    def draw(self, id_: str, *, game: int | None = None) -> Ending:
        """End the running game as a draw."""
        return self._portal.run(self._target.draw(id_, game=game))

    def away(self, id_: str, user: str) -> Place:
        """Record a lost connection."""
        return self._portal.run(self._target.away(id_, user))

    def back(self, id_: str, user: str) -> Place:
        """Record a restored connection."""
        return self._portal.run(self._target.back(id_, user))

    def heartbeat(self, id_: str, users: Collection[str]) -> None:
        """Record heartbeats of several users of a table in one commit."""
        return self._portal.run(self._target.heartbeat(id_, users))

    def place(self, id_: str, user: str) -> Place:
        """Return the place of a user at a table."""
        return self._portal.run(self._target.place(id_, user))

    def waitlist(
        self, id_: str, *, after: str = "", limit: int = 50, public: bool = False
    ) -> list[Waiter]:
        """Return the waitlist of a table, starting after a `waiter_key`."""
        return self._portal.run(self._target.waitlist(id_, after=after, limit=limit, public=public))

    def rating(self, ladder: str, user: str) -> Rating | None:
        """Return the rating of a user, or None."""
        return self._portal.run(self._target.rating(ladder, user))

    def leaders(
        self, ladder: str, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> list[Leader]:
        """Return the players by rating, highest first."""
        return self._portal.run(self._target.leaders(ladder, limit=limit, after=after))

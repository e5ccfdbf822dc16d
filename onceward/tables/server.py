"""Tables of an application: each call is one transaction, serialized by table."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from onceward.errors import BadInput
from onceward.store import Store
from onceward.store.sharing import SharedCommits
from onceward.store.user_records import UserTransaction, by_user
from onceward.tables import (
    Ending,
    Leader,
    Place,
    Policy,
    Rating,
    Seats,
    Table,
    Waiter,
)

T = TypeVar("T")

# The maximum number of writes of most calls.
_CALL_WRITES = 12


class Tables:
    """The tables of one application. `Seats` documents the errors of each method."""

    def __init__(self, store: Store, part: Seats) -> None:
        self.part = part
        self.clock = store.clock
        self._store = store
        self._sharing = SharedCommits(store, part.fetch)

    async def finish(self) -> None:
        """Wait for running calls."""
        await self._sharing.finish()

    async def run(
        self, id_: str, fn: Callable[[UserTransaction], Awaitable[T]], users: Collection[str] = ()
    ) -> T:
        """Run your own transaction that changes a table, like `App.run`. `users` allows
        prefetching.

        Calls for one table are queued instead of conflicting, and share commits under load. So `fn`
        may run again because of other calls, and its transaction may include their changes.
        """
        if not isinstance(id_, str):
            raise BadInput(
                f"the id of a table must be text, not {type(id_).__name__}", code="bad_name"
            )
        _admit_users(users)  # these are prefetched for all calls that share a commit
        reads = [(id_, user) for user in users]
        return await self._sharing.run(
            by_user(fn), writes=_CALL_WRITES, reads=reads, line=f"table {id_}"
        )

    def new_id(self) -> str:
        """Generate the id of a new table."""
        return self._store.ids.new()

    # Tables.

    async def create(
        self,
        id_: str = "",
        *,
        policy: Policy | Mapping[str, Any] | None = None,
        game: str = "",
        by: str = "",
        meta: dict[str, Any] | None = None,
    ) -> Table:
        """Create a table; see `Seats.create`."""
        made = id_ or self._store.ids.new()
        return await self.run(
            made,
            lambda tx: self.part.create(tx, made, policy=policy, game=game, by=by, meta=meta),
        )

    async def get(self, id_: str) -> Table:
        """Return a table."""
        return await self._store.run(lambda tx: self.part.get(tx, id_))

    async def find(self, *, prefix: str = "", after: str = "", limit: int = 50) -> list[Table]:
        """Return tables whose ids begin with `prefix`, starting after `after`."""
        return await self._store.run(
            lambda tx: self.part.find(tx, prefix=prefix, after=after, limit=limit)
        )

    async def pause(self, id_: str) -> Table:
        """Stop all clocks, and start no games and seat no players until `resume`."""
        return await self.run(id_, lambda tx: self.part.pause(tx, id_))

    async def resume(self, id_: str) -> Table:
        """Resume a paused table."""
        return await self.run(id_, lambda tx: self.part.resume(tx, id_))

    async def close(self, id_: str) -> Table:
        """Close the table for all users."""
        return await self.run(id_, lambda tx: self.part.close(tx, id_))

    # Players.

    async def join(
        self, id_: str, user: str, *, lane: str = "", party: Sequence[str] = ()
    ) -> Place:
        """Take the first free seat, or a place on the waitlist."""
        return await self.run(
            id_, lambda tx: self.part.join(tx, id_, user, lane=lane, party=party), [user]
        )

    async def leave(self, id_: str, user: str) -> Place:
        """Leave the seat or the waitlist."""
        return await self.run(id_, lambda tx: self.part.leave(tx, id_, user), [user])

    async def watch(self, id_: str, user: str) -> Place:
        """Become a spectator."""
        return await self.run(id_, lambda tx: self.part.watch(tx, id_, user), [user])

    async def ready(self, id_: str, user: str) -> Place:
        """Confirm that the user is ready, or wants to play again."""
        return await self.run(id_, lambda tx: self.part.ready(tx, id_, user), [user])

    async def move(self, id_: str, user: str, move: Any, *, key: str = "") -> Any:
        """Pass a move to the referee; returns its response."""
        return await self.run(id_, lambda tx: self.part.move(tx, id_, user, move, key=key), [user])

    async def turn(self, id_: str, users: Collection[str], *, keep: bool = False) -> None:
        """Set the users whose turn it is."""
        await self.run(id_, lambda tx: self.part.turn(tx, id_, users, keep=keep))

    async def result(self, id_: str, winners: Sequence[str], *, game: int | None = None) -> Ending:
        """End the running game; without winners it is a draw."""
        return await self.run(id_, lambda tx: self.part.result(tx, id_, winners, game=game))

    async def draw(self, id_: str, *, game: int | None = None) -> Ending:
        """End the running game as a draw."""
        return await self.result(id_, (), game=game)

    async def away(self, id_: str, user: str) -> Place:
        """Record a lost connection."""
        return await self.run(id_, lambda tx: self.part.away(tx, id_, user), [user])

    async def back(self, id_: str, user: str) -> Place:
        """Record a restored connection."""
        return await self.run(id_, lambda tx: self.part.back(tx, id_, user), [user])

    async def heartbeat(self, id_: str, users: Collection[str]) -> None:
        """Record heartbeats of several users of a table in one commit."""

        async def fn(tx: UserTransaction) -> None:
            for user in users:
                await self.part.heartbeat(tx, id_, user)

        await self.run(id_, fn, users)

    async def place(self, id_: str, user: str) -> Place:
        """Return the place of a user at a table."""
        return await self._store.run(lambda tx: self.part.place(tx, id_, user))

    async def waitlist(
        self, id_: str, *, after: str = "", limit: int = 50, public: bool = False
    ) -> list[Waiter]:
        """Return the waitlist of a table, starting after a `waiter_key`."""
        return await self._store.run(
            lambda tx: self.part.waitlist(tx, id_, after=after, limit=limit, public=public)
        )

    # Ratings.

    async def rating(self, ladder: str, user: str) -> Rating | None:
        """Return the rating of a user, or None."""
        return await self._store.run(lambda tx: self.part.rating(tx, ladder, user))

    async def leaders(
        self, ladder: str, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> list[Leader]:
        """Return the players by rating, highest first."""
        return await self._store.run(
            lambda tx: self.part.leaders(tx, ladder, limit=limit, after=after)
        )


def _admit_users(users: Collection[str]) -> None:
    if isinstance(users, str) or not isinstance(users, Collection):
        raise BadInput(f"users must be a list of names, not {type(users).__name__}")

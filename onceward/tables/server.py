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

# What most calls write at the most.
_CALL_WRITES = 12


class Tables:
    """The tables of one application. What each raises is said at `Seats`."""

    def __init__(self, store: Store, part: Seats) -> None:
        self.part = part
        self.clock = store.clock
        self._store = store
        self._sharing = SharedCommits(store, part.fetch)

    async def finish(self) -> None:
        """Wait for what is under way."""
        await self._sharing.finish()

    async def run(
        self, id_: str, fn: Callable[[UserTransaction], Awaitable[T]], users: Collection[str] = ()
    ) -> T:
        """Run a transaction of one's own that changes a table, as `App.run` does; it may help to
        say which users it is about. Callers of one table take turns instead of racing, and share
        commits where many come at once: so `fn` may run again for the sake of others, and its
        transaction may hold what others have done."""
        if not isinstance(id_, str):
            raise BadInput(f"the id of a table is text, not {type(id_).__name__}", code="bad_name")
        if not callable(fn):
            raise BadInput(f"a transaction is an async function, not {type(fn).__name__}")
        _admit_users(users)  # which are read for all who share a commit
        reads = [(id_, user) for user in users]
        return await self._sharing.run(
            by_user(fn), writes=_CALL_WRITES, reads=reads, line=f"table {id_}"
        )

    def new_id(self) -> str:
        """For a table without a name of its own."""
        return self._store.ids.new()

    # Whole tables.

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
        """A table as it is."""
        return await self._store.run(lambda tx: self.part.get(tx, id_))

    async def find(self, *, prefix: str = "", after: str = "", limit: int = 50) -> list[Table]:
        """Tables whose ids begin with `prefix`, from behind `after` on."""
        return await self._store.run(
            lambda tx: self.part.find(tx, prefix=prefix, after=after, limit=limit)
        )

    async def pause(self, id_: str) -> Table:
        """Stop all clocks, begin no game and seat nobody, until `resume`."""
        return await self.run(id_, lambda tx: self.part.pause(tx, id_))

    async def resume(self, id_: str) -> Table:
        """Go on where it was paused."""
        return await self.run(id_, lambda tx: self.part.resume(tx, id_))

    async def close(self, id_: str) -> Table:
        """End it for everyone."""
        return await self.run(id_, lambda tx: self.part.close(tx, id_))

    # People.

    async def join(
        self, id_: str, user: str, *, lane: str = "", party: Sequence[str] = ()
    ) -> Place:
        """Take the first free seat, or stand in line."""
        return await self.run(
            id_, lambda tx: self.part.join(tx, id_, user, lane=lane, party=party), [user]
        )

    async def leave(self, id_: str, user: str) -> Place:
        """Get up, or out of the line."""
        return await self.run(id_, lambda tx: self.part.leave(tx, id_, user), [user])

    async def watch(self, id_: str, user: str) -> Place:
        """Be a spectator."""
        return await self.run(id_, lambda tx: self.part.watch(tx, id_, user), [user])

    async def ready(self, id_: str, user: str) -> Place:
        """Say that one is ready, or wants to play again."""
        return await self.run(id_, lambda tx: self.part.ready(tx, id_, user), [user])

    async def move(self, id_: str, user: str, move: Any, *, key: str = "") -> Any:
        """Let the referee judge a move; returns its answer."""
        return await self.run(id_, lambda tx: self.part.move(tx, id_, user, move, key=key), [user])

    async def turn(self, id_: str, users: Collection[str], *, keep: bool = False) -> None:
        """Say for whom the game waits."""
        await self.run(id_, lambda tx: self.part.turn(tx, id_, users, keep=keep))

    async def result(self, id_: str, winners: Sequence[str], *, game: int | None = None) -> Ending:
        """End the game that is on; without winners it is a draw."""
        return await self.run(id_, lambda tx: self.part.result(tx, id_, winners, game=game))

    async def draw(self, id_: str, *, game: int | None = None) -> Ending:
        """End the game that is on: nobody has won."""
        return await self.result(id_, (), game=game)

    async def away(self, id_: str, user: str) -> Place:
        """The connection is lost."""
        return await self.run(id_, lambda tx: self.part.away(tx, id_, user), [user])

    async def back(self, id_: str, user: str) -> Place:
        """The connection is there again."""
        return await self.run(id_, lambda tx: self.part.back(tx, id_, user), [user])

    async def heartbeat(self, id_: str, users: Collection[str]) -> None:
        """Signs of life of some who are at a table, with one commit."""

        async def fn(tx: UserTransaction) -> None:
            for user in users:
                await self.part.heartbeat(tx, id_, user)

        await self.run(id_, fn, users)

    async def place(self, id_: str, user: str) -> Place:
        """Where someone is at a table."""
        return await self._store.run(lambda tx: self.part.place(tx, id_, user))

    async def waitlist(
        self, id_: str, *, after: str = "", limit: int = 50, public: bool = False
    ) -> list[Waiter]:
        """Those who wait at a table, from behind a `waiter_key` on."""
        return await self._store.run(
            lambda tx: self.part.waitlist(tx, id_, after=after, limit=limit, public=public)
        )

    # Ratings.

    async def rating(self, ladder: str, user: str) -> Rating | None:
        """How well someone plays, or None if it is not known."""
        return await self._store.run(lambda tx: self.part.rating(tx, ladder, user))

    async def leaders(
        self, ladder: str, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> list[Leader]:
        """The best players, the best one first."""
        return await self._store.run(
            lambda tx: self.part.leaders(tx, ladder, limit=limit, after=after)
        )


def _admit_users(users: Collection[str]) -> None:
    if isinstance(users, str) or not isinstance(users, Collection):
        raise BadInput("users are told as a list of names")

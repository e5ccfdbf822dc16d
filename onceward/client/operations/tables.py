"""Client methods for tables, from `onceward.api.tables`. Written by `make generate`."""

import builtins
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from onceward.api import tables as api
from onceward.api.arguments import as_dict, as_list, as_struct
from onceward.client.operations.base import Operations


class TablesOperations(Operations):
    """Operations on tables: seats, waitlists, games and ratings."""

    async def create(
        self,
        *,
        id: str = "",
        policy: api.Policy | Mapping[str, Any] | None = None,
        game: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> api.Table:
        """Create a table.

        - `id`: The id of the table; by default, the server generates one.
        - `policy`: The rules that differ from the preset (`kind`).
        - `game`: The game of the referee. By default, a server ends the games.
        - `meta`: Metadata, shown with the table.

        Raises `BadInput` (bad_name, bad_policy, table_exists, no_game, value_too_large).
        """
        return await self._transport.run(
            api.CREATE,
            body=api.CreateTable(
                id=id,
                policy=as_struct("policy", policy, api.Policy) or {},
                game=game,
                meta=as_dict("meta", meta) or {},
            ),
        )

    async def list(
        self,
        *,
        prefix: str = "",
        game: str | UnsetType = UNSET,
        phase: api.Phase | UnsetType = UNSET,
        after: str = "",
        limit: int = 100,
    ) -> api.TablePage:
        """List tables.

        - `prefix`: The beginning of the ids.
        - `game`: The referee; empty: tables without one.
        - `phase`: The phase of the tables; by default, any.
        - `after`: The member `next` of the last page.
        - `limit`: The maximum number of entries in the response.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.LIST,
            query=api.TablesQuery(prefix=prefix, game=game, phase=phase, after=after, limit=limit),
        )

    async def iterate(
        self,
        *,
        prefix: str = "",
        game: str | UnsetType = UNSET,
        phase: api.Phase | UnsetType = UNSET,
        after: str = "",
        limit: int = 100,
    ) -> AsyncIterator[api.Table]:
        """Iterate over the entries of all pages of `list`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.list(prefix=prefix, game=game, phase=phase, after=after, limit=limit)
            for one in page.tables:
                yield one
            if page.next is None:
                return
            after = page.next

    async def get(self, id: str) -> api.Table:
        """Show a table.

        - `id`: The id of the table.

        Raises `NoSuchTable`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.GET, id)

    async def place(self, id: str, *, user: str = "") -> api.Place:
        """Show the place of a user, and the estimated wait.

        - `id`: The id of the table.
        - `user`: The user; by default, the caller. Other users take the scope `table`.

        Raises `NoSuchTable`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.PLACE, id, query=api.PlaceQuery(user=user))

    async def waitlist(self, id: str, *, after: str = "", limit: int = 100) -> api.WaitlistPage:
        """List the waitlist of a table.

        - `id`: The id of the table.
        - `after`: The member `next` of the last page.
        - `limit`: The maximum number of entries in the response.

        Raises `NoSuchTable`, `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.WAITLIST, id, query=api.WaitlistQuery(after=after, limit=limit)
        )

    async def iterate_waitlist(
        self, id: str, *, after: str = "", limit: int = 100
    ) -> AsyncIterator[api.Waiter]:
        """Iterate over the entries of all pages of `waitlist`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.waitlist(id, after=after, limit=limit)
            for one in page.waitlist:
                yield one
            if page.next is None:
                return
            after = page.next

    async def join(
        self, id: str, *, user: str = "", lane: str = "", party: Sequence[str] = ()
    ) -> api.Place:
        """Take a seat, or join the waitlist.

        Idempotent.

        - `id`: The id of the table.
        - `user`: The user; by default, the caller. Other users take the scope `table`.
        - `lane`: The lane; by default, the last one of the policy. Other lanes take the scope
          `lane`.
        - `party`: The users who join together with this one.

        Raises `NoSuchTable`, `Unavailable`, `BadInput` (bad_name, table_closed).
        """
        return await self._transport.run(
            api.JOIN, id, body=api.JoinTable(user=user, lane=lane, party=as_list("party", party))
        )

    async def leave(self, id: str, *, user: str = "") -> api.Place:
        """Leave a seat or the waitlist.

        Idempotent. A player who leaves a game loses it.

        - `id`: The id of the table.
        - `user`: The user; by default, the caller. Other users take the scope `table`.

        Raises `NoSuchTable`, `BadInput` (bad_name, table_closed).
        """
        return await self._transport.run(api.LEAVE, id, body=api.ForUser(user=user))

    async def watch(self, id: str, *, user: str = "") -> api.Place:
        """Watch a table as a spectator.

        - `id`: The id of the table.
        - `user`: The user; by default, the caller. Other users take the scope `table`.

        Raises `NoSuchTable`, `Unavailable`, `BadInput` (bad_name, table_closed).
        """
        return await self._transport.run(api.WATCH, id, body=api.ForUser(user=user))

    async def ready(self, id: str, *, user: str = "") -> api.Place:
        """Confirm readiness for a game or a rematch.

        - `id`: The id of the table.
        - `user`: The user; by default, the caller. Other users take the scope `table`.

        Raises `NoSuchTable`, `BadInput` (bad_name, table_closed, not_seated).
        """
        return await self._transport.run(api.READY, id, body=api.ForUser(user=user))

    async def heartbeat(self, id: str, *, user: str = "") -> api.TableActivity:
        """Record activity of a user.

        - `id`: The id of the table.
        - `user`: The user; by default, the caller. Other users take the scope `table`.

        Raises `NoSuchTable`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.HEARTBEAT, id, body=api.ForUser(user=user))

    async def move(self, id: str, *, user: str = "", move: Any = None, key: str = "") -> Any:
        """Make a move.

        - `id`: The id of the table.
        - `user`: The user; by default, the caller. Other users take the scope `table`.
        - `move`: The move, in the format of the game.
        - `key`: The idempotency key: a repeated request makes the move once.

        Raises `NoSuchTable`, `Unavailable`, `KeyReused`, `BadInput` (bad_name, table_closed,
        not_seated, no_game, not_your_turn, bad_move, out_of_time, bad_key).
        """
        return (
            await self._transport.run(
                api.MOVE, id, body=api.MakeMove(user=user, move=move, key=key)
            )
        ).answer

    async def result(
        self, id: str, *, winners: Sequence[str] = (), game: int | None = None
    ) -> api.Ending:
        """End the current game.

        - `id`: The id of the table.
        - `winners`: The winners; none: a draw.
        - `game`: The number of the game, so that a late or repeated request does not end another
          one. Without it, clients do not repeat the request after a lost response.

        Raises `NoSuchTable`, `BadInput` (bad_name, table_closed, not_seated, no_game, other_game).
        """
        return await self._transport.run(
            api.RESULT, id, body=api.GameResult(winners=as_list("winners", winners), game=game)
        )

    async def pause(self, id: str) -> api.Table:
        """Pause a table.

        All clocks stop, and no user is seated. Idempotent.

        - `id`: The id of the table.

        Raises `NoSuchTable`, `BadInput` (bad_name, table_closed).
        """
        return await self._transport.run(api.PAUSE, id)

    async def resume(self, id: str) -> api.Table:
        """Resume a table.

        Idempotent.

        - `id`: The id of the table.

        Raises `NoSuchTable`, `BadInput` (bad_name, table_closed).
        """
        return await self._transport.run(api.RESUME, id)

    async def close(self, id: str) -> api.Table:
        """Close a table.

        Idempotent.

        - `id`: The id of the table.

        Raises `NoSuchTable`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.CLOSE, id)

    async def leaders(
        self, ladder: str, *, limit: int = 100, rating: int | UnsetType = UNSET, user: str = ""
    ) -> builtins.list[api.Leader]:
        """List the best players of a ladder.

        - `ladder`: The name of the ladder.
        - `limit`: The maximum number of entries in the response.
        - `rating`: The rating of the last player of the last page.
        - `user`: The last player of the last page.

        Raises `BadInput` (bad_name).
        """
        return (
            await self._transport.run(
                api.LEADERS, ladder, query=api.LeadersQuery(limit=limit, rating=rating, user=user)
            )
        ).leaders

    async def rating(self, ladder: str, user: str) -> api.Rating | None:
        """Show the rating of a player.

        - `ladder`: The name of the ladder.
        - `user`: The id of the user.

        Raises `BadInput` (bad_name).
        """
        return (await self._transport.run(api.RATING, ladder, user)).rating

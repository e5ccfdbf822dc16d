"""Client methods for tables over HTTP; `Live.act` offers the same over WebSocket."""

from collections.abc import Mapping, Sequence
from typing import Any

from onceward.api import tables as api
from onceward.api.tables import Ending, Leader, Place, Rating, Table, Waiter
from onceward.client.rooms.live import Live
from onceward.client.standing import Standing
from onceward.client.transport import Course, Transport
from onceward.errors import BadInput, OncewardError, OutcomeUnknown


class TableCalls(Transport):
    """Tables of a server. Each raises `NoSuchTable` if there is no such table. Without `user` it
    is about whoever the key is of."""

    async def create_table(
        self,
        id_: str | None = None,
        *,
        policy: Mapping[str, Any] | None = None,
        game: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> Table:
        """Make a table; without an id one is made up. Raises `BadInput`, with the code
        `table_exists` if there is one of that id."""
        id_ = id_ or self.ids.new()
        asked = {"id": id_, "policy": policy or {}, "game": game, "meta": meta or {}}
        course = Course()
        try:
            return await self.run(api.CREATE, body=asked, course=course)
        except OncewardError as error:
            if error.code != "table_exists" or not course.lost:
                raise
            return await self.table(id_)  # this call has made it before

    async def table(self, id_: str) -> Table:
        """A table as it is."""
        return await self.run(api.GET, id_)

    async def tables(
        self,
        *,
        prefix: str = "",
        game: str = "",
        phase: str = "",
        after: str = "",
        limit: int = 100,
    ) -> tuple[list[Table], str | None]:
        """Tables in the order of their ids, maybe of one game or in one phase, and after which
        one the next ones come. A page may be short although there are more."""
        query = {"limit": limit, "prefix": prefix, "game": game, "phase": phase, "after": after}
        found = await self.run(api.LIST, query=_given(query))
        return found.tables, found.next

    async def join_table(
        self, id_: str, *, user: str = "", lane: str = "", party: Sequence[str] = ()
    ) -> Place:
        """Sit down, or stand in line; again is once. Raises `BadInput`: `table_full`,
        `table_closed`."""
        if isinstance(party, str) or not isinstance(party, Sequence):
            raise BadInput("a party is a list of names")
        body = _given({"user": user, "lane": lane, "party": list(party)})
        return await self.run(api.JOIN, id_, body=body)

    async def stand(self, id_: str, live: Live, *, user: str = "", lane: str = "") -> Standing:
        """Join a table and its room, and follow one's own place there, live. `live` is a
        connection of the same user."""
        room = await live.join(f"table:{id_}")
        user = user or live.user
        place = await self.join_table(id_, user=user, lane=lane)
        return Standing(self, room, place, self.clock, user)

    async def leave_table(self, id_: str, *, user: str = "") -> Place:
        """Get up, or out of the line; again is once. Who leaves a game has lost it."""
        return await self.run(api.LEAVE, id_, body=_given({"user": user}))

    async def watch_table(self, id_: str, *, user: str = "") -> Place:
        """Be a spectator."""
        return await self.run(api.WATCH, id_, body=_given({"user": user}))

    async def ready(self, id_: str, *, user: str = "") -> Place:
        """Say that one is ready, or wants to play again. Raises `not_seated`."""
        return await self.run(api.READY, id_, body=_given({"user": user}))

    async def place(self, id_: str, *, user: str = "") -> Place:
        """Where someone is: seat or position, and about how long it will take."""
        return await self.run(api.PLACE, id_, query=_given({"user": user}))

    async def waitlist(
        self, id_: str, *, after: str = "", limit: int = 100
    ) -> tuple[list[Waiter], str | None]:
        """Part of the waitlist of a table, and the cursor of the next part (`after`), or None.

        Lanes of higher priority come first. If the policy hides names, `users` is empty.
        """
        query = _given({"limit": limit, "after": after})
        found = await self.run(api.WAITLIST, id_, query=query)
        return found.waitlist, found.next

    async def alive(self, id_: str, *, user: str = "") -> None:
        """Give a sign of life, as those who wait must. Who is in the table's room does."""
        await self.run(api.HEARTBEAT, id_, body=_given({"user": user}))

    async def move(self, id_: str, move: Any, *, user: str = "", key: str = "") -> Any:
        """Make a move, once; returns what the referee answers. Raises `BadInput`: `not_seated`,
        `not_your_turn`, `no_game`, `table_paused`, and what the game refuses."""
        body = {**_given({"user": user}), "move": move, "key": key or self.ids.new()}
        return (await self.run(api.MOVE, id_, body=body)).answer

    async def end_game(self, id_: str, winners: Sequence[str], *, game: int) -> Ending:
        """End the game of that number; without winners it is a draw. Raises `BadInput`:
        `other_game`, `no_game`, `not_seated`; and `OutcomeUnknown` if an answer was lost, and
        the game is over now."""
        body = {"winners": list(winners), "game": game}
        course = Course()
        try:
            return await self.run(api.RESULT, id_, body=body, course=course)
        except OncewardError as error:
            if course.lost and error.code in ("other_game", "no_game"):
                raise OutcomeUnknown(f"game {game} is over, by this call or by another") from error
            raise

    async def pause_table(self, id_: str) -> Table:
        """Stop all clocks and seat nobody, until `resume_table`; twice is once."""
        return await self.run(api.PAUSE, id_)

    async def resume_table(self, id_: str) -> Table:
        """Go on; twice is once."""
        return await self.run(api.RESUME, id_)

    async def close_table(self, id_: str) -> Table:
        """End it for everyone; twice is once."""
        return await self.run(api.CLOSE, id_)

    async def leaders(
        self, ladder: str = "tables", *, limit: int = 100, after: Leader | None = None
    ) -> list[Leader]:
        """The best players, from behind one of them on."""
        query: dict[str, Any] = {"limit": limit}
        if after is not None:
            if not isinstance(after, Leader):
                raise BadInput(f"a list goes on behind a `Leader`, not {type(after).__name__}")
            query |= {"rating": after.rating, "user": after.user}
        return (await self.run(api.LEADERS, ladder, query=query)).leaders

    async def rating(self, user: str, ladder: str = "tables") -> Rating | None:
        """How well someone plays, or None if that is not known."""
        return (await self.run(api.RATING, ladder, user)).rating


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in ("", None, [])}

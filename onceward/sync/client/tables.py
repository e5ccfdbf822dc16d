"""Synchronous classes. Written by `make generate` from `onceward.client.tables`."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from onceward.api import tables as api
from onceward.client.tables import Tables as AsyncTables
from onceward.sync.bridge import Facade, target
from onceward.sync.client.live import Live
from onceward.sync.client.live_place import LivePlace


class Tables(Facade[AsyncTables]):
    """Operations on tables. `Live.act` has the same over WebSocket."""

    def follow(self, id: str, live: Live, *, user: str = "", lane: str = "") -> LivePlace:
        """Join a table and its room, and follow the place of a user there."""
        return LivePlace(
            self._portal,
            self._portal.run(self._target.follow(id, target(live), user=user, lane=lane)),
        )

    def create(
        self,
        *,
        id: str = "",
        policy: api.Policy | Mapping[str, Any] | None = None,
        game: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> api.Table:
        """Create a table."""
        return self._portal.run(self._target.create(id=id, policy=policy, game=game, meta=meta))

    def list(
        self,
        *,
        prefix: str = "",
        game: str | UnsetType = UNSET,
        phase: api.Phase | UnsetType = UNSET,
        after: str = "",
        limit: int = 100,
    ) -> api.TablePage:
        """List tables."""
        return self._portal.run(
            self._target.list(prefix=prefix, game=game, phase=phase, after=after, limit=limit)
        )

    def iterate(
        self,
        *,
        prefix: str = "",
        game: str | UnsetType = UNSET,
        phase: api.Phase | UnsetType = UNSET,
        after: str = "",
        limit: int = 100,
    ) -> Iterator[api.Table]:
        """Iterate over the entries of all pages of `list`."""
        return self._portal.iterate(
            self._target.iterate(prefix=prefix, game=game, phase=phase, after=after, limit=limit)
        )

    def get(self, id: str) -> api.Table:
        """Show a table."""
        return self._portal.run(self._target.get(id))

    def place(self, id: str, *, user: str = "") -> api.Place:
        """Show the place of a user, and the estimated wait."""
        return self._portal.run(self._target.place(id, user=user))

    def waitlist(self, id: str, *, after: str = "", limit: int = 100) -> api.WaitlistPage:
        """List the waitlist of a table."""
        return self._portal.run(self._target.waitlist(id, after=after, limit=limit))

    def iterate_waitlist(
        self, id: str, *, after: str = "", limit: int = 100
    ) -> Iterator[api.Waiter]:
        """Iterate over the entries of all pages of `waitlist`."""
        return self._portal.iterate(self._target.iterate_waitlist(id, after=after, limit=limit))

    def join(
        self, id: str, *, user: str = "", lane: str = "", party: Sequence[str] = ()
    ) -> api.Place:
        """Take a seat, or join the waitlist."""
        return self._portal.run(self._target.join(id, user=user, lane=lane, party=party))

    def leave(self, id: str, *, user: str = "") -> api.Place:
        """Leave a seat or the waitlist."""
        return self._portal.run(self._target.leave(id, user=user))

    def watch(self, id: str, *, user: str = "") -> api.Place:
        """Watch a table as a spectator."""
        return self._portal.run(self._target.watch(id, user=user))

    def ready(self, id: str, *, user: str = "") -> api.Place:
        """Confirm readiness for a game or a rematch."""
        return self._portal.run(self._target.ready(id, user=user))

    def heartbeat(self, id: str, *, user: str = "") -> api.TableActivity:
        """Record activity of a user."""
        return self._portal.run(self._target.heartbeat(id, user=user))

    def move(self, id: str, *, user: str = "", move: Any = None, key: str = "") -> Any:
        """Make a move."""
        return self._portal.run(self._target.move(id, user=user, move=move, key=key))

    def result(
        self, id: str, *, winners: Sequence[str] = (), game: int | None = None
    ) -> api.Ending:
        """End the current game."""
        return self._portal.run(self._target.result(id, winners=winners, game=game))

    def pause(self, id: str) -> api.Table:
        """Pause a table."""
        return self._portal.run(self._target.pause(id))

    def resume(self, id: str) -> api.Table:
        """Resume a table."""
        return self._portal.run(self._target.resume(id))

    def close(self, id: str) -> api.Table:
        """Close a table."""
        return self._portal.run(self._target.close(id))

    def leaders(
        self, ladder: str, *, limit: int = 100, rating: int | UnsetType = UNSET, user: str = ""
    ) -> builtins.list[api.Leader]:
        """List the best players of a ladder."""
        return self._portal.run(self._target.leaders(ladder, limit=limit, rating=rating, user=user))

    def rating(self, ladder: str, user: str) -> api.Rating | None:
        """Show the rating of a player."""
        return self._portal.run(self._target.rating(ladder, user))

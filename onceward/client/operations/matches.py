"""Client methods for matches, from `onceward.api.matches`. Written by `make generate`."""

from typing import Any

from onceward.api import matches as api
from onceward.client.operations.base import Operations


class MatchesOperations(Operations):
    """Operations on matches: the view of each player, and the log."""

    async def get(self, id: str) -> api.MatchView:
        """Show a match as the caller sees it.

        - `id`: The id of the match.

        Raises `NoSuchMatch`, `BadInput` (no_such_game).
        """
        return await self._transport.run(api.GET, id)

    async def log(self, id: str) -> list[dict[str, Any]]:
        """Show the log of a finished match.

        - `id`: The id of the match.

        Raises `NoSuchMatch`, `BadInput` (match_on, no_such_game).
        """
        return (await self._transport.run(api.LOG, id)).entries

    async def replay(self, id: str) -> list[api.MatchView]:
        """Replay a finished match move by move.

        - `id`: The id of the match.

        Raises `NoSuchMatch`, `BadInput` (match_on, no_such_game).
        """
        return (await self._transport.run(api.REPLAY, id)).views

"""Client methods for matches."""

from typing import Any

from onceward.api import matches as api
from onceward.api.matches import MatchView
from onceward.client.transport import Transport


class MatchCalls(Transport):
    """Matches of a server. Each raises `NoSuchMatch` if there is no such match."""

    async def match(self, id_: str) -> MatchView:
        """A match as it stands, with the caller's own secrets."""
        return await self.run(api.GET, id_)

    async def match_log(self, id_: str) -> list[dict[str, Any]]:
        """The entries of the log of a finished match. Raises `match_on`."""
        return (await self.run(api.LOG, id_)).entries

    async def match_replay(self, id_: str) -> list[MatchView]:
        """A finished match, move by move. Raises `match_on`."""
        return (await self.run(api.REPLAY, id_)).views

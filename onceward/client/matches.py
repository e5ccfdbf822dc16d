"""The calls of the API that are about matches."""

from typing import Any

import msgspec

from onceward.client.transport import Transport


class Result(msgspec.Struct, frozen=True):
    """How a match has ended."""

    winners: tuple[str, ...] = ()
    """Seats; none: a draw."""
    why: str = ""


class MatchView(msgspec.Struct):
    """A match as whoever asks may see it."""

    match: str
    game: str
    players: dict[str, str]
    number: int
    state: Any
    awaited: list[str]
    moves: list[Any]
    """What one may do now."""
    mine: Any = None
    """One's own move of this round, while it is hidden from others."""
    due_ms: int | None = None
    outcome: Result | None = None
    seat: str | None = None


class _Log(msgspec.Struct):
    entries: list[dict[str, Any]]


class _Replay(msgspec.Struct):
    views: list[MatchView]


class MatchCalls(Transport):
    """Matches of a server. Each raises `NoSuchMatch` if there is no such match."""

    async def match(self, id_: str) -> MatchView:
        """A match as it stands, with one's own secrets and nobody else's."""
        return await self.call("GET", "v1", "matches", id_, type=MatchView)

    async def match_log(self, id_: str) -> list[dict[str, Any]]:
        """What has happened in a match that is over. Raises `match_on`."""
        return (await self.call("GET", "v1", "matches", id_, "log", type=_Log)).entries

    async def match_replay(self, id_: str) -> list[MatchView]:
        """A match that is over, move by move. Raises `match_on`."""
        return (await self.call("GET", "v1", "matches", id_, "replay", type=_Replay)).views

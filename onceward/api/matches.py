"""Operations on matches: the view of each player, and the log."""

from typing import Any

import msgspec

from onceward.api.operation import Operation


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a game."""

    winners: tuple[str, ...] = ()
    """The seats that won; empty: a draw."""
    why: str = ""
    """`timeout`, `left`, `stopped` (the game does not count) or `told` (set by a server). Empty if
    the rules ended the game."""


class MatchView(msgspec.Struct):
    """A match as one viewer sees it, without the secrets of others."""

    match: str
    game: str
    players: dict[str, str]
    """The users by seat."""
    number: int
    """The number of the round, from 0."""
    state: Any
    awaited: list[str]
    """The seats that have to move."""
    moves: list[Any]
    """The legal moves of the viewer."""
    mine: Any
    """The viewer's move of this round, while it is hidden from others."""
    due_ms: int | None
    """When the time for this round is over."""
    outcome: Outcome | None
    """None while the match is in progress."""
    seat: str | None
    """The seat of the viewer; None for spectators."""


class MatchBegun(msgspec.Struct, frozen=True, omit_defaults=True, tag="begun"):
    """The start of a match."""

    id: str
    game: str
    players: dict[str, str]
    """The users by seat."""
    seed: str
    at_ms: int
    turn_ms: int | None = None
    place: str = ""
    """The table of the match."""


class MatchMoved(msgspec.Struct, frozen=True, omit_defaults=True, tag="moved"):
    """A legal move."""

    seat: str
    move: Any
    at_ms: int


class MatchLate(msgspec.Struct, frozen=True, omit_defaults=True, tag="late"):
    """A timeout of a round."""

    at_ms: int
    seats: tuple[str, ...] = ()
    """The seats that lost by it; empty: all that had to move."""


class MatchLeft(msgspec.Struct, frozen=True, omit_defaults=True, tag="left"):
    """A player gave up, or was disconnected for too long."""

    seat: str
    at_ms: int
    others: tuple[str, ...] = ()
    """The seats that left at the same time."""


class MatchStopped(msgspec.Struct, frozen=True, omit_defaults=True, tag="stopped"):
    """A server ended the match."""

    at_ms: int
    winners: tuple[str, ...] | None = None
    """The winners as the server set them; None: the match does not count."""


MatchEntry = MatchBegun | MatchMoved | MatchLate | MatchLeft | MatchStopped


class MatchLog(msgspec.Struct):
    """The events of a match, from its start to its end."""

    match: str
    entries: list[dict[str, Any]]
    """Each has a member `type`. `begun`: `id`, `game`, `players` (the users by seat), `seed`,
    `at_ms`, `turn_ms`, `place`. `moved`: `seat`, `move`, `at_ms`. `late`, a timeout: `seats` (those
    that lost by it; none: all that had to move), `at_ms`. `left`: `seat`, `others` (seats that left
    at the same time), `at_ms`. `stopped`, by a server: `winners` (none: the match does not count),
    `at_ms`."""


class MatchReplay(msgspec.Struct):
    """The views of spectators, one for the start and one for each later event."""

    match: str
    views: list[MatchView]


_SCOPE = "play:{table of the match} | table:{table of the match} | a player of the match"
_OVER = ("no_such_match", "match_on", "no_such_game")

GET = Operation(
    name="matches.get",
    method="GET",
    path="/v1/matches/{id}",
    summary="Show a match as the caller sees it",
    scope=_SCOPE,
    response=MatchView,
    errors=("no_such_match", "no_such_game"),
)

LOG = Operation(
    name="matches.log",
    method="GET",
    path="/v1/matches/{id}/log",
    summary="Show the log of a finished match",
    scope=_SCOPE,
    response=MatchLog,
    errors=_OVER,
    returns="entries",
)

REPLAY = Operation(
    name="matches.replay",
    method="GET",
    path="/v1/matches/{id}/replay",
    summary="Replay a finished match move by move",
    scope=_SCOPE,
    response=MatchReplay,
    errors=_OVER,
    returns="views",
)

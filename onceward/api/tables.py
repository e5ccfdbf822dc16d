"""Operations on tables: seats, waitlists, games and ratings.

Users act for themselves with the scope `play`, and join a lane of higher priority with the scope
`lane`. To act for other users, to end games, and to create, pause and close tables takes the
scope `table`, so no player can report a result.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onceward import limits
from onceward.api.operation import Body, Operation, Query

Kind = Literal["classic", "speed", "ranked"]
Draw = Literal["swap", "stay", "back"]
Then = Literal["back", "leave"]
Phase = Literal["waiting", "ready", "playing", "closed"]
Role = Literal["", "seated", "waiting", "watching"]
Reason = Literal["result", "left", "idle", "lost", "void"]

Limit = Annotated[int, Meta(ge=1, le=limits.LIST_MAX)]


class PolicyView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of a table, as responses have them. Times are in milliseconds; 0: no such rule."""

    kind: str = "classic"
    """The preset that the other rules start from: `classic`, `speed` or `ranked`."""
    seats: tuple[str, ...] = ("X", "O")
    """The markers. A user gets the first free one."""
    max_wins: int = 5
    """The number of wins in a row after which the winner goes to the end of the waitlist."""
    draw: str = "swap"
    """After a draw, `swap`: all stay and swap markers; `stay`: all stay; `back`: all go to the
    end of the waitlist, if anyone waits."""
    max_draws: int = 0
    """The number of draws in a row after which all go to the end of the waitlist."""
    loser: str = "back"
    """Where the loser goes, if anyone waits: to the end of the waitlist (`back`), or away
    (`leave`)."""
    idle: str = "back"
    """Where a player whose time ran out goes: `back` or `leave`."""
    lanes: tuple[str, ...] = ("main",)
    """The lanes of the waitlist by priority, the highest first. The last one is the default."""
    tiers: tuple[int, ...] = ()
    """Ratings at which a new tier begins. Each tier has its own waitlist; users of different tiers
    play each other after they have waited long enough."""
    widen_ms: int = 30_000
    """The waiting time after which one more tier in each direction becomes eligible."""
    rated: bool = False
    """Whether results change the ratings of the players."""
    ladder: str = ""
    """The ladder of the ratings, shared by all tables that name it; empty: the name of the game."""
    rating_first: int = 1_200
    """The first rating of a player."""
    rating_step: int = 32
    """The K-factor of the Elo formula: the most that one game changes a rating by."""
    party_max: int = 1
    """The maximum size of a party. Its members are seated together or not at all."""
    turn_ms: int = 60_000
    """The time for a move. A player who exceeds it loses the game."""
    idle_ms: int = 120_000
    """The time for any action, in games without turns."""
    warn_ms: int = 15_000
    """The time between the warning and the end of a player's time."""
    grace_ms: int = 30_000
    """How long a seat is kept without a connection."""
    waiting_ms: int = 300_000
    """The time after which waiters and spectators without activity are removed."""
    ready_ms: int = 0
    """The time to confirm readiness before a game."""
    rematch_ms: int = 0
    """The time to confirm readiness before a rematch."""
    break_ms: int = 0
    """The pause between two games."""
    bot_ms: int = 0
    """The time after which a bot takes an empty seat, if a user is seated."""
    bots: tuple[str, ...] = ("bot",)
    """The names of bots. The first one that is not at the table is used."""
    waitlist_max: int = limits.SEATS_WAITLIST_MAX
    """The maximum length of the waitlist."""
    waitlist_names: bool = True
    """Whether players see the names of waiters, or only positions."""
    spectators_max: int = 10_000
    """The maximum number of spectators."""
    opens: bool = False
    """Whether it is a pool: new tables are opened for its waiters, and it has no players."""
    ends_empty: bool = False
    """Whether the table closes when its last player leaves, as tables of a pool do."""
    game_ms: int = 60_000
    """The expected length of a game, for the first estimates of a wait."""


class Policy(PolicyView, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The rules of a table. Times are in milliseconds; 0 disables a rule."""

    kind: Kind = "classic"
    """The preset that the other rules start from."""
    draw: Draw = "swap"
    """After a draw, `swap`: all stay and swap markers; `stay`: all stay; `back`: all go to the
    end of the waitlist, if anyone waits."""
    loser: Then = "back"
    """Where the loser goes, if anyone waits: to the end of the waitlist, or away."""
    idle: Then = "back"
    """The same for a player whose time ran out."""


class Seat(msgspec.Struct, omit_defaults=True):
    """A taken seat."""

    user: str
    since_ms: int
    lane: str = ""
    """The lane that the user chose, to return to."""
    tier: int = 0
    wins: int = 0
    """The number of wins in a row."""
    bot: bool = False
    ready: bool = False
    turn: bool = False
    """Whether the game waits for this player."""
    due_ms: int = 0
    """The deadline of the player; 0: none."""
    warned: bool = False
    away_ms: int = 0
    """How long the seat is kept while the player is disconnected; 0: the player is connected."""
    party: int = 0
    """The number of the party, the same for its members."""
    idle: int = 0
    """The number of games in a row that the player lost on time, without any action since."""


class Table(msgspec.Struct, omit_defaults=True):
    """A table: its seats, its policy, and the size of its waitlist."""

    id: str
    phase: str
    """`waiting`, `ready`, `playing` or `closed`."""
    number: int
    """The number of the current or last game."""
    seats: dict[str, Seat | None]
    """The seats by marker, in the order of the policy; None: empty."""
    waiting: int
    """The number of users in the waitlist."""
    spectators: int
    policy: PolicyView
    game: str = ""
    """The referee; empty: a server ends the games."""
    created_ms: int = 0
    began_ms: int = 0
    paused: bool = False
    paused_why: str = ""
    """Why the table paused by itself; empty: it did not."""
    pace_ms: int = 0
    """The recent time between two seated waiters; 0: unknown."""
    lanes: dict[str, int] = {}
    """The number of taken places in each lane that is not empty."""
    by: str = ""
    """The user who created it."""
    meta: dict[str, Any] = {}
    pool: str = ""
    """The table that opened this one."""

    def marker_of(self, user: str) -> str | None:
        """The marker of a seated user, or None."""
        for marker, seat in self.seats.items():
            if seat is not None and seat.user == user:
                return marker
        return None

    @property
    def players(self) -> dict[str, str]:
        """The seated users by marker."""
        return {marker: seat.user for marker, seat in self.seats.items() if seat is not None}


class TablePage(msgspec.Struct):
    """Tables in the order of their ids."""

    tables: list[Table]
    next: str | None
    """The cursor of the next page (`after`); None on the last page."""


class Place(msgspec.Struct, omit_defaults=True):
    """The place of a user at a table: a seat, or a position in the waitlist."""

    table: str
    user: str
    role: str
    """`seated`, `waiting` or `watching`; empty: the user is not at the table."""
    phase: str
    """`waiting`, `ready`, `playing` or `closed`."""
    game: int = 0
    """The number of the current or last game."""
    marker: str = ""
    lane: str = ""
    """The key of the lane in the live view."""
    number: int = 0
    """The number of the waiter in the lane. It does not change; when a waiter with a lower number
    leaves, the position decreases by one."""
    position: int = 0
    """The position in the lane, from 1."""
    went: int = 0
    """How many waiters had left the lane by then. Add those that leave the live view later."""
    ahead: int = 0
    """The number of users to be seated before this one."""
    waiting: int = 0
    """The number of users in the waitlist."""
    wait_ms: int = 0
    """The estimated wait."""
    opened: str = ""
    """The table that was opened for the user."""


class Waiter(msgspec.Struct, omit_defaults=True):
    """An entry of a waitlist: one user or a party."""

    lane: str
    """The key of the lane in the live view."""
    number: int
    position: int
    """The position in the lane, from 1."""
    since_ms: int
    size: int = 1
    """The number of users."""
    users: tuple[str, ...] = ()
    """The names of the users; empty if the policy hides them."""


class WaitlistPage(msgspec.Struct):
    """A part of a waitlist, lane by lane."""

    table: str
    waitlist: list[Waiter]
    next: str | None
    """The cursor of the next page (`after`); None on the last page."""


class Ending(msgspec.Struct, omit_defaults=True):
    """The end of a game."""

    number: int
    players: dict[str, str]
    """The users by marker."""
    winners: tuple[str, ...]
    """The users who won; empty: a draw, or the game does not count."""
    reason: str
    """`result`, `left`, `idle`, `lost` or `void`."""
    ratings: dict[str, int] = {}
    """The new ratings, if the table is rated."""


class MoveAnswer(msgspec.Struct):
    """The answer of the referee to a move."""

    answer: Any


class TableActivity(msgspec.Struct):
    """Recorded activity of a user."""

    table: str
    user: str


class Rating(msgspec.Struct, omit_defaults=True):
    """The rating of a player, and the games that it comes from."""

    rating: int
    games: int = 0
    won: int = 0
    drawn: int = 0
    at_ms: int = 0


class PlayerRating(msgspec.Struct):
    """The rating of one player on a ladder."""

    ladder: str
    user: str
    rating: Rating | None
    """None: the player has none."""


class Leader(msgspec.Struct, omit_defaults=True):
    """A player on a ladder."""

    user: str
    rating: int
    games: int = 0
    won: int = 0
    drawn: int = 0


class Leaders(msgspec.Struct):
    """Players by rating, the highest first."""

    ladder: str
    leaders: list[Leader]


# Requests.


class CreateTable(Body):
    """A table to create."""

    id: str = ""
    """The id of the table; by default, the server generates one."""
    policy: Annotated[dict[str, Any], Meta(extra={"struct": Policy})] = msgspec.field(
        default_factory=dict
    )
    """The rules that differ from the preset (`kind`)."""
    game: str = ""
    """The game of the referee. By default, a server ends the games."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    """Metadata, shown with the table."""


class ForUser(Body):
    """The user to act for."""

    user: str = ""
    """The user; by default, the caller. Other users take the scope `table`."""


class JoinTable(ForUser):
    """The lane and the party of a user who joins."""

    lane: str = ""
    """The lane; by default, the last one of the policy. Other lanes take the scope `lane`."""
    party: list[str] = msgspec.field(default_factory=list)
    """The users who join together with this one."""


class MakeMove(ForUser):
    """A move, in the format of the game."""

    move: Any = None
    """The move, in the format of the game."""
    key: str = ""
    """The idempotency key: a repeated request makes the move once."""


class GameResult(Body):
    """The result of a game."""

    winners: list[str] = msgspec.field(default_factory=list)
    """The winners; none: a draw."""
    game: Annotated[int, Meta(ge=0)] | None = None
    """The number of the game, so that a late or repeated request does not end another one. Without
    it, clients do not repeat the request after a lost response."""


class TablesQuery(Query):
    """Which tables to list."""

    prefix: str = ""
    """The beginning of the ids."""
    game: str | UnsetType = UNSET
    """The referee; empty: tables without one."""
    phase: Phase | UnsetType = UNSET
    """The phase of the tables; by default, any."""
    after: str = ""
    """The member `next` of the last page."""
    limit: Limit = 100
    """The maximum number of entries in the response."""


class PlaceQuery(Query):
    """Whose place to show."""

    user: str = ""
    """The user; by default, the caller. Other users take the scope `table`."""


class WaitlistQuery(Query):
    """Which part of a waitlist to list."""

    after: str = ""
    """The member `next` of the last page."""
    limit: Limit = 100
    """The maximum number of entries in the response."""


class LeadersQuery(Query):
    """Which players to list: those after the player `user` with the rating `rating`."""

    limit: Limit = 100
    """The maximum number of entries in the response."""
    rating: Annotated[int, Meta(ge=0, le=limits.SEATS_RATING_MAX)] | UnsetType = UNSET
    """The rating of the last player of the last page."""
    user: str = ""
    """The last player of the last page."""


_TABLE = ("no_such_table", "bad_name")
_OPEN = (*_TABLE, "table_closed")
_SEATED = (*_OPEN, "not_seated")

CREATE = Operation(
    name="tables.create",
    method="POST",
    path="/v1/tables",
    summary="Create a table",
    scope="table:{id of the table}",
    body=CreateTable,
    body_optional=True,
    response=Table,
    errors=("bad_name", "bad_policy", "table_exists", "no_game", "value_too_large"),
    done_errors=("table_exists",),
    fills=("id",),
)

LIST = Operation(
    name="tables.list",
    method="GET",
    path="/v1/tables",
    summary="List tables",
    scope="play:{each table}",
    query=TablesQuery,
    response=TablePage,
    errors=("bad_name",),
)

GET = Operation(
    name="tables.get",
    method="GET",
    path="/v1/tables/{id}",
    summary="Show a table",
    scope="play:{id}",
    response=Table,
    errors=_TABLE,
)

PLACE = Operation(
    name="tables.place",
    method="GET",
    path="/v1/tables/{id}/place",
    summary="Show the place of a user, and the estimated wait",
    scope="play:{id}",
    query=PlaceQuery,
    response=Place,
    errors=_TABLE,
)

WAITLIST = Operation(
    name="tables.waitlist",
    method="GET",
    path="/v1/tables/{id}/waitlist",
    summary="List the waitlist of a table",
    scope="play:{id}",
    query=WaitlistQuery,
    response=WaitlistPage,
    errors=_TABLE,
)

JOIN = Operation(
    name="tables.join",
    method="POST",
    path="/v1/tables/{id}/join",
    summary="Take a seat, or join the waitlist",
    description="Idempotent.",
    scope="play:{id}",
    body=JoinTable,
    body_optional=True,
    response=Place,
    errors=(*_OPEN, "table_full"),
)

LEAVE = Operation(
    name="tables.leave",
    method="POST",
    path="/v1/tables/{id}/leave",
    summary="Leave a seat or the waitlist",
    description="Idempotent. A player who leaves a game loses it.",
    scope="play:{id}",
    body=ForUser,
    body_optional=True,
    response=Place,
    errors=_OPEN,
)

WATCH = Operation(
    name="tables.watch",
    method="POST",
    path="/v1/tables/{id}/watch",
    summary="Watch a table as a spectator",
    scope="play:{id}",
    body=ForUser,
    body_optional=True,
    response=Place,
    errors=(*_OPEN, "table_full"),
)

READY = Operation(
    name="tables.ready",
    method="POST",
    path="/v1/tables/{id}/ready",
    summary="Confirm readiness for a game or a rematch",
    scope="play:{id}",
    body=ForUser,
    body_optional=True,
    response=Place,
    errors=_SEATED,
)

HEARTBEAT = Operation(
    name="tables.heartbeat",
    method="POST",
    path="/v1/tables/{id}/heartbeat",
    summary="Record activity of a user",
    scope="play:{id}",
    body=ForUser,
    body_optional=True,
    response=TableActivity,
    errors=_TABLE,
)

MOVE = Operation(
    name="tables.move",
    method="POST",
    path="/v1/tables/{id}/move",
    summary="Make a move",
    scope="play:{id}",
    body=MakeMove,
    body_optional=True,
    response=MoveAnswer,
    errors=(
        *(*_SEATED, "no_game", "not_your_turn", "bad_move", "out_of_time", "table_paused"),
        *("bad_key", "key_reused"),
    ),
    fills=("key",),
    returns="answer",
)

RESULT = Operation(
    name="tables.result",
    method="POST",
    path="/v1/tables/{id}/result",
    summary="End the current game",
    scope="table:{id}",
    body=GameResult,
    body_optional=True,
    response=Ending,
    errors=(*_SEATED, "no_game", "other_game"),
    unknown_errors=("other_game", "no_game"),
    repeats_with="game",
)

PAUSE = Operation(
    name="tables.pause",
    method="POST",
    path="/v1/tables/{id}/pause",
    summary="Pause a table",
    description="All clocks stop, and no user is seated. Idempotent.",
    scope="table:{id}",
    response=Table,
    errors=_OPEN,
)

RESUME = Operation(
    name="tables.resume",
    method="POST",
    path="/v1/tables/{id}/resume",
    summary="Resume a table",
    description="Idempotent.",
    scope="table:{id}",
    response=Table,
    errors=_OPEN,
)

CLOSE = Operation(
    name="tables.close",
    method="POST",
    path="/v1/tables/{id}/close",
    summary="Close a table",
    description="Idempotent.",
    scope="table:{id}",
    response=Table,
    errors=_TABLE,
)

LEADERS = Operation(
    name="tables.leaders",
    method="GET",
    path="/v1/ladders/{ladder}",
    summary="List the best players of a ladder",
    query=LeadersQuery,
    response=Leaders,
    errors=("bad_name",),
    returns="leaders",
)

RATING = Operation(
    name="tables.rating",
    method="GET",
    path="/v1/ladders/{ladder}/{user}",
    summary="Show the rating of a player",
    response=PlayerRating,
    errors=("bad_name",),
    returns="rating",
)

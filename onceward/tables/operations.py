"""What can be asked for at tables, over HTTP and over WebSocket: the same, with the same bodies.

People act for themselves, with the scope `play`, and wait in a lane of higher priority with the
scope `lane` for it. To act for someone else, to say who has won, and to make, pause and close
tables takes the scope `table`: so no client says who has lost.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.errors import BadInput, OncewardError
from onceward.observe.paging import page_of
from onceward.rooms.frames import Act as ActFrame
from onceward.rooms.session import Visitor
from onceward.strict_json import parse
from onceward.tables import Ending, Leader, Place, Rating, Table, Waiter, waiter_key
from onceward.tables.records import admit_table
from onceward.tables.server import Tables


class Body(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The base of what comes with a request."""


class NewTable(Body):
    """A table to be made."""

    id: str = ""
    """Empty: the server makes one up."""
    policy: dict[str, Any] = {}
    """The rules that are not as the kind of table says."""
    game: str = ""
    """Who judges; empty: a server tells the results."""
    meta: dict[str, Any] = {}


class ByWhom(Body):
    """Who it is about."""

    user: str = ""
    """Empty: whoever asks."""


class JoinTable(ByWhom):
    """Sit down, or stand in line."""

    lane: str = ""
    party: list[str] = []
    """Those who come along."""


class MoveAt(ByWhom):
    """A move, as the game wants it."""

    move: Any = None
    key: str = ""
    """The same one again is made once."""


class GameResult(Body):
    """How a game has ended."""

    winners: list[str] = []
    """Nobody: a draw."""
    game: Annotated[int, Meta(ge=0)] | None = None
    """Its number: another one is not ended by mistake."""


class TableList(Body):
    """Which tables to list."""

    prefix: str = ""
    game: str | None = None
    phase: Literal["waiting", "ready", "playing", "closed"] | None = None
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 100


class WaitlistQuery(Body):
    """Which part of a waitlist."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 100


class LeaderList(Body):
    """Which players to list."""

    ladder: str = "tables"
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 100
    rating: Annotated[int, Meta(ge=0, le=limits.SEATS_RATING_MAX)] | None = None
    """With `user`: from behind that one on."""
    user: str = ""


class OnLadder(Body):
    """Whose rating."""

    ladder: str = "tables"
    user: str = ""


class Nothing(Body):
    """Nothing has to be said."""


# What is answered.


class TablePage(msgspec.Struct):
    """Tables in the order of their ids."""

    tables: list[Table]
    next: str | None
    """For the parameter after of the next request; None: there are no more."""


class WaitlistPage(msgspec.Struct):
    """Those who wait, lane by lane."""

    table: str
    waitlist: list[Waiter]
    next: str | None
    """For the parameter after of the next request; None: there are no more."""


class Leaders(msgspec.Struct):
    """Players, the best one first."""

    ladder: str
    leaders: list[Leader]


class RatingView(msgspec.Struct):
    """How well someone plays."""

    ladder: str
    user: str
    rating: Rating | None
    """None: nothing is known."""


class Moved(msgspec.Struct):
    """A move was made."""

    answer: Any


class Alive(msgspec.Struct):
    """A sign of life was taken."""

    table: str
    user: str


Do = Callable[[Tables, Visitor, str, Any], Awaitable[Any]]


class TableOperation(NamedTuple):
    """One thing that can be asked for."""

    takes: type[Body]
    gives: Any
    do: Do


def may_play(visitor: Visitor, table: str) -> bool:
    return visitor.may("play", table) or visitor.may("table", table)


def insist_on(visitor: Visitor, action: str, table: str) -> None:
    """Raise `not_allowed` if someone may not play at a table, or manage it."""
    if not (may_play(visitor, table) if action == "play" else visitor.may("table", table)):
        raise OncewardError(
            f"{visitor.name!r} lacks the scope {action}:{table[:100]}", code="not_allowed"
        )


def _insist_on_lane(visitor: Visitor, table: str, lane: str) -> None:
    """Raise `not_allowed` for a lane of higher priority than one's own. The name of a lane has no
    slash, so the last one divides it from the table."""
    name = f"{table}/{lane}"
    if not (visitor.may("lane", name) or visitor.may("table", table)):
        raise OncewardError(
            f"{visitor.name!r} lacks the scope lane:{name[:200]}", code="not_allowed"
        )


def actor(visitor: Visitor, table: str, user: str) -> str:
    """Who acts. Raises `not_allowed` for who may not, or not for that one."""
    insist_on(visitor, "play" if user in ("", visitor.user) else "table", table)
    return user or visitor.user


async def create(tables: Tables, visitor: Visitor, table: str, asked: NewTable) -> Table:
    id_ = asked.id or tables.new_id()
    admit_table(id_)
    insist_on(visitor, "table", id_)
    return await tables.create(
        id_, policy=asked.policy, game=asked.game, by=visitor.user, meta=asked.meta
    )


async def list_(tables: Tables, visitor: Visitor, table: str, asked: TableList) -> TablePage:
    async def read(after: str, most: int) -> list[tuple[str, Table]]:
        found = await tables.find(prefix=asked.prefix, after=after, most=most)
        return [(one.id, one) for one in found]

    return TablePage(
        *await page_of(
            tables.clock,
            read,
            lambda one: may_play(visitor, one.id),
            lambda one: asked.game in (None, one.game) and asked.phase in (None, one.phase),
            after=asked.after,
            limit=asked.limit,
        )
    )


async def get(tables: Tables, visitor: Visitor, table: str, asked: Nothing) -> Table:
    insist_on(visitor, "play", table)
    return await tables.get(table)


async def join(tables: Tables, visitor: Visitor, table: str, asked: JoinTable) -> Place:
    user = actor(visitor, table, asked.user)
    if asked.party:
        insist_on(visitor, "table", table)  # who brings others speaks for them
    elif asked.lane and asked.lane != (await tables.get(table)).policy.lanes[-1]:
        _insist_on_lane(visitor, table, asked.lane)
    return await tables.join(table, user, lane=asked.lane, party=asked.party)


async def leave(tables: Tables, visitor: Visitor, table: str, asked: ByWhom) -> Place:
    return await tables.leave(table, actor(visitor, table, asked.user))


async def watch(tables: Tables, visitor: Visitor, table: str, asked: ByWhom) -> Place:
    return await tables.watch(table, actor(visitor, table, asked.user))


async def ready(tables: Tables, visitor: Visitor, table: str, asked: ByWhom) -> Place:
    return await tables.ready(table, actor(visitor, table, asked.user))


async def place(tables: Tables, visitor: Visitor, table: str, asked: ByWhom) -> Place:
    return await tables.place(table, actor(visitor, table, asked.user))


async def waitlist(
    tables: Tables, visitor: Visitor, table: str, asked: WaitlistQuery
) -> WaitlistPage:
    insist_on(visitor, "play", table)
    public = not visitor.may("table", table)
    found = await tables.waitlist(table, after=asked.after, most=asked.limit, public=public)
    return WaitlistPage(table, found, waiter_key(found[-1]) if len(found) == asked.limit else None)


async def alive(tables: Tables, visitor: Visitor, table: str, asked: ByWhom) -> Alive:
    user = actor(visitor, table, asked.user)
    await tables.alive(table, [user])
    return Alive(table, user)


async def move(tables: Tables, visitor: Visitor, table: str, asked: MoveAt) -> Moved:
    user = actor(visitor, table, asked.user)
    return Moved(await tables.move(table, user, asked.move, key=asked.key))


async def result(tables: Tables, visitor: Visitor, table: str, asked: GameResult) -> Ending:
    insist_on(visitor, "table", table)
    return await tables.result(table, asked.winners, game=asked.game)


async def pause(tables: Tables, visitor: Visitor, table: str, asked: Nothing) -> Table:
    insist_on(visitor, "table", table)
    return await tables.pause(table)


async def resume(tables: Tables, visitor: Visitor, table: str, asked: Nothing) -> Table:
    insist_on(visitor, "table", table)
    return await tables.resume(table)


async def close(tables: Tables, visitor: Visitor, table: str, asked: Nothing) -> Table:
    insist_on(visitor, "table", table)
    return await tables.close(table)


async def leaders(tables: Tables, visitor: Visitor, table: str, asked: LeaderList) -> Leaders:
    after = None if asked.rating is None else (asked.rating, asked.user)
    return Leaders(asked.ladder, await tables.leaders(asked.ladder, most=asked.limit, after=after))


async def rating(tables: Tables, visitor: Visitor, table: str, asked: OnLadder) -> RatingView:
    user = asked.user or visitor.user
    return RatingView(asked.ladder, user, await tables.rating(asked.ladder, user))


DEEDS: dict[str, TableOperation] = {
    "create": TableOperation(NewTable, Table, create),
    "list": TableOperation(TableList, TablePage, list_),
    "get": TableOperation(Nothing, Table, get),
    "join": TableOperation(JoinTable, Place, join),
    "leave": TableOperation(ByWhom, Place, leave),
    "watch": TableOperation(ByWhom, Place, watch),
    "ready": TableOperation(ByWhom, Place, ready),
    "place": TableOperation(ByWhom, Place, place),
    "waitlist": TableOperation(WaitlistQuery, WaitlistPage, waitlist),
    "alive": TableOperation(ByWhom, Alive, alive),
    "move": TableOperation(MoveAt, Moved, move),
    "result": TableOperation(GameResult, Ending, result),
    "pause": TableOperation(Nothing, Table, pause),
    "resume": TableOperation(Nothing, Table, resume),
    "close": TableOperation(Nothing, Table, close),
    "leaders": TableOperation(LeaderList, Leaders, leaders),
    "rating": TableOperation(OnLadder, RatingView, rating),
}


def acts(tables: Tables) -> Callable[[Visitor, ActFrame], Awaitable[Any]]:
    """What does it for connections. Raises `OncewardError`."""

    async def act(visitor: Visitor, asked: ActFrame) -> Any:
        deed = DEEDS.get(asked.do)
        if deed is None:
            raise BadInput(f"at tables one can {', '.join(DEEDS)}, not {asked.do[:50]!r}")
        body = parse(msgspec.json.encode(asked.body), deed.takes)
        return await deed.do(tables, visitor, asked.table, body)

    return act

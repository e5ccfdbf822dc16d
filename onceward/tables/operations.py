"""The operations of tables: one function each, for HTTP and WebSocket.

A function gets the tables, the caller, the path parameters, and the declared body or query. Callers
check the scope of the operation first, with `insist_on`.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from onceward.api import OPERATIONS
from onceward.api import tables as api
from onceward.api.operation import Body, Operation
from onceward.errors import BadInput, OncewardError
from onceward.observe.paging import page_of
from onceward.rooms.frames import Act
from onceward.rooms.session import Visitor
from onceward.strict_json import parse
from onceward.tables import waiter_key
from onceward.tables.records import admit_table
from onceward.tables.server import Tables

_LADDER = "tables"
"""The ladder of tables without a game."""

Function = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=Function)

FUNCTIONS: dict[str, Function] = {}
"""The functions, by the names of their operations."""


def answers(operation: Operation[Any]) -> Callable[[F], F]:
    """A decorator for the function of an operation."""

    def add(function: F) -> F:
        FUNCTIONS[operation.name] = function
        return function

    return add


def insist_on(visitor: Visitor, action: Literal["play", "table"], table: str) -> None:
    """Raise `not_allowed` for a caller without the scope `play` or `table`."""
    if not visitor.may(action, table):
        raise OncewardError(
            f"{visitor.name!r} lacks the scope {action}:{table[:100]}; use credentials with "
            "that scope",
            code="not_allowed",
        )


def _insist_on_lane(visitor: Visitor, table: str, lane: str) -> None:
    """Raise `not_allowed` for a caller without the scope of a lane.

    Lane names have no slash, so the last slash separates table and lane.
    """
    name = f"{table}/{lane}"
    if not (visitor.may("lane", name) or visitor.may("table", table)):
        raise OncewardError(
            f"{visitor.name!r} lacks the scope lane:{name[:200]}; use credentials with that scope",
            code="not_allowed",
        )


def _actor(visitor: Visitor, table: str, user: str) -> str:
    """The user on whose behalf the caller acts. Raises `not_allowed`."""
    if user not in ("", visitor.user):
        insist_on(visitor, "table", table)
    return user or visitor.user


@answers(api.CREATE)
async def create(tables: Tables, visitor: Visitor, asked: api.CreateTable) -> api.Table:
    id_ = asked.id or tables.new_id()
    admit_table(id_)
    insist_on(visitor, "table", id_)
    policy = tables.part.policy_of(asked.game, asked.policy)
    return await tables.create(
        id_, policy=policy, game=asked.game, by=visitor.user, meta=asked.meta
    )


@answers(api.LIST)
async def list_(tables: Tables, visitor: Visitor, asked: api.TablesQuery) -> api.TablePage:
    async def read(after: str, most: int) -> list[tuple[str, api.Table]]:
        found = await tables.find(prefix=asked.prefix, after=after, limit=most)
        return [(one.id, one) for one in found]

    return api.TablePage(
        *await page_of(
            tables.clock,
            read,
            lambda one: visitor.may("play", one.id),
            lambda one: asked.game in (UNSET, one.game) and asked.phase in (UNSET, one.phase),
            after=asked.after,
            limit=asked.limit,
        )
    )


@answers(api.GET)
async def get(tables: Tables, visitor: Visitor, table: str) -> api.Table:
    return await tables.get(table)


@answers(api.PLACE)
async def place(tables: Tables, visitor: Visitor, table: str, asked: api.PlaceQuery) -> api.Place:
    return await tables.place(table, _actor(visitor, table, asked.user))


@answers(api.WAITLIST)
async def waitlist(
    tables: Tables, visitor: Visitor, table: str, asked: api.WaitlistQuery
) -> api.WaitlistPage:
    public = not visitor.may("table", table)
    found = await tables.waitlist(table, after=asked.after, limit=asked.limit, public=public)
    next_ = waiter_key(found[-1]) if len(found) == asked.limit else None
    return api.WaitlistPage(table, found, next_)


@answers(api.JOIN)
async def join(tables: Tables, visitor: Visitor, table: str, asked: api.JoinTable) -> api.Place:
    user = _actor(visitor, table, asked.user)
    if asked.party:
        insist_on(visitor, "table", table)  # a party includes other users
    elif asked.lane and asked.lane != (await tables.get(table)).policy.lanes[-1]:
        _insist_on_lane(visitor, table, asked.lane)
    return await tables.join(table, user, lane=asked.lane, party=asked.party)


@answers(api.LEAVE)
async def leave(tables: Tables, visitor: Visitor, table: str, asked: api.ForUser) -> api.Place:
    return await tables.leave(table, _actor(visitor, table, asked.user))


@answers(api.WATCH)
async def watch(tables: Tables, visitor: Visitor, table: str, asked: api.ForUser) -> api.Place:
    return await tables.watch(table, _actor(visitor, table, asked.user))


@answers(api.READY)
async def ready(tables: Tables, visitor: Visitor, table: str, asked: api.ForUser) -> api.Place:
    return await tables.ready(table, _actor(visitor, table, asked.user))


@answers(api.HEARTBEAT)
async def heartbeat(
    tables: Tables, visitor: Visitor, table: str, asked: api.ForUser
) -> api.TableActivity:
    user = _actor(visitor, table, asked.user)
    await tables.heartbeat(table, [user])
    return api.TableActivity(table, user)


@answers(api.MOVE)
async def move(tables: Tables, visitor: Visitor, table: str, asked: api.MakeMove) -> api.MoveAnswer:
    user = _actor(visitor, table, asked.user)
    return api.MoveAnswer(await tables.move(table, user, asked.move, key=asked.key))


@answers(api.RESULT)
async def result(tables: Tables, visitor: Visitor, table: str, asked: api.GameResult) -> api.Ending:
    return await tables.result(table, asked.winners, game=asked.game)


@answers(api.PAUSE)
async def pause(tables: Tables, visitor: Visitor, table: str) -> api.Table:
    return await tables.pause(table)


@answers(api.RESUME)
async def resume(tables: Tables, visitor: Visitor, table: str) -> api.Table:
    return await tables.resume(table)


@answers(api.CLOSE)
async def close(tables: Tables, visitor: Visitor, table: str) -> api.Table:
    return await tables.close(table)


@answers(api.LEADERS)
async def leaders(
    tables: Tables, visitor: Visitor, ladder: str, asked: api.LeadersQuery
) -> api.Leaders:
    ladder = ladder or _LADDER
    after = None if asked.rating is UNSET else (asked.rating, asked.user)
    return api.Leaders(ladder, await tables.leaders(ladder, limit=asked.limit, after=after))


@answers(api.RATING)
async def rating(tables: Tables, visitor: Visitor, ladder: str, user: str) -> api.PlayerRating:
    ladder, user = ladder or _LADDER, user or visitor.user
    return api.PlayerRating(ladder, user, await tables.rating(ladder, user))


# Over WebSocket.


class _Call(NamedTuple):
    """An operation as called over a connection.

    The frame has the path parameter `id` as `table`; `body` has all other parameters, which are
    optional, and the body or query.
    """

    operation: Operation[Any]
    function: Function
    body: type[msgspec.Struct]

    @classmethod
    def of(cls, operation: Operation[Any]) -> "_Call":
        body = operation.body or operation.query or Body
        more = [(name, str, "") for name in operation.parameters if name != "id"]
        return cls(
            operation,
            FUNCTIONS[operation.name],
            msgspec.defstruct(body.__name__, more, bases=(body,)) if more else body,
        )

    async def run(self, tables: Tables, visitor: Visitor, asked: Act) -> Any:
        operation = self.operation
        if operation.enforced is not None:
            insist_on(visitor, operation.enforced[0], asked.table)  # type: ignore[arg-type]
        body = parse(msgspec.json.encode(asked.body), self.body)
        arguments: list[Any] = [
            asked.table if name == "id" else getattr(body, name) for name in operation.parameters
        ]
        if operation.body or operation.query:
            arguments.append(body)
        return await self.function(tables, visitor, *arguments)


_CALLS = {
    operation.verb: _Call.of(operation)
    for operation in OPERATIONS.values()
    if operation.noun == "tables"
}


def acts(tables: Tables) -> Callable[[Visitor, Act], Awaitable[Any]]:
    """A function that runs operations for connections. Raises `OncewardError`."""

    async def act(visitor: Visitor, asked: Act) -> Any:
        call = _CALLS.get(asked.do)
        if call is None:
            raise BadInput(
                f"unknown operation {asked.do[:50]!r} of tables; use one of {', '.join(_CALLS)}"
            )
        return await call.run(tables, visitor, asked)

    return act

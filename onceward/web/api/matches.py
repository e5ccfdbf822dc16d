"""Matches over HTTP: how one stands, for who may see it, and its log once it is over."""

from typing import TYPE_CHECKING

import msgspec

from onceward.errors import OncewardError
from onceward.store.transaction import Transaction
from onceward.tables.games import Entry, Match, View
from onceward.tables.referee import table_of
from onceward.web.http import Request, Response
from onceward.web.routes import Route

if TYPE_CHECKING:
    from onceward.web.server import Server


class MatchLog(msgspec.Struct):
    """What has happened in a match, from its beginning to its end."""

    match: str
    entries: list[Entry]


class Replay(msgspec.Struct):
    """A match as whoever looked on has seen it, at first and after each entry of its log."""

    match: str
    views: list[View]


async def get(server: "Server", request: Request) -> Response:
    """As the caller sees it: a player's own secrets are that player's."""
    name = server.caller(request).user

    async def fn(tx: Transaction) -> View:
        return server.app.games.view(await _known(server, request, tx), name)

    return Response.of(await server.app.store.run(fn))


async def log(server: "Server", request: Request) -> Response:
    async def fn(tx: Transaction) -> MatchLog:
        id_ = (await _known(server, request, tx)).begun.id
        return MatchLog(id_, await server.app.games.log(tx, id_))

    return Response.of(await server.app.store.run(fn))


async def replay(server: "Server", request: Request) -> Response:
    async def fn(tx: Transaction) -> Replay:
        id_ = (await _known(server, request, tx)).begun.id
        return Replay(id_, await server.app.games.replay(tx, id_))

    return Response.of(await server.app.store.run(fn))


async def _known(server: "Server", request: Request, tx: Transaction) -> Match:
    """The match in the path, if the caller plays in it, or may see the table where it is. Raises
    `NoSuchMatch`, `not_allowed`."""
    caller = server.caller(request)
    match = await server.app.games.get(tx, request.parameters["id"])
    table = table_of(match.begun.place)
    seen = table is not None and (caller.may("play", table) or caller.may("table", table))
    if (
        not seen
        and caller.user not in match.begun.players.values()
        and not caller.grants.everything
    ):
        raise OncewardError(f"{caller.name!r} may not see this match", code="not_allowed")
    return match


_OVER = ("no_such_match", "match_on", "no_such_game")

ROUTES = [
    Route(
        "GET",
        "/v1/matches/{id}",
        get,
        "A match as the caller sees it",
        gives=View,
        problems=("no_such_match", "no_such_game"),
    ),
    Route(
        "GET",
        "/v1/matches/{id}/log",
        log,
        "What has happened in a match that is over",
        gives=MatchLog,
        problems=_OVER,
    ),
    Route(
        "GET",
        "/v1/matches/{id}/replay",
        replay,
        "A match that is over, move by move",
        gives=Replay,
        problems=_OVER,
    ),
]

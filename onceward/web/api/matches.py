"""HTTP functions for matches: the view of a caller, and the log of finished ones."""

import msgspec

from onceward.api import matches as api
from onceward.errors import OncewardError
from onceward.store.transaction import Transaction
from onceward.tables.games import Match
from onceward.tables.referee import table_of
from onceward.web.calls import Call, binder
from onceward.web.routes import Route

ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.GET)
async def get(call: Call, id_: str) -> api.MatchView:
    async def fn(tx: Transaction) -> api.MatchView:
        return call.app.games.view(await _visible(call, tx, id_), call.caller.user)

    return await call.app.store.run(fn)


@answers(api.LOG)
async def log(call: Call, id_: str) -> api.MatchLog:
    async def fn(tx: Transaction) -> api.MatchLog:
        await _visible(call, tx, id_)
        return api.MatchLog(id_, msgspec.to_builtins(await call.app.games.log(tx, id_)))

    return await call.app.store.run(fn)


@answers(api.REPLAY)
async def replay(call: Call, id_: str) -> api.MatchReplay:
    async def fn(tx: Transaction) -> api.MatchReplay:
        await _visible(call, tx, id_)
        return api.MatchReplay(id_, await call.app.games.replay(tx, id_))

    return await call.app.store.run(fn)


async def _visible(call: Call, tx: Transaction, id_: str) -> Match:
    """A match, if the caller plays in it or can see its table. Raises `NoSuchMatch`,
    `not_allowed`."""
    caller = call.caller
    match = await call.app.games.get(tx, id_)
    table = table_of(match.begun.place)
    seen = table is not None and caller.may("play", table)
    plays = caller.user in match.begun.players.values()
    if not (seen or plays or caller.grants.everything):
        raise OncewardError(
            f"{caller.name!r} cannot see this match; use the credentials of a player",
            code="not_allowed",
        )
    return match

"""Tables over HTTP: made, found, joined and left; the same as over WebSocket."""

from typing import TYPE_CHECKING, Any

import msgspec

from onceward.errors import BadInput
from onceward.tables.operations import (
    DEEDS,
    Nothing,
    TableList,
    TablePage,
    WaitlistPage,
    WaitlistQuery,
)
from onceward.web.bodies import parse
from onceward.web.cursors import seal, unseal
from onceward.web.http import Request, Response
from onceward.web.routes import Handle, Route

if TYPE_CHECKING:
    from onceward.web.server import Server

_TABLE = ("no_such_table", "bad_name")
_OPEN = (*_TABLE, "table_closed")
_SEATED = (*_OPEN, "not_seated")


def _with_body(name: str) -> Handle:
    """What does a deed whose body comes as one."""
    deed = DEEDS[name]

    async def handle(server: "Server", request: Request) -> Response:
        caller = server.caller(request)
        raw = b"" if deed.takes is Nothing else await request.body()
        body = parse(raw, deed.takes) if raw else deed.takes()
        table = request.parameters.get("id", "")
        return Response.of(await deed.do(server.app.tables, caller, table, body))

    return handle


def _with_query(name: str) -> Handle:
    """What does a deed whose body comes as parameters of the address."""
    deed = DEEDS[name]
    names = deed.takes.__struct_fields__

    async def handle(server: "Server", request: Request) -> Response:
        caller = server.caller(request)
        given: dict[str, Any] = {**request.query(names), **request.parameters}
        table = given.pop("id", "")
        try:
            body = msgspec.convert(given, deed.takes, strict=False)
        except msgspec.ValidationError as error:
            raise BadInput(f"a parameter is not valid: {error}", code="bad_parameter") from error
        if isinstance(body, TableList | WaitlistQuery):
            body.after = unseal(server, request, "after", body.after)
        found = await deed.do(server.app.tables, caller, table, body)
        if isinstance(found, TablePage | WaitlistPage):
            found.next = seal(server, request, found.next)
        return Response.of(found)

    return handle


def _post(name: str, summary: str, *problems: str) -> Route:
    deed = DEEDS[name]
    return Route(
        "POST",
        f"/v1/tables/{{id}}/{name}",
        _with_body(name),
        summary,
        takes=None if deed.takes is Nothing else deed.takes,
        gives=deed.gives,
        problems=problems,
    )


ROUTES = [
    Route(
        "POST",
        "/v1/tables",
        _with_body("create"),
        "Make a table",
        takes=DEEDS["create"].takes,
        gives=DEEDS["create"].gives,
        problems=("bad_name", "bad_policy", "table_exists", "no_game", "value_too_large"),
    ),
    Route(
        "GET",
        "/v1/tables",
        _with_query("list"),
        "Tables by the beginning of their ids",
        gives=DEEDS["list"].gives,
        problems=("bad_name",),
        query=("prefix", "game", "phase", "after", "limit"),
    ),
    Route(
        "GET",
        "/v1/tables/{id}",
        _with_query("get"),
        "A table as it is",
        gives=DEEDS["get"].gives,
        problems=_TABLE,
    ),
    Route(
        "GET",
        "/v1/tables/{id}/place",
        _with_query("place"),
        "Where someone is at a table, and how long it will take",
        gives=DEEDS["place"].gives,
        problems=_TABLE,
        query=("user",),
    ),
    Route(
        "GET",
        "/v1/tables/{id}/waitlist",
        _with_query("waitlist"),
        "The waitlist of a table, in order",
        gives=DEEDS["waitlist"].gives,
        problems=_TABLE,
        query=("after", "limit"),
    ),
    _post("join", "Sit down, or stand in line", *_OPEN, "table_full"),
    _post("leave", "Get up, or out of the line", *_OPEN),
    _post("watch", "Be a spectator", *_OPEN, "table_full"),
    _post("ready", "Say that one is ready, or wants to play again", *_SEATED),
    _post("alive", "Give a sign of life", *_TABLE),
    _post(
        "move",
        "Make a move, which the referee judges",
        *(
            *_SEATED,
            "no_game",
            "not_your_turn",
            "bad_move",
            "out_of_time",
            "table_paused",
            "bad_key",
            "key_reused",
        ),
    ),
    _post("result", "End the game that is on", *_SEATED, "no_game", "other_game"),
    _post("pause", "Stop all clocks, and seat nobody", *_OPEN),
    _post("resume", "Go on after a pause", *_OPEN),
    _post("close", "End a table for everyone", *_TABLE),
    Route(
        "GET",
        "/v1/ladders/{ladder}",
        _with_query("leaders"),
        "The best players",
        gives=DEEDS["leaders"].gives,
        problems=("bad_name",),
        query=("limit", "rating", "user"),
    ),
    Route(
        "GET",
        "/v1/ladders/{ladder}/{user}",
        _with_query("rating"),
        "How well someone plays",
        gives=DEEDS["rating"].gives,
        problems=("bad_name",),
    ),
]

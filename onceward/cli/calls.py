"""Calls of a server: connection, options of all calls, and pages of lists."""

import argparse
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from onceward.api.arguments import arguments
from onceward.api.operation import Operation
from onceward.cli.parser import Parser
from onceward.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from onceward.cli.client import RecordingClient

SERVER = "http://localhost:8080"
# Long enough for a server that is being restarted.
_PATIENCE_S = 5.0
CURSORS = ("after", "since")


def add_server_options(parser: Parser) -> None:
    """Add the options of all commands that call a server."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server",
        metavar="URL",
        default=os.environ.get("ONCEWARD_SERVER", SERVER),
        help=f"Address of the server, or ONCEWARD_SERVER [{SERVER}]",
    )
    group.add_argument(
        "--api-key",
        metavar="KEY",
        default=os.environ.get("ONCEWARD_KEY"),
        help="API key or token, or ONCEWARD_KEY",
    )
    group.add_argument("--json", action="store_true", help="Print the response as JSON")


def connect(
    run: Callable[["RecordingClient"], Awaitable[Any]], namespace: argparse.Namespace
) -> Any:
    """Run a function with a client; returns its result."""
    import asyncio  # here: these take long to load

    from onceward.cli.client import RecordingClient

    async def connected() -> Any:
        options = {"key": namespace.api_key, "patience_s": _PATIENCE_S}
        async with RecordingClient(namespace.server, **options) as client:
            return await run(client)

    try:
        return asyncio.run(connected())
    except Unavailable as error:
        if not error.message.startswith("cannot connect"):
            raise
        hint = "Start it with `onceward serve`."
        raise Unavailable(f"{error.message}. {hint}", code=error.code) from error


async def call(client: "RecordingClient", operation: Operation[Any], given: dict[str, Any]) -> Any:
    """Call an operation; returns the response. Pages of a list are joined up to `limit`."""
    cursor = cursor_of(operation)
    if cursor is None:
        return await _one(client, operation, given)
    sizes = [one.default for one in arguments(operation) if one.name == "limit"]
    limit = given.get("limit", sizes[0]) if sizes else None
    if limit is not None and limit < 1:
        raise BadInput(f"--limit is {limit}; use 1 or more", code="wrong_type")
    items: list[Any] = []
    while True:
        size = {} if limit is None else {"limit": min(limit - len(items), sizes[0])}
        page = await _one(client, operation, given | size)
        member = next(name for name in page.__struct_fields__ if type(getattr(page, name)) is list)
        items += getattr(page, member)
        if page.next is None or (limit is not None and len(items) >= limit):
            setattr(page, member, items)
            return page
        given = given | {cursor: page.next}


def cursor_of(operation: Operation[Any]) -> str | None:
    """The argument that continues a list; None if the operation has no pages."""
    names = getattr(operation.query, "__struct_fields__", ())
    members = get_type_hints(operation.response) if operation.response is not None else {}
    # A count can be continued as well, and has no entries to join.
    pages = "next" in members and any(get_origin(one) is list for one in members.values())
    return next((name for name in CURSORS if pages and name in names), None)


async def _one(client: "RecordingClient", operation: Operation[Any], given: dict[str, Any]) -> Any:
    """Call the method of the client; returns the whole response."""
    await getattr(getattr(client, operation.noun), operation.verb)(**given)
    return client.response

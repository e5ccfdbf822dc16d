"""Commands for console sessions."""

import argparse
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from onceward.cli.calls import add_command, print_json, shown_time
from onceward.cli.display import console
from onceward.errors import BadInput

if TYPE_CHECKING:
    from onceward.client import Client


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    group = commands.add_parser(
        "sessions",
        help="list and revoke sessions at the console",
        description="List and revoke sessions at the console. A revoked session ends at once, on "
        "all nodes.",
    )
    actions = group.add_subparsers(metavar="ACTION", required=True)
    found = add_command(actions, "list", _list, "list sessions", "onceward sessions list")
    found.add_argument("--everyone", action="store_true", help="those of all callers")
    revoke = add_command(
        actions,
        "revoke",
        _revoke,
        "end sessions",
        "onceward sessions revoke --all --caller key:ann",
    )
    revoke.add_argument("id", metavar="ID", nargs="?", help="the session, as `list` shows it")
    revoke.add_argument("--all", action="store_true", help="all sessions of the caller")
    revoke.add_argument("--caller", help="whose sessions, such as key:ann (your own)")


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    sessions: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        query = {"everyone": "true", "after": after} if arguments.everyone else {}
        page = await client.call("GET", "v1", "sessions", query=query, type=dict[str, Any])
        sessions += page["sessions"]
        after = page["next"]
    if arguments.json:
        return print_json({"sessions": sessions})
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2))
    for column in ("id", "caller", "since", "until", "browser"):
        table.add_column(column, overflow="fold", no_wrap=column == "id")
    for one in sessions:
        times = (shown_time(one["created_ms"]), shown_time(one["until_ms"]))
        table.add_row(one["id"], Text(one["caller"]), *times, Text(one["agent"]))
    console().print(table)
    return 0


async def _revoke(client: "Client", arguments: argparse.Namespace) -> int:
    if (arguments.id is None) is not arguments.all:
        raise BadInput("name a session by its ID, or give --all")
    path = ("v1", "sessions") if arguments.all else ("v1", "sessions", arguments.id)
    query = {} if arguments.caller is None else {"caller": arguments.caller}
    revoked = await client.call("DELETE", *path, query=query, type=dict[str, int])
    if arguments.json:
        return print_json(revoked)
    count = revoked["sessions"]
    print("1 session revoked" if count == 1 else f"{count:,} sessions revoked")
    return 0

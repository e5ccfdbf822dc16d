"""Commands for tables."""

import argparse
from typing import TYPE_CHECKING, Any

from onceward import limits
from onceward.cli.calls import (
    add_command,
    add_command_for_one,
    add_group,
    print_entry,
    print_facts,
    print_json,
    read_json,
    shown_time,
)
from onceward.errors import BadInput

if TYPE_CHECKING:
    from onceward.client import Client, Place, Table, Waiter


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    actions = add_group(commands, "tables", "manage tables", "onceward tables show corner")
    list_ = add_command(actions, "list", _list, "list tables", "onceward tables list")
    list_.add_argument("--prefix", default="", help="ID prefix")
    list_.add_argument("--limit", type=int, default=50, help="maximum number [50]")
    new = add_command(
        actions,
        "create",
        _create,
        "create a table",
        'onceward tables create --id corner --policy \'{"kind": "speed"}\'',
    )
    new.add_argument("--id", help="table ID [generated]")
    new.add_argument("--policy", default="{}", help="policy as JSON [{}]")
    new.add_argument("--game", default="", help="name of the game")
    for name, run, help_ in (
        ("show", _show, "show a table, its seats and the waitlist size"),
        ("pause", _pause, "pause a table"),
        ("resume", _resume, "resume a table"),
        ("close", _close, "close a table"),
    ):
        add_command_for_one(actions, name, run, help_, f"onceward tables {name} corner")
    waitlist = add_command_for_one(
        actions,
        "waitlist",
        _waitlist,
        "list the waitlist of a table",
        "onceward tables waitlist corner",
    )
    waitlist.add_argument("--limit", type=int, default=50, help="maximum number [50]")
    for name, run, help_ in (
        ("join", _join, "seat a user or add them to the waitlist"),
        ("leave", _leave, "remove a user from a table"),
        ("place", _place, "show the seat or position of a user"),
    ):
        one = add_command_for_one(
            actions, name, run, help_, f"onceward tables {name} corner --user ann"
        )
        one.add_argument("--user", default="", help="user [owner of the API key]")
        if name == "join":
            one.add_argument("--lane", default="", help="lane of the waitlist [last lane]")
    result = add_command_for_one(
        actions, "result", _result, "end the current game", "onceward tables result corner ann"
    )
    result.add_argument("winners", metavar="WINNER", nargs="*", help="winners; none for a draw")
    leaders = add_command(
        actions, "leaders", _leaders, "list the top players", "onceward tables leaders chess"
    )
    leaders.add_argument("ladder", metavar="LADDER", nargs="?", default="tables")
    leaders.add_argument("--limit", type=int, default=20, help="maximum number [20]")


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    _admit_limit(arguments.limit)
    found: list[Table] = []
    after: str | None = ""
    while after is not None and len(found) < arguments.limit:
        page = await client.tables.list(
            prefix=arguments.prefix or "",
            after=after,
            limit=min(arguments.limit - len(found), limits.LIST_MAX),
        )
        found, after = found + page.tables, page.next
    if arguments.json:
        return print_json(found)
    if not found:
        print("no matching tables" if arguments.prefix else "no tables")
    for table in found:
        told = [_phase(table), f"{table.waiting:,} waiting"]
        print_entry(table.id, told, [("seats", _seats(table))])
    if after is not None:
        print(f"There are more than {arguments.limit}.")
    return 0


async def _create(client: "Client", arguments: argparse.Namespace) -> int:
    policy = read_json(arguments.policy, "the policy")
    if not isinstance(policy, dict):
        raise BadInput(
            "the policy is not a JSON object; use --policy '{\"max_wins\": 3}'", code="bad_policy"
        )
    table = await client.tables.create(id=arguments.id or "", policy=policy, game=arguments.game)
    if arguments.json:
        return print_json(table)
    print(f"Created {table.id}")
    return 0


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.tables.get(arguments.id), arguments)


async def _pause(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.tables.pause(arguments.id), arguments)


async def _resume(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.tables.resume(arguments.id), arguments)


async def _close(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.tables.close(arguments.id), arguments)


async def _join(client: "Client", arguments: argparse.Namespace) -> int:
    place = await client.tables.join(arguments.id, user=arguments.user, lane=arguments.lane)
    return _print_place(place, arguments)


async def _leave(client: "Client", arguments: argparse.Namespace) -> int:
    return _print_place(await client.tables.leave(arguments.id, user=arguments.user), arguments)


async def _place(client: "Client", arguments: argparse.Namespace) -> int:
    return _print_place(await client.tables.place(arguments.id, user=arguments.user), arguments)


async def _waitlist(client: "Client", arguments: argparse.Namespace) -> int:
    _admit_limit(arguments.limit)
    found: list[Waiter] = []
    after: str | None = ""
    while after is not None and len(found) < arguments.limit:
        left = min(arguments.limit - len(found), limits.LIST_MAX)
        page = await client.tables.waitlist(arguments.id, after=after, limit=left)
        found, after = found + page.waitlist, page.next
    if arguments.json:
        return print_json(found)
    if not found:
        print("The waitlist is empty.")
    for waiter in found:
        names = ", ".join(waiter.users) or f"{waiter.size:,} without a name"
        print_entry(f"{waiter.position}. {names}", [waiter.lane, shown_time(waiter.since_ms)], [])
    if after is not None:
        print(f"There are more than {arguments.limit}.")
    return 0


async def _result(client: "Client", arguments: argparse.Namespace) -> int:
    game = (await client.tables.get(arguments.id)).number
    ended = await client.tables.result(arguments.id, winners=arguments.winners, game=game)
    if arguments.json:
        return print_json(ended)
    won = f"won by {', '.join(ended.winners)}" if ended.winners else "a draw"
    print(f"Ended game {ended.number}: {won}")
    return 0


async def _leaders(client: "Client", arguments: argparse.Namespace) -> int:
    _admit_limit(arguments.limit)
    found = await client.tables.leaders(
        arguments.ladder, limit=min(arguments.limit, limits.LIST_MAX)
    )
    if arguments.json:
        return print_json(found)
    if not found:
        print("No players yet.")
    for rank, leader in enumerate(found, 1):
        told = [f"{leader.rating:,}", f"{leader.games:,} games", f"{leader.won:,} won"]
        print_entry(f"{rank}. {leader.user}", told, [])
    return 0


def _admit_limit(limit: int) -> None:
    if limit < 1:
        raise BadInput(f"--limit is {limit}; use 1 or more")


def _print(table: "Table", arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json(table)
    print_facts(
        [
            ("table", table.id),
            ("state", _phase(table)),
            ("game", f"{table.game} {table.number}".strip()),
            ("seats", _seats(table)),
            ("waiting", f"{table.waiting:,}"),
            ("spectators", f"{table.spectators:,}"),
            ("kind", table.policy.kind),
            ("made", shown_time(table.created_ms)),
        ]
    )
    return 0


def _print_place(place: "Place", arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json(place)
    told = {
        "seated": f"plays at {place.table} as {place.marker}",
        "waiting": f"is number {place.position} in the waitlist of {place.table}, "
        f"about {place.wait_ms / 1_000:.0f} s to wait",
        "watching": f"is watching {place.table}",
        "": f"is not at {place.table}",
    }
    print(f"{place.user} {told[place.role]}")
    return 0


def _phase(table: "Table") -> str:
    why = f": {table.paused_why}" if table.paused_why else ""
    return f"paused{why}" if table.paused else table.phase


def _seats(table: "Table") -> str:
    return ", ".join(
        f"{marker}: {'empty' if seat is None else seat.user}"
        for marker, seat in table.seats.items()
    )

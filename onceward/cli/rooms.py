"""Commands for rooms."""

import argparse
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from onceward import limits
from onceward.api.rooms import Schemas
from onceward.cli.calls import (
    add_command,
    add_command_for_one,
    add_group,
    given,
    print_entry,
    print_facts,
    print_json,
    read_json,
    shown_time,
)
from onceward.cli.display import console

if TYPE_CHECKING:
    from onceward.client import Client, ListedRoom, RoomEntry, RoomInfo


_OPERATION = """ '{"op": "map.set", "map": "m", "key": "k", "value": 1}'"""


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    actions = add_group(
        commands, "rooms", "make rooms and look into them", "onceward rooms list --prefix board."
    )
    list_ = add_command(
        actions, "list", _list, "list rooms", """onceward rooms list --meta '{"team": "a"}'"""
    )
    list_.add_argument("--prefix", help="those whose ids begin with this")
    list_.add_argument("--meta", help="JSON: those whose metadata have these members")
    list_.add_argument("--limit", type=int, default=50, help="so many (50)")
    create = add_command(
        actions, "create", _create, "make a room", "onceward rooms create board.7 --capacity 20"
    )
    create.add_argument("id", metavar="ID", nargs="?", help="made up, if none is given")
    _add_settings(create)
    configure, _, _, _, state, history, change = [
        add_command_for_one(actions, name, run, help_, f"onceward rooms {name} board.7{more}")
        for name, run, help_, more in (
            ("configure", _configure, "change settings of a room", " --capacity 50"),
            ("show", _show, "show a room's settings, and where it is", ""),
            ("delete", _delete, "delete a room with all that is in it", ""),
            ("members", _members, "show who is in a room", ""),
            ("state", _state, "show all that is in a room", ""),
            ("history", _history, "show the steps of a room", " --since 100"),
            ("change", _change, "change a room by operations that take effect as one", _OPERATION),
        )
    ]
    _add_settings(configure)
    state.add_argument("--at", type=int, help="as it was at this sequence number")
    history.add_argument("--since", type=int, help="those behind this sequence number")
    history.add_argument("--limit", type=int, default=50, help="so many (50)")
    change.add_argument("ops", metavar="OPERATION", nargs="+", help="JSON, as on the wire")


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--meta", help="JSON: what it can be found by")
    command.add_argument("--schemas", help="JSON: schemas of its maps, lists and presences")
    command.add_argument("--capacity", type=int, help="users at a time [10,000]")
    command.add_argument("--per-user", type=int, help="connections of each user [100]")
    command.add_argument("--keep", type=int, help="how many steps back it can be seen")


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {"capacity": arguments.capacity, "keep": arguments.keep}
    settings["per_user"] = arguments.per_user
    for name in ("meta", "schemas"):
        text = getattr(arguments, name)
        settings[name] = None if text is None else read_json(text, f"what {name} says")
    return settings


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    meta = None if arguments.meta is None else read_json(arguments.meta, "what meta says")
    found: list[ListedRoom] = []
    after: str | None = ""
    while after is not None and len(found) < arguments.limit:
        page = await client.rooms.list(
            prefix=arguments.prefix or "",
            meta=meta,
            after=after,
            limit=min(arguments.limit - len(found), limits.LIST_MAX),
        )
        found, after = found + page.rooms, page.next
    if arguments.json:
        return print_json(found)
    if not found:
        print("there are no such rooms" if arguments.prefix or meta else "no rooms")
        return 0
    for room in found:
        told = (f"made {shown_time(room.created_ms)}", f"by {room.by}")
        print_entry(room.id, told, [("meta", _json(room.meta) if room.meta else "")])
    if after is not None:
        print(f"There are more than {arguments.limit}.")
    return 0


async def _create(client: "Client", arguments: argparse.Namespace) -> int:
    room = await client.rooms.create(**given(id=arguments.id, **_settings(arguments)))
    if arguments.json:
        return print_json(room)
    print(f"{room.id} is made")
    return 0


async def _configure(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.rooms.update(arguments.id, **_settings(arguments)), arguments)


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.rooms.get(arguments.id), arguments)


async def _delete(client: "Client", arguments: argparse.Namespace) -> int:
    await client.rooms.delete(arguments.id)
    return print_json({"id": arguments.id}) if arguments.json else _said(arguments, "is deleted")


async def _members(client: "Client", arguments: argparse.Namespace) -> int:
    members = await client.rooms.members(arguments.id)
    if arguments.json:
        return print_json(members)
    if not members:
        return _said(arguments, "has nobody in it")
    print_facts([(member.user, member.id or "created it, not joined yet") for member in members])
    return 0


async def _state(client: "Client", arguments: argparse.Namespace) -> int:
    # Only JSON can show it all.
    return print_json(await client.rooms.snapshot(arguments.id, **given(at=arguments.at)))


async def _history(client: "Client", arguments: argparse.Namespace) -> int:
    steps: list[RoomEntry] = []
    since: int | None = arguments.since
    while len(steps) < arguments.limit:
        limit = min(arguments.limit - len(steps), limits.LIST_MAX)
        page = await client.rooms.history(arguments.id, limit=limit, **given(since=since))
        steps, since = steps + page.entries, page.next
        if since is None:
            break
    if arguments.json:
        return print_json(steps)
    if not steps:
        return _said(arguments, "has no such steps")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for column in ("seq", "at", "by", "operations"):
        table.add_column(column, overflow="fold")
    for step in steps:
        shown = " ".join(_json(does) for does in step.ops)
        table.add_row(str(step.seq), shown_time(step.at_ms), Text(step.by), Text(shown))
    console().print(table)
    if since is not None:
        print(f"There are more: --since {since}")
    return 0


async def _change(client: "Client", arguments: argparse.Namespace) -> int:
    ops = [read_json(text, "an operation") for text in arguments.ops]
    seq = (await client.rooms.apply(arguments.id, ops)).seq
    if arguments.json:
        return print_json({"id": arguments.id, "seq": seq})
    return _said(arguments, f"is at {seq}" if seq is not None else "was changed before")


def _print(room: "RoomInfo", arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json(room)
    print_facts(
        [
            ("room", room.id),
            ("made", f"{shown_time(room.created_ms)} by {room.by}"),
            ("epoch", room.epoch),
            ("seq", f"{room.seq} (it can be seen as it was from {room.floor} on)"),
            ("capacity", f"{room.capacity:,} users, {room.per_user:,} connections each"),
            ("metadata", _json(room.meta) if room.meta else ""),
            ("schemas", _json(room.schemas) if room.schemas != Schemas() else ""),
        ]
    )
    return 0


def _said(arguments: argparse.Namespace, what: str) -> int:
    print(f"{arguments.id} {what}")
    return 0


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

"""Commands for endpoints."""

import argparse
from typing import TYPE_CHECKING, Any

from onceward import limits
from onceward.cli.calls import (
    add_command,
    add_command_for_one,
    add_group,
    add_retry,
    given,
    print_entry,
    print_facts,
    print_json,
    read_headers,
    read_retry,
    shown_time,
)
from onceward.errors import BadInput

if TYPE_CHECKING:
    from onceward.client import Client, Endpoint


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    actions = add_group(
        commands,
        "endpoints",
        "keep endpoints that timers call, and their secrets",
        "onceward endpoints make https://example.com/hook --id shop",
    )
    add_command(actions, "list", _list, "list endpoints", "onceward endpoints list")
    make = add_command(
        actions,
        "make",
        _make,
        "make an endpoint",
        "onceward endpoints make https://example.com/hook --id shop",
    )
    make.add_argument("url", metavar="URL")
    make.add_argument("--id", help="made up, if none is given")
    make.add_argument("--secret", help="whsec_… to sign with; made up, if none is given")
    change = add_command_for_one(
        actions,
        "change",
        _change,
        "change some of an endpoint",
        "onceward endpoints change shop --disable",
    )
    change.add_argument("--url")
    able = change.add_mutually_exclusive_group()
    able.add_argument("--disable", action="store_true", help="let calls to it fail at once")
    able.add_argument("--enable", action="store_true", help="call it again")
    for command in (make, change):
        command.add_argument("--description")
        command.add_argument(
            "--header", action="append", metavar="NAME:VALUE", help="sent with every call"
        )
        add_retry(command)
    show = add_command_for_one(
        actions, "show", _show, "show an endpoint", "onceward endpoints show shop --secret"
    )
    show.add_argument("--secret", action="store_true", help="with its secrets")
    rotate = add_command_for_one(
        actions, "rotate", _rotate, "sign with a new secret", "onceward endpoints rotate shop"
    )
    rotate.add_argument("--secret", help="whsec_…; made up, if none is given")
    rotate.add_argument(
        "--overlap-s",
        type=float,
        default=86_400.0,
        help="how long the one before signs, too (a day)",
    )
    for name, run, help_ in (
        ("test", _test, "send a signed test call"),
        ("remove", _remove, "forget an endpoint"),
    ):
        add_command_for_one(actions, name, run, help_, f"onceward endpoints {name} shop")


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    found: list[Endpoint] = []
    async for one in client.endpoints.iterate(limit=limits.LIST_MAX):
        found.append(one)
    if arguments.json:
        return print_json(found)
    if not found:
        print("there are no endpoints")
        return 0
    for endpoint in found:
        print_entry(endpoint.id, [_health(endpoint)], [("url", endpoint.url)])
    return 0


async def _make(client: "Client", arguments: argparse.Namespace) -> int:
    endpoint = await client.endpoints.create(
        arguments.url,
        **given(
            id=arguments.id,
            secret=arguments.secret,
            description=arguments.description,
            headers=read_headers(arguments.header),
        ),
        **read_retry(arguments),
    )
    return _print(endpoint, arguments)


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.endpoints.get(arguments.id, secret=arguments.secret), arguments)


async def _change(client: "Client", arguments: argparse.Namespace) -> int:
    changes = {
        "url": arguments.url,
        "description": arguments.description,
        "headers": read_headers(arguments.header),
        "disabled": arguments.disable if arguments.disable or arguments.enable else None,
        **read_retry(arguments),
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if not changes:
        options = "--url, --header, --description, --disable, --enable, --retry-pauses-s"
        raise BadInput(f"nothing to change: give at least one of {options}")
    return _print(await client.endpoints.update(arguments.id, **changes), arguments)


async def _rotate(client: "Client", arguments: argparse.Namespace) -> int:
    endpoint = await client.endpoints.rotate(
        arguments.id, overlap_s=arguments.overlap_s, secret=arguments.secret
    )
    return _print(endpoint, arguments)


async def _test(client: "Client", arguments: argparse.Namespace) -> int:
    timer = await client.endpoints.test(arguments.id)
    if arguments.json:
        return print_json(timer)
    print(f"a test call is under way: onceward timers show {timer.id}")
    return 0


async def _remove(client: "Client", arguments: argparse.Namespace) -> int:
    await client.endpoints.delete(arguments.id)
    if arguments.json:
        return print_json({"id": arguments.id})
    print(f"{arguments.id} is removed")
    return 0


def _print(endpoint: "Endpoint", arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json(endpoint)
    facts = [
        ("endpoint", endpoint.id),
        ("url", endpoint.url),
        ("description", endpoint.description),
        ("made", shown_time(endpoint.created_ms)),
        ("health", _health(endpoint)),
        ("paused", _pause(endpoint)),
        *[("header", f"{name}: {value}") for name, value in endpoint.headers.items()],
    ]
    for secret in endpoint.secrets or []:
        until = "" if secret.until_ms is None else f" until {shown_time(secret.until_ms)}"
        facts.append(("secret", secret.secret + until))
    print_facts(facts)
    return 0


def _pause(endpoint: "Endpoint") -> str:
    if endpoint.pause is None:
        return ""
    return f"{endpoint.pause.failures} calls in a row got no answer; one call at a time"


def _health(endpoint: "Endpoint") -> str:
    health = endpoint.health
    if endpoint.disabled:
        return "disabled"
    if endpoint.suspended:
        return "suspended: its secrets need a server key that the server does not have"
    if health.since_ms is None:
        return "well"
    state = "failing" if health.failing else "well"
    return f"{state} since {shown_time(health.since_ms)}: {health.said}"

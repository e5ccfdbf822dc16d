"""Commands for messages, jobs and queues of a running server."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from onceward import limits
from onceward.cli.calls import (
    add_command,
    print_entry,
    print_facts,
    print_json,
    read_json,
    shown_settlement,
    shown_time,
)
from onceward.cli.display import Display, console
from onceward.errors import BadInput, NoSuchJob

if TYPE_CHECKING:
    from onceward.client import Client, Job, Queue

_STATES = (
    *("scheduled", "queued", "running", "retrying"),
    *("succeeded", "failed", "in_doubt", "cancelled"),
)
# Shown also when there are none.
_MAIN_STATES = ("queued", "running", "succeeded", "failed")
# By hand, since the queues themselves take long to load.
QUEUE_SETTINGS = (
    *("limit", "limit_per_key", "rate", "attempts_max", "retry_first_s", "retry_max_s"),
    *("failed_blocks", "failure_queue", "key_fields", "fingerprint", "mismatch"),
    *("key_retention_s", "job_retention_s", "depth_max", "fair"),
)


def add_commands(commands: Any) -> None:
    """Add them to the parser."""
    send = add_command(
        commands,
        "send",
        _send,
        "send a message",
        'onceward send orders \'{"item": "lamp"}\' --key order-1042',
    )
    send.add_argument("queue", metavar="QUEUE")
    send.add_argument("body", metavar="BODY", help="JSON; - reads it from standard input")
    send.add_argument("--key", help="what is the same message: sent again, it takes effect once")
    send.add_argument("--delay-s", type=float, help="delay in seconds")
    send.add_argument("--order-key", help="what must not overtake each other")
    send.add_argument("--priority", type=int, help="0 comes first; 5 is usual")
    send.add_argument("--wait-s", type=float, default=0.0, help="wait so long for the result")

    queues = add_command(
        commands, "queues", _queues, "list queues, or change one", "onceward queues orders --pause"
    )
    queues.add_argument("queue", metavar="QUEUE", nargs="?")
    change = queues.add_mutually_exclusive_group()
    change.add_argument("--pause", action="store_true", help="hand out no jobs")
    change.add_argument("--resume", action="store_true", help="hand them out again")
    change.add_argument("--purge", action="store_true", help="cancel all jobs that wait")
    change.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE",
        help=f"a setting, the value as JSON: {', '.join(QUEUE_SETTINGS)}",
    )
    queues.add_argument("--yes", action="store_true", help="do not ask before a purge")

    jobs = add_command(commands, "jobs", _jobs, "show a job, or cancel it", "onceward jobs 01HF…")
    jobs.add_argument("id", metavar="ID")
    jobs.add_argument("--wait-s", type=float, default=0.0, help="wait so long for its end")
    jobs.add_argument("--cancel", action="store_true", help="end it")

    dead = add_command(
        commands,
        "dead",
        _dead,
        "list dead letters, or redrive them",
        "onceward dead orders --redrive",
    )
    dead.add_argument("queue", metavar="QUEUE")
    dead.add_argument("--redrive", action="store_true", help="let them try again")
    dead.add_argument("--id", help="only this one")
    dead.add_argument("--reason", help="only those whose reason contains this")
    dead.add_argument("--limit", type=int, default=50, help="list so many (50)")

    settle = add_command(
        commands,
        "settle",
        _settle,
        "say what became of a step in doubt",
        "onceward settle 01HF… pull --not-done",
    )
    settle.add_argument("id", metavar="ID", help="the job's: `onceward dead QUEUE` lists them")
    settle.add_argument("step", metavar="STEP", help="its name, which the reason says")
    verdict = settle.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--done", metavar="RESULT", help="it was done, with this result, as JSON")
    verdict.add_argument("--not-done", action="store_true", help="it was not: it is tried again")
    settle.add_argument("--reason", default="", help="How you found out; kept on the record")

    add_command(
        commands,
        "console",
        _console,
        "make a link that opens the console, once and within the hour",
        "onceward console",
    )

    clock = add_command(
        commands,
        "clock",
        _clock,
        "show the time of a server, or confirm its clock",
        "onceward clock --confirm",
    )
    clock.add_argument(
        "--confirm", action="store_true", help="believe a clock that is far ahead (clock_ahead)"
    )

    locks = add_command(
        commands, "locks", _locks, "show who holds a lock and who waits", "onceward locks printer"
    )
    locks.add_argument("name", metavar="NAME")


async def _send(client: "Client", arguments: argparse.Namespace) -> int:
    text = sys.stdin.read() if arguments.body == "-" else arguments.body
    options = {name: getattr(arguments, name) for name in ("delay_s", "order_key", "priority")}
    receipt = await client.send(
        arguments.queue,
        read_json(text, "the body"),
        key=arguments.key,
        **{name: value for name, value in options.items() if value is not None},
    )
    if arguments.wait_s:
        job = await client.jobs.wait(receipt.id, arguments.wait_s)
        receipt.state, receipt.result, receipt.reason = job.state, job.result, job.reason
    if arguments.json:
        return print_json(receipt)
    again = "was accepted before" if receipt.duplicate else "is accepted"
    print(f"{receipt.id} {again} and is {receipt.state}")
    if receipt.state == "succeeded":
        print(msgspec.json.format(msgspec.json.encode(receipt.result)).decode())
    elif receipt.reason:
        print(receipt.reason)
    return 0


async def _clock(client: "Client", arguments: argparse.Namespace) -> int:
    found = await (client.server.confirm_clock() if arguments.confirm else client.server.clock())
    if arguments.json:
        return print_json(found)
    print(f"{shown_time(found.now_ms)}")
    if found.held:
        print(
            f"The clock shows {shown_time(found.wall_ms)}, which is not believed: it is far ahead "
            "of the last commit. If it is right, run `onceward clock --confirm`."
        )
    return 0


async def _queues(client: "Client", arguments: argparse.Namespace) -> int:
    name = arguments.queue
    if name is None:
        if arguments.pause or arguments.resume or arguments.purge or arguments.set:
            raise BadInput("name the queue that is to be changed")
        found = await client.queues.list()
    elif arguments.purge:
        return await _purge(client, arguments)
    elif arguments.pause:
        found = [await client.queues.pause(name)]
    elif arguments.resume:
        found = [await client.queues.resume(name)]
    elif arguments.set:
        found = [await client.queues.configure(name, **_assignments(arguments.set))]
    else:
        found = [await client.queues.get(name)]
    if arguments.json:
        return print_json(found)
    _print_queues(found)
    return 0


def _print_queues(queues: "list[Queue]") -> None:
    if not queues:
        print("there are no queues yet")
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("queue", overflow="fold")
    found = {state for queue in queues for state, count in queue.jobs.items() if count}
    states = [state for state in _STATES if state in found or state in _MAIN_STATES]
    for state in states:
        table.add_column(state, justify="right", no_wrap=True)
    settings = [_settings_text(msgspec.to_builtins(queue.settings)) for queue in queues]
    if any(settings):
        table.add_column("settings", overflow="fold")
    for queue, text in zip(queues, settings, strict=True):
        counts = [f"{queue.jobs.get(state, 0):,}" for state in states]
        table.add_row(Text(queue.name), *counts, *([Text(text)] if any(settings) else []))
    console().print(table)
    counted = max(queue.counted_ms or 0 for queue in queues)
    print(f"counted at {shown_time(counted)}" if counted else "jobs have not been counted yet")


def _settings_text(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in settings.items())


def _plain(value: Any) -> str:
    """A value as one would write it for `--set`."""
    return msgspec.json.encode(value).decode()


async def _purge(client: "Client", arguments: argparse.Namespace) -> int:
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise BadInput("to cancel all jobs that wait, say --yes")
        print(f"Cancel all jobs of {arguments.queue} that wait? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return 1
    with Display(quiet=arguments.json) as display:
        changed = await client.queues.purge_all(
            arguments.queue, progress=lambda done: display.show("cancelled", done, None)
        )
    return _print_count(changed.jobs, "cancelled", arguments)


async def _jobs(client: "Client", arguments: argparse.Namespace) -> int:
    if arguments.cancel:
        await client.jobs.cancel(arguments.id)
    job = await client.jobs.get(arguments.id)
    if arguments.wait_s and not job.ended:
        job = await client.jobs.wait(arguments.id, arguments.wait_s)
    if arguments.json:
        return print_json(job)
    _print_job(job)
    return 0


def _print_job(job: "Job") -> None:
    attempts = f"{job.attempt} of {job.attempts_max or 'any number'}"
    facts = [
        ("job", job.id),
        ("queue", job.queue),
        ("state", job.state),
        ("key", job.key or ""),
        ("order key", job.order_key or ""),
        ("sent", shown_time(job.created_ms)),
        ("due", shown_time(job.due_ms) if job.due_ms else ""),
        ("ended", shown_time(job.ended_ms) if job.ended_ms else ""),
        ("attempts", attempts),
        ("worker", job.worker),
        ("reason", job.reason),
        ("body", msgspec.json.encode(job.body).decode()),
        ("result", msgspec.json.encode(job.result).decode() if job.state == "succeeded" else ""),
    ]
    for past in job.history:
        text = f"{shown_time(past.ended_ms)} {past.worker}: {past.reason}"
        facts.append((f"attempt {past.attempt}", text))
    facts += [(f"settled {one.step}", shown_settlement(one)) for one in job.settled]
    print_facts(facts)


async def _dead(client: "Client", arguments: argparse.Namespace) -> int:
    if arguments.redrive:
        return await _redrive(client, arguments)
    if arguments.id is not None:
        jobs, more = [await _dead_letter(client, arguments)], False
    else:
        jobs, more = await _find_dead(client, arguments)
    if arguments.json:
        return print_json(jobs)
    if not jobs:
        such = "" if arguments.reason is None else "such "
        print(f"{arguments.queue} has no {such}dead letters")
        return 0
    _print_dead(jobs)
    if more:
        print(f"There are more than {arguments.limit}.")
    return 0


def _print_dead(jobs: "list[Job]") -> None:
    for job in jobs:
        times = "once" if job.attempt == 1 else f"{job.attempt} times"
        told = (job.state, shown_time(job.ended_ms), f"tried {times}")
        print_entry(job.id, told, [("key", job.key or ""), ("reason", job.reason)])


async def _find_dead(client: "Client", arguments: argparse.Namespace) -> tuple["list[Job]", bool]:
    """The first dead letters, of those with the reason asked for, and whether there are more."""
    found: list[Job] = []
    start: str | None = ""
    limit, reason = arguments.limit, arguments.reason or ""
    while True:
        page = min(limit, limits.LIST_MAX)
        failed = await client.queues.failed(arguments.queue, after=start or "", limit=page)
        start = failed.next
        found += [job for job in failed.jobs if reason in job.reason]
        if start is None or len(found) > limit:
            return found[:limit], len(found) > limit


async def _dead_letter(client: "Client", arguments: argparse.Namespace) -> "Job":
    """The one that was named; raises `NoSuchJob`, also if it is of another queue."""
    job = await client.jobs.get(arguments.id)
    if job.queue != arguments.queue:
        raise NoSuchJob(f"{arguments.queue!r} has no job {arguments.id}")
    return job


async def _redrive(client: "Client", arguments: argparse.Namespace) -> int:
    if arguments.id is not None:
        await _dead_letter(client, arguments)
        count, held = 1, int(bool((await client.jobs.retry(arguments.id)).in_doubt))
    else:
        with Display(quiet=arguments.json) as display:
            changed = await client.queues.redrive_all(
                arguments.queue,
                reason=arguments.reason,
                progress=lambda done: display.show("redriven", done, None),
            )
        count, held = changed.jobs, changed.in_doubt
    if arguments.json:
        return print_json({"jobs": count, "in_doubt": held})
    _print_count(count, "redriven", arguments)
    if held:
        print(
            f"{held:,} of them had a step in doubt. If the handler cannot find out what "
            "became of it, the job is in doubt again:\n"
            f"list it with `onceward dead {arguments.queue}`, and settle it with `onceward settle`."
        )
    return 0


async def _settle(client: "Client", arguments: argparse.Namespace) -> int:
    done = not arguments.not_done
    result = read_json(arguments.done, "the result") if done else None
    await client.jobs.settle(
        arguments.id, arguments.step, done=done, result=result, reason=arguments.reason
    )
    job = await client.jobs.get(arguments.id)
    if arguments.json:
        return print_json(job)
    said = "was done" if done else "was not done"
    print(f"{arguments.id}: {arguments.step} {said}, and the job is {job.state}")
    return 0


async def _locks(client: "Client", arguments: argparse.Namespace) -> int:
    lock = await client.locks.get(arguments.name)
    if arguments.json:
        return print_json(lock)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for column in ("", "owner", "since", "token or place"):
        table.add_column(column, overflow="fold")
    for what, people in (("holds", lock.holders), ("waits", lock.waiters)):
        for one in people:
            table.add_row(what, Text(one.owner), shown_time(one.since_ms), str(one.number))
    waiting = "1 waits" if lock.waiting == 1 else f"{lock.waiting:,} wait"
    print(f"{lock.name}: {lock.held:,} of {lock.capacity:,} held, {waiting}")
    if lock.holders or lock.waiters:
        console().print(table)
    return 0


async def _console(client: "Client", arguments: argparse.Namespace) -> int:
    found: dict[str, str] = await client.call("POST", "v1", "session", "link", type=dict[str, str])
    address = f"{arguments.server.rstrip('/')}/console#enter={found['link']}"
    if arguments.json:
        return print_json({"address": address})
    print(address)
    return 0


def _assignments(texts: list[str]) -> dict[str, Any]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"a setting is NAME=VALUE, not {text!r}")
        if name not in QUEUE_SETTINGS:
            raise BadInput(f"unknown setting {name!r}; known: {', '.join(QUEUE_SETTINGS)}")
        found[name] = read_json(value, name)
    return found


def _print_count(count: int, what: str, arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json({"jobs": count})
    print("1 job" if count == 1 else f"{count:,} jobs", what)
    return 0

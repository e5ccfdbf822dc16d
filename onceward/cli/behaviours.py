"""Commands that do more than one call: waits, bulk changes with progress, confirmations."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward.api import jobs, messages, sessions
from onceward.api.jobs import ENDED, ClaimedJobs, Job
from onceward.api.messages import Receipt
from onceward.api.queues import ChangedJobs
from onceward.cli.calls import add_server_options, call, connect
from onceward.cli.display import Display, print_json
from onceward.cli.job_report import JobReport, report
from onceward.cli.options import read_json
from onceward.cli.parser import Parser
from onceward.errors import BadInput

if TYPE_CHECKING:
    from onceward.cli.client import RecordingClient


# Exit codes of commands that wait. 2 and 64 to 78 are errors.
_NOT_SUCCEEDED = 1
_NOT_IN_TIME = 3
_WAITED = (
    f"With --wait-s, the exit code is 0 if the job has succeeded, {_NOT_SUCCEEDED} if it has "
    f"failed, was cancelled or is in doubt, and {_NOT_IN_TIME} if it has not ended in time."
)


class Behaviour(NamedTuple):
    """A command that does more than one call of its operation, or has special exit codes."""

    run: Callable[["RecordingClient", dict[str, Any], argparse.Namespace], Awaitable[Any]] | None
    """Returns the response to print. None: one call of the operation."""
    add: Callable[[Parser], None] | None = None
    """Adds options."""
    hides: tuple[str, ...] = ()
    """Arguments of the operation that are no options."""
    exit: Callable[[Any], int] | None = None
    """The exit code for a response, if the command has waited."""
    exits: str = ""
    """A sentence about its exit codes."""


def _job_exit(found: Receipt | Job | JobReport) -> int:
    if found.state == "succeeded":
        return 0
    return _NOT_SUCCEEDED if found.state in ENDED else _NOT_IN_TIME


def _claim_exit(found: ClaimedJobs) -> int:
    return 0 if found.jobs else _NOT_IN_TIME


async def _send(client: "RecordingClient", given: dict[str, Any], _: argparse.Namespace) -> Receipt:
    wait_s = given.pop("wait_s", 0.0)
    receipt: Receipt = await call(client, messages.SEND, given)
    if wait_s:
        job = await client.jobs.wait(receipt.id, wait_s)
        receipt.state, receipt.result, receipt.reason = job.state, job.result, job.reason
    return receipt


async def _get_job(
    client: "RecordingClient", given: dict[str, Any], namespace: argparse.Namespace
) -> Job | JobReport:
    job = await client.jobs.wait(given["id"], given.get("wait_s", 0.0))
    return job if namespace.json else await report(client, job)


def _add_settle(parser: Parser) -> None:
    verdict = parser.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--done", metavar="RESULT", help="The step was done; its result as JSON")
    verdict.add_argument("--not-done", action="store_true", help="The step was not done; rerun it")


async def _settle(
    client: "RecordingClient", given: dict[str, Any], namespace: argparse.Namespace
) -> Any:
    given["done"] = not namespace.not_done
    if given["done"]:
        given["result"] = read_json(namespace.done, "--done")
    return await call(client, jobs.SETTLE, given)


async def _redrive(
    client: "RecordingClient", given: dict[str, Any], namespace: argparse.Namespace
) -> ChangedJobs:
    with Display(quiet=namespace.json) as display:
        progress = partial(display.show, "Retried", total=None)
        return await client.queues.redrive_all(**given, progress=progress)


def _add_purge(parser: Parser) -> None:
    parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation")


async def _purge(
    client: "RecordingClient", given: dict[str, Any], namespace: argparse.Namespace
) -> ChangedJobs:
    question = f"Cancel all waiting jobs in {given['queue']!r}?"
    if not namespace.yes:
        if not sys.stdin.isatty():
            raise BadInput(f"{question} Confirm with --yes")
        print(f"{question} [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise SystemExit(1)
    with Display(quiet=namespace.json) as display:
        progress = partial(display.show, "Cancelled", total=None)
        return await client.queues.purge_all(**given, progress=progress)


def fill_console(parser: Parser) -> None:
    """Add the options of `onceward console`."""
    parser.description = "Create a link that signs in to the console, once and within an hour."
    add_server_options(parser)
    parser.set_defaults(run=_console)


def _console(namespace: argparse.Namespace) -> int:
    found = connect(lambda client: call(client, sessions.LINK, {}), namespace)
    address = f"{namespace.server.rstrip('/')}/console#enter={found.link}"
    if namespace.json:
        return print_json({"address": address})
    print(address)
    return 0


BEHAVIOURS = {
    "messages.send": Behaviour(_send, exit=_job_exit, exits=_WAITED),
    "jobs.get": Behaviour(_get_job, exit=_job_exit, exits=_WAITED),
    "jobs.claim": Behaviour(
        None,
        exit=_claim_exit,
        exits=f"With --wait-s, the exit code is {_NOT_IN_TIME} if there was no job in time.",
    ),
    "jobs.settle": Behaviour(_settle, _add_settle, ("done", "result")),
    "queues.redrive": Behaviour(_redrive, hides=("after",)),
    "queues.purge": Behaviour(_purge, _add_purge, ("after",)),
}

EXAMPLES = {
    "messages.send": 'onceward send orders \'{"item": "lamp"}\' --key order-1042',
    "messages.send_many": 'onceward messages send-many orders \'{"body": 1, "key": "a"}\'',
    "jobs.list": "onceward jobs list --queue orders --state failed",
    "jobs.get": "onceward jobs get 01HF… --wait-s 10",
    "jobs.retry": "onceward jobs retry 01HF…",
    "jobs.settle": "onceward jobs settle 01HF… pay --not-done",
    "queues.configure": "onceward queues configure orders --attempts-max 3 --key-retention-s 86400",
    "queues.failed": "onceward queues failed orders",
    "queues.redrive": "onceward queues redrive orders --reason timeout",
    "queues.purge": "onceward queues purge orders --yes",
    "locks.acquire": "onceward locks acquire printer --lease-s 30 --wait-s 5",
    "timers.create": "onceward timers create --url https://example.com/hook --delay-s 60",
    "timers.move": "onceward timers move reminder-7 --delay-s 3600",
    "timers.update": "onceward timers update report --cron '0 9 * * MON-FRI' --overlap skip",
    "endpoints.create": "onceward endpoints create https://example.com/hook --id shop",
    "endpoints.update": "onceward endpoints update shop --disabled",
    "endpoints.rotate": "onceward endpoints rotate shop",
    "rooms.list": 'onceward rooms list --meta \'{"team": "a"}\'',
    "rooms.create": "onceward rooms create --id board.7 --capacity 20",
    "rooms.apply": (
        'onceward rooms apply board.7 \'{"op": "map.set", "map": "m", "key": "k", "value": 1}\''
    ),
    "tables.create": "onceward tables create --id corner --policy-kind speed",
    "tables.join": "onceward tables join corner --user ann",
    "tables.result": "onceward tables result corner --winner ann",
    "keys.create": "onceward keys create billing 'send:invoices.*' lock:billing",
    "sessions.revoke_all": "onceward sessions revoke-all --caller key:ann",
}

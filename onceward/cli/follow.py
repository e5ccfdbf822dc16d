"""The command `onceward jobs follow`: progress and the stream of a job, until it ends."""

import argparse
import re
import sys
from typing import TYPE_CHECKING

import msgspec

from onceward.api.job_updates import JobUpdate
from onceward.cli.calls import add_server_options, connect
from onceward.cli.display import printable
from onceward.cli.parser import Parser

if TYPE_CHECKING:
    from onceward.cli.client import RecordingClient

HELP = "Follow the progress and the stream of a job"
EXAMPLE = "onceward jobs follow 01HF…"


def fill_follow(parser: Parser) -> None:
    """Add the options of `onceward jobs follow`."""
    parser.description = (
        "Print the stream of a job, and its progress and states to standard error, until the job "
        "ends. The exit code is 0 if it has succeeded, and 1 otherwise."
    )
    parser.add_argument("id", metavar="ID", help="The id of the job")
    parser.add_argument(
        "--after", metavar="N", type=int, default=0, help="Continue after this position [0]"
    )
    add_server_options(parser)
    parser.set_defaults(run=_follow)


def _follow(namespace: argparse.Namespace) -> int:
    async def run(client: "RecordingClient") -> str:
        shown = _Shown(as_json=namespace.json)
        async for update in client.jobs.follow(namespace.id, after=namespace.after):
            shown.show(update)
        return update.state

    return 0 if connect(run, namespace) == "succeeded" else 1


class _Shown:
    """What a terminal shows: chunks of text one after the other, all else on lines of its own."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._inside = False
        """Whether a line of text is not complete."""

    def show(self, update: JobUpdate) -> None:
        if self._as_json:
            print(msgspec.json.encode(update).decode(), flush=True)
            return
        if update.kind == "chunk" and isinstance(update.value, str):
            text = re.sub(r"[^\n\t]+", lambda found: printable(found[0]), update.value)
            print(text, end="", flush=True)
            self._inside = not text.endswith("\n") if text else self._inside
            return
        self._end_line()
        if update.kind == "chunk":
            print(msgspec.json.encode(update.value).decode(), flush=True)
        else:
            print(_note(update), file=sys.stderr, flush=True)

    def _end_line(self) -> None:
        if self._inside:
            print(flush=True)
            self._inside = False


def _note(update: JobUpdate) -> str:
    if update.kind == "progress":
        return printable(f"{update.progress or 0:.0%} {update.text}".rstrip())
    if update.kind == "restart":
        return f"The stream starts again in attempt {update.attempt}"
    state = update.state.replace("_", " ")
    return printable(f"State: {state}{', ' if update.reason else ''}{update.reason}")

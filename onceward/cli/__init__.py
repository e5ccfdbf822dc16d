"""The `onceward` command: its parser, subcommands and exit codes.

Results go to standard output, progress and errors to standard error. An error is one line,
`onceward: what failed [code]`. Exit codes are in `onceward.errors.TABLE`.
"""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from onceward import __version__
from onceward.cli.display import complain
from onceward.cli.operations import add_commands
from onceward.cli.parser import Fill, Parser
from onceward.errors import TABLE, OncewardError
from onceward.extras import missing

_EXIT_INTERRUPTED = 128 + signal.SIGINT
_EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
_EXIT_TERMINATED = 128 + signal.SIGTERM

# Commands that call no server: the module and the function that add their arguments.
_LOCAL = {
    "dev": ("Run an application, and reload it on changes", "dev.fill"),
    "serve": ("Run the server", "serve.fill_serve"),
    "work": ("Run the handlers of an application", "serve.fill_work"),
    "simulate": ("Prove that an application survives faults", "simulate.fill"),
    "config": ("List the settings of the server", "serve.fill_config"),
    "token": ("Create an API key, or sign a token", "serve.fill_token"),
    "server-key": ("Create or replace the server key", "server_key.fill"),
    "db": ("Inspect, back up and check database files", "database.fill"),
    "outbox": ("Create the outbox in a database of your application", "outbox.fill"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    try:
        with _terminable():
            arguments = make_parser().parse_args(argv)
            code: int = arguments.run(arguments)
            sys.stdout.flush()
            return code
    except OncewardError as error:
        complain(str(error))
        return error.kind.exit
    except ModuleNotFoundError as error:
        if (needed := missing(error)) is None:
            raise
        complain(f"this needs {needed} [bad_settings]")
        return TABLE["bad_settings"].exit
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of the output is gone. Drop the rest of the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1


def make_parser() -> Parser:
    """The parser of all commands. Each adds its arguments on first use; `complete_all` adds all."""
    own = {*range(65, 75), 76}
    exits = {kind.exit: code for code, kind in TABLE.items() if kind.exit in own}
    parser = Parser(
        "onceward",
        description="Run a server for durable jobs, locks, timers, rooms and tables, or call one.",
    )
    parser.epilog = (
        "An error is one line on standard error that ends with its code. Exit codes: 0 success, "
        "1 the job has not succeeded (--wait-s), 2 wrong usage, 3 not ended in time (--wait-s), "
        "75 try again, 77 not allowed, 78 wrong settings, "
        + ", ".join(f"{number} {code}" for number, code in sorted(exits.items()))
        + "."
    )
    version = f"onceward {__version__}"
    parser.add_argument("--version", action="version", version=version, help="Show the version")
    for name, (help_, place) in _LOCAL.items():
        parser.add_command(name, help_, _filler(place), section="run a server")
    add_commands(parser)
    return parser


def _filler(place: str) -> Fill:
    """A function of a module that is loaded on first use."""
    module, _, function = place.partition(".")

    def fill(parser: Parser) -> None:
        getattr(importlib.import_module(f"{__name__}.{module}"), function)(parser)

    return fill


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end the command as Ctrl-C does, so that temporary files are removed."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(_EXIT_TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

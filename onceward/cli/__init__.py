"""The `onceward` command: its parser, subcommands and exit codes.

Results go to standard output, progress and errors to standard error. An error is one
line, `onceward: what happened [code]`; its exit code stands beside the code in
`onceward.errors.TABLE`.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from onceward import __version__
from onceward.cli.complaints import complain
from onceward.errors import TABLE, OncewardError
from onceward.extras import missing
from onceward.redaction import redact

_EXIT_INTERRUPTED = 128 + signal.SIGINT
_EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
_EXIT_TERMINATED = 128 + signal.SIGTERM


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    try:
        with _terminable():
            arguments = _parser().parse_args(argv)
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
        # Whoever read the output has gone. What is still buffered goes nowhere, quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1


class _Parser(argparse.ArgumentParser):
    """Quotes wrong arguments without the credentials in them."""

    def error(self, message: str) -> NoReturn:
        super().error(redact(message))


def _parser() -> argparse.ArgumentParser:
    # Here, since they need packages that may not be installed.
    from onceward.cli import (
        endpoints,
        files,
        remote,
        rooms,
        serve,
        server_key,
        sessions,
        tables,
        timers,
    )

    own = {*range(65, 75), 76}
    exits = {kind.exit: code for code, kind in TABLE.items() if kind.exit in own}
    parser = _Parser(
        prog="onceward",
        description="Once. In order. On time.",
        epilog="An error is one line on standard error that ends with its code. Exit codes: 0 "
        "fine, 2 wrong usage, 75 try again, 77 not allowed, 78 wrong settings, "
        + ", ".join(f"{number} {code}" for number, code in sorted(exits.items()))
        + ".",
    )
    parser.add_argument("--version", action="version", version=f"onceward {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    serve.add_commands(commands)
    server_key.add_commands(commands)
    sessions.add_commands(commands)
    remote.add_commands(commands)
    timers.add_commands(commands)
    endpoints.add_commands(commands)
    rooms.add_commands(commands)
    tables.add_commands(commands)
    files.add_commands(commands)
    names = ", ".join(commands.choices)
    parser.set_defaults(run=lambda _: parser.error(f"say what to do: {names}"))
    return parser


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the command the way Ctrl-C does: nothing half-made is left behind."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(_EXIT_TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread alone
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

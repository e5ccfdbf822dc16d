"""Command lines of the applications: one-line errors, exit codes, and results as tables or JSON."""

import argparse
import signal
import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any, NoReturn

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onceward import OncewardError

_EXIT_INTERRUPTED = 128 + signal.SIGINT
# For output that is not a terminal.
_WIDTH = 100


def run(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> int:
    """Parse a command line and call its `run`; returns the exit code. SIGTERM is handled like
    Ctrl-C, so that child processes and temporary folders are removed."""
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        arguments = parser.parse_args(argv)
        code: int = arguments.run(arguments)
        return code
    except OncewardError as error:
        print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return error.kind.exit
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def console() -> Console:
    """Prints tables to standard output."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)


def print_json(value: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line, without the empty ones."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts:
        if fact:
            table.add_row(name, Text(fact))
    console().print(table)

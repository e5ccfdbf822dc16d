"""Run the demonstration: all applications on one server, with a landing page.

python -m apps.demo --port 8081
"""

import argparse
import asyncio
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from apps import command
from apps.demo.stage import Stage
from apps.demo.storm import Plan
from onceward import BadInput, Clock, Ids, OncewardError

_APPLICATIONS, _APPLICATIONS_MAX = 60, 500
_KEY_BYTES = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    demo = argparse.ArgumentParser(
        prog="apps.demo",
        description="Run a server with five applications and two workers on this machine. "
        "Try them on its page: play, create a timer, share a board. Then kill a worker, send every "
        "message ten times, or kill the server. Counters outside the server show lost and "
        "duplicate effects. Press Ctrl-C to stop.",
        epilog="example: python -m apps.demo --port 8081",
    )
    demo.add_argument(
        "--port", type=int, default=8080, help="Port of the page; 0: any free port [8080]"
    )
    demo.add_argument("--folder", help="Folder for data and logs [temporary]")
    demo.add_argument(
        "--traffic",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Generate orders, timers, bots and cursors from the start",
    )
    demo.add_argument(
        "--applications",
        type=int,
        default=_APPLICATIONS,
        metavar="N",
        help=f"Number of credit applications of the storm [{_APPLICATIONS}]",
    )
    demo.set_defaults(run=_demo)
    return command.run(demo, argv)


def _demo(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.applications <= _APPLICATIONS_MAX:
        raise BadInput(
            f"--applications must be 1 to {_APPLICATIONS_MAX}, not {arguments.applications}"
        )
    with ExitStack() as stack:
        if arguments.folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="onceward-demo-")))
        else:
            folder = _made(arguments.folder)
        port = _free_port(arguments.port)
        plan = Plan(applications=arguments.applications)
        key = Ids(Clock().now_ms).token(_KEY_BYTES) if arguments.folder is None else ""
        stage = Stage(port, folder, traffic=arguments.traffic, plan=plan, server_key=key)
        asyncio.run(_show(stage))
        print(f"Stopped: {stage.summary()}")
    return 0


def _free_port(port: int) -> int:
    """Return the port, or a free one for 0. Raises `bad_settings` if it is in use."""
    try:
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", port))
            listening.listen()
            found: int = listening.getsockname()[1]
            return found
    except (OSError, OverflowError) as error:
        raise OncewardError(
            f"cannot listen on 127.0.0.1:{port}: {error}; select another port with --port "
            "(or make demo PORT=8081)",
            code="bad_settings",
        ) from error


def _made(folder: str) -> Path:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OncewardError(f"cannot use --folder: {error}", code="bad_settings") from error
    return Path(folder)


async def _show(stage: Stage) -> None:
    """Run until SIGINT or SIGTERM."""

    def announce(url: str, link: str) -> None:
        print(f"Open {url} in a browser: five applications to try, and to break.")
        print(f"  {link} opens the console, once")
        print(f"  {url}/docs shows the API; press Ctrl-C to stop", flush=True)

    def announce_again(link: str) -> None:
        print(f"The server has restarted: {link} opens the console, once", flush=True)

    running = asyncio.create_task(stage.run(announce, announce_again))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()


if __name__ == "__main__":
    sys.exit(main())

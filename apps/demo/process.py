"""The child processes of the demonstration: the server and workers.

    python -m apps.demo.process server
    python -m apps.demo.process worker NAME

Each prints one line when it is ready. It stops on a signal, or when its parent is gone.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence
from time import sleep

from apps.demo.settings import Settings, load
from onceward import OncewardError

_LOOK_S = 0.5
_DRAIN_S = 1.0


def main(arguments: Sequence[str]) -> int:
    """Run one of the processes; returns the exit code."""
    role, *rest = arguments
    try:
        settings = load(os.environ)
        threading.Thread(target=_watch, args=(settings.parent,), daemon=True).start()
        if role == "server":
            _serve(settings)
        else:
            _work(settings, *rest)
    except OncewardError as error:
        sys.stderr.write(f"{error}\n")
        return error.kind.exit
    return 0


def _watch(parent: int) -> None:
    """End this process when its parent is gone, including after a crash."""
    while os.getppid() == parent:
        sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(settings: Settings) -> None:
    from onceward.web import Settings as ServerSettings
    from onceward.web import run_server  # imported here because workers do not need it

    links: list[str] = []
    served = ServerSettings(
        app="apps.demo.served:app",
        port=settings.port,
        drain_s=_DRAIN_S,
        log_level="warning",
    )
    run_server(served, lambda url: _say(links[0]), links.append)


def _work(settings: Settings, name: str) -> None:
    from apps.demo.worker import work

    async def run() -> None:
        working = asyncio.create_task(work(settings, name, lambda: _say(name)))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
        await asyncio.wait([working])
        if not working.cancelled():
            working.result()

    asyncio.run(run())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

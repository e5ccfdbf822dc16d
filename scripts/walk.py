"""Counts the code that one request runs: files, functions, and switches between files.

    python -m scripts.walk          # the figures
    python -m scripts.walk --list   # and each path, in order

Two walks are measured, on SQLite, after requests that fill caches:

- message: `app.send` of a message with a key, until the result of its handler is committed
- HTTP accept: a request that sends such a message with an API key, from its bytes to those of the
  response, on a connection of the server; its queue has no handler

Only functions of the package count. A switch is a call or the resumption of a coroutine in another
file than the one before it, on the same thread. The script reports the request with the shortest
path: others may contain work of the node that belongs to no request.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import msgspec
import uvicorn
from uvicorn.server import ServerState

import onceward
from onceward.engine.base import Delete, Put
from onceward.engine.sqlite import SQLiteEngine
from onceward.web.auth import ApiKey, Auth, digest_of
from onceward.web.protocol import Protocol
from onceward.web.server import Server

ROOT = Path(onceward.__file__).parent
# Enough to use each partition of the schedule and of the inbox.
WARM, MEASURED = 1_500, 100
# Parts of the function that contains them.
INNER = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


class Walk(NamedTuple):
    """The functions that one request ran."""

    path: list[CodeType]
    """Functions in the order of calls and resumptions, one thread after the other."""

    @property
    def files(self) -> int:
        return len({code.co_filename for code in self.path})

    @property
    def functions(self) -> int:
        return len(set(self.path))

    @property
    def switches(self) -> int:
        files = [code.co_filename for code in self.path]
        return sum(one != other for one, other in pairwise(files))

    def lines(self) -> list[str]:
        return [f"{Path(c.co_filename).relative_to(ROOT)}:{c.co_qualname}" for c in self.path]


class Recorder:
    """Records the functions that run, on all threads that start while it is installed."""

    def __init__(self) -> None:
        self._paths: dict[int, list[CodeType]] | None = None
        self._ours: dict[CodeType, bool] = {}

    def install(self) -> None:
        threading.setprofile(self._saw)
        sys.setprofile(self._saw)

    def remove(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def start(self) -> None:
        self._paths = {}

    def stop(self) -> Walk:
        assert self._paths is not None
        paths, self._paths = self._paths, None
        return Walk([code for path in paths.values() for code in path])

    def _saw(self, frame: FrameType, event: str, arg: Any) -> None:
        paths = self._paths
        if paths is None or event != "call":
            return
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            inside = Path(code.co_filename).is_relative_to(ROOT)
            ours = self._ours[code] = inside and code.co_name not in INNER
        if ours:
            paths.setdefault(threading.get_ident(), []).append(code)


class Transport(asyncio.Transport):
    """A connection whose other end is this script."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "socket": self})
        self.written: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        assert bytes(data).startswith(b"HTTP/1.1 202"), bytes(data)
        self.written()

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def write_eof(self) -> None: ...

    def abort(self) -> None: ...


def engine_in(folder: Path, name: str) -> SQLiteEngine:
    """An engine that treats every disk as fast; for slow ones it would write in a thread."""
    return SQLiteEngine(str(folder / name), elapsed_ns=lambda: 0)


async def repeated(one: Callable[[int], Awaitable[Walk]]) -> Walk:
    """The shortest of several walks, after some that fill caches."""
    walks = []
    for number in range(WARM + MEASURED):
        walk = await one(number)
        if number >= WARM:
            walks.append(walk)
            await asyncio.sleep(0.01)  # for work that follows a request
    return min(walks, key=lambda walk: (walk.functions, walk.switches))


async def walk_message(recorder: Recorder, folder: Path) -> Walk:
    app = onceward.App(engine_in(folder, "message.db"))

    @app.handler("orders")
    async def handle(job):  # type: ignore[no-untyped-def]  # plain JSON, without types
        return "done"

    async with app:

        async def one(number: int) -> Walk:
            ended = asyncio.get_running_loop().create_future()

            def saw(write: Put | Delete) -> None:
                if type(write) is Put and msgspec.json.decode(write.value)["stage"] == "succeeded":
                    ended.set_result(recorder.stop())

            unhook = app.store.on_change("job", saw)
            recorder.start()
            await app.send("orders", {"number": number}, key=f"message-{number}")
            walk: Walk = await ended
            unhook()
            return walk

        return await repeated(one)


async def walk_http(recorder: Recorder, folder: Path) -> Walk:
    key = "ow_" + "x" * 43
    auth = Auth([ApiKey("shop", digest_of(key), ("send:orders",))])
    app = onceward.App(engine_in(folder, "http.db"))
    async with Server(app, auth) as server:
        config = uvicorn.Config(server, lifespan="off", log_config=None, proxy_headers=False)
        config.load()
        protocol, transport = Protocol(config, ServerState(), {}), Transport()
        protocol.connection_made(transport)

        async def one(number: int) -> Walk:
            answered = asyncio.get_running_loop().create_future()
            transport.written = lambda: answered.set_result(recorder.stop())
            body = b'{"key": "message-%d", "body": {"number": %d}}' % (number, number)
            data = (
                b"POST /v1/inbox/orders HTTP/1.1\r\nHost: localhost\r\n"
                b"Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (key.encode(), len(body), body)
            )
            recorder.start()
            protocol.get_buffer(-1)[: len(data)] = data
            protocol.buffer_updated(len(data))
            walk: Walk = await answered
            return walk

        walk = await repeated(one)
        protocol.connection_lost(None)
        return walk


def measure() -> dict[str, Walk]:
    """Both walks."""
    recorder = Recorder()
    recorder.install()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return {
                "message": asyncio.run(walk_message(recorder, Path(folder))),
                "HTTP accept": asyncio.run(walk_http(recorder, Path(folder))),
            }
    finally:
        recorder.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the code that one request runs.")
    parser.add_argument("--list", action="store_true", help="print each path, in order")
    arguments = parser.parse_args()
    print(f"{'walk':<14}{'files':>8}{'functions':>12}{'switches':>12}")
    walks = measure()
    for name, walk in walks.items():
        print(f"{name:<14}{walk.files:>8}{walk.functions:>12}{walk.switches:>12}")
    for name, walk in walks.items() if arguments.list else ():
        print(f"\n{name}\n")
        for number, line in enumerate(walk.lines(), 1):
            print(f"{number:>5} {line}")


if __name__ == "__main__":
    main()
